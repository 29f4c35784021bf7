package run

import (
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/run/mode"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Decide returns what follows from s, at most one commit's worth: events that a person could have predicted from the
// state alone. It is empty when nothing follows. Time decides nothing here, it is only written down.
func Decide(s State, now time.Time) []*runv1.Event {
	x := newDecider(s, now)
	x.run(CommitEvents, CommitBytes)
	return x.out
}

// decider decides and folds, event by event. Its data is its own until it has finished.
type decider struct {
	d    *data
	now  time.Time
	at   *timestamppb.Timestamp
	out  []*runv1.Event
	size int
	mode mode.Mode
}

func newDecider(s State, now time.Time) *decider {
	d := *s.data()
	now = laterOf(now.UTC(), timeOf(d.updatedAt))
	m, _ := mode.For(d.spec.GetMode())
	return &decider{d: &d, now: now, at: timestamppb.New(now), mode: m}
}

// run decides until nothing follows or the limits of a commit are reached; more tells that something may follow.
func (x *decider) run(maxEvents, maxBytes int) (more bool) {
	for len(x.out) < maxEvents && x.size < maxBytes {
		if !x.step() {
			return false
		}
	}
	return x.peek()
}

// step applies one rule; false where none applies.
func (x *decider) step() bool {
	e := x.next()
	if e == nil {
		return false
	}
	x.emit(e)
	return true
}

// peek tells whether a rule applies.
func (x *decider) peek() bool { return x.next() != nil }

func (x *decider) emit(e *runv1.Event) {
	x.d.fold(e)
	x.out = append(x.out, e)
	x.size += proto.Size(e)
}

// event completes a decided event.
func (x *decider) event(cause int64, rule string, vals *object, e *runv1.Event) *runv1.Event {
	d := x.d
	e.RunId, e.Tenant, e.Trace = d.runID, d.tenant, d.trace
	e.Revision = d.revision + 1
	e.Id = eventID(d.runID, e.Revision)
	e.Kind = runv1.EventKind_EVENT_KIND_DECIDED
	e.Time = x.at
	e.Cause = &runv1.Cause{Revision: cause}
	e.Rule = &runv1.Rule{Name: rule}
	if vals != nil {
		e.Rule.Values = vals.json()
	}
	return e
}

func eventID(runID string, revision int64) string {
	return runID + "/" + strconv.FormatInt(revision, 10)
}

// next is the next event that follows from the state, nil where none does. The order of the rules is the order of
// this function: first what ends or stops a run, then what came back, then what it leads to, then new work.
func (x *decider) next() *runv1.Event {
	d := x.d
	switch {
	case d.revision == 0 || d.terminal():
		return nil
	case d.status == runv1.RunStatus_RUN_STATUS_CANCELLING:
		return x.cancelling(d)
	case d.status == runv1.RunStatus_RUN_STATUS_QUARANTINED:
		return nil
	case x.mode == nil:
		return x.fail(d, d.baseRevision, "mode", values().str("mode", d.spec.GetMode()).strs("known", mode.Names()),
			fault(codeModeUnavailable, "this version has no mode %s", d.spec.GetMode()))
	case d.deadlineRevision != 0:
		return x.fail(d, d.deadlineRevision, "max_duration", values().int("maximum_seconds", int64(d.limits.maxDuration/time.Second)),
			budgetFault("max_duration", int64(d.limits.maxDuration/time.Millisecond), int64(d.limits.maxDuration/time.Millisecond)))
	case d.plan == nil:
		return x.planning(d)
	}
	if p, ok := d.first(wantsJudging); ok {
		return x.judge(d, p)
	}
	if i := d.steps.first(wantsUndo); i >= 0 {
		return x.compensate(d, d.steps.at(i).st)
	}
	if i := d.steps.first(isFatal); i >= 0 {
		st := d.steps.at(i).st
		return x.fail(d, st.GetRevision(), "step_failed", values().str("step", st.GetStepId()).str("policy", "fail"), st.GetError())
	}
	if e, done := x.replanning(d); done {
		return e
	}
	if e := x.warn(d); e != nil {
		return e
	}
	if e, done := x.boundary(d); done {
		return e
	}
	if e, done := x.finalize(d); done {
		return e
	}
	if d.held() == "" && x.mode.Next(view{d: d}).Kind == mode.Execute {
		if e := x.start(d); e != nil {
			return e
		}
	}
	return x.stuck(d)
}

// first finds the first step, item or compensation that has a flag.
func (d *data) first(f flags) (place, bool) {
	if i := d.steps.first(f); i >= 0 {
		items := d.steps.at(i).items
		if k := items.first(f); k >= 0 {
			return place{kind: placeItem, step: i, item: k}, true
		}
		return place{kind: placeStep, step: i}, true
	}
	if i := d.undo.first(f); i >= 0 {
		return place{kind: placeUndo, step: i}, true
	}
	return place{}, false
}

// fail ends the run. Actions owed that must not be repeated are revoked first, so that none of them begins any more.
func (x *decider) fail(d *data, cause int64, rule string, vals *object, err *runv1.Error) *runv1.Event {
	if e := x.revokeOwed(d, cause, "run_failed"); e != nil {
		return e
	}
	return x.event(cause, rule, vals, &runv1.Event{Body: &runv1.Event_RunFailed{RunFailed: &runv1.RunFailed{Error: err}}})
}

// revokeOwed asks for the revocation of the first action that is owed and must not be repeated.
func (x *decider) revokeOwed(d *data, cause int64, reason string) *runv1.Event {
	i := d.actions.first(isRevocable)
	if i < 0 {
		return nil
	}
	return x.revoke(d.actions.at(i).st, cause, reason)
}

func (x *decider) revoke(a *runv1.ActionState, cause int64, reason string) *runv1.Event {
	return x.event(cause, "revoke", values().str("action", a.GetActionId()).bool("idempotent", a.GetIdempotent()).str("reason", reason),
		&runv1.Event{Body: &runv1.Event_ActionRevocationRequested{ActionRevocationRequested: &runv1.ActionRevocationRequested{
			ActionId: a.GetActionId(), StepId: a.GetStepId(), Reason: reason}}})
}

// stuck fails a run that can neither go on nor wait for anything. It is not reachable by any rule above, and stands here
// so that a mistake in them ends in a sentence and not in silence.
func (x *decider) stuck(d *data) *runv1.Event {
	if d.steps.sum().open == 0 && d.undo.sum().open == 0 {
		return nil
	}
	f := d.steps.sum().flags | d.undo.sum().flags
	waits := d.actions.sum().open > 0 || d.inputs.sum().open > 0 || d.openPlanning() != nil ||
		d.steps.sum().due != never || d.undo.sum().due != never
	if waits || f&(wantsJudging|wantsReplan) != 0 {
		return nil
	}
	return x.fail(d, d.planRevision, "stuck", values().int("open_steps", int64(d.steps.sum().open)),
		fault(codeStuck, "steps are open and nothing can bring them on"))
}

func budgetFault(limit string, value, maximum int64) *runv1.Error {
	e := fault(codeBudgetExhausted, "the limit %s is reached", limit)
	return withDetails(e, values().str("limit", limit).int("value", value).int("maximum", maximum).json())
}

// view is what a mode sees.
type view struct{ d *data }

func (v view) HasPlan() bool { return v.d.plan != nil }

func (v view) Steps() (all, open int) {
	return len(v.d.plan.GetSteps()), int(v.d.steps.sum().open)
}

func (v view) MaxReplans() int32 { return v.d.limits.maxReplans }

func (v view) Lost() string {
	if i := v.d.steps.first(isLost); i >= 0 {
		return v.d.steps.at(i).st.GetStepId()
	}
	return ""
}

func (v view) Unmet() *runv1.Error { return v.d.unmet(v.d.makeAnswer()) }

// policyOf writes a mode's decision on a failure as the policy that follows.
func policyOf(dec mode.Decision) planv1.FailurePolicy {
	switch dec.Kind {
	case mode.Replan:
		if dec.Scope == runv1.ReplanScope_REPLAN_SCOPE_STEP {
			return planv1.FailurePolicy_FAILURE_POLICY_REPLAN_STEP
		}
		return planv1.FailurePolicy_FAILURE_POLICY_REPLAN_REMAINING
	case mode.AskUser:
		return planv1.FailurePolicy_FAILURE_POLICY_ASK_USER
	case mode.Skip:
		return planv1.FailurePolicy_FAILURE_POLICY_SKIP
	case mode.Compensate:
		return planv1.FailurePolicy_FAILURE_POLICY_COMPENSATE
	}
	return planv1.FailurePolicy_FAILURE_POLICY_FAIL
}
