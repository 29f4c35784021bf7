package run

import (
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// weighResult judges what came back of an action. There is one observation an action: the same again is a repeat,
// another one a conflict. What comes after its attempt was given up is kept, marked late, and changes nothing but the
// ledger; that holds after the run's end too.
func (d *data) weighResult(b *runv1.ResultReported, digest string) verdict {
	a, _ := d.action(b.GetActionId())
	if a == nil {
		v := refuse(refusedUnknownAction, "the run has no action "+cutAtRune(b.GetActionId(), 128))
		v.quiet = d.terminal()
		return v
	}
	st, o := a.st, b.GetObservation()
	switch o.GetOutcome() {
	case runv1.Outcome_OUTCOME_UNSPECIFIED:
		v := refuse(refusedInvalidReport, "the observation has no outcome")
		v.quiet = d.terminal()
		return v
	case runv1.Outcome_OUTCOME_STARTED:
		if st.GetStarted() || !actionOpen(st.GetStatus()) {
			return repeat()
		}
	case runv1.Outcome_OUTCOME_REVOKED:
		if settled(st) {
			return repeat()
		}
	}
	if st.GetObservationDigest() == digest || tellsNothing(st, o) {
		return repeat()
	}
	if settled(st) && !provisional(st, o) {
		v := refuse(refusedAnswerConflict, "the action "+st.GetActionId()+" has another result already")
		v.quiet = d.terminal()
		return v
	}
	if tooLarge(o) {
		o = &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_ERROR, Error: withDetails(
			fault(codeOutputTooLarge, "the output exceeds max_observation_bytes and came without an artifact"),
			values().int("maximum", MaxObservationBytes).json()),
			StartedAt: o.GetStartedAt(), Duration: o.GetDuration(), Usage: o.GetUsage(), ExecutedBy: o.GetExecutedBy()}
	}
	return accept(&runv1.Event{Body: &runv1.Event_ObservationRecorded{ObservationRecorded: &runv1.ObservationRecorded{
		ActionId: st.GetActionId(), StepId: st.GetStepId(), Attempt: st.GetAttempt(), Observation: o, Late: !d.current(st) && !d.clears(st, o)}}})
}

// settled says whether an action's outcome was reported.
func settled(a *runv1.ActionState) bool {
	switch a.GetStatus() {
	case runv1.ActionStatus_ACTION_STATUS_SUCCEEDED, runv1.ActionStatus_ACTION_STATUS_FAILED, runv1.ActionStatus_ACTION_STATUS_REVOKED:
		return true
	}
	return false
}

// tellsNothing says whether an observation is an error that leaves the outcome open, of an action of which as much is known.
func tellsNothing(a *runv1.ActionState, o *runv1.Observation) bool {
	if o.GetOutcome() == runv1.Outcome_OUTCOME_ERROR && o.GetError().GetCode() == codeUnknownOutcome {
		return settled(a) || a.GetStatus() == runv1.ActionStatus_ACTION_STATUS_UNKNOWN
	}
	if o.GetOutcome() != runv1.Outcome_OUTCOME_ERROR || !codeRule(o.GetError().GetCode()).Ambiguous {
		return false
	}
	return settled(a) || !a.GetIdempotent() && a.GetStatus() != runv1.ActionStatus_ACTION_STATUS_REQUESTED
}

// provisional says whether what is known of an action is only that it did not answer in time: a real result replaces it.
func provisional(a *runv1.ActionState, o *runv1.Observation) bool {
	real := o.GetOutcome() == runv1.Outcome_OUTCOME_SUCCESS || o.GetOutcome() == runv1.Outcome_OUTCOME_PARTIAL ||
		o.GetOutcome() == runv1.Outcome_OUTCOME_ERROR && o.GetError().GetCode() != codeTimeout
	return real && a.GetStatus() == runv1.ActionStatus_ACTION_STATUS_FAILED && a.GetError().GetCode() == codeTimeout && !a.GetLate()
}

// current says whether a step still waits for this action.
func (d *data) current(a *runv1.ActionState) bool {
	if d.terminal() || !actionOpen(a.GetStatus()) {
		return false
	}
	el := d.at(d.find(a.GetStepId()))
	if el == nil || el.st.GetStatus() != runv1.StepStatus_STEP_STATUS_RUNNING {
		return false
	}
	n := d.newest(el.st)
	return n.GetActionId() == a.GetActionId()
}

// clears says whether an observation tells the outcome of an action about which a person is still asked.
func (d *data) clears(a *runv1.ActionState, o *runv1.Observation) bool {
	if d.terminal() || a.GetStatus() != runv1.ActionStatus_ACTION_STATUS_UNKNOWN || a.GetLate() {
		return false
	}
	if code := o.GetError().GetCode(); o.GetOutcome() == runv1.Outcome_OUTCOME_ERROR && (code == codeUnknownOutcome || codeRule(code).Ambiguous) {
		return false
	}
	el := d.at(d.find(a.GetStepId()))
	if el == nil || d.newest(el.st).GetActionId() != a.GetActionId() {
		return false
	}
	in, _ := d.input(el.st.GetInputRequest())
	return asksForOutcome(el.st, in)
}

func tooLarge(o *runv1.Observation) bool {
	return len(o.GetOutput().GetInline().GetText())+len(o.GetResult().GetInline().GetText()) > MaxObservationBytes
}
