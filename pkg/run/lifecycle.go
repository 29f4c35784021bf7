package run

import (
	"strings"

	"github.com/cairnrun/cairn/pkg/plan"
	"github.com/cairnrun/cairn/pkg/run/mode"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// cancelling ends a cancelled run: steps that wait are cancelled at once, actions that must not be repeated are revoked,
// and what is under way has until the grace is over to say how it ended.
func (x *decider) cancelling(d *data) *runv1.Event {
	cause := d.cancelRevision
	done := func() *runv1.Event {
		return x.event(cause, "cancel", values().bool("grace_over", d.cancelGraceOver),
			&runv1.Event{Body: &runv1.Event_RunCancelled{RunCancelled: &runv1.RunCancelled{Reason: d.cancelReason}}})
	}
	if d.quarantine != "" {
		// The core failed on this run: as little of it as can be is used.
		return done()
	}
	if e := x.revokeOwed(d, cause, "cancelled"); e != nil {
		return e
	}
	if p, ok := d.first(wantsJudging); ok {
		// What came back before the end is still true.
		st := d.at(p).st
		if a := d.newest(st); st.GetStatus() == runv1.StepStatus_STEP_STATUS_RUNNING && a.GetStatus() == runv1.ActionStatus_ACTION_STATUS_SUCCEEDED && !st.GetExpanded() {
			return x.event(max(cause, a.GetObservedRevision()), "observed", nil, &runv1.Event{Body: &runv1.Event_StepSucceeded{StepSucceeded: &runv1.StepSucceeded{
				StepId: st.GetStepId(), Partial: a.GetObservation().GetOutcome() == runv1.Outcome_OUTCOME_PARTIAL}}})
		}
		if !st.GetExpanded() {
			return x.cancelStep(cause, st)
		}
	}
	if p, ok := d.first(isIdle); ok {
		return x.cancelStep(cause, d.at(p).st)
	}
	if !d.cancelGraceOver && d.actions.sum().open > 0 {
		return nil
	}
	if i := d.actions.first(isOpen); i >= 0 {
		if el := d.at(d.find(d.actions.at(i).st.GetStepId())); el != nil && !stepTerminal(el.st.GetStatus()) {
			return x.cancelStep(cause, el.st)
		}
	}
	return done()
}

func (x *decider) cancelStep(cause int64, st *runv1.StepState) *runv1.Event {
	return x.event(cause, "cancel", nil, &runv1.Event{Body: &runv1.Event_StepCancelled{StepCancelled: &runv1.StepCancelled{StepId: st.GetStepId()}}})
}

// finalize ends a run whose steps are done: all of them, or, once a finish step has succeeded, all that are required.
func (x *decider) finalize(d *data) (e *runv1.Event, done bool) {
	s := d.steps.sum()
	finished := s.flags&isFinish != 0 && s.flags&isRequired == 0 && d.actions.sum().open == 0
	if s.open > 0 && !finished || d.openPlanning() != nil {
		return nil, false
	}
	cause := d.lastStepRevision()
	dec := x.mode.Finalize(view{d: d})
	switch dec.Kind {
	case mode.Complete:
		answer := d.makeAnswer()
		b := &runv1.RunCompleted{Answer: answer.GetInline(), AnswerArtifact: answer.GetArtifact()}
		return x.event(cause, "complete", values().int("steps", int64(len(d.plan.GetSteps()))).int("acceptance", int64(len(d.plan.GetAcceptance()))),
			&runv1.Event{Body: &runv1.Event_RunCompleted{RunCompleted: b}}), true
	case mode.Replan:
		return x.requestReplan(d, cause, &runv1.ReplanRequested{Scope: dec.Scope, Error: dec.Error, Attempt: 1}), true
	}
	err := dec.Error
	if lost := (view{d: d}).Lost(); err == nil && lost != "" {
		st := d.steps.at(d.steps.first(isLost)).st
		err = fault(codeDependencyFailed, "step %s cannot run, since a step that it depends on failed", lost)
		for i, step := range d.plan.GetSteps() {
			if step.GetId() != st.GetStepId() {
				continue
			}
			for _, dep := range d.layout.graph.Dependencies(i) {
				if f := d.steps.at(int(dep)).st; f.GetStatus() == runv1.StepStatus_STEP_STATUS_FAILED && !f.GetFailedOptional() {
					err = withDetails(err, triggerDetails(f.GetStepId(), f.GetError()).json())
				}
			}
		}
	}
	if err == nil {
		err = fault("internal", "the mode ended the run")
	}
	return x.fail(d, cause, "finalize", values().str("decision", dec.Kind.String()), err), true
}

// lastStepRevision is the newest event among the plan's last steps.
func (d *data) lastStepRevision() int64 {
	cause := d.planRevision
	for _, i := range d.layout.graph.Sinks() {
		cause = max(cause, d.steps.at(i).st.GetRevision())
	}
	return cause
}

// makeAnswer is the run's answer: the arguments of its finish step; else the result of its only last step; else an
// object of the last steps' results by id. Steps that failed, as optional ones or before a replan, are left out.
func (d *data) makeAnswer() *runv1.Value {
	if i := d.steps.first(isFinish); i >= 0 {
		return d.steps.at(i).st.GetResult()
	}
	var last []*runv1.StepState
	for _, i := range d.layout.graph.Sinks() {
		if st := d.steps.at(i).st; st.GetStatus() != runv1.StepStatus_STEP_STATUS_FAILED {
			last = append(last, st)
		}
	}
	if len(last) == 1 {
		if v := last[0].GetResult(); v != nil {
			return v
		}
		return inline(&planv1.JsonText{Text: "null"})
	}
	o, size := values(), 0
	for _, st := range last {
		if st.GetStatus() != runv1.StepStatus_STEP_STATUS_SUCCEEDED {
			continue
		}
		text := valueText(st.GetResult())
		if size+len(text) > MaxJoinedBytes {
			text = `{"omitted":"over max_joined_bytes"}`
		}
		size += len(text)
		o.raw(st.GetStepId(), text)
	}
	return inline(o.json())
}

// compensate undoes what is committed, newest first, and then fails the run. It waits for what is under way, since that
// may have to be undone too.
func (x *decider) compensate(d *data, failed *runv1.StepState) *runv1.Event {
	if d.actions.sum().open > 0 {
		return nil
	}
	if i := d.undo.first(wantsSlot); i >= 0 {
		p := place{kind: placeUndo, step: i}
		return x.begin(d, p, d.stepAt(p), d.undo.at(i).st.GetRevision())
	}
	if d.undo.sum().open > 0 {
		return nil
	}
	if st, step := d.nextUndo(); st != nil {
		return x.beginUndo(d, st, step, failed.GetRevision())
	}
	var undone, not []string
	d.undo.each(0, func(_ int, el *stepElem) bool {
		id := strings.TrimSuffix(el.st.GetStepId(), undoSuffix)
		if el.st.GetStatus() == runv1.StepStatus_STEP_STATUS_SUCCEEDED {
			undone = append(undone, id)
		} else {
			not = append(not, id)
		}
		return true
	})
	e := classed(failed.GetError())
	details := values().strs("compensated", undone).strs("not_compensated", not)
	if failed.GetError().GetDetails() != nil {
		details.raw("error", failed.GetError().GetDetails().GetText())
	}
	return x.fail(d, failed.GetRevision(), "compensated", values().str("step", failed.GetStepId()), &runv1.Error{
		Code: e.GetCode(), Message: e.GetMessage(), Class: e.GetClass(), Details: details.json()})
}

// nextUndo is the step that succeeded last among those that can be undone and are not.
func (d *data) nextUndo() (*runv1.StepState, *planv1.Step) {
	undone := map[string]bool{}
	d.undo.each(0, func(_ int, el *stepElem) bool {
		undone[strings.TrimSuffix(el.st.GetStepId(), undoSuffix)] = true
		return true
	})
	var best *runv1.StepState
	var of *planv1.Step
	consider := func(st *runv1.StepState, step *planv1.Step) {
		if st.GetStatus() == runv1.StepStatus_STEP_STATUS_SUCCEEDED && !undone[st.GetStepId()] && (best == nil || st.GetRevision() > best.GetRevision()) {
			best, of = st, step
		}
	}
	for i, step := range d.plan.GetSteps() {
		if step.GetCompensate() == nil {
			continue
		}
		el := d.steps.at(i)
		if step.GetForEach() == nil {
			consider(el.st, step)
			continue
		}
		el.items.each(0, func(_ int, item *stepElem) bool {
			consider(item.st, step)
			return true
		})
	}
	return best, of
}

// beginUndo asks for the action that undoes a step.
func (x *decider) beginUndo(d *data, st *runv1.StepState, step *planv1.Step, cause int64) *runv1.Event {
	undo := &runv1.StepState{StepId: st.GetStepId() + undoSuffix}
	sc := scope{d: d}
	if p := d.find(st.GetStepId()); p.kind == placeItem {
		sc = d.scopeOf(p)
	}
	failed := func(e *runv1.Error) *runv1.Event {
		return x.event(cause, "compensate", nil, &runv1.Event{Body: &runv1.Event_StepFailed{StepFailed: &runv1.StepFailed{StepId: undo.GetStepId(), Error: e}}})
	}
	if tool := plan.ToolName(step.GetCompensate()); d.layout.tools[tool] == nil {
		return failed(fault("unknown_tool", "the plan came without a definition of the tool %s", tool))
	}
	resolved, err := plan.Resolve(step.GetCompensate().GetArguments(), sc.lookup)
	if err != nil {
		return failed(fault(codeRefUnavailable, "%s", err.Error()))
	}
	return x.request(d, place{kind: placeUndo, step: -1}, step, undo, cause, sc, resolved)
}
