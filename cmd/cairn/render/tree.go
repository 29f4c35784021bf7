package render

import (
	"fmt"
	"strings"
	"time"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Options of a drawing.
type Options struct {
	// Width in columns; 0: as long as it gets.
	Width int
	// Height in lines; 0: no limit. Beyond it done and then waiting steps are counted instead of shown.
	Height int
	// Color adds ANSI colours.
	Color bool
	// Now is for how long a step has been running; zero leaves that out.
	Now time.Time
	// Frame moves the sign of running steps.
	Frame int
	// Skipped says of skipped steps what the state does not: the detail of their StepSkipped event.
	Skipped map[string]string
}

// Tree draws a plan with what its steps did. It keeps the layout of the newest plan version that it saw.
type Tree struct {
	plan *planv1.Plan
	rows []row
	// wide and titles are the columns of ids and of titles.
	wide, titles int
}

// narrow is the number of columns for what a step did below which its duration is left out.
const narrow = 12

// Rows is the number of steps drawn.
func (t *Tree) Rows() int { return len(t.rows) }

// Longer ids and titles are cut on a terminal, and stick out elsewhere.
const (
	maxIDColumns    = 28
	maxTitleColumns = 28
)

func titleOf(s *planv1.Step) string {
	if s.GetTitle() != "" {
		return Line(s.GetTitle())
	}
	return Line(s.GetAction().GetName())
}

func (t *Tree) use(plan *planv1.Plan) {
	if t.plan == plan || (t.plan != nil && t.plan.GetVersion() == plan.GetVersion() && plan.GetVersion() > 0) {
		return
	}
	t.plan, t.rows, t.wide, t.titles = plan, layout(plan), 0, 0
	for _, r := range t.rows {
		t.wide = max(t.wide, Width(r.prefix)+Width(r.step.GetId()))
		t.titles = max(t.titles, Width(titleOf(r.step)))
	}
	t.wide, t.titles = min(t.wide, maxIDColumns), min(t.titles, maxTitleColumns)
}

// Lines draws the run's plan, a step a line.
func (t *Tree) Lines(s *runv1.RunState, o Options) []string {
	if s.GetPlan() == nil {
		return nil
	}
	t.use(s.GetPlan())
	states := map[string]*runv1.StepState{}
	for _, st := range s.GetSteps() {
		states[st.GetStepId()] = st
	}
	for _, st := range s.GetCompensations() {
		states[st.GetStepId()] = st
	}
	d := drawing{Options: o, run: s, states: states, wide: t.wide, titles: t.titles}
	for _, r := range t.rows {
		for _, id := range d.subs(r) {
			d.wide = min(max(d.wide, Width(below(r.prefix)+id)), maxIDColumns)
		}
	}
	if o.Width > 0 {
		d.wide = min(d.wide, max(8, o.Width/2))
	}
	lines := make([]drawn, 0, len(t.rows))
	for _, r := range t.rows {
		lines = append(lines, d.step(r))
		for _, id := range d.subs(r) {
			lines = append(lines, d.sub(r, id))
		}
	}
	return d.fit(lines)
}

type drawn struct {
	text   string
	status runv1.StepStatus
}

type drawing struct {
	Options
	run    *runv1.RunState
	states map[string]*runv1.StepState
	// Columns of ids and titles.
	wide, titles int
}

func (d drawing) step(r row) drawn {
	st := d.states[r.step.GetId()]
	what := d.what(r, st)
	return d.line(r.prefix, r.step.GetId(), titleOf(r.step), what, st)
}

// undoSuffix marks what takes a step's effect back.
const undoSuffix = "[undo]"

// subs are what stands below a step on lines of their own: the items of for_each, each while they are few, else only
// those that ask for attention, and what takes the step's effect back, once that is asked for.
func (d drawing) subs(r row) []string {
	items := d.states[r.step.GetId()].GetItems()
	const few = 8
	var out []string
	for i := range items {
		id := fmt.Sprintf("%s[%d]", r.step.GetId(), i)
		status := d.states[id].GetStatus()
		quiet := status == runv1.StepStatus_STEP_STATUS_SUCCEEDED || status <= runv1.StepStatus_STEP_STATUS_READY
		if len(items) <= few || !quiet {
			out = append(out, id)
		}
		if u := id + undoSuffix; d.states[u] != nil {
			out = append(out, u)
		}
	}
	if u := r.step.GetId() + undoSuffix; d.states[u] != nil {
		out = append(out, u)
	}
	return out
}

func (d drawing) sub(r row, id string) drawn {
	st := d.states[id]
	what := d.what(row{step: r.step}, st)
	if strings.HasSuffix(id, undoSuffix) && st.GetStatus() == runv1.StepStatus_STEP_STATUS_SUCCEEDED {
		what = join("undone", what)
	}
	return d.line(below(r.prefix), id, "", what, st)
}

// below is the prefix of what belongs to a step and stands on its own line.
func below(prefix string) string {
	return strings.NewReplacer("├─ ", "│  ", "└─ ", "   ").Replace(prefix) + "   "
}

func (d drawing) line(prefix, id, title, what string, st *runv1.StepState) drawn {
	status := outcome(st)
	sign, color := signOf(status, d.Frame)
	name := prefix + id
	if d.Width > 0 {
		name = cutName(name, d.wide)
	}
	name = Pad(name, d.wide)
	took := d.took(st)
	left := 0
	if d.Width > 0 {
		left = d.Width - 2 - d.wide - 2 - Width(took) - 2
		if left < narrow {
			left, took = left+Width(took)+2, ""
		}
	}
	detail := title
	if what != "" && title != "" {
		columns := d.titles
		if d.Width > 0 {
			// The title gives way to what the step did.
			columns = min(columns, max(12, left/3))
			title = Cut(title, columns)
		}
		detail = Pad(title, columns) + "  " + what
	} else if title == "" {
		detail = what
	}
	if d.Width > 0 {
		detail = Pad(Cut(detail, max(0, left)), max(0, left))
	}
	text := d.paint(color, sign) + " " + d.paint(treeColor(status), name) + "  " + d.paint(detailColor(status), detail)
	switch {
	case took != "" && d.Width > 0:
		text += "  " + d.paint(dim, took)
	case took != "":
		// Without columns the time would look like a part of the text.
		text = strings.TrimRight(text, " ") + "  " + d.paint(dim, "("+took+")")
	}
	return drawn{text: strings.TrimRight(text, " "), status: status}
}

// cutName shortens a name, but keeps what tells items apart: their index.
func cutName(name string, columns int) string {
	i := strings.IndexByte(name, '[')
	if i < 0 || Width(name) <= columns || Width(name[i:])+1 >= columns {
		return Cut(name, columns)
	}
	return Cut(name[:i], columns-Width(name[i:])) + name[i:]
}

// outcome is the status that is shown. A step that had failed, and that the run's end found waiting for a replan or a
// person, is told by its failure.
func outcome(st *runv1.StepState) runv1.StepStatus {
	if st.GetStatus() == runv1.StepStatus_STEP_STATUS_CANCELLED && st.GetError() != nil &&
		st.GetPolicy() != planv1.FailurePolicy_FAILURE_POLICY_UNSPECIFIED {
		return runv1.StepStatus_STEP_STATUS_FAILED
	}
	return st.GetStatus()
}

// what says in a few words what a step did or waits for.
func (d drawing) what(r row, st *runv1.StepState) string {
	var parts []string
	switch outcome(st) {
	case runv1.StepStatus_STEP_STATUS_SUCCEEDED:
		if n := len(st.GetItems()); n > 0 {
			return count(n, "item")
		}
		return Result(st.GetResult())
	case runv1.StepStatus_STEP_STATUS_FAILED, runv1.StepStatus_STEP_STATUS_REPLANNING:
		return ErrorText(st.GetError())
	case runv1.StepStatus_STEP_STATUS_SKIPPED:
		return "skipped: " + join(strings.ReplaceAll(st.GetSkipReason(), "_", " "), d.skipped(st))
	case runv1.StepStatus_STEP_STATUS_CANCELLED:
		return join("cancelled", ErrorText(st.GetError()))
	case runv1.StepStatus_STEP_STATUS_REMOVED:
		return "removed by a patch"
	case runv1.StepStatus_STEP_STATUS_RUNNING:
		if n := len(st.GetItems()); n > 0 {
			return fmt.Sprintf("%d of %s done", n-int(st.GetItemsOpen()), count(n, "item"))
		}
		if st.GetAttempts() > 1 {
			parts = append(parts, fmt.Sprintf("attempt %d", st.GetAttempts()))
		}
	case runv1.StepStatus_STEP_STATUS_WAITING:
		if st.GetError() != nil {
			parts = append(parts, fmt.Sprintf("attempt %d follows: %s", st.GetAttempts()+1, ErrorText(st.GetError())))
		} else if st.GetDue() != nil {
			parts = append(parts, "until "+st.GetDue().AsTime().Format("15:04:05 MST"))
		}
	case runv1.StepStatus_STEP_STATUS_WAITING_FOR_USER:
		for _, in := range d.run.GetInputs() {
			if in.GetRequestId() == st.GetInputRequest() {
				parts = append(parts, in.GetRequestId()+": "+Line(in.GetQuestion()))
			}
		}
	}
	if len(parts) == 0 && len(r.after) > 0 {
		parts = append(parts, afterText(r.after))
	}
	return strings.Join(parts, ", ")
}

// skipped says why a step was skipped: what its event says, else what its last action said.
func (d drawing) skipped(st *runv1.StepState) string {
	if text := d.Skipped[st.GetStepId()]; text != "" {
		return Line(text)
	}
	if n := int(st.GetAction()); n > 0 && n <= len(d.run.GetActions()) {
		return ErrorText(d.run.GetActions()[n-1].GetError())
	}
	return ""
}

func (d drawing) took(st *runv1.StepState) string {
	if st.GetStartedAt() == nil {
		return ""
	}
	end := d.Now
	if st.GetEndedAt() != nil {
		end = st.GetEndedAt().AsTime()
	} else if st.GetStatus() != runv1.StepStatus_STEP_STATUS_RUNNING {
		return ""
	}
	if end.IsZero() {
		return ""
	}
	return Took(end.Sub(st.GetStartedAt().AsTime()))
}

// Took shows how long something took: 12ms, 1.2s, 2m03s.
func Took(d time.Duration) string {
	switch {
	case d < 0:
		return "0ms"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// fit keeps what matters when the screen is too low: first the done steps go, then the waiting ones from the end.
func (d drawing) fit(lines []drawn) []string {
	drop := map[int]bool{}
	done, waiting := 0, 0
	if d.Height > 0 && len(lines) > d.Height {
		over := len(lines) - max(1, d.Height-1)
		for i := 0; i < len(lines) && over > 0; i++ {
			if s := lines[i].status; s == runv1.StepStatus_STEP_STATUS_SUCCEEDED || s == runv1.StepStatus_STEP_STATUS_SKIPPED {
				drop[i], over, done = true, over-1, done+1
			}
		}
		for i := len(lines) - 1; i >= 0 && over > 0; i-- {
			if !drop[i] {
				drop[i], over, waiting = true, over-1, waiting+1
			}
		}
	}
	out := make([]string, 0, len(lines))
	for i, l := range lines {
		if !drop[i] {
			out = append(out, l.text)
		}
	}
	rest := ""
	switch {
	case done > 0 && waiting > 0:
		rest = fmt.Sprintf("… %d more done, %d more to come", done, waiting)
	case done > 0:
		rest = fmt.Sprintf("… %d more done", done)
	case waiting > 0:
		rest = fmt.Sprintf("… %d more to come", waiting)
	default:
		return out
	}
	if d.Width > 0 {
		rest = Cut(rest, d.Width)
	}
	return append(out, d.paint(dim, rest))
}
