package run

import (
	"fmt"
	"slices"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Snapshot is the whole state as a message: Restore of it hashes and decides the same. It shares the state's parts, so
// that nobody may change it.
func (s State) Snapshot() *runv1.RunState {
	d := s.data()
	m := &runv1.RunState{
		RunId: d.runID, Tenant: d.tenant, Revision: d.revision, Status: s.Status(), Phase: s.Phase(), Spec: d.spec,
		BodyDigest: d.bodyDigest, SubmittedAt: d.submittedAt, UpdatedAt: d.updatedAt, Deadline: d.deadline, Plan: d.plan,
		Tools: d.tools, Answer: d.answer, AnswerArtifact: d.answerArtifact, Error: d.err, Replans: d.replans,
		CancelReason: d.cancelReason, CancelDue: d.cancelDue, Refused: d.refused, RefusedUncounted: d.refusedMore,
		WarnedLimits: d.warned, InlineBytes: d.inlineBytes, QuarantineReason: d.quarantine, Fingerprints: d.fingerprints,
		Trace: d.trace, Retries: d.retries, PlanRevision: d.planRevision, PlanDigest: d.planDigest,
		CancelRevision: d.cancelRevision, CancelGraceOver: d.cancelGraceOver, DeadlineRevision: d.deadlineRevision,
		BaseRevision: d.baseRevision, PatchReports: d.patches,
	}
	m.Steps = make([]*runv1.StepState, 0, d.steps.len())
	var items []*runv1.StepState
	d.steps.each(0, func(i int, e *stepElem) bool {
		st := e.st
		if e.items.len() > 0 || st.GetExpanded() {
			st = copyStep(st)
			st.ItemsOpen = int32(len(st.GetItems()) - e.items.len())
			e.items.each(0, func(_ int, item *stepElem) bool {
				if !stepTerminal(item.st.GetStatus()) {
					st.ItemsOpen++
				}
				items = append(items, item.st)
				return true
			})
		}
		if e.sum.flags&wantsSlot != 0 && st.GetStatus() == runv1.StepStatus_STEP_STATUS_PENDING {
			// It only waits for its turn, which is worth showing; Restore reads it as pending again.
			st = copyStep(st)
			st.Status = runv1.StepStatus_STEP_STATUS_READY
			st.ReadyByDependencies = true
		}
		m.Steps = append(m.Steps, st)
		return true
	})
	m.Steps = append(m.Steps, items...)
	d.undo.each(0, func(_ int, e *stepElem) bool {
		m.Compensations = append(m.Compensations, e.st)
		return true
	})
	d.actions.each(0, func(_ int, a *actionElem) bool {
		m.Actions = append(m.Actions, a.st)
		return true
	})
	d.planning.each(0, func(_ int, p *planningElem) bool {
		m.Planning = append(m.Planning, p.st)
		return true
	})
	d.inputs.each(0, func(_ int, in *inputElem) bool {
		m.Inputs = append(m.Inputs, in.st)
		return true
	})
	return m
}

// Restore makes a state from a snapshot. It fails where the snapshot cannot be of this version's making, and names what is
// wrong with it.
func Restore(m *runv1.RunState) (State, error) {
	if m == nil {
		return State{}, fmt.Errorf("restore a run: there is no snapshot")
	}
	bad := func(format string, args ...any) (State, error) {
		return State{}, fmt.Errorf("restore run %s at revision %d: "+format, append([]any{m.GetRunId(), m.GetRevision()}, args...)...)
	}
	d := &data{
		runID: m.GetRunId(), tenant: m.GetTenant(), revision: m.GetRevision(), status: storedStatus(m.GetStatus()), spec: m.GetSpec(),
		bodyDigest: m.GetBodyDigest(), submittedAt: m.GetSubmittedAt(), updatedAt: m.GetUpdatedAt(), deadline: m.GetDeadline(),
		plan: m.GetPlan(), tools: m.GetTools(), answer: m.GetAnswer(), answerArtifact: m.GetAnswerArtifact(), err: m.GetError(),
		replans: m.GetReplans(), cancelReason: m.GetCancelReason(), cancelDue: m.GetCancelDue(), refused: m.GetRefused(),
		refusedMore: m.GetRefusedUncounted(), warned: m.GetWarnedLimits(), inlineBytes: m.GetInlineBytes(),
		quarantine: m.GetQuarantineReason(), fingerprints: m.GetFingerprints(), trace: m.GetTrace(), retries: m.GetRetries(),
		planRevision: m.GetPlanRevision(), planDigest: m.GetPlanDigest(), cancelRevision: m.GetCancelRevision(),
		cancelGraceOver: m.GetCancelGraceOver(), deadlineRevision: m.GetDeadlineRevision(), baseRevision: m.GetBaseRevision(),
		patches: m.GetPatchReports(),
	}
	if d.revision == 0 {
		return State{d: d}, nil
	}
	if d.spec == nil {
		return bad("it has no spec")
	}
	d.limits = limitsOf(d.spec.GetLimits())
	actions := make([]*actionElem, len(m.GetActions()))
	for i, a := range m.GetActions() {
		if a == nil || int(a.GetPrevious()) > i || a.GetPrevious() < 0 {
			return bad("action %d does not follow from those before it", i)
		}
		actions[i] = newActionElem(a)
	}
	d.actions = vectorOf(actions)
	planning := make([]*planningElem, len(m.GetPlanning()))
	for i, p := range m.GetPlanning() {
		planning[i] = newPlanningElem(p)
	}
	d.planning = vectorOf(planning)
	inputs := make([]*inputElem, len(m.GetInputs()))
	for i, in := range m.GetInputs() {
		inputs[i] = newInputElem(in)
	}
	d.inputs = vectorOf(inputs)
	if d.plan == nil {
		if len(m.GetSteps()) > 0 {
			return bad("it has steps and no plan")
		}
		return State{d: d}, nil
	}
	if problem := d.restoreSteps(m); problem != "" {
		return bad("%s", problem)
	}
	if d.terminal() {
		d.steps, d.undo = settledSteps(d.steps), settledSteps(d.undo)
	}
	return State{d: d}, nil
}

// storedStatus is the status that a state holds: whether a run waits follows from the rest.
func storedStatus(s runv1.RunStatus) runv1.RunStatus {
	if s == runv1.RunStatus_RUN_STATUS_WAITING {
		return runv1.RunStatus_RUN_STATUS_RUNNING
	}
	return s
}

func (d *data) restoreSteps(m *runv1.RunState) (problem string) {
	n := len(d.plan.GetSteps())
	if len(m.GetSteps()) < n {
		return fmt.Sprintf("the plan has %d steps and the snapshot %d", n, len(m.GetSteps()))
	}
	var states []*stepElem
	items := map[int][]*stepElem{}
	removed := map[string]int{}
	index := map[string]int{}
	for i, st := range m.GetSteps() {
		if int(st.GetAction()) > d.actions.len() || st.GetAction() < 0 {
			return fmt.Sprintf("step %s names an action that is not there", st.GetStepId())
		}
		if st.GetReadyByDependencies() {
			st = copyStep(st)
			st.Status = runv1.StepStatus_STEP_STATUS_PENDING
		}
		if base, item, isItem := splitItem(st.GetStepId()); isItem {
			at, ok := index[base]
			if !ok || item != len(items[at]) {
				return fmt.Sprintf("item %s has no place", st.GetStepId())
			}
			items[at] = append(items[at], newStepElem(st))
			continue
		}
		if len(items) > 0 {
			return fmt.Sprintf("step %s stands behind the items", st.GetStepId())
		}
		if i < n && st.GetStepId() != d.plan.GetSteps()[i].GetId() {
			return fmt.Sprintf("step %d is %s and not %s", i, st.GetStepId(), d.plan.GetSteps()[i].GetId())
		}
		if i >= n {
			removed[st.GetStepId()] = i
		}
		index[st.GetStepId()] = i
		if st.GetItemsOpen() != 0 {
			st = copyStep(st)
			st.ItemsOpen = 0
		}
		states = append(states, newStepElem(st))
	}
	d.layout = makeLayout(d.plan, d.tools, removed)
	for i, e := range states {
		list := items[i]
		for k, item := range list {
			d.derive(place{kind: placeItem, step: i, item: k}, item)
		}
		e.items = vectorOf(list)
		e.hashAll()
	}
	d.install(states)
	for _, st := range m.GetCompensations() {
		e := newStepElem(st)
		d.undo = d.undo.add(e)
		d.derive(place{kind: placeUndo, step: d.undo.len() - 1}, e)
		d.undo = d.undo.set(d.undo.len()-1, e)
	}
	return ""
}

// settledSteps forgets what steps want: the run has ended.
func settledSteps(v vector[*stepElem]) vector[*stepElem] {
	all := make([]*stepElem, 0, v.len())
	v.each(0, func(_ int, e *stepElem) bool {
		c := *e
		c.items = settledSteps(c.items)
		c.sum = summary{due: never}
		all = append(all, &c)
		return true
	})
	return vectorOf(all)
}

// Plan is the current version of the run's plan, nil before the first. It must not be changed.
func (s State) Plan() *planv1.Plan { return s.data().plan }

// Spec is what was submitted, nil before that. It must not be changed.
func (s State) Spec() *runv1.RunSpec { return s.data().spec }

// Warned lists the limits that the run has warned of.
func (s State) Warned() []string { return slices.Clone(s.data().warned) }
