package run_test

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/plan"
	"github.com/cairnrun/cairn/pkg/run"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

var update = flag.Bool("update", false, "write what the stories lead to now, and their logs, into testdata")

// A story is a file of commands and what they lead to, in blocks:
//
//	result a-1 {"x":1}
//	----
//	5 ObservationRecorded action a-1 succeeded
//	...
//	= waiting, waiting_for_tool; owes call b-1
//
// The last line of a block says where the run stands. Text of several lines stands between the command and the dashes.
// Commands: submit SPEC, plan REQUEST DOCUMENT, broken REQUEST TEXT, patch REQUEST DOCUMENT ("-" is a person),
// giveup REQUEST CODE, decline REQUEST [ANSWER], result ACTION VALUE, partial ACTION VALUE, artifact ACTION NAME [VERDICT],
// partialartifact ACTION NAME [VERDICT],
// fail ACTION CODE [DETAIL], revoked ACTION, started ACTION, answer REQUEST VALUE, cancel REASON, timer, after DURATION,
// restart, again, quarantine, steps, ledger, plan?, verify.

// start is when every story begins.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// tools of the stories: echo may be repeated, pay may not, flaky says itself what may be repeated.
func storyTools() []*planv1.ToolDefinition {
	object := &planv1.JsonText{Text: `{"type":"object"}`}
	return []*planv1.ToolDefinition{
		{Name: "echo", Version: "1", InputSchema: object, Idempotent: true},
		{Name: "pay", Version: "2", InputSchema: object},
		{Name: "refund", Version: "1", InputSchema: object, Idempotent: true},
		{Name: "flaky", Version: "1", InputSchema: object, Idempotent: true, RetryableErrors: []string{"moody"}},
		{Name: "llm.generate", Version: "1", InputSchema: object, Idempotent: true},
	}
}

// tb is what a story needs of a test; property tests have it too.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// story is one run while it is told.
type story struct {
	t       tb
	state   run.State
	now     time.Time
	commits []*runv1.Commit
	last    *runv1.Report
	n       int
	out     strings.Builder
}

func newStory(t tb) *story {
	return &story{t: t, state: run.New("r1"), now: start}
}

func (s *story) report(r *runv1.Report) run.Step {
	s.n++
	r.Id = fmt.Sprintf("report-%d", s.n)
	return s.send(r)
}

// send is the driving loop, with everything checked that must hold for every report.
func (s *story) send(r *runv1.Report) run.Step {
	s.t.Helper()
	r.RunId, r.Tenant = "r1", "acme"
	s.last = r
	before, asSent := s.state.Hash(), proto.Clone(r)
	snapshot := proto.Clone(s.state.Snapshot())
	step := run.Advance(s.state, r, s.now)
	if s.state.Hash() != before || !proto.Equal(snapshot, s.state.Snapshot()) {
		s.t.Fatalf("Advance changed the state that it was given")
	}
	if !proto.Equal(asSent, r) {
		s.t.Fatalf("Advance changed the report that it was given")
	}
	answer := run.AnswerFor(step.State, r, step.Event)
	s.take(step)
	for step.More {
		step = run.Continue(s.state, s.now)
		s.take(step)
	}
	if step.Event == nil && len(step.Events) == 0 {
		fmt.Fprintf(&s.out, "nothing: %s\n", answerText(answer))
	} else if answer.GetOutcome() == runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED {
		fmt.Fprintf(&s.out, "refused: %s\n", answer.GetCode())
	}
	s.check()
	return step
}

func answerText(a *runv1.Answer) string {
	text := strings.ToLower(strings.TrimPrefix(a.GetOutcome().String(), "ANSWER_OUTCOME_"))
	if a.GetCode() != "" {
		text += " " + a.GetCode()
	}
	return text
}

func (s *story) take(step run.Step) {
	s.t.Helper()
	folded := s.state
	for _, e := range step.Events {
		folded = run.Evolve(folded, e)
		fmt.Fprintf(&s.out, "%d %s %s\n", e.GetRevision(), run.EventType(e), run.Explain(e))
	}
	if folded.Hash() != step.State.Hash() {
		s.t.Fatalf("folding the events gives another state than Advance")
	}
	if len(step.Events) > 0 {
		c := run.NewCommit(step.State, step.Events, step.More, s.now)
		raw, err := proto.Marshal(c)
		if err != nil {
			s.t.Fatalf("commit: %v", err)
		}
		stored := &runv1.Commit{}
		if err := proto.Unmarshal(raw, stored); err != nil {
			s.t.Fatalf("commit: %v", err)
		}
		s.commits = append(s.commits, stored)
	}
	s.state = step.State
}

// check holds after every command.
func (s *story) check() {
	s.t.Helper()
	if more := run.Decide(s.state, s.now); len(more) > 0 {
		s.t.Fatalf("something is still decided: %s", run.Explain(more[0]))
	}
	restored, err := run.Restore(proto.Clone(s.state.Snapshot()).(*runv1.RunState))
	if err != nil {
		s.t.Fatalf("restore: %v", err)
	}
	if restored.Hash() != s.state.Hash() {
		s.t.Fatalf("the restored state has another hash\n%s\n%s", exactJSON(s.t, s.state.Snapshot()), exactJSON(s.t, restored.Snapshot()))
	}
	if a, b := s.standing(s.state), s.standing(restored); a != b {
		s.t.Fatalf("the restored state stands elsewhere: %s, not %s", b, a)
	}
	if d := run.Verify(s.commits); d != nil {
		s.t.Fatalf("verify: %s", d)
	}
	if s.state.Revision() > 0 && !s.state.Terminal() && s.state.Status() != runv1.RunStatus_RUN_STATUS_QUARANTINED && !s.progress() {
		s.t.Fatalf("nothing can bring the run on: %s", s.standing(s.state))
	}
	if s.state.Terminal() && s.last != nil {
		if step := run.Advance(s.state, s.last, s.now); len(step.Events) > 0 {
			s.t.Fatalf("the last report again leads to %s", run.Explain(step.Events[0]))
		}
	}
}

// progress says whether something is owed, due or asked.
func (s *story) progress() bool {
	_, due := run.NextDeadline(s.state)
	open := false
	for _, in := range s.state.Snapshot().GetInputs() {
		open = open || in.GetOpen()
	}
	return due || open || len(run.Pending(s.state)) > 0
}

func exactJSON(t tb, m proto.Message) string {
	t.Helper()
	b, err := exactjson.Marshal(m)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return string(b)
}

func short(enum fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(enum.String(), prefix))
}

// standing says where a run stands.
func (s *story) standing(state run.State) string {
	text := short(state.Status(), "RUN_STATUS_") + ", " + short(state.Phase(), "RUN_PHASE_")
	var owes []string
	for _, w := range run.Pending(state) {
		switch b := w.GetBody().(type) {
		case *runv1.Work_Plan:
			owes = append(owes, "plan "+b.Plan.GetRequestId())
		case *runv1.Work_Replan:
			owes = append(owes, "replan "+b.Replan.GetRequestId())
		case *runv1.Work_Call:
			owes = append(owes, "call "+b.Call.GetActionId())
		case *runv1.Work_Revoke:
			owes = append(owes, "revoke "+b.Revoke.GetActionId())
		}
	}
	if len(owes) > 8 {
		owes = append(owes[:8], fmt.Sprintf("and %d more", len(owes)-8))
	}
	if len(owes) > 0 {
		text += "; owes " + strings.Join(owes, ", ")
	}
	if d, ok := run.NextDeadline(state); ok {
		text += fmt.Sprintf("; %s in %s", short(d.Timer.GetTimer(), "TIMER_KIND_"), d.At.Sub(s.now))
	}
	return text
}

func (s *story) command(line, text string) {
	s.t.Helper()
	word, rest, _ := strings.Cut(line, " ")
	arg, tail, _ := strings.Cut(rest, " ")
	if text != "" {
		tail = strings.TrimSpace(tail + "\n" + text)
	}
	switch word {
	case "submit":
		spec := &runv1.RunSpec{}
		if err := exactjson.Unmarshal([]byte(rest+text), spec); err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		s.report(&runv1.Report{Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: spec}}})
	case "plan", "broken":
		p := &runv1.PlanProposed{RequestId: arg, Text: tail, Tools: storyTools(), Planner: &runv1.PlannerTrace{Source: "model", Name: "test"}}
		p.Plan, p.Findings = plan.Parse([]byte(tail))
		s.report(&runv1.Report{Body: &runv1.Report_PlanProposed{PlanProposed: p}})
	case "patch":
		p := &runv1.PatchProposed{RequestId: strings.TrimPrefix(arg, "-"), Text: tail, Tools: storyTools()}
		p.Patch, p.Findings = plan.ParsePatch([]byte(tail))
		s.report(&runv1.Report{Body: &runv1.Report_PatchProposed{PatchProposed: p}})
	case "giveup":
		s.report(&runv1.Report{Body: &runv1.Report_PlanningGivenUp{PlanningGivenUp: &runv1.PlanningGivenUp{RequestId: arg, Error: &runv1.Error{Code: tail, Message: "no plan is to be had"}}}})
	case "decline":
		a := &runv1.ReplanAnswered{RequestId: arg, Reason: "nothing fits"}
		if tail != "" {
			a.Answer = &planv1.JsonText{Text: tail}
		}
		s.report(&runv1.Report{Body: &runv1.Report_ReplanAnswered{ReplanAnswered: a}})
	case "result", "partial":
		o := &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_SUCCESS, ExecutedBy: "host-1"}
		if word == "partial" {
			o.Outcome = runv1.Outcome_OUTCOME_PARTIAL
		}
		if tail != "" {
			o.Output = &runv1.Value{Value: &runv1.Value_Inline{Inline: &planv1.JsonText{Text: tail}}}
		}
		s.result(arg, o)
	case "artifact", "partialartifact":
		name, verdict, _ := strings.Cut(tail, " ")
		o := &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_SUCCESS, Output: &runv1.Value{Value: &runv1.Value_Artifact{Artifact: &runv1.ArtifactRef{
			Name: name, Sha256: strings.Repeat("ab", 32), Size: 1 << 20, MediaType: "application/json"}}}}
		if word == "partialartifact" {
			o.Outcome = runv1.Outcome_OUTCOME_PARTIAL
		}
		if verdict != "" {
			o.Verdicts = []*runv1.CheckVerdict{{Index: 0, Passed: verdict == "passed", Detail: verdict}}
		}
		s.result(arg, o)
	case "fail":
		code, detail, _ := strings.Cut(tail, " ")
		s.result(arg, &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_ERROR, Error: &runv1.Error{Code: code, Message: "it did not work" + detail}})
	case "revoked":
		s.result(arg, &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_REVOKED})
	case "started":
		s.result(arg, &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_STARTED})
	case "answer":
		s.report(&runv1.Report{Body: &runv1.Report_UserInput{UserInput: &runv1.UserInput{RequestId: arg, Answer: &planv1.JsonText{Text: tail}, By: "ann"}}})
	case "cancel":
		s.report(&runv1.Report{Body: &runv1.Report_CancelRun{CancelRun: &runv1.CancelRun{Reason: rest, By: "ann"}}})
	case "timer":
		d, ok := run.NextDeadline(s.state)
		if !ok {
			s.t.Fatalf("%s: there is no deadline", line)
		}
		if d.At.After(s.now) {
			s.now = d.At
		}
		s.report(&runv1.Report{Body: &runv1.Report_TimerDue{TimerDue: d.Timer}})
	case "after":
		d, err := time.ParseDuration(rest)
		if err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		s.now = s.now.Add(d)
	case "again":
		s.send(proto.Clone(s.last).(*runv1.Report))
	case "restart":
		restored, err := run.Restore(proto.Clone(s.state.Snapshot()).(*runv1.RunState))
		if err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		s.state = restored
		s.take(run.Continue(s.state, s.now))
	case "quarantine":
		e := run.Quarantine(s.state, rest, "report-x", s.now)
		s.take(run.Step{State: run.Evolve(s.state, e), Events: []*runv1.Event{e}})
	case "steps":
		s.steps()
	case "ledger":
		for _, a := range s.state.Snapshot().GetActions() {
			fmt.Fprintf(&s.out, "%s %s %s key %s%s\n", a.GetActionId(), short(a.GetStatus(), "ACTION_STATUS_"), a.GetArguments().GetText(), a.GetIdempotencyKey()[:8], late(a.GetLate()))
		}
	case "answer?":
		snap := s.state.Snapshot()
		fmt.Fprintf(&s.out, "answer %s%s error %s\n", snap.GetAnswer().GetText(), snap.GetAnswerArtifact().GetName(), exactJSON(s.t, snap.GetError()))
	case "plan?":
		p := s.state.Plan()
		fmt.Fprintf(&s.out, "version %d by %s: %s\n", p.GetVersion(), short(p.GetCreatedBy(), "CREATED_BY_"), plan.Document(p).GetText())
	default:
		s.t.Fatalf("unknown command %q", line)
	}
}

func late(l bool) string {
	if l {
		return " late"
	}
	return ""
}

func (s *story) result(action string, o *runv1.Observation) {
	s.report(&runv1.Report{Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{ActionId: action, Observation: o}}})
}

func (s *story) steps() {
	snap := s.state.Snapshot()
	for _, st := range append(snap.GetSteps(), snap.GetCompensations()...) {
		text := st.GetStepId() + " " + short(st.GetStatus(), "STEP_STATUS_")
		if v := st.GetResult().GetInline().GetText(); v != "" {
			text += " " + v
		}
		if a := st.GetResult().GetArtifact(); a != nil {
			text += " artifact " + a.GetName()
		}
		if st.GetSkipReason() != "" {
			text += " (" + st.GetSkipReason() + ")"
		}
		if st.GetError() != nil {
			text += " error " + st.GetError().GetCode()
		}
		fmt.Fprintln(&s.out, text)
	}
}

// tell runs a story's text and returns it with what happened.
func (s *story) tell(text string) string {
	s.t.Helper()
	var out strings.Builder
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	var block []string
	inOutput := false
	flush := func() {
		if len(block) == 0 {
			return
		}
		s.out.Reset()
		s.command(block[0], strings.Join(block[1:], "\n"))
		out.WriteString(strings.Join(block, "\n") + "\n----\n" + s.out.String())
		out.WriteString("= " + s.standing(s.state) + "\n\n")
		block = nil
	}
	for lines.Scan() {
		line := lines.Text()
		switch {
		case inOutput:
			inOutput = line != ""
		case strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
		case line == "----":
			flush()
			inOutput = true
		case line == "" && len(block) == 0:
			if strings.HasSuffix(out.String(), "\n\n") || out.Len() == 0 {
				continue
			}
			out.WriteString("\n")
		case line == "":
			flush()
		default:
			block = append(block, line)
		}
	}
	flush()
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// TestStories tells every story of testdata and compares what happens with what is written there.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatalf("only %d stories were found (%v)", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := newStory(t)
			got := s.tell(string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				s.writeLog(filepath.Join("testdata", "golden", name+".jsonl"))
				return
			}
			if got != string(text) {
				t.Errorf("the story goes otherwise (write it anew with go test ./pkg/run -run Stories -update):\n%s", firstDifference(string(text), got))
			}
		})
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		a, b := "(end)", "(end)"
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, a, b)
		}
	}
	return "no difference"
}

func (s *story) writeLog(file string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.t.Fatalf("%v", err)
	}
	var b strings.Builder
	for _, c := range s.commits {
		b.WriteString(exactJSON(s.t, c) + "\n")
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		s.t.Fatalf("%v", err)
	}
}
