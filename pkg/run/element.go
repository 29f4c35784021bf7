package run

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// stepElem is a step's state with what is derived of it.
type stepElem struct {
	st *runv1.StepState
	// waiting counts the dependencies that are not terminal.
	waiting int32
	// unsuccessful counts the dependencies that are terminal and did not succeed.
	unsuccessful int32
	// items of an expanded for_each step, as far as they began.
	items vector[*stepElem]

	resultHash [32]byte
	itemsHash  [32]byte
	ownHash    [32]byte
	hash       [32]byte
	sum        summary
}

func (e *stepElem) digest() *[32]byte { return &e.hash }
func (e *stepElem) summary() summary  { return e.sum }

// withState makes the element of another state of the same step.
func (e *stepElem) withState(st *runv1.StepState) *stepElem {
	c := *e
	c.st = st
	if st.GetResult() != e.st.GetResult() {
		c.resultHash = hashValue(st.GetResult())
	}
	if !sameTexts(st.GetItems(), e.st.GetItems()) {
		c.itemsHash = hashTexts(st.GetItems())
	}
	c.hashOwn()
	return &c
}

// newStepElem makes an element from nothing.
func newStepElem(st *runv1.StepState) *stepElem {
	e := &stepElem{st: st, resultHash: hashValue(st.GetResult()), itemsHash: hashTexts(st.GetItems())}
	e.hashOwn()
	return e
}

func sameTexts(a, b []*planv1.JsonText) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// hashOwn covers the step's state without times, log positions and items' states.
func (e *stepElem) hashOwn() {
	st := e.st
	var buf [384]byte
	w := writer(buf[:0])
	w = w.str(st.GetStepId())
	w = w.int(int64(st.GetStatus()))
	w = w.int(int64(st.GetAttempts()))
	w = w.int(int64(st.GetAttemptsBefore()))
	w = w.int(int64(st.GetGeneration()))
	w = w.sum(e.resultHash)
	w = w.sum(e.itemsHash)
	w = w.err(st.GetError())
	w = w.str(st.GetSkipReason())
	w = w.int(int64(st.GetAction()))
	w = w.str(st.GetInputRequest())
	w = w.bool(st.GetApproved())
	w = w.bool(st.GetExpanded())
	w = w.int(int64(st.GetPolicy()))
	w = w.bool(st.GetFailedOptional())
	w = w.bool(st.GetTimerFired())
	w = w.bool(st.GetPartial())
	w = w.bool(st.GetDue() != nil)
	w = w.bool(st.GetDueAbsolute())
	w = w.strs(st.GetFalsifiedAssumptions())
	e.ownHash = w.digest()
	e.hashAll()
}

func (e *stepElem) hashAll() {
	if e.items.len() == 0 {
		e.hash = e.ownHash
		return
	}
	var buf [80]byte
	w := writer(buf[:0])
	w = w.sum(e.ownHash)
	w = w.sum(e.items.hash())
	w = w.uint(uint64(e.items.len()))
	e.hash = w.digest()
}

// derive computes what the step at a place wants, from its state, its dependencies, its newest action and its input.
func (d *data) derive(p place, e *stepElem) {
	var l stepLayout
	if d.layout != nil && p.kind != placeUndo && p.step < len(d.layout.steps) {
		l = d.layout.steps[p.step]
	}
	st := e.st
	f, due := flags(0), int64(never)
	terminal := stepTerminal(st.GetStatus())
	action := d.newest(st)
	busy := action != nil && actionOpen(action.GetStatus())

	switch st.GetStatus() {
	case runv1.StepStatus_STEP_STATUS_PENDING:
		if e.waiting == 0 || p.kind != placeStep {
			looks := p.kind == placeStep && (l.looks || e.unsuccessful > 0)
			f |= flagIf(looks, wantsLook) | flagIf(!looks, wantsSlot)
		}
	case runv1.StepStatus_STEP_STATUS_READY:
		f |= wantsSlot
	case runv1.StepStatus_STEP_STATUS_RUNNING:
		if st.GetExpanded() {
			f |= e.deriveItems()
		} else {
			f |= flagIf(!busy, wantsJudging)
		}
	case runv1.StepStatus_STEP_STATUS_WAITING:
		f |= flagIf(st.GetTimerFired(), wantsJudging)
		if !st.GetTimerFired() && st.GetDue() != nil {
			due = nanos(timeOf(st.GetDue()))
		}
	case runv1.StepStatus_STEP_STATUS_WAITING_FOR_USER:
		in, _ := d.input(st.GetInputRequest())
		f |= flagIf(in == nil || !in.GetOpen() || outcomeArrived(st, in, action), wantsJudging)
	case runv1.StepStatus_STEP_STATUS_REPLANNING:
		f |= wantsReplan
	case runv1.StepStatus_STEP_STATUS_FAILED:
		if !st.GetFailedOptional() {
			f |= flagIf(st.GetPolicy() == planv1.FailurePolicy_FAILURE_POLICY_FAIL, isFatal)
			f |= flagIf(st.GetPolicy() == planv1.FailurePolicy_FAILURE_POLICY_COMPENSATE && p.kind == placeStep, wantsUndo)
		}
		f |= flagIf(p.kind == placeItem, isFailedItem)
	case runv1.StepStatus_STEP_STATUS_SKIPPED:
		f |= flagIf(st.GetSkipReason() == skipDependencyFailed && !l.optional, isLost)
	case runv1.StepStatus_STEP_STATUS_SUCCEEDED:
		f |= flagIf(l.finish && p.kind == placeStep, isFinish)
	}
	items := e.items.sum()
	if !terminal {
		f |= flagIf(!busy && items.open == 0, isIdle)
		f |= flagIf(!l.optional, isRequired)
	}
	below := items.flags & (wantsJudging | isIdle)
	e.sum = summary{due: min(due, items.due), flags: f | below}
	if !terminal {
		open := true
		if p.kind == placeItem {
			// What waits for its turn does not keep the parent from being judged.
			open = st.GetStatus() != runv1.StepStatus_STEP_STATUS_PENDING && st.GetStatus() != runv1.StepStatus_STEP_STATUS_READY
		}
		if open {
			e.sum.open = 1
		}
	}
}

// asksForOutcome says whether a step's open question is what becomes of it since the outcome of its newest action is not
// known.
func asksForOutcome(st *runv1.StepState, in *runv1.UserInputState) bool {
	return st.GetStatus() == runv1.StepStatus_STEP_STATUS_WAITING_FOR_USER && st.GetError().GetCode() == codeUnknownOutcome &&
		in.GetOpen() && in.GetPurpose() == runv1.UserInputPurpose_USER_INPUT_PURPOSE_FAILURE
}

// outcomeArrived says whether an outcome that a person is asked about has become known.
func outcomeArrived(st *runv1.StepState, in *runv1.UserInputState, a *runv1.ActionState) bool {
	return asksForOutcome(st, in) && a != nil && outcomeKnown(a) && !a.GetLate()
}

// deriveItems says what an expanded step wants: to start another item, or to be judged by them all.
func (e *stepElem) deriveItems() flags {
	s := e.items.sum()
	if s.flags&isFailedItem != 0 {
		return flagIf(s.open == 0 || s.flags&isFatal != 0, wantsJudging)
	}
	if e.items.len() < len(e.st.GetItems()) || s.flags&wantsSlot != 0 {
		return wantsSlot
	}
	return flagIf(s.open == 0, wantsJudging)
}

// actionElem is an entry of the effect ledger.
type actionElem struct {
	st *runv1.ActionState
	// bodyHash covers what never changes: most of all the arguments.
	bodyHash [32]byte
	hash     [32]byte
	sum      summary
}

func (e *actionElem) digest() *[32]byte { return &e.hash }
func (e *actionElem) summary() summary  { return e.sum }

func newActionElem(st *runv1.ActionState) *actionElem {
	w := make(writer, 0, 512)
	w = w.str(st.GetActionId())
	w = w.str(st.GetStepId())
	w = w.int(int64(st.GetAttempt()))
	w = w.str(st.GetTool())
	w = w.str(st.GetToolVersion())
	w = w.json(st.GetArguments())
	w = w.str(st.GetIdempotencyKey())
	w = w.bool(st.GetIdempotent())
	w = w.uint(uint64(len(st.GetArtifacts())))
	for _, a := range st.GetArtifacts() {
		w = w.artifact(a)
	}
	w = w.int(int64(st.GetGeneration()))
	w = w.int(int64(st.GetPrevious()))
	e := &actionElem{bodyHash: w.digest()}
	return e.withState(st)
}

// withState makes the entry of another state of the same action.
func (e *actionElem) withState(st *runv1.ActionState) *actionElem {
	c := &actionElem{st: st, bodyHash: e.bodyHash, sum: summary{due: never}}
	var buf [256]byte
	w := writer(buf[:0])
	w = w.sum(e.bodyHash)
	w = w.int(int64(st.GetStatus()))
	w = w.str(st.GetObservationDigest())
	w = w.bool(st.GetObservation() != nil)
	w = w.err(st.GetError())
	w = w.bool(st.GetLate())
	w = w.bool(st.GetStarted())
	c.hash = w.digest()

	switch st.GetStatus() {
	case runv1.ActionStatus_ACTION_STATUS_REQUESTED:
		c.sum = summary{due: nanos(actionDue(st)), open: 1, flags: isOpen | flagIf(!st.GetIdempotent(), isRevocable)}
	case runv1.ActionStatus_ACTION_STATUS_REVOKING:
		c.sum = summary{due: nanos(actionDue(st)), open: 1, flags: isOpen}
	}
	return c
}

// actionDue is when an action under way is given up: a margin after its deadline, since the router says so first; where it
// is revoked, a grace after that and after the revocation.
func actionDue(st *runv1.ActionState) time.Time {
	if st.GetStatus() == runv1.ActionStatus_ACTION_STATUS_REVOKING {
		return timeOf(st.GetGraceDue())
	}
	return timeOf(st.GetNotAfter()).Add(ActionMargin)
}

// planningElem is a request for a plan or a patch.
type planningElem struct {
	st   *runv1.PlanningRequest
	hash [32]byte
	sum  summary
}

func (e *planningElem) digest() *[32]byte { return &e.hash }
func (e *planningElem) summary() summary  { return e.sum }

func newPlanningElem(st *runv1.PlanningRequest) *planningElem {
	var w writer
	w = w.str(st.GetRequestId())
	w = w.bool(st.GetReplan())
	w = w.int(int64(st.GetAttempt()))
	w = w.bool(st.GetOpen())
	w = w.int(int64(st.GetBaseVersion()))
	w = w.int(int64(st.GetScope()))
	w = w.str(st.GetStepId())
	w = w.err(st.GetError())
	w = w.strs(st.GetFalsifiedAssumptions())
	for _, list := range [...][]*planv1.Finding{st.GetFindings(), st.GetOutcomeFindings()} {
		w = w.uint(uint64(len(list)))
		for _, f := range list {
			w = w.message(f)
		}
	}
	w = w.str(st.GetRejectedText())
	w = w.str(st.GetReportDigest())
	w = w.int(int64(st.GetOutcome()))
	w = w.str(st.GetOutcomeText())
	w = w.err(st.GetOutcomeError())
	w = w.str(st.GetOutcomeReason())
	w = w.json(st.GetAnswer())
	e := &planningElem{st: st, hash: w.digest(), sum: summary{due: never}}
	if st.GetOpen() {
		e.sum.open, e.sum.flags = 1, isOpen
	}
	return e
}

// inputElem is a request for a person.
type inputElem struct {
	st   *runv1.UserInputState
	hash [32]byte
	sum  summary
}

func (e *inputElem) digest() *[32]byte { return &e.hash }
func (e *inputElem) summary() summary  { return e.sum }

func newInputElem(st *runv1.UserInputState) *inputElem {
	var buf [512]byte
	w := writer(buf[:0])
	w = w.str(st.GetRequestId())
	w = w.str(st.GetStepId())
	w = w.bool(st.GetOpen())
	w = w.json(st.GetAnswer())
	w = w.str(st.GetBy())
	w = w.str(st.GetQuestion())
	w = w.json(st.GetSchema())
	w = w.int(int64(st.GetPurpose()))
	w = w.bool(st.GetTimedOut())
	w = w.bool(st.GetWithdrawn())
	e := &inputElem{st: st, hash: w.digest(), sum: summary{due: never}}
	if st.GetOpen() {
		e.sum.open, e.sum.flags = 1, isOpen
		if st.GetDue() != nil {
			e.sum.due = nanos(timeOf(st.GetDue()))
		}
	}
	return e
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// nanos orders times. What lies beyond the range of Unix nanoseconds is due last.
func nanos(t time.Time) int64 {
	switch y := t.Year(); {
	case y < 1700:
		return 0
	case y > 2200:
		return never - 1
	}
	return t.UnixNano()
}

// copyStep makes a state that may be changed; it shares what it points to. Messages are not copied by value, since
// their runtime state must not be.
func copyStep(s *runv1.StepState) *runv1.StepState {
	return &runv1.StepState{
		StepId: s.StepId, Status: s.Status, Attempts: s.Attempts, Generation: s.Generation, Result: s.Result, Error: s.Error,
		SkipReason: s.SkipReason, Due: s.Due, StartedAt: s.StartedAt, EndedAt: s.EndedAt, Action: s.Action, Items: s.Items,
		InputRequest: s.InputRequest, Approved: s.Approved, Revision: s.Revision, ItemsOpen: s.ItemsOpen, Expanded: s.Expanded,
		AttemptsBefore: s.AttemptsBefore, Policy: s.Policy, FailedOptional: s.FailedOptional, TimerFired: s.TimerFired,
		Partial: s.Partial, FalsifiedAssumptions: s.FalsifiedAssumptions, DueAbsolute: s.DueAbsolute,
	}
}

func copyAction(a *runv1.ActionState) *runv1.ActionState {
	return &runv1.ActionState{
		ActionId: a.ActionId, StepId: a.StepId, Attempt: a.Attempt, Status: a.Status, Tool: a.Tool, ToolVersion: a.ToolVersion,
		Arguments: a.Arguments, IdempotencyKey: a.IdempotencyKey, RequestedAt: a.RequestedAt, NotAfter: a.NotAfter,
		Idempotent: a.Idempotent, Artifacts: a.Artifacts, ObservationDigest: a.ObservationDigest, Error: a.Error, Late: a.Late,
		Generation: a.Generation, RequestedRevision: a.RequestedRevision, ObservedRevision: a.ObservedRevision,
		Observation: a.Observation, Previous: a.Previous, Started: a.Started, GraceDue: a.GraceDue,
	}
}

func copyPlanning(r *runv1.PlanningRequest) *runv1.PlanningRequest {
	return &runv1.PlanningRequest{
		RequestId: r.RequestId, Replan: r.Replan, Attempt: r.Attempt, Open: r.Open, BaseVersion: r.BaseVersion, Scope: r.Scope,
		StepId: r.StepId, Error: r.Error, FalsifiedAssumptions: r.FalsifiedAssumptions, Findings: r.Findings,
		RejectedText: r.RejectedText, Due: r.Due, Revision: r.Revision, ReportDigest: r.ReportDigest, Outcome: r.Outcome,
		OutcomeFindings: r.OutcomeFindings, OutcomeText: r.OutcomeText, OutcomeError: r.OutcomeError,
		OutcomeReason: r.OutcomeReason, Answer: r.Answer, OutcomeRevision: r.OutcomeRevision,
	}
}

func copyInput(u *runv1.UserInputState) *runv1.UserInputState {
	return &runv1.UserInputState{
		RequestId: u.RequestId, StepId: u.StepId, Open: u.Open, Answer: u.Answer, By: u.By, Due: u.Due, Question: u.Question,
		Schema: u.Schema, Revision: u.Revision, Purpose: u.Purpose, TimedOut: u.TimedOut, ClosedRevision: u.ClosedRevision,
		Withdrawn: u.Withdrawn,
	}
}
