package render

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func TestWidthCountsColumns(t *testing.T) {
	for s, want := range map[string]int{
		"": 0, "abc": 3, "黑色": 4, "iPhone，": 8, "✓": 1, "├─ ": 3, "📱": 2, "e\u0301": 1, "👨\u200d👩": 4, "\x1b": 0,
	} {
		if got := Width(s); got != want {
			t.Errorf("Width(%q) = %d, want %d", s, got, want)
		}
	}
}

func TestCase68_CutEndsAtACharacterAndWithinTheColumns(t *testing.T) {
	text := strings.Repeat("读✅", 70_000)
	for columns := range 12 {
		got := Cut(text, columns)
		if !utf8.ValidString(got) || Width(got) > columns {
			t.Errorf("Cut to %d columns: %q takes %d", columns, got, Width(got))
		}
	}
	if got := Cut("黑色", 4); got != "黑色" {
		t.Errorf("what fits was cut: %q", got)
	}
}

func TestLineHoldsNoControlCharacters(t *testing.T) {
	if got := Line("a\x1b[31mb\nc\u2028d\u0085e\x00f"); got != "a [31mb c d e f" {
		t.Errorf("got %q", got)
	}
}

func TestValueShowsObjectsByTheirOwnOrder(t *testing.T) {
	for text, want := range map[string]string{
		`{"b":1,"a":"黑色","n":{"x":[1]},"big":9007199254740993,"p":9011.00}`: `b: 1, a: 黑色, n: {"x":[1]}, big: 9007199254740993, p: 9011.00`,
		`"two\nlines"`: "two lines", `null`: "null", `[1,2]`: "[1,2]", ``: "", `9011.00`: "9011.00",
	} {
		if got := Value(&planv1.JsonText{Text: text}); got != want {
			t.Errorf("Value(%s) = %q, want %q", text, got, want)
		}
	}
}

func TestTook(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0ms", 12 * time.Millisecond: "12ms", 1250 * time.Millisecond: "1.2s", 123 * time.Second: "2m03s", 2*time.Hour + 5*time.Minute: "2h05m",
	} {
		if got := Took(d); got != want {
			t.Errorf("Took(%s) = %q, want %q", d, got, want)
		}
	}
}

// example is a run in the middle: every kind of step state once.
func example(t testing.TB) *runv1.RunState {
	p := planOf(t, "parse:\nstock: parse\ndelivery: parse\nprice: stock delivery\npay: price\ngift:\nask: price")
	p.Steps[0].Title = "看懂愿望"
	at := func(ms int64) *timestamppb.Timestamp { return timestamppb.New(time.UnixMilli(ms)) }
	inline := func(s string) *runv1.Value {
		return &runv1.Value{Value: &runv1.Value_Inline{Inline: &planv1.JsonText{Text: s}}}
	}
	return &runv1.RunState{RunId: "rabc", Plan: p, Spec: &runv1.RunSpec{Goal: "下单 1 台 iPhone 15 Pro 256G 黑色，寄到上海浦东"},
		Status: runv1.RunStatus_RUN_STATUS_RUNNING, Phase: runv1.RunPhase_RUN_PHASE_EXECUTING, SubmittedAt: at(0),
		Inputs: []*runv1.UserInputState{{RequestId: "input-1", StepId: "ask", Question: "Really?", Open: true}},
		Steps: []*runv1.StepState{
			{StepId: "parse", Status: runv1.StepStatus_STEP_STATUS_SUCCEEDED, Result: inline(`{"model":"iPhone 15 Pro"}`), StartedAt: at(0), EndedAt: at(12)},
			{StepId: "stock", Status: runv1.StepStatus_STEP_STATUS_FAILED, Error: &runv1.Error{Code: "check_failed", Message: "none left"}, StartedAt: at(12), EndedAt: at(20)},
			{StepId: "delivery", Status: runv1.StepStatus_STEP_STATUS_RUNNING, Attempts: 2, StartedAt: at(12)},
			{StepId: "price", Status: runv1.StepStatus_STEP_STATUS_PENDING},
			{StepId: "pay", Status: runv1.StepStatus_STEP_STATUS_WAITING, Attempts: 1, Error: &runv1.Error{Code: "timeout"}},
			{StepId: "gift", Status: runv1.StepStatus_STEP_STATUS_SKIPPED, SkipReason: "condition_false"},
			{StepId: "ask", Status: runv1.StepStatus_STEP_STATUS_WAITING_FOR_USER, InputRequest: "input-1"},
		}}
}

func TestTreeSaysWhatEachStepDid(t *testing.T) {
	var tree Tree
	got := strings.Join(tree.Lines(example(t), Options{Now: time.UnixMilli(1012)}), "\n")
	for _, want := range []string{
		"✓ ├─ parse        看懂愿望  model: iPhone 15 Pro  (12ms)",
		"✗ │  ├─ stock     check_failed: none left  (8ms)",
		"⠋ │  └─ delivery  attempt 2  (1.0s)",
		"· │  price        after stock, delivery",
		"attempt 2 follows: timeout",
		"? │  └─ ask       input-1: Really?",
		"↷ └─ gift         skipped: condition false",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("missing %q in\n%s", want, got)
		}
	}
}

func TestLinesNeverExceedTheTerminal(t *testing.T) {
	s := example(t)
	s.Plan.Steps[0].Title = strings.Repeat("很长的标题", 40)
	s.Steps[1].Error.Message = strings.Repeat("wide 宽 ", 50)
	v := NewView("rabc")
	v.snap, v.folded = s, 0
	v.story = []string{strings.Repeat("故事", 100)}
	for width := 20; width <= 140; width += 7 {
		for _, height := range []int{0, 6, 10, 40} {
			lines := v.Frame(Options{Width: width, Height: height, Now: time.UnixMilli(1012)})
			for _, l := range lines {
				if Width(l) > width {
					t.Fatalf("width %d: %q takes %d", width, l, Width(l))
				}
			}
			if height >= 10 && len(lines) >= height {
				t.Fatalf("height %d: %d lines", height, len(lines))
			}
		}
	}
}

func TestAHighTreeKeepsWhatMatters(t *testing.T) {
	p := &planv1.Plan{Version: 1}
	s := &runv1.RunState{Plan: p}
	for i := range 300 {
		id := "s" + strings.Repeat("x", i%5) + string(rune('a'+i%26)) + Took(time.Duration(i)*time.Second)
		p.Steps = append(p.Steps, &planv1.Step{Id: id})
		st := runv1.StepStatus_STEP_STATUS_SUCCEEDED
		switch {
		case i == 150:
			st = runv1.StepStatus_STEP_STATUS_FAILED
		case i == 151:
			st = runv1.StepStatus_STEP_STATUS_RUNNING
		case i > 151:
			st = runv1.StepStatus_STEP_STATUS_PENDING
		}
		s.Steps = append(s.Steps, &runv1.StepState{StepId: id, Status: st})
	}
	var tree Tree
	lines := tree.Lines(s, Options{Height: 20})
	text := strings.Join(lines, "\n")
	if len(lines) > 20 || !strings.Contains(text, "✗") || !strings.Contains(text, "⠋") || !strings.Contains(text, "150 more done") {
		t.Fatalf("%d lines:\n%s", len(lines), text)
	}
}

func TestLiveRedrawsInPlace(t *testing.T) {
	var b strings.Builder
	l := NewLive(&b)
	for _, d := range []struct {
		lines []string
		width int
	}{{[]string{"one", "two"}, 80}, {[]string{"one", "two"}, 80}, {[]string{"ONE"}, 80}, {[]string{"narrow"}, 40}} {
		if err := l.Draw(d.lines, d.width); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	want := "\x1b[?25l" +
		"\x1b[?2026h\r\x1b[2Kone\n\r\x1b[2Ktwo\n\x1b[J\x1b[?2026l" +
		"\x1b[?2026h\x1b[2A\r\x1b[2KONE\n\x1b[J\x1b[?2026l" +
		"\x1b[?2026h\r\x1b[2Knarrow\n\x1b[J\x1b[?2026l" + "\x1b[?25h"
	if b.String() != want {
		t.Fatalf("got %q\nwant %q", b.String(), want)
	}
}

// Every event must say something of itself: a new one without text is noticed here.
func TestEveryEventHasAName(t *testing.T) {
	fields := (&runv1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range fields.Len() {
		e := &runv1.Event{}
		e.ProtoReflect().Set(fields.Get(i), e.ProtoReflect().NewField(fields.Get(i)))
		if name := EventName(e); name != string(fields.Get(i).Message().Name()) {
			t.Errorf("%s is named %q", fields.Get(i).Name(), name)
		}
		_ = EventText(e)
	}
}

// What the tree tells beside the steps' own results: whole names of items where nothing bounds the line, why a step was
// skipped, what was undone, and what had failed when the run ended.
func TestTreeTellsItemsSkipsUndoneAndUnmendedSteps(t *testing.T) {
	json := func(s string) *planv1.JsonText { return &planv1.JsonText{Text: s} }
	value := func(s string) *runv1.Value { return &runv1.Value{Value: &runv1.Value_Inline{Inline: json(s)}} }
	s := &runv1.RunState{
		Plan: planOf(t, "a_rather_long_name_of_a_step_with_items:\nbroken:\nrefused:\npause:\nbook:\nmend:\nask:\nlate:"),
		Steps: []*runv1.StepState{
			{StepId: "a_rather_long_name_of_a_step_with_items", Status: runv1.StepStatus_STEP_STATUS_SUCCEEDED, Items: []*planv1.JsonText{json("1")}},
			{StepId: "a_rather_long_name_of_a_step_with_items[0]", Status: runv1.StepStatus_STEP_STATUS_SUCCEEDED, Result: value("7")},
			{StepId: "broken", Status: runv1.StepStatus_STEP_STATUS_SKIPPED, SkipReason: "policy"},
			{StepId: "refused", Status: runv1.StepStatus_STEP_STATUS_SKIPPED, SkipReason: "policy", Action: 1},
			{StepId: "pause", Status: runv1.StepStatus_STEP_STATUS_SUCCEEDED, Result: value("null")},
			{StepId: "book", Status: runv1.StepStatus_STEP_STATUS_SUCCEEDED, Result: value(`"B-1"`)},
			{StepId: "mend", Status: runv1.StepStatus_STEP_STATUS_CANCELLED, Error: &runv1.Error{Code: "check_failed", Message: "none"},
				Policy: planv1.FailurePolicy_FAILURE_POLICY_REPLAN_STEP},
			{StepId: "ask", Status: runv1.StepStatus_STEP_STATUS_CANCELLED},
			{StepId: "late", Status: runv1.StepStatus_STEP_STATUS_CANCELLED, Error: &runv1.Error{Code: "timeout"}},
		},
		Actions:       []*runv1.ActionState{{Error: &runv1.Error{Code: "no_text", Message: "没有文字"}}},
		Compensations: []*runv1.StepState{{StepId: "book[undo]", Status: runv1.StepStatus_STEP_STATUS_SUCCEEDED, Result: value("true")}},
	}
	lines := func(o Options) []string {
		var out []string
		for _, l := range new(Tree).Lines(s, o) {
			out = append(out, strings.Join(strings.Fields(l), " "))
		}
		return out
	}
	want := []string{
		"✓ ├─ a_rather_long_name_of_a_step_with_items 1 item",
		"✓ │ a_rather_long_name_of_a_step_with_items[0] 7",
		"↷ ├─ broken skipped: policy: empty_text: nothing to read",
		"↷ ├─ refused skipped: policy: no_text: 没有文字",
		"✓ ├─ pause",
		"✓ ├─ book B-1",
		"✓ │ book[undo] undone: true",
		"✗ ├─ mend check_failed: none",
		"– ├─ ask cancelled",
		"– └─ late cancelled: timeout",
	}
	if diff := cmp.Diff(want, lines(Options{Skipped: map[string]string{"broken": "empty_text: nothing to read"}})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	// An item's name is not cut to the column of short step ids.
	s.Plan, s.Steps[0].StepId, s.Steps[1].StepId = planOf(t, "each:"), "each", "each[0]"
	if got := lines(Options{Width: 80}); len(got) != 2 || got[1] != "✓ each[0] 7" {
		t.Errorf("got %q", got)
	}
	// Where it is too long for the column, items still differ by their index.
	long := "a_rather_long_name_of_a_step_with_items"
	s.Plan, s.Steps[0].StepId, s.Steps[1].StepId = planOf(t, long+":"), long, long+"[0]"
	if got := lines(Options{Width: 80}); len(got) != 2 || got[1] != "✓ a_rather_long_name_of…[0] 7" {
		t.Errorf("got %q", got)
	}
}

func TestARetryWithoutDelayHasNoTime(t *testing.T) {
	e := &runv1.Event{Body: &runv1.Event_StepRetryScheduled{StepRetryScheduled: &runv1.StepRetryScheduled{
		StepId: "each[2]", Attempt: 2, Error: &runv1.Error{Code: "unavailable", Message: "busy"}}}}
	if got := NewView("r").PlainLines(e); len(got) != 1 || got[0] != "◷ each[2] attempt 2 at once: unavailable: busy" {
		t.Errorf("got %q", got)
	}
	e.GetStepRetryScheduled().Due = timestamppb.New(time.UnixMilli(1500))
	if got := EventText(e); got != "each[2] attempt 2 at 00:00:01.500 UTC: unavailable: busy" {
		t.Errorf("got %q", got)
	}
}

func TestOnlyReplansThatChangedThePlanAreCounted(t *testing.T) {
	s := example(t)
	s.Replans = 2
	s.Planning = []*runv1.PlanningRequest{{Outcome: runv1.PlanningOutcome_PLANNING_OUTCOME_ACCEPTED},
		{Replan: true, Outcome: runv1.PlanningOutcome_PLANNING_OUTCOME_DECLINED}}
	if got := Header(s, Options{})[1]; got != "rabc · plan 1 · executing" {
		t.Errorf("got %q", got)
	}
	s.Planning = append(s.Planning, &runv1.PlanningRequest{Replan: true, Outcome: runv1.PlanningOutcome_PLANNING_OUTCOME_ACCEPTED})
	if got := Header(s, Options{})[1]; got != "rabc · plan 1 (replanned once) · executing" {
		t.Errorf("got %q", got)
	}
}
