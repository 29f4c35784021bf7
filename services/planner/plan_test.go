package planner_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/llm"
	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/services/planner"
)

const good = `{"goal":"g","steps":[{"id":"a","objective":"say it","action":{"kind":"tool","name":"echo","arguments":{"x":1}}}]}`

func goal(text string) *runv1.RunSpec { return &runv1.RunSpec{Goal: text} }

func given(doc string) *runv1.RunSpec { return &runv1.RunSpec{Plan: &planv1.JsonText{Text: doc}} }

func TestExplicitPlanIsProposedWithTheToolsItUses(t *testing.T) {
	w := ready(t)
	r := w.plan(given(good))
	p := r.GetPlanProposed()
	if r.GetRunId() != "r1" || r.GetTenant() != "acme" || r.GetId() == "" || p.GetRequestId() != "plan-1" {
		t.Errorf("report %v", r)
	}
	if plan.HasErrors(p.GetFindings()) || p.GetPlan().GetSteps()[0].GetId() != "a" || p.GetPlan().GetCreatedBy() != planv1.CreatedBy_CREATED_BY_HUMAN {
		t.Errorf("plan %v with %v", p.GetPlan(), p.GetFindings())
	}
	if len(p.GetTools()) != 1 || p.GetTools()[0].GetName() != "echo" || len(p.GetTools()[0].GetDigest()) != 64 {
		t.Errorf("tools %v", p.GetTools())
	}
	if p.GetPlanner().GetSource() != "explicit" || p.GetText() != good {
		t.Errorf("trace %v, text %q", p.GetPlanner(), p.GetText())
	}
}

func TestExplicitPlanWaitsForAToolThatIsJustStarting(t *testing.T) {
	w := ready(t, func(c *planner.Config) { c.ToolWait = patience })
	w.send(&runv1.Work{RunId: "r1", Body: &runv1.Work_Plan{Plan: &runv1.PlanWork{RequestId: "plan-1", Attempt: 1,
		Spec: given(strings.ReplaceAll(good, "echo", "late.tool"))}}})
	// The request is in the planner's hands when the tool appears.
	c, err := w.js.Consumer(t.Context(), bus.StreamWork, "planner")
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; {
		info, err := c.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.NumAckPending == 1 {
			break
		} else if time.Now().After(end) {
			t.Fatal("the request was not taken")
		}
	}
	w.register("late.tool", `{"type":"object"}`)
	if p := w.report().GetPlanProposed(); plan.HasErrors(p.GetFindings()) || len(p.GetTools()) != 1 {
		t.Errorf("findings %v", p.GetFindings())
	}
}

func TestExplicitPlanThatStaysWrongIsGivenUp(t *testing.T) {
	w := ready(t)
	last, asked := w.planRun(given(strings.ReplaceAll(good, "echo", "ech0")), 3)
	e := last.GetPlanningGivenUp().GetError()
	if asked != 2 || e.GetCode() != "plan_rejected" {
		t.Errorf("after %d requests: %v", asked, last)
	}
	for _, part := range []string{"ech0", "unknown_tool at /steps/0", "echo"} {
		if !strings.Contains(e.GetMessage(), part) {
			t.Errorf("%q does not hold %q", e.GetMessage(), part)
		}
	}
	if code, _ := plan.AtPath(e.GetDetails(), "findings.0.code"); code.GetText() != `"unknown_tool"` {
		t.Errorf("details %s", e.GetDetails().GetText())
	}
}

func TestPlanIsJudgedWithinTheRunsBounds(t *testing.T) {
	w := ready(t)
	two := `{"goal":"g","steps":[{"id":"a","objective":"o","action":{"kind":"tool","name":"echo"}},{"id":"b","objective":"o","action":{"kind":"tool","name":"echo"}}]}`
	for name, tc := range map[string]struct {
		change func(*runv1.RunSpec)
		want   string
	}{
		"at the limit of steps":   {func(s *runv1.RunSpec) { s.Limits = &runv1.RunLimits{MaxSteps: 2} }, ""},
		"over the limit of steps": {func(s *runv1.RunSpec) { s.Limits = &runv1.RunLimits{MaxSteps: 1} }, "plan_too_large"},
		"tool that is not allowed": {func(s *runv1.RunSpec) { s.AllowedTools = []string{"search_resume"} },
			"tool_not_allowed tool_not_allowed"},
	} {
		spec := given(two)
		tc.change(spec)
		if got := errorCodes(w.plan(spec).GetPlanProposed().GetFindings()); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A run without input has an empty one: what refers into it is refused before anything runs.
func TestPlanOfARunWithoutInput(t *testing.T) {
	w := ready(t)
	refers := strings.Replace(good, `{"x":1}`, `{"x":{"$ref":"run.input.k"}}`, 1)
	if p := w.plan(given(refers)).GetPlanProposed(); errorCodes(p.GetFindings()) != "ref_unknown_input" {
		t.Errorf("findings %v", p.GetFindings())
	}
	spec := given(refers)
	spec.Input = &planv1.JsonText{Text: `{"k":1}`}
	if p := w.plan(spec).GetPlanProposed(); plan.HasErrors(p.GetFindings()) {
		t.Errorf("findings %v", p.GetFindings())
	}
}

func TestTemplateMakesThePlan(t *testing.T) {
	w := ready(t, withTemplates(t, `
templates:
  - name: say
    goal: '^说(?<what>.+)$'
    plan: {steps: [{id: a, objective: 说, action: {kind: tool, name: echo, arguments: {x: {$slot: what}}}}]}
`))
	p := w.plan(goal("说你好")).GetPlanProposed()
	if plan.HasErrors(p.GetFindings()) || p.GetPlanner().GetSource() != "template" || p.GetPlanner().GetName() != "say" {
		t.Errorf("%v with %v", p.GetPlanner(), p.GetFindings())
	}
	if got := p.GetPlan(); got.GetGoal() != "说你好" || got.GetSteps()[0].GetAction().GetArguments().GetText() != `{"x":"你好"}` || got.GetCreatedBy() != planv1.CreatedBy_CREATED_BY_TEMPLATE {
		t.Errorf("plan %v", got)
	}
}

func TestGoalThatNothingPlansSaysWhatToDo(t *testing.T) {
	w := ready(t)
	e := w.plan(goal("make me happy")).GetPlanningGivenUp().GetError()
	if e.GetCode() != "no_plan" || e.GetClass() != runv1.FaultClass_FAULT_CLASS_PLAN || e.GetRetryable() {
		t.Errorf("error %v", e)
	}
	for _, way := range []string{"submit the run with a plan", "--templates", "CAIRN_LLM_MODEL"} {
		if !strings.Contains(e.GetMessage(), way) {
			t.Errorf("%q does not name %q", e.GetMessage(), way)
		}
	}
}

func TestRequestThatIsNoLongerValidIsNotTakenUp(t *testing.T) {
	w := ready(t)
	w.send(&runv1.Work{RunId: "r1", ValidUntil: timestamppb.New(time.Now().Add(-time.Second)),
		Body: &runv1.Work_Plan{Plan: &runv1.PlanWork{RequestId: "plan-1", Spec: given(good)}}})
	w.send(&runv1.Work{RunId: "r1", ValidUntil: timestamppb.New(time.Now().Add(time.Minute)),
		Body: &runv1.Work_Plan{Plan: &runv1.PlanWork{RequestId: "plan-2", Spec: given(good)}}})
	if got := w.report().GetPlanProposed().GetRequestId(); got != "plan-2" {
		t.Errorf("answered %s", got)
	}
}

func TestWorkThatCannotBeReadIsToldToTheRun(t *testing.T) {
	w := ready(t)
	if _, err := w.js.Publish(t.Context(), bus.PlanSubject("r1", "plan-1"), []byte("garbage")); err != nil {
		t.Fatal(err)
	}
	r := w.report()
	if got := r.GetPlanningGivenUp(); r.GetRunId() != "r1" || got.GetRequestId() != "plan-1" || got.GetError().GetCode() != "delivery_exhausted" {
		t.Errorf("report %v", r)
	}
}

func TestRequestOfAPlannerThatEndedIsTakenByTheNext(t *testing.T) {
	w := newWorld(t)
	w.init()
	w.register("echo", `{"type":"object"}`)
	stop := w.start()
	stop()
	w.send(&runv1.Work{RunId: "r1", Body: &runv1.Work_Plan{Plan: &runv1.PlanWork{RequestId: "plan-1", Spec: given(good)}}})
	w.start()
	if p := w.report().GetPlanProposed(); plan.HasErrors(p.GetFindings()) {
		t.Errorf("findings %v", p.GetFindings())
	}
}

func TestPlannerWaitsForTheStreamsAndSaysSo(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- planner.Run(ctx, w.config) }()
	for end := time.Now().Add(patience); !strings.Contains(w.health.Err().Error(), bus.StreamLog); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("health says %v", w.health.Err())
		}
	}
	if err := bus.Check(t.Context(), w.js); !errors.Is(err, bus.ErrMissing) {
		t.Errorf("the planner made streams: %v", err)
	}
	w.init()
	ready, done := context.WithTimeout(t.Context(), patience)
	defer done()
	if err := w.health.Wait(ready); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestConfigurationThatCannotWorkEndsAtOnce(t *testing.T) {
	for want, c := range map[string]planner.Config{
		"nowhere.yaml":         {Templates: "nowhere.yaml", Model: &llm.Config{}},
		"CAIRN_LLM_BASE_URL":   {Model: &llm.Config{Model: "m", BaseURL: "host"}},
		"CAIRN_LLM_STRUCTURED": {Model: &llm.Config{}, Structured: "loose"},
	} {
		if err := planner.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
