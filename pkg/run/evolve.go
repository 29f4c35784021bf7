package run

import (
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Evolve applies an event. It never judges: what does not fit the state is left out, so that folding never fails. An
// event of a kind that this version does not know only moves the revision; KnownEvent tells.
func Evolve(s State, e *runv1.Event) State {
	d := *s.data()
	d.fold(e)
	return State{d: &d}
}

// fold is Evolve in place.
func (d *data) fold(e *runv1.Event) {
	if e.GetRevision() > 0 {
		d.revision = e.GetRevision()
	} else {
		d.revision++
	}
	if e.GetTime() != nil {
		d.updatedAt = e.GetTime()
	}
	d.apply(e)
}

// KnownEvent tells whether this version understands an event. A run with one that it does not is held back.
func KnownEvent(e *runv1.Event) bool {
	return e.GetBody() != nil && len(e.ProtoReflect().GetUnknown()) == 0
}

func (d *data) apply(e *runv1.Event) {
	switch b := e.GetBody().(type) {
	case *runv1.Event_RunSubmitted:
		d.applySubmitted(e, b.RunSubmitted)
	case *runv1.Event_PlanRequested:
		d.applyPlanRequested(e, b.PlanRequested)
	case *runv1.Event_PlanCreated:
		d.applyPlanCreated(e, b.PlanCreated)
	case *runv1.Event_PlanRejected:
		r := b.PlanRejected
		d.closeRequest(e, r.GetRequestId(), func(q *runv1.PlanningRequest) {
			q.Outcome = runv1.PlanningOutcome_PLANNING_OUTCOME_REJECTED
			q.OutcomeFindings, q.OutcomeText = r.GetFindings(), r.GetText()
		})
	case *runv1.Event_PlanPatched:
		d.applyPatched(e, b.PlanPatched)
	case *runv1.Event_PatchRejected:
		r := b.PatchRejected
		d.rememberPatch(e, r.GetRequestId())
		d.closeRequest(e, r.GetRequestId(), func(q *runv1.PlanningRequest) {
			q.Outcome = runv1.PlanningOutcome_PLANNING_OUTCOME_REJECTED
			q.OutcomeFindings, q.OutcomeText = r.GetFindings(), r.GetText()
		})
	case *runv1.Event_PlanningFailed:
		r := b.PlanningFailed
		d.closeRequest(e, r.GetRequestId(), func(q *runv1.PlanningRequest) {
			q.Outcome = runv1.PlanningOutcome_PLANNING_OUTCOME_GIVEN_UP
			q.OutcomeError = r.GetError()
		})
	case *runv1.Event_ReplanRequested:
		d.applyReplanRequested(e, b.ReplanRequested)
	case *runv1.Event_ReplanDeclined:
		r := b.ReplanDeclined
		d.closeRequest(e, r.GetRequestId(), func(q *runv1.PlanningRequest) {
			q.Outcome = runv1.PlanningOutcome_PLANNING_OUTCOME_DECLINED
			q.OutcomeReason, q.Answer = r.GetReason(), r.GetAnswer()
		})
	case *runv1.Event_StepStarted:
		d.applyStarted(e, b.StepStarted)
	case *runv1.Event_StepExpanded:
		d.applyExpanded(e, b.StepExpanded)
	case *runv1.Event_ActionRequested:
		d.applyRequested(e, b.ActionRequested)
	case *runv1.Event_ActionRevocationRequested:
		d.withAction(b.ActionRevocationRequested.GetActionId(), func(a *runv1.ActionState) {
			a.Status = runv1.ActionStatus_ACTION_STATUS_REVOKING
			from := laterOf(timeOf(a.GetNotAfter()).Add(ActionMargin), timeOf(e.GetTime()))
			a.GraceDue = timestamppb.New(from.Add(ActionGrace))
		})
	case *runv1.Event_ObservationRecorded:
		d.applyObservation(e, b.ObservationRecorded)
	case *runv1.Event_StepSucceeded:
		d.applySucceeded(e, b.StepSucceeded)
	case *runv1.Event_StepFailed:
		d.applyFailed(e, b.StepFailed)
	case *runv1.Event_StepSkipped:
		d.withStep(e, b.StepSkipped.GetStepId(), func(st *runv1.StepState) {
			st.Status = runv1.StepStatus_STEP_STATUS_SKIPPED
			st.SkipReason = b.StepSkipped.GetReason()
			st.EndedAt, st.Due = e.GetTime(), nil
		})
	case *runv1.Event_StepCancelled:
		d.applyStepCancelled(e, b.StepCancelled)
	case *runv1.Event_StepRetryScheduled:
		d.applyRetry(e, b.StepRetryScheduled)
	case *runv1.Event_UserInputRequested:
		d.applyInputRequested(e, b.UserInputRequested)
	case *runv1.Event_UserInputReceived:
		d.applyInputReceived(e, b.UserInputReceived)
	case *runv1.Event_UserInputWithdrawn:
		d.applyInputWithdrawn(e, b.UserInputWithdrawn)
	case *runv1.Event_TimerFired:
		d.applyTimer(e, b.TimerFired)
	case *runv1.Event_CancelRequested:
		d.applyCancel(e, b.CancelRequested)
	case *runv1.Event_ReportRefused:
		d.refused = append(slices.Clip(d.refused), &runv1.RefusedReport{Digest: b.ReportRefused.GetDigest(), Revision: d.revision})
	case *runv1.Event_LimitWarned:
		d.warned = append(slices.Clip(d.warned), b.LimitWarned.GetLimit())
		d.running(d.revision)
	case *runv1.Event_RunCompleted:
		d.answer, d.answerArtifact = b.RunCompleted.GetAnswer(), b.RunCompleted.GetAnswerArtifact()
		d.end(e, runv1.RunStatus_RUN_STATUS_COMPLETED)
	case *runv1.Event_RunFailed:
		d.err = b.RunFailed.GetError()
		d.end(e, runv1.RunStatus_RUN_STATUS_FAILED)
	case *runv1.Event_RunCancelled:
		d.end(e, runv1.RunStatus_RUN_STATUS_CANCELLED)
	case *runv1.Event_RunQuarantined:
		if !d.terminal() {
			d.status = runv1.RunStatus_RUN_STATUS_QUARANTINED
			d.quarantine = b.RunQuarantined.GetReason()
			d.baseRevision = d.revision
		}
	}
}

// running notes that something was decided: the run is no longer just created.
func (d *data) running(int64) {
	if d.status == runv1.RunStatus_RUN_STATUS_CREATED {
		d.status = runv1.RunStatus_RUN_STATUS_RUNNING
	}
}

func (d *data) applySubmitted(e *runv1.Event, b *runv1.RunSubmitted) {
	if d.status != runv1.RunStatus_RUN_STATUS_UNSPECIFIED {
		return
	}
	if d.runID == "" {
		d.runID = e.GetRunId()
	}
	d.tenant = e.GetTenant()
	d.spec = b.GetSpec()
	if d.spec == nil {
		d.spec = &runv1.RunSpec{}
	}
	d.bodyDigest = b.GetBodyDigest()
	d.limits = limitsOf(d.spec.GetLimits())
	d.trace = e.GetTrace()
	d.submittedAt = e.GetTime()
	d.baseRevision = d.revision
	if d.limits.maxDuration > 0 {
		d.deadline = timestamppb.New(timeOf(e.GetTime()).Add(d.limits.maxDuration))
	}
	d.status = runv1.RunStatus_RUN_STATUS_CREATED
}

// touch derives a step again after something that it looks at has changed.
func (d *data) touch(p place) {
	if e := d.at(p); e != nil {
		c := *e
		d.put(p, &c)
	}
}

// put stores a step's element, and tells its dependents where it became terminal or is no longer.
func (d *data) put(p place, e *stepElem) {
	old := d.at(p)
	d.derive(p, e)
	switch p.kind {
	case placeUndo:
		d.undo = d.undo.set(p.step, e)
		return
	case placeItem:
		parent := *d.steps.at(p.step)
		if old == nil {
			parent.items = parent.items.add(e)
		} else {
			parent.items = parent.items.set(p.item, e)
		}
		parent.hashAll()
		up := place{kind: placeStep, step: p.step}
		d.derive(up, &parent)
		d.steps = d.steps.set(p.step, &parent)
		return
	}
	d.steps = d.steps.set(p.step, e)
	if p.step >= len(d.plan.GetSteps()) {
		return
	}
	before, after := old.st.GetStatus(), e.st.GetStatus()
	waiting := asCount(!stepTerminal(after)) - asCount(!stepTerminal(before))
	odd := asCount(unsuccessful(after)) - asCount(unsuccessful(before))
	if waiting == 0 && odd == 0 {
		return
	}
	for _, i := range d.layout.graph.Dependents(p.step) {
		c := *d.steps.at(int(i))
		c.waiting += waiting
		c.unsuccessful += odd
		d.derive(place{kind: placeStep, step: int(i)}, &c)
		d.steps = d.steps.set(int(i), &c)
	}
}

func asCount(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

func unsuccessful(s runv1.StepStatus) bool {
	return stepTerminal(s) && s != runv1.StepStatus_STEP_STATUS_SUCCEEDED
}

// withStep changes a step's state. An item or compensation that has not begun begins.
func (d *data) withStep(e *runv1.Event, id string, change func(*runv1.StepState)) {
	d.running(d.revision)
	p := d.find(id)
	if p.kind == 0 && d.beginUndo(id) {
		p = d.find(id)
	}
	if p.kind == 0 {
		return
	}
	old := d.at(p)
	if old == nil {
		st := &runv1.StepState{StepId: id, Status: runv1.StepStatus_STEP_STATUS_PENDING}
		change(st)
		st.Revision = e.GetRevision()
		d.put(p, newStepElem(st))
		return
	}
	st := copyStep(old.st)
	change(st)
	if st.GetStatus() != old.st.GetStatus() || st.GetRevision() != old.st.GetRevision() {
		st.Revision = d.revision
	}
	d.put(p, old.withState(st))
}

// withAction changes a ledger entry, and lets its step look at it again.
func (d *data) withAction(id string, change func(*runv1.ActionState)) {
	a, i := d.action(id)
	if a == nil {
		return
	}
	st := copyAction(a.st)
	change(st)
	d.actions = d.actions.set(i, a.withState(st))
	d.touch(d.find(st.GetStepId()))
}

func (d *data) applyStarted(e *runv1.Event, b *runv1.StepStarted) {
	d.withStep(e, b.GetStepId(), func(st *runv1.StepState) {
		if st.GetStartedAt() == nil {
			st.StartedAt = e.GetTime()
		}
		if b.GetWaitsForSlot() {
			st.Status = runv1.StepStatus_STEP_STATUS_READY
			return
		}
		st.Status = runv1.StepStatus_STEP_STATUS_WAITING
		st.Attempts++
		st.Due, st.DueAbsolute, st.TimerFired = b.GetDue(), b.GetAbsolute(), false
	})
}

// applyExpanded makes a step its items. Items of an expansion before this one that succeeded, for the same element, stay.
func (d *data) applyExpanded(e *runv1.Event, b *runv1.StepExpanded) {
	p := d.find(b.GetStepId())
	if p.kind != placeStep {
		return
	}
	old := d.at(p)
	st := copyStep(old.st)
	before := st.GetItems()
	st.Status = runv1.StepStatus_STEP_STATUS_RUNNING
	st.Revision = d.revision
	st.Expanded, st.Items = true, b.GetItems()
	if st.GetStartedAt() == nil {
		st.StartedAt = e.GetTime()
	}
	el := *old
	var items []*stepElem
	el.items.each(0, func(i int, item *stepElem) bool {
		s := copyStep(item.st)
		switch {
		case i >= len(st.GetItems()):
			d.reset(s)
			s.Status = runv1.StepStatus_STEP_STATUS_REMOVED
		case s.GetStatus() != runv1.StepStatus_STEP_STATUS_SUCCEEDED || i >= len(before) || before[i].GetText() != st.GetItems()[i].GetText():
			d.reset(s)
		}
		c := item.withState(s)
		d.derive(place{kind: placeItem, step: p.step, item: i}, c)
		items = append(items, c)
		return true
	})
	el.items = vectorOf(items)
	d.put(p, el.withState(st))
	d.running(d.revision)
}

func (d *data) applySucceeded(e *runv1.Event, b *runv1.StepSucceeded) {
	d.withStep(e, b.GetStepId(), func(st *runv1.StepState) {
		o := d.judged(st)
		st.Status = runv1.StepStatus_STEP_STATUS_SUCCEEDED
		st.Partial = b.GetPartial()
		st.Error, st.Due, st.TimerFired = nil, nil, false
		st.EndedAt = e.GetTime()
		st.Result = b.GetResult()
		if st.Result == nil {
			st.Result = resultOf(o)
		}
		d.inlineBytes += int64(len(st.GetResult().GetInline().GetText()))
	})
}

// resultOf is what an observation says the step's result is.
func resultOf(o *runv1.Observation) *runv1.Value {
	if o.GetResult() != nil {
		return o.GetResult()
	}
	return o.GetOutput()
}

func (d *data) applyFailed(e *runv1.Event, b *runv1.StepFailed) {
	d.withStep(e, b.GetStepId(), func(st *runv1.StepState) {
		d.judged(st)
		st.Error, st.Policy = b.GetError(), b.GetPolicy()
		st.FailedOptional = b.GetOptional()
		st.FalsifiedAssumptions = b.GetFalsifiedAssumptions()
		st.Due, st.TimerFired, st.InputRequest = nil, false, ""
		st.EndedAt = e.GetTime()
		st.Status = runv1.StepStatus_STEP_STATUS_FAILED
		if b.GetOptional() {
			return
		}
		switch b.GetPolicy() {
		case planv1.FailurePolicy_FAILURE_POLICY_REPLAN_STEP, planv1.FailurePolicy_FAILURE_POLICY_REPLAN_REMAINING:
			if d.find(b.GetStepId()).kind == placeStep {
				st.Status, st.EndedAt = runv1.StepStatus_STEP_STATUS_REPLANNING, nil
			}
		case planv1.FailurePolicy_FAILURE_POLICY_ASK_USER:
			st.Status, st.EndedAt = runv1.StepStatus_STEP_STATUS_WAITING_FOR_USER, nil
		}
	})
}

func (d *data) applyRetry(e *runv1.Event, b *runv1.StepRetryScheduled) {
	d.withStep(e, b.GetStepId(), func(st *runv1.StepState) {
		d.judged(st)
		d.retries++
		in, _ := d.input(st.GetInputRequest())
		if in.GetPurpose() == runv1.UserInputPurpose_USER_INPUT_PURPOSE_FAILURE && st.GetStatus() == runv1.StepStatus_STEP_STATUS_WAITING_FOR_USER {
			// A person wants it again, whatever was tried before.
			approved, started := st.GetApproved(), st.GetStartedAt()
			d.reset(st)
			st.Approved, st.StartedAt = approved, started
		} else if a := d.newest(st); a != nil && a.GetStatus() == runv1.ActionStatus_ACTION_STATUS_SUCCEEDED {
			// It had its effect and is wanted again all the same, as for a check of what a model wrote.
			st.Generation++
		}
		st.Error = b.GetError()
		st.TimerFired = false
		st.Status, st.Due = runv1.StepStatus_STEP_STATUS_READY, nil
		if b.GetDue() != nil {
			st.Status, st.Due = runv1.StepStatus_STEP_STATUS_WAITING, b.GetDue()
		}
	})
}

func (d *data) applyTimer(e *runv1.Event, b *runv1.TimerFired) {
	switch b.GetTimer() {
	case runv1.TimerKind_TIMER_KIND_RETRY:
		d.withStep(e, b.GetStepId(), func(st *runv1.StepState) {
			st.Status, st.Due = runv1.StepStatus_STEP_STATUS_READY, nil
		})
	case runv1.TimerKind_TIMER_KIND_WAIT:
		d.withStep(e, b.GetStepId(), func(st *runv1.StepState) {
			st.TimerFired, st.Due, st.Revision = true, nil, d.revision
		})
	case runv1.TimerKind_TIMER_KIND_ACTION_TIMEOUT:
		d.withAction(b.GetActionId(), func(a *runv1.ActionState) {
			a.Status, a.ObservedRevision = runv1.ActionStatus_ACTION_STATUS_TIMED_OUT, d.revision
		})
	case runv1.TimerKind_TIMER_KIND_ACTION_GRACE:
		d.withAction(b.GetActionId(), func(a *runv1.ActionState) {
			a.Status, a.ObservedRevision = runv1.ActionStatus_ACTION_STATUS_UNKNOWN, d.revision
		})
	case runv1.TimerKind_TIMER_KIND_USER_INPUT:
		d.closeInput(d.inputOfStep(b.GetStepId()), func(u *runv1.UserInputState) { u.TimedOut = true })
	case runv1.TimerKind_TIMER_KIND_PLANNING:
		if open := d.openPlanning(); open != nil {
			d.closeRequest(e, open.st.GetRequestId(), func(q *runv1.PlanningRequest) {
				q.Outcome = runv1.PlanningOutcome_PLANNING_OUTCOME_TIMED_OUT
			})
		}
	case runv1.TimerKind_TIMER_KIND_RUN_DEADLINE:
		d.deadlineRevision = d.revision
	case runv1.TimerKind_TIMER_KIND_CANCEL_GRACE:
		d.cancelGraceOver = true
	}
}
