package mode_test

import (
	"testing"

	"github.com/cairnrun/cairn/pkg/run/mode"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

type view struct {
	steps, open int
	replans     int32
	lost        string
	unmet       *runv1.Error
}

func (v view) HasPlan() bool       { return v.steps > 0 }
func (v view) Steps() (int, int)   { return v.steps, v.open }
func (v view) MaxReplans() int32   { return v.replans }
func (v view) Lost() string        { return v.lost }
func (v view) Unmet() *runv1.Error { return v.unmet }

func planAndSolve(t *testing.T) mode.Mode {
	t.Helper()
	m, ok := mode.For("plan-and-solve")
	if !ok {
		t.Fatal("plan-and-solve is missing")
	}
	return m
}

func TestFor(t *testing.T) {
	if m, ok := mode.For(""); !ok || m.Name() != mode.Default {
		t.Errorf("a run that names no mode gets %v", m)
	}
	for _, name := range mode.Names() {
		if m, ok := mode.For(name); !ok || m.Name() != name {
			t.Errorf("%s is listed and is %v", name, m)
		}
	}
	if m, ok := mode.For("wishful"); ok {
		t.Errorf("an unknown mode is %v", m)
	}
}

func TestPlanAndSolveOnError(t *testing.T) {
	execution := &runv1.Error{Code: "internal", Class: runv1.FaultClass_FAULT_CLASS_EXECUTION}
	plan := &runv1.Error{Code: "check_failed", Class: runv1.FaultClass_FAULT_CLASS_PLAN}
	for _, c := range []struct {
		name    string
		failure mode.Failure
		replans int32
		want    mode.Kind
		scope   runv1.ReplanScope
	}{
		{"an execution fault fails the run", mode.Failure{Error: execution}, 5, mode.Fail, 0},
		{"a plan fault asks for a new plan", mode.Failure{Error: plan}, 5, mode.Replan, runv1.ReplanScope_REPLAN_SCOPE_REMAINING},
		{"a plan fault fails where no replan is allowed", mode.Failure{Error: plan}, 0, mode.Fail, 0},
		{"fail", mode.Failure{Error: plan, Policy: planv1.FailurePolicy_FAILURE_POLICY_FAIL}, 5, mode.Fail, 0},
		{"replan_step", mode.Failure{Error: execution, Policy: planv1.FailurePolicy_FAILURE_POLICY_REPLAN_STEP}, 5, mode.Replan, runv1.ReplanScope_REPLAN_SCOPE_STEP},
		{"replan_remaining", mode.Failure{Error: execution, Policy: planv1.FailurePolicy_FAILURE_POLICY_REPLAN_REMAINING}, 5, mode.Replan, runv1.ReplanScope_REPLAN_SCOPE_REMAINING},
		{"ask_user", mode.Failure{Error: execution, Policy: planv1.FailurePolicy_FAILURE_POLICY_ASK_USER}, 5, mode.AskUser, 0},
		{"skip", mode.Failure{Error: execution, Policy: planv1.FailurePolicy_FAILURE_POLICY_SKIP}, 5, mode.Skip, 0},
		{"compensate", mode.Failure{Error: execution, Policy: planv1.FailurePolicy_FAILURE_POLICY_COMPENSATE}, 5, mode.Compensate, 0},
		{"optional goes on", mode.Failure{Error: execution, Optional: true, Policy: planv1.FailurePolicy_FAILURE_POLICY_FAIL}, 5, mode.Execute, 0},
		{"optional with skip is skipped", mode.Failure{Error: execution, Optional: true, Policy: planv1.FailurePolicy_FAILURE_POLICY_SKIP}, 5, mode.Skip, 0},
		{"an unknown outcome is not replanned", mode.Failure{Error: execution, UnknownOutcome: true, Policy: planv1.FailurePolicy_FAILURE_POLICY_REPLAN_STEP}, 5, mode.Fail, 0},
		{"an unknown outcome is not skipped", mode.Failure{Error: execution, UnknownOutcome: true, Policy: planv1.FailurePolicy_FAILURE_POLICY_SKIP}, 5, mode.Fail, 0},
		{"an unknown outcome may be asked about", mode.Failure{Error: execution, UnknownOutcome: true, Policy: planv1.FailurePolicy_FAILURE_POLICY_ASK_USER}, 5, mode.AskUser, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := planAndSolve(t).OnError(view{steps: 1, replans: c.replans}, c.failure)
			if got.Kind != c.want || got.Scope != c.scope {
				t.Errorf("it decides %s %s", got.Kind, got.Scope)
			}
		})
	}
}

func TestPlanAndSolveFromBeginningToEnd(t *testing.T) {
	m := planAndSolve(t)
	if d := m.Initialize(view{}); d.Kind != mode.Plan {
		t.Errorf("it begins with %s", d.Kind)
	}
	if m.CanResume(view{}) || !m.CanResume(view{steps: 1}) {
		t.Errorf("it resumes without steps, or does not with some")
	}
	if d := m.Next(view{steps: 1, open: 1}); d.Kind != mode.Execute {
		t.Errorf("with a plan it decides %s", d.Kind)
	}
	if d := m.OnObservation(view{steps: 1}, "a"); d.Kind != mode.Execute {
		t.Errorf("after a success it decides %s", d.Kind)
	}
	unmet := &runv1.Error{Code: "acceptance_failed"}
	for _, c := range []struct {
		v    view
		want mode.Kind
	}{
		{view{steps: 1, replans: 5}, mode.Complete},
		{view{steps: 1, replans: 5, lost: "b"}, mode.Fail},
		{view{steps: 1, replans: 5, unmet: unmet}, mode.Replan},
		{view{steps: 1, replans: 0, unmet: unmet}, mode.Fail},
	} {
		if d := m.Finalize(c.v); d.Kind != c.want {
			t.Errorf("%+v ends with %s", c.v, d.Kind)
		}
	}
}

func TestKindsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for k := mode.Execute; k <= mode.Fail; k++ {
		if n := k.String(); n == "nothing" || seen[n] {
			t.Errorf("kind %d is %s", k, n)
		} else {
			seen[n] = true
		}
	}
	if mode.Kind(0).String() != "nothing" || mode.Kind(200).String() != "nothing" {
		t.Errorf("what is no kind has a name")
	}
}
