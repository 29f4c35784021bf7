package run

import (
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func (d *data) applyPlanRequested(e *runv1.Event, b *runv1.PlanRequested) {
	d.running(d.revision)
	d.planning = d.planning.add(newPlanningElem(&runv1.PlanningRequest{
		RequestId: b.GetRequestId(), Attempt: b.GetAttempt(), Open: true, Findings: b.GetFindings(),
		RejectedText: b.GetRejectedText(), Revision: d.revision, Due: d.planningDue(e),
	}))
}

// planningDue is when a request that an event makes counts as given up.
func (d *data) planningDue(e *runv1.Event) *timestamppb.Timestamp {
	return timestamppb.New(timeOf(e.GetTime()).Add(d.limits.maxPlanningTime))
}

func (d *data) applyReplanRequested(e *runv1.Event, b *runv1.ReplanRequested) {
	d.running(d.revision)
	d.replans++
	d.planning = d.planning.add(newPlanningElem(&runv1.PlanningRequest{
		RequestId: b.GetRequestId(), Replan: true, Attempt: b.GetAttempt(), Open: true, BaseVersion: b.GetBaseVersion(),
		Scope: b.GetScope(), StepId: b.GetStepId(), Error: b.GetError(), FalsifiedAssumptions: b.GetFalsifiedAssumptions(),
		Findings: b.GetFindings(), RejectedText: b.GetRejectedText(), Revision: d.revision, Due: d.planningDue(e),
	}))
}

// closeRequest ends a request for a plan or patch.
func (d *data) closeRequest(e *runv1.Event, id string, change func(*runv1.PlanningRequest)) {
	r, i := d.requestOf(id)
	if r == nil || !r.GetOpen() {
		return
	}
	c := copyPlanning(r)
	c.Open = false
	c.ReportDigest = e.GetCause().GetReportDigest()
	c.OutcomeRevision = d.revision
	change(c)
	d.planning = d.planning.set(i, newPlanningElem(c))
}

func accepted(q *runv1.PlanningRequest) {
	q.Outcome = runv1.PlanningOutcome_PLANNING_OUTCOME_ACCEPTED
}

func (d *data) applyPlanCreated(e *runv1.Event, b *runv1.PlanCreated) {
	d.closeRequest(e, b.GetRequestId(), accepted)
	if d.plan != nil || b.GetPlan() == nil {
		return
	}
	d.running(d.revision)
	d.plan = b.GetPlan()
	d.planDigest = b.GetPlanDigest()
	d.planRevision = d.revision
	d.tools = toolsByName(nil, b.GetTools())
	d.layout = makeLayout(d.plan, d.tools, nil)
	states := make([]*stepElem, len(d.plan.GetSteps()))
	for i, s := range d.plan.GetSteps() {
		states[i] = newStepElem(&runv1.StepState{StepId: s.GetId(), Status: runv1.StepStatus_STEP_STATUS_PENDING, Revision: d.revision})
	}
	d.install(states)
}

// install makes the steps' vector of elements in plan order, removed ones behind, deriving what they want.
func (d *data) install(states []*stepElem) {
	g := d.layout.graph
	for i, e := range states {
		e.waiting, e.unsuccessful = 0, 0
		if i < g.Len() {
			for _, dep := range g.Dependencies(i) {
				s := states[dep].st.GetStatus()
				e.waiting += asCount(!stepTerminal(s))
				e.unsuccessful += asCount(unsuccessful(s))
			}
		}
		d.derive(place{kind: placeStep, step: i}, e)
	}
	d.steps = vectorOf(states)
}

func (d *data) applyPatched(e *runv1.Event, b *runv1.PlanPatched) {
	if d.plan == nil {
		return
	}
	var asked *runv1.PlanningRequest
	if r, _ := d.requestOf(b.GetRequestId()); r != nil && r.GetOpen() {
		asked = r
	}
	d.rememberPatch(e, b.GetRequestId())
	before := d.fingerprint(d.plan)
	d.closeRequest(e, b.GetRequestId(), accepted)
	old, oldSteps := d.layout, d.steps
	changed := map[string]bool{}
	for _, s := range b.GetPatch().GetUpdate() {
		changed[s.GetId()] = true
	}
	d.plan = merge(d.plan, b.GetPatch())
	d.plan.Version = b.GetVersion()
	if b.GetCreatedBy() != planv1.CreatedBy_CREATED_BY_UNSPECIFIED {
		d.plan.CreatedBy = b.GetCreatedBy()
	}
	d.planDigest = b.GetPlanDigest()
	d.planRevision = d.revision
	d.tools = toolsByName(d.tools, b.GetTools())

	states := make([]*stepElem, 0, len(d.plan.GetSteps()))
	kept := make([]bool, oldSteps.len())
	for _, s := range d.plan.GetSteps() {
		i, found := old.graph.Index(s.GetId())
		revived := false
		if !found {
			i, revived = old.removed[s.GetId()]
		}
		if !found && !revived {
			states = append(states, newStepElem(&runv1.StepState{StepId: s.GetId(), Status: runv1.StepStatus_STEP_STATUS_PENDING, Revision: d.revision}))
			continue
		}
		kept[i] = true
		el := *oldSteps.at(i)
		if changed[s.GetId()] || revived {
			el = *d.renewed(&el)
		} else if asked.GetStepId() == s.GetId() && el.st.GetStatus() == runv1.StepStatus_STEP_STATUS_REPLANNING {
			// The replanner left the failed step as it is: its failure stands, and the rest goes on without it.
			st := copyStep(el.st)
			st.Status, st.EndedAt, st.Revision = runv1.StepStatus_STEP_STATUS_FAILED, e.GetTime(), d.revision
			el = *el.withState(st)
		}
		states = append(states, &el)
	}
	removed := map[string]int{}
	for i := range oldSteps.len() {
		if kept[i] {
			continue
		}
		el := *oldSteps.at(i)
		if el.st.GetStatus() != runv1.StepStatus_STEP_STATUS_REMOVED {
			st := copyStep(el.st)
			st.Status, st.EndedAt, st.Revision = runv1.StepStatus_STEP_STATUS_REMOVED, e.GetTime(), d.revision
			st.Due = nil
			el = *el.withState(st)
		}
		removed[el.st.GetStepId()] = len(states)
		states = append(states, &el)
	}
	d.layout = makeLayout(d.plan, d.tools, removed)
	d.install(states)
	if asked != nil {
		d.remember(before, d.plan.GetVersion()-1)
		d.fingerprints = append(slices.Clip(d.fingerprints),
			&runv1.PlanFingerprint{Digest: d.fingerprint(d.plan), Version: d.plan.GetVersion()})
	}
}

// remember notes the strategy that a replan was asked away from, unless it is the one noted last.
func (d *data) remember(digest string, version int32) {
	if n := len(d.fingerprints); n > 0 && d.fingerprints[n-1].GetDigest() == digest {
		return
	}
	d.fingerprints = append(slices.Clip(d.fingerprints), &runv1.PlanFingerprint{Digest: digest, Version: version})
}

// rememberPatch notes a patch that a person sent.
func (d *data) rememberPatch(e *runv1.Event, request string) {
	if digest := e.GetCause().GetReportDigest(); request == "" && digest != "" {
		d.patches = append(slices.Clip(d.patches), &runv1.RefusedReport{Digest: digest, Revision: d.revision})
	}
}

// renewed makes an updated step pending again. Items that succeeded stay until the new list says otherwise.
func (d *data) renewed(el *stepElem) *stepElem {
	st := copyStep(el.st)
	d.reset(st)
	st.Revision = d.revision
	return el.withState(st)
}

// merge makes the next version of a plan by a normalised patch: updates in place, then without the removed, then with
// the added at the end.
func merge(base *planv1.Plan, patch *planv1.Patch) *planv1.Plan {
	next := &planv1.Plan{
		Id: "p" + strconv.Itoa(int(base.GetVersion())+1), Version: base.GetVersion() + 1, Goal: base.GetGoal(), Assumptions: base.GetAssumptions(),
		Constraints: base.GetConstraints(), Acceptance: base.GetAcceptance(), CreatedBy: base.GetCreatedBy(),
		ParentVersion: base.GetVersion(),
	}
	if patch.GetGoal() != "" {
		next.Goal = patch.GetGoal()
	}
	if patch.GetSetAssumptions() {
		next.Assumptions = patch.GetAssumptions()
	}
	update := make(map[string]*planv1.Step, len(patch.GetUpdate()))
	for _, s := range patch.GetUpdate() {
		update[s.GetId()] = s
	}
	gone := make(map[string]bool, len(patch.GetRemove()))
	for _, id := range patch.GetRemove() {
		gone[id] = true
	}
	next.Steps = make([]*planv1.Step, 0, len(base.GetSteps())+len(patch.GetAdd()))
	for _, s := range base.GetSteps() {
		if gone[s.GetId()] {
			continue
		}
		if u := update[s.GetId()]; u != nil {
			s = u
		}
		next.Steps = append(next.Steps, s)
	}
	next.Steps = append(next.Steps, patch.GetAdd()...)
	return next
}

// fingerprint names a strategy: what is still to be done, whatever its steps are called, and how much is known. Two
// plans with the same fingerprint would do the same again.
func (d *data) fingerprint(p *planv1.Plan) string {
	var todo [][32]byte
	succeeded := 0
	for _, s := range p.GetSteps() {
		status := runv1.StepStatus_STEP_STATUS_PENDING
		if i, ok := d.indexOf(s.GetId()); ok {
			status = d.steps.at(i).st.GetStatus()
		}
		if status == runv1.StepStatus_STEP_STATUS_SUCCEEDED {
			succeeded++
		}
		if stepTerminal(status) && status != runv1.StepStatus_STEP_STATUS_REMOVED {
			continue
		}
		var w writer
		w = w.int(int64(s.GetAction().GetKind()))
		w = w.str(s.GetAction().GetName())
		w = w.json(s.GetAction().GetArguments())
		w = w.json(s.GetForEach())
		w = w.str(s.GetWhen())
		w = w.json(s.GetResult())
		w = w.message(s.GetExpect())
		todo = append(todo, w.digest())
	}
	slices.SortFunc(todo, func(a, b [32]byte) int { return slices.Compare(a[:], b[:]) })
	var w writer
	w = w.uint(uint64(succeeded))
	for _, t := range todo {
		w = w.sum(t)
	}
	return w.hex()
}

func (d *data) applyInputRequested(e *runv1.Event, b *runv1.UserInputRequested) {
	d.inputs = d.inputs.add(newInputElem(&runv1.UserInputState{
		RequestId: b.GetRequestId(), StepId: b.GetStepId(), Open: true, Due: b.GetDue(), Question: b.GetQuestion(),
		Schema: b.GetSchema(), Revision: d.revision, Purpose: b.GetPurpose(),
	}))
	d.withStep(e, b.GetStepId(), func(st *runv1.StepState) {
		st.Status = runv1.StepStatus_STEP_STATUS_WAITING_FOR_USER
		st.InputRequest = b.GetRequestId()
		if b.GetPurpose() == runv1.UserInputPurpose_USER_INPUT_PURPOSE_QUESTION {
			st.Attempts++
		}
		if st.GetStartedAt() == nil {
			st.StartedAt = e.GetTime()
		}
	})
}

func (d *data) applyInputReceived(e *runv1.Event, b *runv1.UserInputReceived) {
	u, _ := d.input(b.GetRequestId())
	if u == nil || !u.GetOpen() {
		return
	}
	if u.GetPurpose() == runv1.UserInputPurpose_USER_INPUT_PURPOSE_APPROVAL && isApproval(b.GetAnswer()) {
		d.withStep(e, u.GetStepId(), func(st *runv1.StepState) {
			st.Status, st.Approved, st.InputRequest = runv1.StepStatus_STEP_STATUS_READY, true, ""
		})
	}
	d.closeInput(b.GetRequestId(), func(c *runv1.UserInputState) { c.Answer, c.By = b.GetAnswer(), b.GetBy() })
}

// applyInputWithdrawn ends a question about an outcome that has become known: the step looks at it as if it had come in
// time.
func (d *data) applyInputWithdrawn(e *runv1.Event, b *runv1.UserInputWithdrawn) {
	d.closeInput(b.GetRequestId(), func(u *runv1.UserInputState) { u.Withdrawn = true })
	d.withStep(e, b.GetStepId(), func(st *runv1.StepState) {
		st.Status, st.InputRequest, st.Error = runv1.StepStatus_STEP_STATUS_RUNNING, "", nil
		st.Policy, st.FalsifiedAssumptions = planv1.FailurePolicy_FAILURE_POLICY_UNSPECIFIED, nil
	})
}

func (d *data) closeInput(id string, change func(*runv1.UserInputState)) {
	u, i := d.input(id)
	if u == nil || !u.GetOpen() {
		return
	}
	c := copyInput(u)
	c.Open, c.ClosedRevision = false, d.revision
	change(c)
	d.inputs = d.inputs.set(i, newInputElem(c))
	d.touch(d.find(c.GetStepId()))
}

func (d *data) inputOfStep(id string) string {
	if el := d.at(d.find(id)); el != nil {
		return el.st.GetInputRequest()
	}
	return ""
}
