package plan

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

func TestCase13_UnknownToolNamesTheNearest(t *testing.T) {
	env := Environment{Tools: map[string]*planv1.ToolDefinition{"search_resume": {Name: "search_resume"}, "file.read": {Name: "file.read"}}}
	_, findings := Read([]byte(step(`"tool":"search_resumes"`)), env)
	f := wantOnly(t, findings, codeUnknownTool, "/steps/0/action/name")
	if got := f.GetValues().GetText(); got != `{"name":"search_resumes","nearest":["search_resume"]}` {
		t.Errorf("values are %s", got)
	}
	if f.GetStepId() != "a" || !strings.Contains(f.GetHint(), "search_resume") {
		t.Errorf("finding is %v", f)
	}
	for wrong, right := range map[string]string{"readfile": "", "file_read": "file.read", "fiel.read": "file.read", "file.raed": "file.read", "zzz": ""} {
		_, findings := Read([]byte(step(`"tool":"`+wrong+`"`)), env)
		f := wantOnly(t, findings, codeUnknownTool, "/steps/0/action/name")
		if right != "" && !strings.Contains(f.GetValues().GetText(), `"nearest":["`+right) {
			t.Errorf("%s: values are %s", wrong, f.GetValues().GetText())
		}
	}
	_, findings = Read([]byte(step(`"tool":"x"`)), Environment{})
	if f := wantOnly(t, findings, codeUnknownTool, "/steps/0/action/name"); !strings.Contains(f.GetHint(), "no tools are registered") {
		t.Errorf("hint is %q", f.GetHint())
	}
}

// A step that is skipped has no result; that is for the run to see, and the plan is valid with and without a default.
func TestCase20_ReferenceToStepThatMayBeSkipped(t *testing.T) {
	p, findings := mustRead(t, `{"goal":"g","steps":[{"id":"a","tool":"echo","when":"false"},
	 {"id":"b","tool":"echo","arguments":{"x":{"$ref":"steps.a.result.x"}},"depends_on":["a"]},
	 {"id":"b2","tool":"echo","arguments":{"x":{"$ref":"steps.a.result.x","default":null}},"depends_on":["a"]}]}`, testEnvironment())
	if len(findings) > 0 {
		t.Errorf("findings:\n%s", show(findings))
	}
	none := lookupIn(nil)
	if _, err := Resolve(p.GetSteps()[1].GetAction().GetArguments(), none); err == nil {
		t.Error("b was resolved")
	}
	if got, err := Resolve(p.GetSteps()[2].GetAction().GetArguments(), none); err != nil || got.Arguments.GetText() != `{"x":null}` {
		t.Errorf("b2 gets %v, %v", got.Arguments, err)
	}
}

func TestPolicies(t *testing.T) {
	env := testEnvironment()
	for fields, code := range map[string]string{
		`"tool":"pay","arguments":{"amount":1}`:                                                                                                        codeRiskWithoutConfirm,
		`"tool":"pay","arguments":{"amount":1},"confirm":true`:                                                                                         "",
		`"tool":"now","risk":"medium"`:                                                                                                                 "",
		`"tool":"now","optional":true,"on_failure":"skip"`:                                                                                             "",
		`"tool":"now","retry":0`:                                                                                                                       "",
		`"tool":"now","objective":"find the time"`:                                                                                                     "",
		`"action":{"kind":"llm","name":"generate","arguments":{"prompt":"hi"}}`:                                                                        "",
		`"action":{"kind":"llm","name":"generate","arguments":{}}`:                                                                                     codeMissingArgument,
		`"tool":"now","compensate":{"kind":"tool","name":"serch"}`:                                                                                     codeUnknownTool,
		`"tool":"now","compensate":{"kind":"tool","name":"search","arguments":{}}`:                                                                     codeMissingArgument,
		`"tool":"now","compensate":{"kind":"tool","name":"echo","arguments":{"x":{"$ref":"steps.a.result.id"}}}`:                                       "",
		`"tool":"now","compensate":{"kind":"control","name":"wait","arguments":{"duration":"1s"}}`:                                                     codeControlUnsupported,
		`"action":{"kind":"control","name":"wait","arguments":{"until":"2030-01-31T08:00:00Z"}}`:                                                       "",
		`"action":{"kind":"control","name":"wait","arguments":{"until":"tomorrow"}}`:                                                                   codeInvalidControl,
		`"action":{"kind":"control","name":"wait","arguments":{"until":{"$ref":"run.input.at"}}}`:                                                      "",
		`"action":{"kind":"control","name":"wait","arguments":{"duration":"1s","until":"2030-01-31T08:00:00Z"}}`:                                       codeInvalidControl,
		`"action":{"kind":"control","name":"wait","arguments":{"seconds":5}}`:                                                                          codeInvalidControl,
		`"action":{"kind":"control","name":"user.ask","arguments":{"question":"Which?","schema":{"type":"string"},"timeout":"1h"}}`:                    "",
		`"action":{"kind":"control","name":"user.ask","arguments":{"question":"Which?","schema":{"type":"text"}}}`:                                     codeInvalidControl,
		`"action":{"kind":"control","name":"user.ask","arguments":{"question":" "}}`:                                                                   codeInvalidControl,
		`"action":{"kind":"control","name":"finish","arguments":{"answer":{"$ref":"run.input"}}}`:                                                      "",
		`"action":{"kind":"control","name":"finish"},"for_each":[1]`:                                                                                   codeControlUnsupported,
		`"action":{"kind":"control","name":"finish"},"retry":2`:                                                                                        codeControlUnsupported,
		`"tool":"echo","arguments":{"x":{"$ref":"item"},"i":{"$ref":"index"}},"for_each":[1,2],"expect":{"checks":["index >= 0 && result.n != item"]}`: "",
		`"tool":"echo","for_each":[1,2],"when":"index >= 0"`:                                                                                           codeExpressionUnknownName,
		`"tool":"echo","expect":{"checks":["item == 1"]}`:                                                                                              codeRefOutsideForEach,
		`"tool":"echo","when":"answer == 1"`:                                                                                                           codeExpressionUnknownName,
		`"tool":"echo","expect":{"checks":["steps.a.status == 'x'"]}`:                                                                                  codeRefToItself,
	} {
		_, findings := Read([]byte(step(fields)), env)
		list := errorsOf(findings)
		if code == "" && len(list) > 0 || code != "" && (len(list) == 0 || len(with(list, code)) == 0) {
			t.Errorf("%s: want %q, got:\n%s", fields, code, show(findings))
		}
	}
}

func TestAcceptance(t *testing.T) {
	doc := func(expr string) []byte {
		return []byte(`{"goal":"g","acceptance":["` + expr + `"],"steps":[{"id":"a","tool":"now","produces":["r"]}]}`)
	}
	for expr, code := range map[string]string{"answer.x > 1 && steps.a.status == 'succeeded' && artifacts.r.y == 1": "", "steps.b.status == 'x'": codeRefUnknownStep,
		"artifacts.s == 1": codeRefUnknownArtifact, "result == 1": codeExpressionUnknownName, "answer +": codeExpressionInvalid, " ": codeMissingField, "item == 1": codeExpressionUnknownName} {
		_, findings := Read(doc(expr), testEnvironment())
		if code == "" {
			if HasErrors(findings) {
				t.Errorf("%s:\n%s", expr, show(findings))
			}
			continue
		}
		wantOnly(t, findings, code, "/acceptance/0/expression")
	}
}

// No input is an empty one, once there is a run.
func TestRunInput(t *testing.T) {
	env := testEnvironment()
	doc := func(ref string) []byte { return []byte(step(`"tool":"echo","arguments":{"k":{"$ref":"` + ref + `"}}`)) }
	for _, absent := range []*planv1.JsonText{nil, text("")} {
		env.Input = RunInput(absent)
		_, findings := Read(doc("run.input.k"), env)
		wantOnly(t, findings, codeRefUnknownInput, "/steps/0/action/arguments/k")
		mustRead(t, string(doc("run.input")), env)
	}
	env.Input = RunInput(text(`{"k":1}`))
	mustRead(t, string(doc("run.input.k")), env)
	env.Input = nil
	mustRead(t, string(doc("run.input.k")), env)
}

func TestGoalOfTheRunStandsIn(t *testing.T) {
	env := testEnvironment()
	env.Goal = "from the run"
	p, findings := mustRead(t, `{"steps":[{"id":"a","tool":"now"}]}`, env)
	if p.GetGoal() != "from the run" || len(findings) > 0 {
		t.Errorf("goal %q\n%s", p.GetGoal(), show(findings))
	}
	if p, _ := mustRead(t, `{"goal":"own","steps":[{"id":"a","tool":"now"}]}`, env); p.GetGoal() != "own" {
		t.Errorf("goal %q", p.GetGoal())
	}
}

// Validate never changes what it is given, and takes messages that no parser has seen.
func TestValidateTakesAnything(t *testing.T) {
	for _, p := range []*planv1.Plan{
		nil, {}, {Steps: []*planv1.Step{nil, {}, {Id: "a", Action: &planv1.Action{}}}},
		{Goal: "\xff", Steps: []*planv1.Step{{Id: "\xff", Title: "\xff", Action: &planv1.Action{Kind: 99, Name: "x", Arguments: text("{")}, Compensate: &planv1.Action{Arguments: text("null")}}}},
		{Steps: []*planv1.Step{{Id: "a", ForEach: text("["), Result: text("7"), Expect: &planv1.Expect{Schema: text("{"), Checks: []*planv1.Check{nil, {}}}, Retry: &planv1.Retry{}, OnFailure: 77, Risk: -1}}},
		{Assumptions: []*planv1.Assumption{nil, {}}, Acceptance: []*planv1.Check{nil}},
	} {
		before := proto.Clone(p)
		_, findings := Validate(p, testEnvironment())
		if !HasErrors(findings) {
			t.Errorf("%v was accepted", p)
		}
		if !proto.Equal(before, p) {
			t.Errorf("%v was changed", before)
		}
	}
	// Arguments that are null or absent in a message are an empty object.
	p := graphOf([]string{"a"}, []string{"b"})
	p.Steps[0].Action.Arguments, p.Steps[1].Action.Arguments = nil, text("null")
	before := proto.Clone(p)
	normal, findings := Validate(p, testEnvironment())
	for _, s := range normal.GetSteps() {
		if s.GetAction().GetArguments().GetText() != "{}" || HasErrors(findings) {
			t.Errorf("arguments are %v\n%s", s.GetAction().GetArguments(), show(findings))
		}
	}
	if !proto.Equal(before, p) {
		t.Error("the plan was changed")
	}
}

func TestReadAskAndWait(t *testing.T) {
	ask, err := ReadAsk(text(`{"question":"哪一个？","schema":{"type":"string"},"timeout":"90s"}`))
	if err != nil || ask.Question != "哪一个？" || ask.Schema.GetText() != `{"type":"string"}` || ask.Timeout.Seconds() != 90 {
		t.Errorf("%+v, %v", ask, err)
	}
	wait, err := ReadWait(text(`{"until":"2030-01-31T08:00:00+08:00"}`))
	if err != nil || wait.Until.UTC().Hour() != 0 {
		t.Errorf("%+v, %v", wait, err)
	}
	if _, err := ReadAsk(text(`{}`)); err == nil {
		t.Error("a question without a question")
	}
	if _, err := ReadWait(text(`{"duration":"-5s"}`)); err == nil {
		t.Error("a negative wait")
	}
}
