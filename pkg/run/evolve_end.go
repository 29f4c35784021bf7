package run

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func (d *data) applyCancel(e *runv1.Event, b *runv1.CancelRequested) {
	if d.terminal() {
		return
	}
	d.status = runv1.RunStatus_RUN_STATUS_CANCELLING
	d.cancelReason = b.GetReason()
	d.cancelRevision = d.revision
	d.cancelDue = timestamppb.New(timeOf(e.GetTime()).Add(CancelGrace))
	if open := d.openPlanning(); open != nil {
		d.closeRequest(e, open.st.GetRequestId(), func(q *runv1.PlanningRequest) {
			q.Outcome = runv1.PlanningOutcome_PLANNING_OUTCOME_CANCELLED
		})
	}
}

// end makes the run terminal: what is still open is cancelled, and only the ledger may change from now on.
func (d *data) end(e *runv1.Event, status runv1.RunStatus) {
	if d.terminal() {
		return
	}
	d.status = status
	if open := d.openPlanning(); open != nil {
		d.closeRequest(e, open.st.GetRequestId(), func(q *runv1.PlanningRequest) {
			q.Outcome = runv1.PlanningOutcome_PLANNING_OUTCOME_CANCELLED
		})
	}
	d.inputs.each(isOpen, func(i int, in *inputElem) bool {
		u := copyInput(in.st)
		u.Open, u.ClosedRevision = false, d.revision
		d.inputs = d.inputs.set(i, newInputElem(u))
		return true
	})
	d.steps = d.ended(e, d.steps, placeStep)
	d.undo = d.ended(e, d.undo, placeUndo)
}

// ended cancels what is open; a step that waits for a new plan has failed. Nothing derived matters any more.
func (d *data) ended(e *runv1.Event, v vector[*stepElem], kind placeKind) vector[*stepElem] {
	if v.sum().open == 0 && !anyItems(v) {
		return v
	}
	all := make([]*stepElem, 0, v.len())
	v.each(0, func(_ int, el *stepElem) bool {
		c := *el
		if c.items.len() > 0 {
			c.items = d.ended(e, c.items, placeItem)
			c.hashAll()
		}
		if !stepTerminal(c.st.GetStatus()) {
			st := copyStep(c.st)
			status := runv1.StepStatus_STEP_STATUS_CANCELLED
			if st.GetStatus() == runv1.StepStatus_STEP_STATUS_REPLANNING {
				status = runv1.StepStatus_STEP_STATUS_FAILED
			}
			st.Status, st.Due, st.EndedAt, st.Revision = status, nil, e.GetTime(), d.revision
			c = *c.withState(st)
		}
		c.sum = summary{due: never}
		all = append(all, &c)
		return true
	})
	return vectorOf(all)
}

func anyItems(v vector[*stepElem]) bool {
	found := false
	v.each(0, func(_ int, el *stepElem) bool {
		found = el.items.sum().flags != 0 || el.items.sum().open != 0
		return !found
	})
	return found
}

func (d *data) applyStepCancelled(e *runv1.Event, b *runv1.StepCancelled) {
	p := d.find(b.GetStepId())
	if el := d.at(p); el != nil {
		d.giveUp(el.st)
	}
	d.withStep(e, b.GetStepId(), func(st *runv1.StepState) {
		st.Status = runv1.StepStatus_STEP_STATUS_CANCELLED
		st.Due, st.EndedAt = nil, e.GetTime()
	})
}

// giveUp closes the ledger entry of a step that is cancelled: what may have had an effect stays unknown.
func (d *data) giveUp(st *runv1.StepState) {
	n := int(st.GetAction())
	if n == 0 || n > d.actions.len() {
		return
	}
	a := d.actions.at(n - 1)
	c := copyAction(a.st)
	c.Observation = nil
	if actionOpen(c.GetStatus()) {
		c.Status = runv1.ActionStatus_ACTION_STATUS_CANCELLED
		if !c.GetIdempotent() {
			c.Status = runv1.ActionStatus_ACTION_STATUS_UNKNOWN
		}
	}
	d.actions = d.actions.set(n-1, a.withState(c))
}
