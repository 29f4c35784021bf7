package run

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Deadline is the next time at which a run wants to be woken.
type Deadline struct {
	At time.Time
	// Absolute deadlines go by the owner's own clock, others by the run's commit times.
	Absolute bool
	// Timer is the body of the report to make when it is due.
	Timer *runv1.TimerDue
}

// NextDeadline is the earliest deadline; false where there is none. A cancel's grace replaces all others.
func NextDeadline(s State) (Deadline, bool) {
	var best Deadline
	found := false
	for _, dl := range s.data().deadlines() {
		if !found || dl.At.Before(best.At) {
			best, found = dl, true
		}
	}
	return best, found
}

// deadlines are the earliest deadline of each kind of thing, at most six.
func (d *data) deadlines() []Deadline {
	if d.revision == 0 || d.terminal() || d.status == runv1.RunStatus_RUN_STATUS_QUARANTINED {
		return nil
	}
	if d.status == runv1.RunStatus_RUN_STATUS_CANCELLING {
		if d.cancelGraceOver || d.cancelDue == nil {
			return nil
		}
		return []Deadline{deadline(runv1.TimerKind_TIMER_KIND_CANCEL_GRACE, "", "", timeOf(d.cancelDue), false)}
	}
	all := make([]Deadline, 0, 6)
	if d.deadline != nil && d.deadlineRevision == 0 {
		all = append(all, deadline(runv1.TimerKind_TIMER_KIND_RUN_DEADLINE, "", "", timeOf(d.deadline), false))
	}
	if open := d.openPlanning(); open != nil && open.st.GetDue() != nil {
		all = append(all, deadline(runv1.TimerKind_TIMER_KIND_PLANNING, "", "", timeOf(open.st.GetDue()), false))
	}
	if i := d.actions.earliest(); i >= 0 {
		all = append(all, actionDeadline(d.actions.at(i).st))
	}
	if i := d.inputs.earliest(); i >= 0 {
		all = append(all, inputDeadline(d.inputs.at(i).st))
	}
	if i := d.steps.earliest(); i >= 0 {
		el := d.steps.at(i)
		if k := el.items.earliest(); k >= 0 && el.items.sum().due == el.sum.due {
			el = el.items.at(k)
		}
		all = append(all, d.stepDeadline(el.st))
	}
	if i := d.undo.earliest(); i >= 0 {
		all = append(all, d.stepDeadline(d.undo.at(i).st))
	}
	return all
}

// timerOf is the deadline that a timer report speaks of, whether it is the earliest or not; nil where there is none.
func (d *data) timerOf(b *runv1.TimerDue) *runv1.TimerDue {
	if d.terminal() || d.status == runv1.RunStatus_RUN_STATUS_QUARANTINED || d.status == runv1.RunStatus_RUN_STATUS_CANCELLING {
		return nil
	}
	var dl Deadline
	switch b.GetTimer() {
	case runv1.TimerKind_TIMER_KIND_ACTION_TIMEOUT, runv1.TimerKind_TIMER_KIND_ACTION_GRACE:
		a, _ := d.action(b.GetActionId())
		if a == nil || !actionOpen(a.st.GetStatus()) {
			return nil
		}
		dl = actionDeadline(a.st)
	case runv1.TimerKind_TIMER_KIND_RETRY, runv1.TimerKind_TIMER_KIND_WAIT:
		el := d.at(d.find(b.GetStepId()))
		if el == nil || el.st.GetStatus() != runv1.StepStatus_STEP_STATUS_WAITING || el.st.GetDue() == nil {
			return nil
		}
		dl = d.stepDeadline(el.st)
	case runv1.TimerKind_TIMER_KIND_USER_INPUT:
		u, _ := d.input(d.inputOfStep(b.GetStepId()))
		if u == nil || !u.GetOpen() || u.GetDue() == nil {
			return nil
		}
		dl = inputDeadline(u)
	default:
		return nil
	}
	if dl.Timer.GetTimer() != b.GetTimer() || dl.Timer.GetStepId() != b.GetStepId() || dl.Timer.GetActionId() != b.GetActionId() {
		return nil
	}
	return dl.Timer
}

func deadline(kind runv1.TimerKind, step, action string, at time.Time, absolute bool) Deadline {
	return Deadline{At: at, Absolute: absolute, Timer: &runv1.TimerDue{Timer: kind, StepId: step, ActionId: action, Due: timestamppb.New(at)}}
}

func actionDeadline(a *runv1.ActionState) Deadline {
	kind := runv1.TimerKind_TIMER_KIND_ACTION_TIMEOUT
	if a.GetStatus() == runv1.ActionStatus_ACTION_STATUS_REVOKING {
		kind = runv1.TimerKind_TIMER_KIND_ACTION_GRACE
	}
	return deadline(kind, a.GetStepId(), a.GetActionId(), actionDue(a), false)
}

func inputDeadline(u *runv1.UserInputState) Deadline {
	return deadline(runv1.TimerKind_TIMER_KIND_USER_INPUT, u.GetStepId(), "", timeOf(u.GetDue()), false)
}

func (d *data) stepDeadline(st *runv1.StepState) Deadline {
	kind := runv1.TimerKind_TIMER_KIND_RETRY
	if d.isWait(st) {
		kind = runv1.TimerKind_TIMER_KIND_WAIT
	}
	return deadline(kind, st.GetStepId(), "", timeOf(st.GetDue()), st.GetDueAbsolute())
}

// isWait says whether a step that waits does so because that is what it is for: controls are never retried.
func (d *data) isWait(st *runv1.StepState) bool {
	a := d.stepAt(d.find(st.GetStepId())).GetAction()
	return a.GetKind() == planv1.ActionKind_ACTION_KIND_CONTROL && a.GetName() == plan.ControlWait
}
