package run

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// State is a run after its newest event. It is a value: Evolve makes a new one and changes none, and the two share
// what did not change.
type State struct{ d *data }

// data is what a State holds. Nothing reachable from it changes once the State is made.
type data struct {
	runID    string
	tenant   string
	revision int64
	// status holds created, cancelling, quarantined and the terminal ones; running and waiting follow from the rest.
	status runv1.RunStatus

	spec        *runv1.RunSpec
	bodyDigest  string
	limits      limits
	trace       *runv1.TraceContext
	submittedAt *timestamppb.Timestamp
	updatedAt   *timestamppb.Timestamp
	deadline    *timestamppb.Timestamp
	// deadlineRevision is set when the run's time is up.
	deadlineRevision int64
	baseRevision     int64

	plan         *planv1.Plan
	planDigest   string
	planRevision int64
	tools        []*planv1.ToolDefinition
	// layout follows from plan and tools, and is shared by all states of one plan version.
	layout *layout

	// steps[i] is the state of plan.steps[i]; removed steps stand behind the plan's.
	steps vector[*stepElem]
	// undo holds the compensations "id[undo]", in order of their start.
	undo     vector[*stepElem]
	actions  vector[*actionElem]
	planning vector[*planningElem]
	inputs   vector[*inputElem]

	answer         *planv1.JsonText
	answerArtifact *runv1.ArtifactRef
	err            *runv1.Error

	replans         int32
	retries         int32
	cancelReason    string
	cancelDue       *timestamppb.Timestamp
	cancelRevision  int64
	cancelGraceOver bool
	refused         []*runv1.RefusedReport
	refusedMore     int64
	warned          []string
	inlineBytes     int64
	quarantine      string
	fingerprints    []*runv1.PlanFingerprint
	// patches are those that persons sent.
	patches []*runv1.RefusedReport
}

// layout is what follows from a plan version alone.
type layout struct {
	graph *plan.Graph
	tools map[string]*planv1.ToolDefinition
	// removed finds steps that are no longer in the plan.
	removed map[string]int
	// producers finds the step that produces a named artifact.
	producers map[string]int
	steps     []stepLayout
}

// stepLayout is what follows from a step of the plan.
type stepLayout struct {
	// looks: whether it runs is decided by more than its dependencies, or it needs no slot.
	looks    bool
	optional bool
	finish   bool
	forEach  bool
}

var emptyData = &data{}

func (s State) data() *data {
	if s.d == nil {
		return emptyData
	}
	return s.d
}

// New is the state before the first event.
func New(runID string) State { return State{d: &data{runID: runID}} }

// RunID of the run.
func (s State) RunID() string { return s.data().runID }

// Tenant of the run, empty before RunSubmitted.
func (s State) Tenant() string { return s.data().tenant }

// Revision of the newest event, 0 before the first.
func (s State) Revision() int64 { return s.data().revision }

// Terminal says whether the run has ended.
func (s State) Terminal() bool { return s.data().terminal() }

// BodyDigest is the digest of what was submitted; a submission of the same body is a repeat.
func (s State) BodyDigest() string { return s.data().bodyDigest }

// UpdatedAt is the time of the newest event, the zero time before the first.
func (s State) UpdatedAt() time.Time { return timeOf(s.data().updatedAt) }

// LedgerSettled says whether every action of the run has a known outcome: what ended and is settled needs no more
// reports.
func (s State) LedgerSettled() bool {
	settled := true
	s.data().actions.each(0, func(_ int, a *actionElem) bool {
		switch a.st.GetStatus() {
		case runv1.ActionStatus_ACTION_STATUS_SUCCEEDED, runv1.ActionStatus_ACTION_STATUS_FAILED, runv1.ActionStatus_ACTION_STATUS_REVOKED:
		default:
			settled = false
		}
		return settled
	})
	return settled
}

// LeftUnderWay says whether the run ended while actions were under way or the planner owed an answer: nobody waits for those
// any more.
func (s State) LeftUnderWay() bool {
	d := s.data()
	if !d.terminal() {
		return false
	}
	if last := d.lastPlanning(); last != nil {
		switch last.st.GetOutcome() {
		case runv1.PlanningOutcome_PLANNING_OUTCOME_CANCELLED, runv1.PlanningOutcome_PLANNING_OUTCOME_TIMED_OUT:
			return true
		}
	}
	return d.actions.sum().open > 0
}

// Ends says whether an event ends its run.
func Ends(e *runv1.Event) bool {
	return e.GetRunCompleted() != nil || e.GetRunFailed() != nil || e.GetRunCancelled() != nil
}

func (d *data) terminal() bool {
	switch d.status {
	case runv1.RunStatus_RUN_STATUS_COMPLETED, runv1.RunStatus_RUN_STATUS_FAILED, runv1.RunStatus_RUN_STATUS_CANCELLED:
		return true
	}
	return false
}

// Status of the run.
func (s State) Status() runv1.RunStatus {
	d := s.data()
	if d.status != runv1.RunStatus_RUN_STATUS_RUNNING {
		return d.status
	}
	if d.moves() || d.openPlanning() != nil {
		return runv1.RunStatus_RUN_STATUS_RUNNING
	}
	return runv1.RunStatus_RUN_STATUS_WAITING
}

// Phase of the run.
func (s State) Phase() runv1.RunPhase {
	d := s.data()
	open := d.openPlanning()
	switch {
	case d.revision == 0:
		return runv1.RunPhase_RUN_PHASE_UNSPECIFIED
	case d.terminal():
		return runv1.RunPhase_RUN_PHASE_ENDED
	case d.plan == nil:
		return runv1.RunPhase_RUN_PHASE_PLANNING
	case open != nil:
		return runv1.RunPhase_RUN_PHASE_REPLANNING
	case d.moves():
		return runv1.RunPhase_RUN_PHASE_EXECUTING
	}
	actions, inputs := d.actions.sum().open, d.inputs.sum().open
	switch {
	case actions > 0 && inputs == 0:
		return runv1.RunPhase_RUN_PHASE_WAITING_FOR_TOOL
	case inputs > 0 && actions == 0:
		return runv1.RunPhase_RUN_PHASE_WAITING_FOR_USER
	}
	return runv1.RunPhase_RUN_PHASE_EXECUTING
}

// moves says whether a step can go on without anything from outside.
func (d *data) moves() bool {
	f := d.steps.sum().flags | d.undo.sum().flags
	return f&(wantsJudging|wantsLook) != 0 || f&wantsSlot != 0 && d.freeSlots() > 0 && d.held() == ""
}

// freeSlots is how many more actions may be under way now.
func (d *data) freeSlots() int {
	if int64(d.actions.len()) >= d.limits.maxSteps {
		return 0
	}
	return d.limits.maxParallel - int(d.actions.sum().open)
}

// openPlanning is the request that the planner owes an answer to; there is at most one.
func (d *data) openPlanning() *planningElem {
	if n := d.planning.len(); n > 0 && d.planning.at(n-1).st.GetOpen() {
		return d.planning.at(n - 1)
	}
	return nil
}

// lastPlanning is the newest request, nil before the first.
func (d *data) lastPlanning() *planningElem {
	if n := d.planning.len(); n > 0 {
		return d.planning.at(n - 1)
	}
	return nil
}

// place finds a step's state.
type place struct {
	kind placeKind
	// step is the index in steps or undo; of an item its parent's.
	step int
	item int
}

type placeKind uint8

const (
	placeStep placeKind = iota + 1
	placeItem
	placeUndo
)

// undoSuffix marks the step that undoes another.
const undoSuffix = "[undo]"

// find returns where a step's state is; kind 0 where there is none. An item may be one that has not begun.
func (d *data) find(id string) place {
	if d.layout == nil {
		return place{}
	}
	if strings.HasSuffix(id, undoSuffix) {
		for i := d.undo.len() - 1; i >= 0; i-- {
			if d.undo.at(i).st.GetStepId() == id {
				return place{kind: placeUndo, step: i}
			}
		}
		return place{}
	}
	if base, item, ok := splitItem(id); ok {
		if i, found := d.indexOf(base); found && item <= d.steps.at(i).items.len() {
			return place{kind: placeItem, step: i, item: item}
		}
		return place{}
	}
	if i, found := d.indexOf(id); found {
		return place{kind: placeStep, step: i}
	}
	return place{}
}

func (d *data) indexOf(id string) (int, bool) {
	if i, ok := d.layout.graph.Index(id); ok {
		return i, true
	}
	i, ok := d.layout.removed[id]
	return i, ok
}

// at returns the element at a place, nil for an item that has not begun.
func (d *data) at(p place) *stepElem {
	switch p.kind {
	case placeStep:
		return d.steps.at(p.step)
	case placeUndo:
		return d.undo.at(p.step)
	case placeItem:
		if items := d.steps.at(p.step).items; p.item < items.len() {
			return items.at(p.item)
		}
	}
	return nil
}

// stepAt returns the plan's step for a place, nil for a removed one.
func (d *data) stepAt(p place) *planv1.Step {
	i := p.step
	if p.kind == placeUndo {
		base := d.find(strings.TrimSuffix(d.undo.at(p.step).st.GetStepId(), undoSuffix))
		if base.kind == 0 {
			return nil
		}
		i = base.step
	}
	if steps := d.plan.GetSteps(); i < len(steps) {
		return steps[i]
	}
	return nil
}

// actionOf is what a step at a place does.
func actionOf(p place, step *planv1.Step) *planv1.Action {
	if p.kind == placeUndo {
		return step.GetCompensate()
	}
	return step.GetAction()
}

func itemID(id string, i int) string { return id + "[" + strconv.Itoa(i) + "]" }

// splitItem reads "id[3]".
func splitItem(id string) (base string, item int, ok bool) {
	open := strings.LastIndexByte(id, '[')
	if open <= 0 || !strings.HasSuffix(id, "]") {
		return "", 0, false
	}
	digits := id[open+1 : len(id)-1]
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || strconv.Itoa(n) != digits {
		return "", 0, false
	}
	return id[:open], n, true
}

var bracketsToToken = strings.NewReplacer("[", "=", "]", "")

// actionID names one attempt of a step, safe as a subject token and a key: "pay-1", "pay=0-1" for an item.
func actionID(stepID string, attempt int32) string {
	return bracketsToToken.Replace(stepID) + "-" + strconv.Itoa(int(attempt))
}

// splitAction reads an action id.
func splitAction(id string) (stepID string, attempt int32, ok bool) {
	dash := strings.LastIndexByte(id, '-')
	if dash <= 0 || strings.IndexByte(id, '[') >= 0 {
		return "", 0, false
	}
	if first := id[dash+1:]; first == "" || first[0] < '1' || first[0] > '9' {
		return "", 0, false // an action has one name: "s-01" and "s-+1" are nobody's
	}
	n, err := strconv.ParseInt(id[dash+1:], 10, 32)
	if err != nil || n < 1 {
		return "", 0, false
	}
	step := id[:dash]
	if strings.IndexByte(step, '=') > 0 {
		parts := strings.Split(step, "=")
		step = parts[0] + "[" + strings.Join(parts[1:], "][") + "]"
	}
	return step, int32(n), true
}

// action returns the ledger entry of an action and its place, nil where there is none.
func (d *data) action(id string) (*actionElem, int) {
	step, attempt, ok := splitAction(id)
	if !ok {
		return nil, 0
	}
	e := d.at(d.find(step))
	if e == nil {
		return nil, 0
	}
	for next := e.st.GetAction(); next > 0; {
		a := d.actions.at(int(next) - 1)
		if a.st.GetAttempt() == attempt {
			return a, int(next) - 1
		}
		next = a.st.GetPrevious()
	}
	return nil, 0
}

// newest returns a step's newest ledger entry, nil where it has none.
func (d *data) newest(st *runv1.StepState) *runv1.ActionState {
	if n := int(st.GetAction()); n > 0 && n <= d.actions.len() {
		return d.actions.at(n - 1).st
	}
	return nil
}

// input returns a request for a person and its place.
func (d *data) input(id string) (*runv1.UserInputState, int) {
	n, ok := strings.CutPrefix(id, "input-")
	i, err := strconv.Atoi(n)
	if !ok || err != nil || i < 1 || i > d.inputs.len() || strconv.Itoa(i) != n {
		return nil, 0
	}
	return d.inputs.at(i - 1).st, i - 1
}

// requestOf returns a request for a plan or patch and its place.
func (d *data) requestOf(id string) (*runv1.PlanningRequest, int) {
	for i := d.planning.len() - 1; i >= 0; i-- {
		if r := d.planning.at(i).st; r.GetRequestId() == id {
			return r, i
		}
	}
	return nil, 0
}

func stepTerminal(s runv1.StepStatus) bool {
	switch s {
	case runv1.StepStatus_STEP_STATUS_SUCCEEDED, runv1.StepStatus_STEP_STATUS_FAILED, runv1.StepStatus_STEP_STATUS_SKIPPED,
		runv1.StepStatus_STEP_STATUS_CANCELLED, runv1.StepStatus_STEP_STATUS_REMOVED:
		return true
	}
	return false
}

func actionOpen(s runv1.ActionStatus) bool {
	return s == runv1.ActionStatus_ACTION_STATUS_REQUESTED || s == runv1.ActionStatus_ACTION_STATUS_REVOKING
}

// makeLayout derives what follows from a plan.
func makeLayout(p *planv1.Plan, tools []*planv1.ToolDefinition, removed map[string]int) *layout {
	l := &layout{graph: plan.NewGraph(p), tools: make(map[string]*planv1.ToolDefinition, len(tools)), removed: removed,
		producers: map[string]int{}, steps: make([]stepLayout, len(p.GetSteps()))}
	for _, t := range tools {
		l.tools[t.GetName()] = t
	}
	for i, s := range p.GetSteps() {
		for _, name := range s.GetProduces() {
			l.producers[name] = i
		}
		control := s.GetAction().GetKind() == planv1.ActionKind_ACTION_KIND_CONTROL
		l.steps[i] = stepLayout{
			looks:    s.GetWhen() != "" || s.GetForEach() != nil || control || s.GetConfirm() || s.GetAction() == nil,
			optional: s.GetOptional(),
			finish:   control && s.GetAction().GetName() == "finish",
			forEach:  s.GetForEach() != nil,
		}
	}
	return l
}

// toolsByName merges tool definitions; a newer one of the same name counts.
func toolsByName(old, newer []*planv1.ToolDefinition) []*planv1.ToolDefinition {
	all := slices.Clone(old)
	for _, t := range newer {
		if i := slices.IndexFunc(all, func(o *planv1.ToolDefinition) bool { return o.GetName() == t.GetName() }); i >= 0 {
			all[i] = t
		} else {
			all = append(all, t)
		}
	}
	slices.SortStableFunc(all, func(a, b *planv1.ToolDefinition) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}
