package planner_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// threeSteps is a plan whose first two steps are done and whose third failed.
func threeSteps(t testing.TB) *runv1.ReplanWork {
	t.Helper()
	base, found := plan.Read([]byte(`{"goal":"g","steps":[`+stepDoc("s1", "1")+","+stepDoc("s2", `{"$ref":"steps.s1.result.x"}`)+","+stepDoc("s3", "3")+`]}`), plan.Environment{AnyTool: true})
	if plan.HasErrors(found) {
		t.Fatal(found)
	}
	base.Version = 2
	state := func(id string, s runv1.StepStatus, result string) *runv1.StepState {
		st := &runv1.StepState{StepId: id, Status: s}
		if result != "" {
			st.Result = &runv1.Value{Value: &runv1.Value_Inline{Inline: &planv1.JsonText{Text: result}}}
		}
		return st
	}
	return &runv1.ReplanWork{
		RequestId: "replan-1", Attempt: 1, Spec: goal("g"), Plan: base, StepId: "s3", Scope: runv1.ReplanScope_REPLAN_SCOPE_REMAINING,
		Error: &runv1.Error{Code: "check_failed", Message: "sold out"},
		Steps: []*runv1.StepState{
			state("s1", runv1.StepStatus_STEP_STATUS_SUCCEEDED, `{"x":9007199254740993}`), state("s2", runv1.StepStatus_STEP_STATUS_SUCCEEDED, `{"x":2}`),
			state("s3", runv1.StepStatus_STEP_STATUS_REPLANNING, ""),
		},
	}
}

func stepDoc(id, x string) string {
	return fmt.Sprintf(`{"id":%q,"objective":"o","action":{"kind":"tool","name":"echo","arguments":{"x":%s}}}`, id, x)
}

func (w *world) replan(r *runv1.ReplanWork) *runv1.Report {
	w.t.Helper()
	w.send(&runv1.Work{RunId: "r1", Body: &runv1.Work_Replan{Replan: r}})
	return w.report()
}

func TestCase70_WholePlanBecomesAPatchThatKeepsWhatIsDone(t *testing.T) {
	fresh := stepDoc("s3", `{"$ref":"steps.s2.result.x"}`)
	for name, tc := range map[string]struct {
		answer          string
		errors          string
		add, update     string
		remove, patched string
	}{
		"done steps repeated":                {answer: `{"steps":[` + stepDoc("s1", "1") + "," + stepDoc("s2", `{"$ref":"steps.s1.result.x"}`) + "," + fresh + `]}`, update: "s3"},
		"done steps in other words":          {answer: `{"steps":[` + strings.ReplaceAll(stepDoc("s1", "1"), `"o"`, `"said better"`) + "," + stepDoc("s2", `{"$ref":"steps.s1.result.x"}`) + "," + fresh + `]}`, update: "s3"},
		"the same plan again":                {answer: `{"steps":[` + stepDoc("s1", "1") + "," + stepDoc("s2", `{"$ref":"steps.s1.result.x"}`) + "," + stepDoc("s3", "3") + `]}`, update: "s3"},
		"the failed step again, and another": {answer: `{"steps":[` + stepDoc("s3", "3") + "," + stepDoc("s4", "4") + `]}`, add: "s4", update: "s3"},
		"done steps left out":                {answer: `{"steps":[` + fresh + `]}`, update: "s3"},
		"a new step for the one that failed": {answer: `{"steps":[` + stepDoc("s4", "4") + `]}`, add: "s4", remove: "s3"},
		"other arguments under a done id":    {answer: `{"steps":[` + stepDoc("s1", "7") + "," + fresh + `]}`, errors: "step_immutable", update: "s1 s3"},
		"no steps and no answer":             {answer: `{"steps":[]}`, errors: "empty_plan"},
		"patch on an older version":          {answer: `{"base_version":1,"update":[` + fresh + `]}`, errors: "version_conflict", update: "s3"},
		"patch that removes what is done":    {answer: `{"base_version":2,"remove":["s1"]}`, errors: "step_immutable", remove: "s1"},
		"patch in the asked form":            {answer: `{"patch":{"base_version":2,"add":null,"update":[` + fresh + `],"remove":null,"assumptions":null,"reason":"r","goal":null},"answer":null,"reason":"r"}`, update: "s3"},
	} {
		t.Run(name, func(t *testing.T) {
			w := ready(t, withModel(newProvider(t, says(tc.answer))))
			got := w.replan(threeSteps(t)).GetPatchProposed()
			if got == nil || errorCodes(got.GetFindings()) != tc.errors {
				t.Fatalf("findings %v, want %q", got.GetFindings(), tc.errors)
			}
			p := got.GetPatch()
			if ids(p.GetAdd()) != tc.add || ids(p.GetUpdate()) != tc.update || strings.Join(p.GetRemove(), " ") != tc.remove {
				t.Errorf("patch %v", p)
			}
			if got.GetCreatedBy() != planv1.CreatedBy_CREATED_BY_REPLANNER || got.GetPlanner().GetPromptVersion() != "replan.v1" || len(got.GetPlanner().GetRaw()) != 1 {
				t.Errorf("author %s, trace %v", got.GetCreatedBy(), got.GetPlanner())
			}
		})
	}
}

func ids(steps []*planv1.Step) string {
	var out []string
	for _, s := range steps {
		out = append(out, s.GetId())
	}
	return strings.Join(out, " ")
}

func TestModelsAnswerEndsTheReplan(t *testing.T) {
	for answer, want := range map[string]*runv1.ReplanAnswered{
		`{"patch":null,"answer":"{\"status\":\"sold out\",\"n\":9011.00}","reason":"nothing fits"}`: {Reason: "nothing fits", Answer: &planv1.JsonText{Text: `{"status":"sold out","n":9011.00}`}},
		`{"patch":null,"answer":"nothing fits","reason":"r"}`:                                       {Reason: "r", Answer: &planv1.JsonText{Text: `"nothing fits"`}},
		`{"answer":{"n":1}}`: {Reason: "the model has no patch", Answer: &planv1.JsonText{Text: `{"n":1}`}},
		`{"patch":null,"answer":null,"reason":"I do not know"}`: {Reason: "I do not know"},
	} {
		w := ready(t, withModel(newProvider(t, says(answer))))
		got := w.replan(threeSteps(t)).GetReplanAnswered()
		if got.GetReason() != want.GetReason() || !proto.Equal(got.GetAnswer(), want.GetAnswer()) {
			t.Errorf("%s: %v", answer, got)
		}
	}
}

func TestReplanPromptTellsWhatHappened(t *testing.T) {
	p := newProvider(t, says(`{"answer":null,"reason":"no"}`))
	r := threeSteps(t)
	r.FalsifiedAssumptions = []string{"in_stock"}
	r.Steps[1].Result = &runv1.Value{Value: &runv1.Value_Inline{Inline: &planv1.JsonText{Text: `"` + strings.Repeat("读", 3000) + `"`}}}
	ready(t, withModel(p)).replan(r)
	user := p.calls()[0].user()
	for _, want := range []string{"version 2", "9007199254740993", "sold out", "in_stock", `"status":"replanning"`, `"shortened":`, `"bytes":9002`} {
		if !strings.Contains(user, want) {
			t.Errorf("the prompt does not hold %q:\n%s", want, user)
		}
	}
}

func TestRulesComeBeforeTheModel(t *testing.T) {
	p := newProvider(t, says(`{"answer":null,"reason":"from the model"}`))
	w := ready(t, withModel(p), withTemplates(t, `
rules:
  - name: use_second
    when: {code: check_failed, tool: echo}
    reason: {$text: "{error.message}, so the result of s1"}
    patch: {change: [{id: s3, action: {arguments: {x: {$fact: steps.s1.result.x}}}}]}
`))
	got := w.replan(threeSteps(t)).GetPatchProposed()
	if plan.HasErrors(got.GetFindings()) || got.GetPlanner().GetSource() != "rules" || got.GetPlanner().GetName() != "use_second" || len(p.calls()) != 0 {
		t.Fatalf("%v with %v", got.GetPlanner(), got.GetFindings())
	}
	step := got.GetPatch().GetUpdate()[0]
	if got.GetPatch().GetBaseVersion() != 2 || got.GetPatch().GetReason() != "sold out, so the result of s1" || step.GetAction().GetArguments().GetText() != `{"x":9007199254740993}` {
		t.Errorf("patch %v", got.GetPatch())
	}
	other := threeSteps(t)
	other.RequestId, other.Error.Code = "replan-2", "timeout"
	if got := w.replan(other).GetReplanAnswered(); got.GetReason() != "from the model" || len(p.calls()) != 1 {
		t.Errorf("%v after %d calls", got, len(p.calls()))
	}
}

func TestRuleWhosePatchIsRefusedIsNotTriedAgain(t *testing.T) {
	w := ready(t, withTemplates(t, `
rules:
  - name: wrong
    patch: {change: [{id: s1, action: {arguments: {x: 7}}}]}
`))
	first := w.replan(threeSteps(t)).GetPatchProposed()
	if errorCodes(first.GetFindings()) != "step_immutable" {
		t.Fatalf("first: %v", first.GetFindings())
	}
	again := threeSteps(t)
	again.RequestId, again.Attempt, again.Findings = "replan-2", 2, first.GetFindings()
	if got := w.replan(again).GetReplanAnswered(); got.GetAnswer() != nil || !strings.Contains(got.GetReason(), "step_immutable") || !strings.Contains(got.GetReason(), "wrong") {
		t.Errorf("second: %v", got)
	}
}

func TestFailureThatNothingMendsIsDeclined(t *testing.T) {
	got := ready(t).replan(threeSteps(t)).GetReplanAnswered()
	if got.GetRequestId() != "replan-1" || got.GetAnswer() != nil || got.GetReason() != "no replan rule fits and no model is configured" {
		t.Errorf("got %v", got)
	}
}
