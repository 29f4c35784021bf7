package run_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cairnrun/cairn/pkg/run"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// running is a run whose single action a-1 is under way.
func running(t *testing.T, submit string) *story {
	t.Helper()
	s := newStory(t)
	s.command("submit "+submit, "")
	s.command(`plan plan-1 {"steps":[{"id":"a","objective":"o","tool":"echo","optional":true}]}`, "")
	return s
}

func TestRefusalsAreRecordedUpToTheCap(t *testing.T) {
	s := running(t, `{"goal":"g"}`)
	before := s.state.Revision()
	for i := range run.MaxRefusals + 1 {
		s.report(&runv1.Report{Body: &runv1.Report_UserInput{UserInput: &runv1.UserInput{RequestId: fmt.Sprintf("input-%d", i+1), Answer: jsonText("1")}}})
		want := before + int64(min(i+1, run.MaxRefusals))
		if s.state.Revision() != want {
			t.Fatalf("after %d refusals the revision is %d, not %d", i+1, s.state.Revision(), want)
		}
	}
	answer := run.AnswerFor(s.state, s.last, nil)
	if answer.GetOutcome() != runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED {
		t.Errorf("beyond the cap the sender is told %s", answer.GetOutcome())
	}
}

func TestPatchesByPersonsAreBounded(t *testing.T) {
	s := run.New("r1")
	for _, r := range []*runv1.Report{
		{Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: &runv1.RunSpec{Goal: "g"}}}},
		{Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{RequestId: "plan-1", Plan: chainPlan(2), Tools: storyTools()}}},
	} {
		r.RunId = "r1"
		s = run.Advance(s, r, start).State
	}
	for i := range run.MaxPatches + 1 {
		before := s.Revision()
		step := run.Advance(s, &runv1.Report{RunId: "r1", Body: &runv1.Report_PatchProposed{PatchProposed: &runv1.PatchProposed{
			Patch: &planv1.Patch{BaseVersion: int32(100 + i)}}}}, start)
		s = step.State
		if taken := s.Revision() > before; taken != (i < run.MaxPatches) {
			t.Fatalf("patch %d was recorded: %v", i+1, taken)
		}
	}
}

func TestObservationsBeyondTheBoundAreErrors(t *testing.T) {
	for _, extra := range []int{0, 1} {
		s := running(t, `{"goal":"g"}`)
		text := `"` + strings.Repeat("x", run.MaxObservationBytes-2+extra) + `"`
		step := s.report(&runv1.Report{Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{ActionId: "a-1",
			Observation: &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_SUCCESS, Output: inlineValue(text)}}}})
		code := step.Event.GetObservationRecorded().GetObservation().GetError().GetCode()
		if (code == "output_too_large") != (extra == 1) {
			t.Errorf("%d bytes over the bound: %q", extra, code)
		}
	}
}

func TestRejectedTextIsCutAtARune(t *testing.T) {
	s := newStory(t)
	s.command(`submit {"goal":"g"}`, "")
	s.command("broken plan-1 "+strings.Repeat("读", run.MaxRejectedText), "")
	text := s.state.Snapshot().GetPlanning()[1].GetRejectedText()
	if len(text) > run.MaxRejectedText || len(text) < run.MaxRejectedText-3 || strings.ContainsRune(text, '\uFFFD') {
		t.Errorf("the text has %d bytes", len(text))
	}
}

func TestCommitsEndAtTheirBounds(t *testing.T) {
	plan := fanPlan(run.CommitEvents + 10)
	s := run.Advance(run.New("r1"), &runv1.Report{RunId: "r1", Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: &runv1.RunSpec{Goal: "g", Limits: &runv1.RunLimits{MaxParallel: 1000}}}}}, start).State
	step := run.Advance(s, &runv1.Report{RunId: "r1", Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{RequestId: "plan-1", Plan: plan, Tools: storyTools()}}}, start)
	if !step.More || len(step.Events) != run.CommitEvents {
		t.Fatalf("the first commit has %d events, more %v", len(step.Events), step.More)
	}
	rest := run.Continue(step.State, start)
	if rest.More || len(rest.Events) != 11 {
		t.Errorf("the second commit has %d events, more %v", len(rest.Events), rest.More)
	}

	// By bytes: arguments of 100 kB each.
	big := chainPlan(0)
	for i := range 30 {
		big.Steps = append(big.Steps, echoStep(fmt.Sprintf("s%d", i), `{"text":"`+strings.Repeat("x", 100_000)+`"}`))
	}
	step = run.Advance(s, &runv1.Report{RunId: "r1", Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{RequestId: "plan-1", Plan: big, Tools: storyTools()}}}, start)
	if !step.More || len(step.Events) != 1 {
		t.Errorf("after an event over the bound there are %d, more %v", len(step.Events), step.More)
	}
	if step = run.Continue(step.State, start); !step.More || len(step.Events) != 11 {
		t.Errorf("a commit of large events has %d, more %v", len(step.Events), step.More)
	}
}

func TestItemsAreBounded(t *testing.T) {
	for _, extra := range []int{0, 1} {
		s := newStory(t)
		s.command(`submit {"goal":"g","limits":{"max_parallel":1}}`, "")
		items := "[" + strings.TrimSuffix(strings.Repeat("1,", run.MaxItems+extra), ",") + "]"
		s.command(`plan plan-1 {"steps":[{"id":"e","objective":"o","tool":"echo","on_failure":"fail","for_each":`+items+`,"arguments":{}}]}`, "")
		failed := s.state.Status() == runv1.RunStatus_RUN_STATUS_FAILED
		if failed != (extra == 1) {
			t.Errorf("%d items over the bound: the run is %s: %v", extra, s.state.Status(), s.state.Snapshot().GetError())
		}
	}
}

func TestJoinedResultsAreBounded(t *testing.T) {
	s := newStory(t)
	s.command(`submit {"goal":"g"}`, "")
	s.command(`plan plan-1 {"steps":[{"id":"a","objective":"o","tool":"echo"},{"id":"b","objective":"o","tool":"echo"},{"id":"j","objective":"o","action":{"kind":"control","name":"join"},"depends_on":["a","b"]}]}`, "")
	half := strings.Repeat("x", run.MaxJoinedBytes/2)
	s.command(`result a-1 "`+half+`"`, "")
	s.command(`result b-1 "`+half+`"`, "")
	answer := s.state.Snapshot().GetAnswer().GetText()
	if len(answer) > run.MaxJoinedBytes+100 || !strings.HasSuffix(answer, `{"omitted":"over max_joined_bytes"}]`) {
		t.Errorf("the joined list has %d bytes and ends %s", len(answer), answer[len(answer)-50:])
	}
}

// TestInlineResultsBecomeTight: beyond MaxRunInlineBytes of results, calls ask for artifacts.
func TestInlineResultsBecomeTight(t *testing.T) {
	s := newStory(t)
	s.command(`submit {"goal":"g","limits":{"max_inline_bytes":5000000}}`, "")
	const each = 4_000_000
	n := run.MaxRunInlineBytes/each + 1
	s.report(&runv1.Report{Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{RequestId: "plan-1", Tools: storyTools(), Plan: chain(n + 1)}}})
	text := `"` + strings.Repeat("x", each-2) + `"`
	state := s.state
	for i := range n {
		if len(run.Pending(state)) == 0 {
			t.Fatalf("result %d: the run is %s: %v", i, state.Status(), state.Snapshot().GetError())
		}
		want := int64(5_000_000)
		if got := run.Pending(state)[0].GetCall().GetMaxInlineBytes(); got != want {
			t.Fatalf("call %d asks for at most %d bytes", i, got)
		}
		step := run.Advance(state, &runv1.Report{RunId: "r1", Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{ActionId: fmt.Sprintf("s%d-1", i),
			Observation: &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_SUCCESS, Output: inlineValue(text)}}}}, start)
		for step.More {
			step = run.Continue(step.State, start)
		}
		state = step.State
	}
	if got := run.Pending(state)[0].GetCall().GetMaxInlineBytes(); got != run.TightInlineBytes {
		t.Errorf("beyond the bound a call asks for at most %d bytes", got)
	}
	if w := state.Warned(); len(w) != 1 || w[0] != "max_run_inline_bytes" {
		t.Errorf("warned of %v", w)
	}
}

// chain is steps that only wait for each other.
func chain(n int) *planv1.Plan {
	p := &planv1.Plan{Goal: "g"}
	for i := range n {
		var deps []string
		if i > 0 {
			deps = []string{fmt.Sprintf("s%d", i-1)}
		}
		p.Steps = append(p.Steps, echoStep(fmt.Sprintf("s%d", i), `{}`, deps...))
	}
	return p
}

func TestMaxParallel(t *testing.T) {
	for _, limit := range []int{1, 2, 64} {
		s := newStory(t)
		s.command(fmt.Sprintf(`submit {"goal":"g","limits":{"max_parallel":%d}}`, limit), "")
		s.report(&runv1.Report{Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{RequestId: "plan-1", Plan: fanPlan(70), Tools: storyTools()}}})
		for !s.state.Terminal() {
			owed := run.Pending(s.state)
			if len(owed) > limit {
				t.Fatalf("%d actions are under way, %d are allowed", len(owed), limit)
			}
			s.command("result "+owed[0].GetCall().GetActionId()+" {}", "")
		}
	}
}

func TestRunDeadlineIsExact(t *testing.T) {
	s := running(t, `{"goal":"g","limits":{"max_duration":"10s"}}`)
	d, ok := run.NextDeadline(s.state)
	if !ok || !d.At.Equal(start.Add(10*time.Second)) || d.Timer.GetTimer() != runv1.TimerKind_TIMER_KIND_RUN_DEADLINE {
		t.Fatalf("the deadline is %v", d)
	}
	// A timer that the state does not want, or not at that time, changes nothing.
	for _, due := range []*runv1.TimerDue{
		{Timer: runv1.TimerKind_TIMER_KIND_RETRY, StepId: "a", Due: d.Timer.GetDue()},
		{Timer: d.Timer.GetTimer()},
		{Timer: runv1.TimerKind_TIMER_KIND_ACTION_TIMEOUT, StepId: "a", ActionId: "a-9", Due: d.Timer.GetDue()},
	} {
		if e := run.Record(s.state, &runv1.Report{RunId: "r1", Body: &runv1.Report_TimerDue{TimerDue: due}}, d.At); e != nil {
			t.Errorf("%v was taken: %s", due, run.Explain(e))
		}
	}
}

// TestTimesFarAway: a wait until a year beyond what nanoseconds can count does not come due at once.
func TestTimesFarAway(t *testing.T) {
	s := newStory(t)
	s.command(`submit {"goal":"g"}`, "")
	s.command(`plan plan-1 {"steps":[{"id":"far","objective":"o","action":{"kind":"control","name":"wait","arguments":{"until":"9000-01-01T00:00:00Z"}}},{"id":"near","objective":"o","action":{"kind":"control","name":"wait","arguments":{"duration":"1s"}}}]}`, "")
	if d, ok := run.NextDeadline(s.state); !ok || d.Timer.GetStepId() != "near" {
		t.Fatalf("the first deadline is %v", d)
	}
	s.command("timer", "")
	if d, ok := run.NextDeadline(s.state); !ok || d.At.Year() != 9000 || !d.Absolute {
		t.Errorf("the second deadline is %v", d)
	}
}

func TestTimeoutsAreBounded(t *testing.T) {
	tools := storyTools()
	tools[0].Timeout = durationpb.New(1 << 62)
	s := newStory(t)
	s.command(`submit {"goal":"g"}`, "")
	s.report(&runv1.Report{Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{RequestId: "plan-1", Plan: chainPlan(1), Tools: tools}}})
	if c := run.Pending(s.state)[0].GetCall(); !c.GetNotAfter().AsTime().Equal(start.Add(run.MaxActionTimeout)) {
		t.Errorf("the call may take until %s", c.GetNotAfter().AsTime())
	}
}

// TestAnotherTenantsRun: a report in the name of another tenant changes nothing, and its sender learns nothing.
func TestAnotherTenantsRun(t *testing.T) {
	s := running(t, `{"goal":"g"}`)
	cancel := &runv1.Report{RunId: "r1", Tenant: "other", Body: &runv1.Report_CancelRun{CancelRun: &runv1.CancelRun{}}}
	if e := run.Record(s.state, cancel, start); e != nil {
		t.Errorf("it was taken: %s", run.Explain(e))
	}
	if a := run.AnswerFor(s.state, cancel, nil); a.GetCode() != "unknown_run" {
		t.Errorf("its sender is told %s", a.GetCode())
	}
	cancel.Tenant = ""
	if e := run.Record(s.state, cancel, start); e.GetCancelRequested() == nil {
		t.Errorf("a service that knows no tenant is refused")
	}
}

// TestResultsInDetailsAreBounded: what was not as expected stands in the error, exact, up to a bound; beyond it, its size
// and sha256, as of an artifact.
func TestResultsInDetailsAreBounded(t *testing.T) {
	for _, extra := range []int{0, 1} {
		text := `{"n":1.50,"x":"` + strings.Repeat("x", run.MaxResultInDetails+extra-len(`{"n":1.50,"x":""}`)) + `"}`
		s := newStory(t)
		s.command(`submit {"goal":"g"}`, "")
		s.command(`plan plan-1 {"steps":[{"id":"a","objective":"o","tool":"echo","expect":{"checks":[{"expression":"false"}]}}]}`, "")
		s.command("result a-1 "+text, "")
		details := run.Pending(s.state)[0].GetReplan().GetError().GetDetails().GetText()
		want := `{"check":"false","index":0,"result":` + text + `}`
		if extra > 0 {
			sum := sha256.Sum256([]byte(text))
			want = fmt.Sprintf(`{"check":"false","index":0,"result_omitted":{"size":%d,"sha256":"%x"}}`, len(text), sum)
		}
		if details != want {
			t.Errorf("%d bytes over the bound the details are %.300s", extra, details)
		}
	}
}

// TestWhatWasNotAsExpected: every way in which a result is refused keeps it; what is retried does not carry it along.
func TestWhatWasNotAsExpected(t *testing.T) {
	for _, c := range []struct{ step, result, code, details string }{
		{`"expect":{"schema":{"type":"object","required":["id"]}}`, `result a-1 {"no":1e2}`, "schema_mismatch", `{"pointer":"","problem":"lacks \"id\"","result":{"no":1e2}}`},
		{`"result":"data.id"`, `result a-1 {"data":{}}`, "schema_mismatch", `{"output":{"data":{}}}`},
		{`"result":"data","expect":{"checks":[{"expression":"result.n > 1","assumption":"many"}]}`, `result a-1 {"data":{"n":1}}`, "check_failed",
			`{"check":"result.n > 1","index":0,"assumption":"many","result":{"n":1}}`},
		{`"expect":{"checks":[{"expression":"true"}]}`, `artifact a-1 big.json failed`, "check_failed",
			`{"check":"true","index":0,"detail":"failed","result_omitted":{"size":1048576,"sha256":"` + strings.Repeat("ab", 32) + `"}}`},
		{`"result":"data.id"`, `artifact a-1 big.json`, "schema_mismatch", `{"output_omitted":{"size":1048576,"sha256":"` + strings.Repeat("ab", 32) + `"}}`},
		{`"expect":{"checks":[{"expression":"true"}]}`, `partialartifact a-1 big.json passed`, "", ""},
	} {
		s := newStory(t)
		s.command(`submit {"goal":"g"}`, "")
		s.command(`plan plan-1 {"assumptions":[{"id":"many","text":"there are many"}],"steps":[{"id":"a","objective":"o","tool":"echo",`+c.step+`}]}`, "")
		s.command(c.result, "")
		e := s.state.Snapshot().GetSteps()[0].GetError()
		if e.GetCode() != c.code || e.GetDetails().GetText() != c.details {
			t.Errorf("%s: %s %s", c.result, e.GetCode(), e.GetDetails().GetText())
		}
	}
	s := newStory(t)
	s.command(`submit {"goal":"g"}`, "")
	s.command(`plan plan-1 {"steps":[{"id":"a","objective":"o","tool":"echo","retry":{"max_attempts":2,"on":["check_failed"]},"expect":{"checks":[{"expression":"false"}]}}]}`, "")
	step := s.report(&runv1.Report{Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{ActionId: "a-1",
		Observation: &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_SUCCESS, Output: inlineValue(`{"secret":1}`)}}}})
	for _, e := range step.Events {
		if r := e.GetStepRetryScheduled(); r != nil && r.GetError().GetDetails().GetText() != `{"check":"false","index":0}` {
			t.Errorf("the retry carries %s", r.GetError().GetDetails().GetText())
		}
	}
}

// TestPlanningTimeIsBounded: a request for a plan is given up exactly after max_planning_time, and its work is worth
// nothing from then on; max_duration may end both before.
func TestPlanningTimeIsBounded(t *testing.T) {
	for _, c := range []struct {
		limits      string
		due         time.Duration
		valid       time.Duration
		first, code string
	}{
		{`{}`, run.DefaultMaxPlanningTime, run.DefaultMaxPlanningTime, "planning", "planning_timeout"},
		{`{"max_planning_time":"-1s"}`, run.DefaultMaxPlanningTime, run.DefaultMaxPlanningTime, "planning", "planning_timeout"},
		{`{"max_planning_time":"1s"}`, time.Second, time.Second, "planning", "planning_timeout"},
		{`{"max_planning_time":"20s","max_duration":"10s"}`, 10 * time.Second, 10 * time.Second, "run_deadline", "budget_exhausted"},
		{`{"max_planning_time":"10s","max_duration":"20s"}`, 10 * time.Second, 10 * time.Second, "planning", "planning_timeout"},
	} {
		s := newStory(t)
		s.command(`submit {"goal":"g","limits":`+c.limits+`}`, "")
		d, ok := run.NextDeadline(s.state)
		if !ok || !d.At.Equal(start.Add(c.due)) || short(d.Timer.GetTimer(), "TIMER_KIND_") != c.first {
			t.Errorf("%s: the deadline is %v", c.limits, d)
		}
		if until := run.Pending(s.state)[0].GetValidUntil().AsTime(); !until.Equal(start.Add(c.valid)) {
			t.Errorf("%s: the work is valid until %s", c.limits, until)
		}
		s.command("timer", "")
		if code := s.state.Snapshot().GetError().GetCode(); code != c.code || len(run.Pending(s.state)) > 0 {
			t.Errorf("%s: the run ended with %s and owes %d", c.limits, code, len(run.Pending(s.state)))
		}
	}
}
