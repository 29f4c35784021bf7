package run_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// toldFrom tells a story file and returns its end.
func toldFrom(t *testing.T, file string) *story {
	t.Helper()
	logs := goldenLogs(t)
	s := newStory(t)
	s.commits = logs[file]
	state, err := run.Replay(s.commits, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.state = state
	return s
}

// TestCase26_WideFanOut: 2,000 steps and a join: it is done exactly once, after all of them, with the results in order.
func TestCase26_WideFanOut(t *testing.T) {
	const n = 2000
	s, commits := drive(t, fanPlan(n), nil)
	joined, done := 0, 0
	for _, c := range commits {
		if len(c.GetEvents()) > run.CommitEvents {
			t.Errorf("a commit has %d events", len(c.GetEvents()))
		}
		for _, e := range c.GetEvents() {
			b := e.GetStepSucceeded()
			switch {
			case b.GetStepId() == "join":
				joined++
				if done != n {
					t.Errorf("the join was done after %d of %d steps", done, n)
				}
			case b != nil:
				done++
			}
		}
	}
	if joined != 1 {
		t.Errorf("the join was done %d times", joined)
	}
	answer := s.Snapshot().GetAnswer().GetText()
	if !strings.HasPrefix(answer, `[{"n":0},{"n":1},`) || !strings.HasSuffix(answer, fmt.Sprintf(`{"n":%d}]`, n-1)) {
		t.Errorf("the results are out of order: %s", answer[:60])
	}
	if d := run.Verify(commits); d != nil {
		t.Errorf("verify: %s", d)
	}
}

// TestCase26_PlanTooLarge: 20,000 steps fit, 20,001 do not.
func TestCase26_PlanTooLarge(t *testing.T) {
	propose := func(n int) *runv1.Event {
		s := run.Advance(run.New("r1"), &runv1.Report{RunId: "r1", Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: &runv1.RunSpec{Goal: "g"}}}}, start)
		return run.Record(s.State, &runv1.Report{RunId: "r1", Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{
			RequestId: "plan-1", Plan: fanPlan(n - 1), Tools: storyTools()}}}, start)
	}
	if e := propose(20_000); e.GetPlanCreated() == nil {
		t.Errorf("20,000 steps are refused: %s", run.Explain(e))
	}
	e := propose(20_001)
	if e.GetPlanRejected() == nil || e.GetPlanRejected().GetFindings()[0].GetCode() != "plan_too_large" {
		t.Errorf("20,001 steps are taken: %s", run.Explain(e))
	}
}

// TestCase37_LateResultInEitherOrder: whether the given up attempt answers before or after the one that counts, the
// state is the same.
func TestCase37_LateResultInEitherOrder(t *testing.T) {
	first, last := toldFrom(t, "case37_late_first"), toldFrom(t, "case37_late_last")
	if first.state.Hash() != last.state.Hash() {
		t.Errorf("the order of arrival decides")
	}
	// The same where the router says timeout itself.
	end := func(order ...string) [32]byte {
		s := newStory(t)
		s.command(`submit {"goal":"g"}`, "")
		s.command(`plan plan-1 {"steps":[{"id":"a","objective":"o","tool":"echo","retry":{"max_attempts":2}}]}`, "")
		s.command(`fail a-1 timeout`, "")
		for _, c := range order {
			s.command(c, "")
		}
		return s.state.Hash()
	}
	one, two := `result a-1 {"attempt":1}`, `result a-2 {"attempt":2}`
	if end(one, two) != end(two, one) {
		t.Errorf("the order of arrival decides after a timeout that the router reported")
	}
}

// TestCase38_CrashBetweenSteps: the owner dies after a step's success is in the log and before the next is asked for. Whoever
// folds the log goes on at once, whatever prefix of the commit's events there is.
func TestCase38_CrashBetweenSteps(t *testing.T) {
	_, commits := drive(t, chainPlan(3), &runv1.RunLimits{MaxParallel: 1})
	var events []*runv1.Event
	for _, c := range commits {
		events = append(events, run.EventsOf(c)...)
	}
	for cut := 1; cut < len(events); cut++ {
		s := run.New("r1")
		for _, e := range events[:cut] {
			s = run.Evolve(s, e)
		}
		step := run.Continue(s, start)
		if next := events[cut]; next.GetKind() == runv1.EventKind_EVENT_KIND_DECIDED {
			if len(step.Events) == 0 || run.EventType(step.Events[0]) != run.EventType(next) {
				t.Errorf("after revision %d nothing like %s is decided", cut, run.Explain(next))
			}
		}
		if !step.State.Terminal() && len(run.Pending(step.State)) == 0 {
			t.Errorf("after revision %d nothing is owed", cut)
		}
	}
}

// TestCase44_ManyResultsAtOnce: 64 results reach the owner together; none is lost and revisions are dense.
func TestCase44_ManyResultsAtOnce(t *testing.T) {
	s := newStory(t)
	s.command(`submit {"goal":"g"}`, "")
	s.report(&runv1.Report{Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{RequestId: "plan-1", Plan: fanPlan(64), Tools: storyTools()}}})
	for i := 63; i >= 0; i-- {
		s.command(fmt.Sprintf("result s%d-1 {\"n\":%d}", i, i), "")
	}
	if s.state.Status() != runv1.RunStatus_RUN_STATUS_COMPLETED {
		t.Fatalf("the run is %s", s.state.Status())
	}
	observed, revision := 0, int64(0)
	for _, c := range s.commits {
		for _, e := range c.GetEvents() {
			revision++
			if e.GetRevision() != revision {
				t.Fatalf("revision %d stands where %d should", e.GetRevision(), revision)
			}
			if e.GetObservationRecorded() != nil {
				observed++
			}
		}
	}
	if observed != 64 {
		t.Errorf("%d results are in the log", observed)
	}
}

// TestCase47_HistoryLimit: a replanner that adds three steps each time does not go on for ever: a warning, then the end.
func TestCase47_HistoryLimit(t *testing.T) {
	s := newStory(t)
	s.command(`submit {"goal":"g","limits":{"max_events":500,"max_replans":1000}}`, "")
	s.command(`plan plan-1 {"steps":[{"id":"a","objective":"o","tool":"echo","arguments":{"n":0},"on_failure":"replan_remaining"}]}`, "")
	failing := `"a"`
	for n := 1; !s.state.Terminal(); n++ {
		s.command("fail "+strings.Split(failing, `"`)[1]+"-1 internal", "")
		if s.state.Terminal() {
			break
		}
		next := fmt.Sprintf("a%d", n)
		s.command(fmt.Sprintf(`patch replan-%d {"base_version":%d,"remove":[%s],"add":[{"id":"%s","objective":"o","tool":"echo","arguments":{"n":%d},"on_failure":"replan_remaining"},{"id":"b%d","objective":"o","tool":"echo","depends_on":["%s"]},{"id":"c%d","objective":"o","tool":"echo"}]}`,
			n, n, failing, next, n, n, next, n), "")
		s.command(fmt.Sprintf("result c%d-1 {\"n\":%d}", n, n), "")
		failing = fmt.Sprintf(`"%s","b%d"`, next, n)
	}
	warned := false
	for _, c := range s.commits {
		for _, e := range c.GetEvents() {
			warned = warned || e.GetLimitWarned().GetLimit() == "max_events" && e.GetRevision() >= 400 && e.GetRevision() < 420
		}
	}
	if !warned {
		t.Errorf("there was no warning at 80 %%")
	}
	if code := s.state.Snapshot().GetError().GetCode(); code != "history_limit" {
		t.Errorf("the run ended with %s", code)
	}
	if r := s.state.Revision(); r < 500 || r > 510 {
		t.Errorf("the run ended at revision %d", r)
	}
}

// TestCase48_CancelIsSmall: a cancel fits, whatever its reason and the run's size.
func TestCase48_CancelIsSmall(t *testing.T) {
	s := newStory(t)
	s.command(`submit {"goal":"g"}`, "")
	s.command(`plan plan-1 {"steps":[{"id":"a","objective":"o","tool":"echo"},{"id":"b","objective":"o","tool":"echo"}]}`, "")
	s.command(`result a-1 {"text":"`+strings.Repeat("x", 900_000)+`"}`, "")
	step := s.report(&runv1.Report{Body: &runv1.Report_CancelRun{CancelRun: &runv1.CancelRun{Reason: strings.Repeat("because ", 10_000), By: "ann"}}})
	if n := proto.Size(step.Event); step.Event.GetCancelRequested() == nil || n > 1000 {
		t.Errorf("the cancel takes %d bytes", n)
	}
	if s.state.Status() != runv1.RunStatus_RUN_STATUS_CANCELLING {
		t.Errorf("the run is %s", s.state.Status())
	}
}

// TestLargePlanIsFast is not a benchmark, but notices what is quadratic.
func TestLargePlanIsFast(t *testing.T) {
	begin := time.Now()
	drive(t, fanPlan(4000), nil)
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("4,000 steps took %s", took)
	}
}
