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

// Longer ids and titles are cut.
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
	d := drawing{Options: o, run: s, states: states, wide: t.wide, titles: t.titles}
	if o.Width > 0 {
		d.wide = min(d.wide, max(8, o.Width/2))
	}
	lines := make([]drawn, 0, len(t.rows))
	for _, r := range t.rows {
		lines = append(lines, d.step(r))
		lines = append(lines, d.items(r)...)
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

// items shows what became of a for_each step's items: each while they are few, else only those that ask for attention.
func (d drawing) items(r row) []drawn {
	st := d.states[r.step.GetId()]
	const few = 8
	var out []drawn
	prefix := strings.NewReplacer("├─ ", "│  ", "└─ ", "   ").Replace(r.prefix)
	for i := range st.GetItems() {
		id := fmt.Sprintf("%s[%d]", r.step.GetId(), i)
		item := d.states[id]
		quiet := item.GetStatus() == runv1.StepStatus_STEP_STATUS_SUCCEEDED || item.GetStatus() <= runv1.StepStatus_STEP_STATUS_READY
		if len(st.GetItems()) > few && quiet {
			continue
		}
		out = append(out, d.line(prefix+"   ", id, "", d.what(row{step: r.step}, item), item))
	}
	return out
}

func (d drawing) line(prefix, id, title, what string, st *runv1.StepState) drawn {
	sign, color := signOf(st.GetStatus(), d.Frame)
	name := Pad(Cut(prefix+id, d.wide), d.wide)
	took := d.took(st)
	left := 0
	if d.Width > 0 {
		left = d.Width - 2 - d.wide - 2 - Width(took) - 1
		if left < narrow {
			left, took = left+Width(took)+1, ""
		}
	}
	detail := title
	if what != "" && title != "" {
		columns := d.titles
		if d.Width > 0 {
			// The title gives way to what the step did.
			columns = min(columns, max(12, left/3))
		}
		detail = Pad(Cut(title, columns), columns) + "  " + what
	} else if title == "" {
		detail = what
	}
	if d.Width > 0 {
		detail = Pad(Cut(detail, max(0, left)), max(0, left))
	}
	text := d.paint(color, sign) + " " + d.paint(treeColor(st.GetStatus()), name) + "  " + d.paint(detailColor(st.GetStatus()), detail)
	if took != "" {
		text += " " + d.paint(dim, took)
	}
	return drawn{text: strings.TrimRight(text, " "), status: st.GetStatus()}
}

// what says in a few words what a step did or waits for.
func (d drawing) what(r row, st *runv1.StepState) string {
	var parts []string
	switch st.GetStatus() {
	case runv1.StepStatus_STEP_STATUS_SUCCEEDED:
		if n := len(st.GetItems()); n > 0 {
			return fmt.Sprintf("%d items", n)
		}
		return Result(st.GetResult())
	case runv1.StepStatus_STEP_STATUS_FAILED, runv1.StepStatus_STEP_STATUS_REPLANNING:
		return ErrorText(st.GetError())
	case runv1.StepStatus_STEP_STATUS_SKIPPED:
		return "skipped: " + strings.ReplaceAll(st.GetSkipReason(), "_", " ")
	case runv1.StepStatus_STEP_STATUS_CANCELLED:
		if st.GetError() != nil {
			// It had failed, and the run ended before a replan could mend it.
			return ErrorText(st.GetError())
		}
		return "cancelled"
	case runv1.StepStatus_STEP_STATUS_REMOVED:
		return "removed by a patch"
	case runv1.StepStatus_STEP_STATUS_RUNNING:
		if n := len(st.GetItems()); n > 0 {
			return fmt.Sprintf("%d of %d items done", n-int(st.GetItemsOpen()), n)
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
