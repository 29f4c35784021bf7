package run

import (
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// reset makes a step as if it had not begun, for a deliberate repeat. Its attempts count on, since they name its
// actions; its generation rises where the outcome before is known, so that the repeat is not taken for the same call.
func (d *data) reset(st *runv1.StepState) {
	if a := d.newest(st); a != nil && outcomeKnown(a) {
		st.Generation++
	}
	st.Status = runv1.StepStatus_STEP_STATUS_PENDING
	st.AttemptsBefore = st.GetAttempts()
	st.Result, st.Error, st.SkipReason = nil, nil, ""
	st.Due, st.DueAbsolute, st.TimerFired, st.EndedAt, st.StartedAt = nil, false, false, nil, nil
	st.InputRequest, st.Approved, st.Partial = "", false, false
	st.Policy, st.FailedOptional, st.FalsifiedAssumptions = planv1.FailurePolicy_FAILURE_POLICY_UNSPECIFIED, false, nil
	st.Expanded = false
}

// outcomeKnown says whether an action certainly had its effect or certainly never will.
func outcomeKnown(a *runv1.ActionState) bool {
	switch a.GetStatus() {
	case runv1.ActionStatus_ACTION_STATUS_SUCCEEDED, runv1.ActionStatus_ACTION_STATUS_FAILED, runv1.ActionStatus_ACTION_STATUS_REVOKED:
		return true
	}
	return false
}

func (d *data) applyRequested(e *runv1.Event, b *runv1.ActionRequested) {
	var previous int32
	if el := d.at(d.find(b.GetStepId())); el != nil {
		previous = el.st.GetAction()
	}
	a := &runv1.ActionState{
		ActionId: b.GetActionId(), StepId: b.GetStepId(), Attempt: b.GetAttempt(), Status: runv1.ActionStatus_ACTION_STATUS_REQUESTED,
		Tool: b.GetTool(), ToolVersion: b.GetToolVersion(), Arguments: b.GetArguments(), IdempotencyKey: b.GetIdempotencyKey(),
		RequestedAt: e.GetTime(), NotAfter: b.GetNotAfter(), Idempotent: b.GetIdempotent(), Artifacts: b.GetArtifacts(),
		Generation: b.GetGeneration(), RequestedRevision: d.revision, Previous: previous,
	}
	d.actions = d.actions.add(newActionElem(a))
	d.withStep(e, b.GetStepId(), func(st *runv1.StepState) {
		st.Status = runv1.StepStatus_STEP_STATUS_RUNNING
		st.Attempts = b.GetAttempt()
		st.Action = int32(d.actions.len())
		st.Due = nil
		if st.GetStartedAt() == nil {
			st.StartedAt = e.GetTime()
		}
	})
}

// beginUndo makes the state of a compensation.
func (d *data) beginUndo(id string) bool {
	if d.layout == nil || len(id) <= len(undoSuffix) || id[len(id)-len(undoSuffix):] != undoSuffix {
		return false
	}
	el := newStepElem(&runv1.StepState{StepId: id, Status: runv1.StepStatus_STEP_STATUS_PENDING})
	d.undo = d.undo.add(el)
	return true
}

func (d *data) applyObservation(e *runv1.Event, b *runv1.ObservationRecorded) {
	o := b.GetObservation()
	d.withAction(b.GetActionId(), func(a *runv1.ActionState) {
		if o.GetOutcome() == runv1.Outcome_OUTCOME_STARTED {
			a.Started = true
			return
		}
		a.ObservedRevision = d.revision
		a.Late = a.GetLate() || b.GetLate()
		a.ObservationDigest = e.GetCause().GetReportDigest()
		a.Error = o.GetError()
		switch o.GetOutcome() {
		case runv1.Outcome_OUTCOME_SUCCESS, runv1.Outcome_OUTCOME_PARTIAL:
			a.Status = runv1.ActionStatus_ACTION_STATUS_SUCCEEDED
		case runv1.Outcome_OUTCOME_REVOKED:
			a.Status = runv1.ActionStatus_ACTION_STATUS_REVOKED
		default:
			a.Status = runv1.ActionStatus_ACTION_STATUS_FAILED
			if !a.GetIdempotent() && codeRule(o.GetError().GetCode()).Ambiguous {
				// Not an outcome: it may have had its effect.
				a.Status = runv1.ActionStatus_ACTION_STATUS_TIMED_OUT
				if o.GetExecutedBy() != "" {
					a.Status = runv1.ActionStatus_ACTION_STATUS_UNKNOWN
				}
			}
			if o.GetError().GetCode() == codeUnknownOutcome {
				a.Status = runv1.ActionStatus_ACTION_STATUS_UNKNOWN
			}
		}
		if !b.GetLate() {
			a.Observation = o
		}
	})
}

// judged forgets the observation that a step was judged by; its digest stays in the ledger.
func (d *data) judged(st *runv1.StepState) *runv1.Observation {
	n := int(st.GetAction())
	if n == 0 || n > d.actions.len() {
		return nil
	}
	a := d.actions.at(n - 1)
	o := a.st.GetObservation()
	if o != nil {
		c := copyAction(a.st)
		c.Observation = nil
		d.actions = d.actions.set(n-1, a.withState(c))
	}
	return o
}
