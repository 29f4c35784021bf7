package mode

import (
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// planAndSolve makes a whole plan first and patches it when a step fails for good.
type planAndSolve struct{}

func (planAndSolve) Name() string { return Default }

func (planAndSolve) Initialize(View) Decision { return Decision{Kind: Plan} }

func (planAndSolve) Next(View) Decision { return Decision{Kind: Execute} }

func (planAndSolve) OnObservation(View, string) Decision { return Decision{Kind: Execute} }

func (planAndSolve) CanResume(v View) bool {
	all, _ := v.Steps()
	return all > 0
}

// OnError follows the step's policy. Where it names none, an execution fault fails the run, since its retries are used
// up, and a plan fault asks for a new plan of what remains, where the run may replan at all. A person's no is not planned
// around unasked: it fails the run.
func (planAndSolve) OnError(v View, f Failure) Decision {
	if f.Optional {
		if f.Policy == planv1.FailurePolicy_FAILURE_POLICY_SKIP {
			return Decision{Kind: Skip}
		}
		return Decision{Kind: Execute}
	}
	switch f.Policy {
	case planv1.FailurePolicy_FAILURE_POLICY_ASK_USER:
		return Decision{Kind: AskUser}
	case planv1.FailurePolicy_FAILURE_POLICY_COMPENSATE:
		return Decision{Kind: Compensate}
	}
	if f.UnknownOutcome {
		return Decision{Kind: Fail}
	}
	switch f.Policy {
	case planv1.FailurePolicy_FAILURE_POLICY_SKIP:
		return Decision{Kind: Skip}
	case planv1.FailurePolicy_FAILURE_POLICY_REPLAN_STEP:
		return Decision{Kind: Replan, Scope: runv1.ReplanScope_REPLAN_SCOPE_STEP}
	case planv1.FailurePolicy_FAILURE_POLICY_REPLAN_REMAINING:
		return Decision{Kind: Replan, Scope: runv1.ReplanScope_REPLAN_SCOPE_REMAINING}
	case planv1.FailurePolicy_FAILURE_POLICY_UNSPECIFIED:
		if f.Error.GetClass() == runv1.FaultClass_FAULT_CLASS_PLAN && !f.NotApproved && v.MaxReplans() > 0 {
			return Decision{Kind: Replan, Scope: runv1.ReplanScope_REPLAN_SCOPE_REMAINING}
		}
	}
	return Decision{Kind: Fail}
}

// Finalize completes the run, unless a required step was lost or an acceptance check does not hold: the replanner may
// mend the latter.
func (planAndSolve) Finalize(v View) Decision {
	if v.Lost() != "" {
		return Decision{Kind: Fail}
	}
	if e := v.Unmet(); e != nil {
		if v.MaxReplans() > 0 {
			return Decision{Kind: Replan, Scope: runv1.ReplanScope_REPLAN_SCOPE_REMAINING, Error: e}
		}
		return Decision{Kind: Fail, Error: e}
	}
	return Decision{Kind: Complete}
}
