package render

import (
	"fmt"
	"strings"
	"time"

	"github.com/cairnrun/cairn/pkg/run"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// View follows one run by its events and draws it.
type View struct {
	state run.State
	snap  *runv1.RunState
	tree  Tree
	story []string
	ended *runv1.Event
	// folded is the revision that snap shows.
	folded int64
	// skipped says why steps were skipped.
	skipped map[string]string
	// observed holds what came back for steps that have not ended yet.
	observed map[string]*runv1.Observation
	// Command makes a command line to copy of its words; nil: "cairn" and the words.
	Command func(words ...string) string
}

// NewView begins before the run's first event.
func NewView(runID string) *View {
	return &View{state: run.New(runID), observed: map[string]*runv1.Observation{}, skipped: map[string]string{}}
}

// Add takes the run's next event. An event that was seen before changes nothing.
func (v *View) Add(e *runv1.Event) {
	if e.GetRevision() <= v.state.Revision() {
		return
	}
	v.state = run.Evolve(v.state, e)
	if o := e.GetObservationRecorded(); o != nil && !o.GetLate() {
		v.observed[o.GetStepId()] = o.GetObservation()
	}
	if k := e.GetStepSkipped(); k != nil {
		v.skipped[k.GetStepId()] = k.GetDetail()
	}
	v.story = append(v.story, v.tell(e)...)
	if End(e) {
		v.ended = e
	}
}

// End says that a run's event is its last but for late results.
func End(e *runv1.Event) bool {
	return e.GetRunCompleted() != nil || e.GetRunFailed() != nil || e.GetRunCancelled() != nil
}

// State is the run after the newest event.
func (v *View) State() *runv1.RunState {
	if v.snap == nil || v.folded != v.state.Revision() {
		v.snap, v.folded = v.state.Snapshot(), v.state.Revision()
	}
	return v.snap
}

// Ended is the event that ended the run, nil while it goes on.
func (v *View) Ended() *runv1.Event { return v.ended }

// tell is Story, and with a question the command that answers it.
func (v *View) tell(e *runv1.Event) []string {
	line, ok := Story(e)
	if !ok {
		return nil
	}
	q := e.GetUserInputRequested()
	if q == nil {
		return []string{line}
	}
	command := v.Command
	if command == nil {
		command = func(words ...string) string { return strings.Join(append([]string{"cairn"}, words...), " ") }
	}
	return []string{line, "  " + AnswerLine(command, e.GetRunId(), q.GetRequestId(), q.GetSchema())}
}

// Story tells events that change the run's course; what single steps do is in the tree.
func Story(e *runv1.Event) (string, bool) {
	switch b := e.GetBody().(type) {
	case *runv1.Event_PlanRejected:
		return "✗ plan refused: " + EventText(e), true
	case *runv1.Event_ReplanRequested:
		r := b.ReplanRequested
		return "↻ " + Line(join(r.GetRequestId()+" for "+orRun(r.GetStepId()), ErrorText(r.GetError()))), true
	case *runv1.Event_PlanPatched:
		return "↻ plan " + EventText(e), true
	case *runv1.Event_PatchRejected:
		return "✗ patch refused: " + EventText(e), true
	case *runv1.Event_ReplanDeclined:
		return "↻ no patch: " + EventText(e), true
	case *runv1.Event_PlanningFailed:
		return "✗ planning failed: " + EventText(e), true
	case *runv1.Event_UserInputRequested:
		return "? " + EventText(e), true
	case *runv1.Event_UserInputReceived:
		return "? answered " + EventText(e), true
	case *runv1.Event_CancelRequested:
		return "■ cancel requested " + EventText(e), true
	case *runv1.Event_LimitWarned:
		return "! limit near: " + EventText(e), true
	case *runv1.Event_RunQuarantined:
		return "! quarantined: " + EventText(e), true
	}
	return "", false
}

func orRun(step string) string {
	if step == "" {
		return "the run"
	}
	return step
}

// Header is two lines: what is wanted, and where the run stands.
func Header(s *runv1.RunState, o Options) []string {
	goal := Goal(s)
	parts := []string{s.GetRunId()}
	if s.GetPlan() != nil {
		p := fmt.Sprintf("plan %d", s.GetPlan().GetVersion())
		if n := replanned(s); n > 0 {
			p += fmt.Sprintf(" (replanned %s)", times(n))
		}
		parts = append(parts, p)
	}
	parts = append(parts, StatusText(s))
	if t := elapsed(s, o.Now); t != "" {
		parts = append(parts, t)
	}
	sub := strings.Join(parts, " · ")
	if o.Width > 0 {
		goal, sub = Cut(goal, o.Width), Cut(sub, o.Width)
	}
	return []string{o.paint(bold, goal), o.paint(dim, sub)}
}

// Goal is what the run is for, on one line.
func Goal(s *runv1.RunState) string {
	if g := s.GetPlan().GetGoal(); g != "" {
		return Line(g)
	}
	return Line(goalOf(s.GetSpec()))
}

// replanned counts the replans that changed the plan, not those that were declined or refused.
func replanned(s *runv1.RunState) int {
	n := 0
	for _, r := range s.GetPlanning() {
		if r.GetReplan() && r.GetOutcome() == runv1.PlanningOutcome_PLANNING_OUTCOME_ACCEPTED {
			n++
		}
	}
	return n
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// StatusText is where a run stands, in words.
func StatusText(s *runv1.RunState) string {
	switch st := s.GetStatus(); st {
	case runv1.RunStatus_RUN_STATUS_RUNNING, runv1.RunStatus_RUN_STATUS_WAITING, runv1.RunStatus_RUN_STATUS_CREATED:
		if s.GetPhase() != runv1.RunPhase_RUN_PHASE_UNSPECIFIED {
			return strings.ReplaceAll(enumText(s.GetPhase().String(), "RUN_PHASE_"), "_", " ")
		}
		return Status(st)
	default:
		return Status(st)
	}
}

// Failure says how a run ended badly, and at which step where one was to blame.
func Failure(s *runv1.RunState) string {
	text := Status(s.GetStatus())
	if step := blamed(s); step != "" {
		text += " at step " + step
	}
	return text + ": " + ErrorText(s.GetError())
}

// blamed is the step whose error ended the run; of a for_each step and its item, the item.
func blamed(s *runv1.RunState) string {
	found := ""
	for _, st := range s.GetSteps() {
		e := st.GetError()
		same := e != nil && e.GetCode() == s.GetError().GetCode() && e.GetMessage() == s.GetError().GetMessage()
		if same && outcome(st) == runv1.StepStatus_STEP_STATUS_FAILED && (found == "" || strings.HasPrefix(st.GetStepId(), found+"[")) {
			found = st.GetStepId()
		}
	}
	return found
}

// Risk is a tool's risk in a word; empty where the tool names none.
func Risk(r planv1.Risk) string {
	if r == planv1.Risk_RISK_UNSPECIFIED {
		return ""
	}
	return enumText(r.String(), "RISK_")
}

// Status is a run status as the documents write it: completed.
func Status(s runv1.RunStatus) string { return enumText(s.String(), "RUN_STATUS_") }

func enumText(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

func elapsed(s *runv1.RunState, now time.Time) string {
	if s.GetSubmittedAt() == nil {
		return ""
	}
	end := now
	if s.GetPhase() == runv1.RunPhase_RUN_PHASE_ENDED {
		end = s.GetUpdatedAt().AsTime()
	}
	if end.IsZero() {
		return ""
	}
	return Took(end.Sub(s.GetSubmittedAt().AsTime()))
}

// Frame is the whole drawing of a run.
func (v *View) Frame(o Options) []string {
	s := v.State()
	o.Skipped = v.skipped
	lines := append(Header(s, o), "")
	story := make([]string, 0, len(v.story)+1)
	for _, l := range v.story {
		if o.Width > 0 {
			l = Cut(l, o.Width)
		}
		story = append(story, o.paint(yellow, l))
	}
	tree := o
	if o.Height > 0 {
		const keptStory = 6
		if len(story) > keptStory {
			story = story[len(story)-keptStory:]
		}
		tree.Height = max(3, o.Height-len(lines)-len(story)-2)
	}
	lines = append(lines, v.tree.Lines(s, tree)...)
	if len(story) > 0 {
		lines = append(append(lines, ""), story...)
	}
	return lines
}

// RunID of the run that is viewed.
func (v *View) RunID() string { return v.state.RunID() }
