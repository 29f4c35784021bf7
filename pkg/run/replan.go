package run

import (
	"slices"
	"strconv"
	"time"

	"github.com/cairnrun/cairn/pkg/run/mode"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Codes of findings that decide what follows.
const (
	findingEmptyPatch  = "empty_patch"
	findingOscillation = "replan_oscillation"
	findingUnparseable = "plan_unparseable"
	findingTruncated   = "plan_truncated"
	findingInvalidJSON = "invalid_json"
)

// patchAttempts is how often a patch is asked for after one failure: a refused one is sent back once.
const patchAttempts = 2

// findingsInDetails bounds the findings that an error shows.
const findingsInDetails = 20

const (
	replanPrefix = "replan-"
	planPrefix   = "plan-"
)

// planning asks for the first plan, again within a budget where one was refused, and gives up after that.
func (x *decider) planning(d *data) *runv1.Event {
	last := d.lastPlanning()
	if last == nil {
		dec := x.mode.Initialize(view{d: d})
		if dec.Kind != mode.Plan {
			return x.fail(d, d.baseRevision, "initialize", values().str("decision", dec.Kind.String()), orInternal(dec.Error))
		}
		return x.requestPlan(d, d.baseRevision, 1, nil)
	}
	r := last.st
	switch {
	case r.GetOpen():
		return nil
	case r.GetOutcome() == runv1.PlanningOutcome_PLANNING_OUTCOME_GIVEN_UP:
		return x.fail(d, r.GetOutcomeRevision(), "planning_failed", values().str("request", r.GetRequestId()), planningError(r))
	case r.GetOutcome() == runv1.PlanningOutcome_PLANNING_OUTCOME_TIMED_OUT:
		return x.planningTimeout(d, r)
	}
	vals := values().str("request", r.GetRequestId()).int("attempt", int64(r.GetAttempt())).int("max_plan_attempts", int64(d.limits.maxPlanAttempts))
	if d.spec.GetPlan() != nil {
		vals.bool("explicit", true)
		return x.fail(d, r.GetOutcomeRevision(), "plan_rejected", vals, rejectedError(codePlanRejected, r, 1))
	}
	if r.GetAttempt() >= d.limits.maxPlanAttempts {
		return x.fail(d, r.GetOutcomeRevision(), "plan_rejected", vals, rejectedError(dominantCode(r), r, r.GetAttempt()))
	}
	return x.requestPlan(d, r.GetOutcomeRevision(), r.GetAttempt()+1, r)
}

func (x *decider) requestPlan(d *data, cause int64, attempt int32, refused *runv1.PlanningRequest) *runv1.Event {
	b := &runv1.PlanRequested{RequestId: planPrefix + strconv.Itoa(d.planning.len()+1), Attempt: attempt,
		Findings: refused.GetOutcomeFindings(), RejectedText: refused.GetOutcomeText()}
	return x.event(cause, "plan", values().int("attempt", int64(attempt)).int("max_plan_attempts", int64(d.limits.maxPlanAttempts)),
		&runv1.Event{Body: &runv1.Event_PlanRequested{PlanRequested: b}})
}

// dominantCode names the failure after what was wrong with the last proposal.
func dominantCode(r *runv1.PlanningRequest) string {
	for _, f := range r.GetOutcomeFindings() {
		switch f.GetCode() {
		case findingUnparseable, findingTruncated:
			return f.GetCode()
		case findingInvalidJSON:
			return findingUnparseable
		}
	}
	if r.GetReplan() {
		return codePatchRejected
	}
	return codePlanRejected
}

func rejectedError(code string, r *runv1.PlanningRequest, attempts int32) *runv1.Error {
	list := []byte{'['}
	message := "the proposal was refused"
	for i, f := range r.GetOutcomeFindings() {
		if i == findingsInDetails {
			break
		}
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, values().str("code", f.GetCode()).str("pointer", f.GetPointer()).str("message", f.GetMessage()).json().GetText()...)
	}
	if n := len(r.GetOutcomeFindings()); n > 0 {
		f := r.GetOutcomeFindings()[0]
		message = "the proposal was refused: " + f.GetMessage()
		if n > 1 {
			message += " (and " + strconv.Itoa(n-1) + " more)"
		}
	}
	return withDetails(fault(code, "%s", message), values().int("attempts", int64(attempts)).raw("findings", string(append(list, ']'))).json())
}

func planningError(r *runv1.PlanningRequest) *runv1.Error {
	if e := r.GetOutcomeError(); e.GetCode() != "" {
		return classed(e)
	}
	return fault(codePlanningFailed, "the planner gave up and did not say why")
}

// planningTimeout fails a run whose planner did not answer, with what the patch was asked for.
func (x *decider) planningTimeout(d *data, r *runv1.PlanningRequest) *runv1.Event {
	seconds := int64(d.limits.maxPlanningTime / time.Second)
	e := fault(codePlanningTimeout, "the planner did not answer %s within %s (max_planning_time)", r.GetRequestId(), d.limits.maxPlanningTime)
	details := values()
	if r.GetReplan() {
		details = triggerDetails(r.GetStepId(), r.GetError())
	}
	return x.fail(d, r.GetOutcomeRevision(), "planning_timeout", values().str("request", r.GetRequestId()).int("maximum_seconds", seconds),
		withDetails(e, details.str("request", r.GetRequestId()).json()))
}

func orInternal(e *runv1.Error) *runv1.Error {
	if e != nil {
		return e
	}
	return fault("internal", "the mode does not begin with a plan")
}

// replanning follows up the newest request for a patch, and makes the next one where a failed step waits for it. done
// tells that nothing else is to be decided before.
func (x *decider) replanning(d *data) (e *runv1.Event, done bool) {
	if last := d.lastPlanning(); last != nil && last.st.GetReplan() {
		r := last.st
		if r.GetOpen() {
			return nil, false
		}
		switch {
		case d.moot(r):
		case r.GetOutcome() == runv1.PlanningOutcome_PLANNING_OUTCOME_REJECTED:
			return x.patchRefused(d, r), true
		case r.GetOutcome() == runv1.PlanningOutcome_PLANNING_OUTCOME_GIVEN_UP:
			return x.fail(d, r.GetOutcomeRevision(), "planning_failed", values().str("request", r.GetRequestId()), planningError(r)), true
		case r.GetOutcome() == runv1.PlanningOutcome_PLANNING_OUTCOME_TIMED_OUT:
			return x.planningTimeout(d, r), true
		case r.GetOutcome() == runv1.PlanningOutcome_PLANNING_OUTCOME_DECLINED:
			return x.declined(d, r)
		}
		if !x.mode.CanResume(view{d: d}) {
			return x.fail(d, r.GetOutcomeRevision(), "resume", nil, fault(codeNoProgress, "the patch left a plan that the mode cannot go on with")), true
		}
	}
	i := d.steps.first(wantsReplan)
	if i < 0 {
		return nil, false
	}
	st := d.steps.at(i).st
	scope := runv1.ReplanScope_REPLAN_SCOPE_REMAINING
	if st.GetPolicy() == planv1.FailurePolicy_FAILURE_POLICY_REPLAN_STEP {
		scope = runv1.ReplanScope_REPLAN_SCOPE_STEP
	}
	return x.requestReplan(d, st.GetRevision(), &runv1.ReplanRequested{
		Scope: scope, StepId: st.GetStepId(), Error: st.GetError(), FalsifiedAssumptions: st.GetFalsifiedAssumptions(), Attempt: 1}), true
}

// moot says whether the failure that a request was made for is dealt with otherwise: by a person's patch.
func (d *data) moot(r *runv1.PlanningRequest) bool {
	if r.GetStepId() == "" {
		// An acceptance check was not met; another plan has another end.
		return r.GetBaseVersion() < d.plan.GetVersion()
	}
	el := d.at(d.find(r.GetStepId()))
	return el == nil || el.st.GetStatus() != runv1.StepStatus_STEP_STATUS_REPLANNING
}

// requestReplan asks for a patch, or fails the run where it has replanned often enough.
func (x *decider) requestReplan(d *data, cause int64, b *runv1.ReplanRequested) *runv1.Event {
	vals := values().int("replans", int64(d.replans)).int("max_replans", int64(d.limits.maxReplans)).str("step", b.GetStepId())
	if d.replans >= d.limits.maxReplans {
		e := fault(codeReplanLimit, "the run was replanned %d times, and step %s failed again: %s", d.replans, b.GetStepId(), b.GetError().GetMessage())
		return x.fail(d, cause, "replan_limit", vals, withDetails(e, triggerDetails(b.GetStepId(), b.GetError()).
			int("replans", int64(d.replans)).raw("results", d.resultsSoFar()).json()))
	}
	b.RequestId = replanPrefix + strconv.Itoa(int(d.replans)+1)
	b.BaseVersion = d.plan.GetVersion()
	return x.event(cause, "replan", vals, &runv1.Event{Body: &runv1.Event_ReplanRequested{ReplanRequested: b}})
}

func triggerDetails(step string, err *runv1.Error) *object {
	return values().str("step", step).str("code", err.GetCode()).str("message", err.GetMessage())
}

// patchRefused asks once more after a refused patch, unless it shows that asking leads nowhere.
func (x *decider) patchRefused(d *data, r *runv1.PlanningRequest) *runv1.Event {
	vals := values().str("request", r.GetRequestId()).int("attempt", int64(r.GetAttempt()))
	has := func(code string) bool {
		return slices.ContainsFunc(r.GetOutcomeFindings(), func(f *planv1.Finding) bool {
			return f.GetCode() == code && f.GetSeverity() == planv1.Severity_SEVERITY_ERROR
		})
	}
	switch {
	case has(findingEmptyPatch):
		e := fault(codeNoProgress, "the replanner changed nothing after step %s failed: %s", r.GetStepId(), r.GetError().GetMessage())
		return x.fail(d, r.GetOutcomeRevision(), "no_progress", vals, withDetails(e, triggerDetails(r.GetStepId(), r.GetError()).json()))
	case has(findingOscillation):
		e := fault(codeOscillation, "the replanner comes back to what failed before, after step %s failed: %s", r.GetStepId(), r.GetError().GetMessage())
		return x.fail(d, r.GetOutcomeRevision(), "replan_oscillation", vals, withDetails(e, triggerDetails(r.GetStepId(), r.GetError()).
			int("replans", int64(d.replans)).json()))
	case r.GetAttempt() >= min(patchAttempts, d.limits.maxPlanAttempts):
		return x.fail(d, r.GetOutcomeRevision(), "patch_rejected", vals, rejectedError(dominantCode(r), r, r.GetAttempt()))
	}
	return x.requestReplan(d, r.GetOutcomeRevision(), &runv1.ReplanRequested{
		Scope: r.GetScope(), StepId: r.GetStepId(), Error: r.GetError(), FalsifiedAssumptions: r.GetFalsifiedAssumptions(),
		Attempt: r.GetAttempt() + 1, Findings: r.GetOutcomeFindings(), RejectedText: r.GetOutcomeText()})
}

// declined ends a run whose replanner has no patch: with its answer once nothing is under way, else with the failure
// that asked for it.
func (x *decider) declined(d *data, r *runv1.PlanningRequest) (*runv1.Event, bool) {
	vals := values().str("request", r.GetRequestId()).str("reason", r.GetOutcomeReason())
	if r.GetAnswer() != nil {
		if d.actions.sum().open > 0 {
			return nil, true
		}
		return x.event(r.GetOutcomeRevision(), "replan_answer", vals, &runv1.Event{Body: &runv1.Event_RunCompleted{RunCompleted: &runv1.RunCompleted{Answer: r.GetAnswer()}}}), true
	}
	e := classed(r.GetError())
	details := values().str("code", codeReplanDeclined).str("reason", r.GetOutcomeReason()).str("step", r.GetStepId())
	if r.GetError().GetDetails() != nil {
		details.raw("error", r.GetError().GetDetails().GetText())
	}
	return x.fail(d, r.GetOutcomeRevision(), "replan_declined", vals, &runv1.Error{
		Code: e.GetCode(), Message: e.GetMessage(), Class: e.GetClass(), Details: details.json()}), true
}
