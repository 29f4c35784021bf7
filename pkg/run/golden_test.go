package run_test

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

func readLog(t testing.TB, file string) []*runv1.Commit {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var commits []*runv1.Commit
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		c := &runv1.Commit{}
		if err := exactjson.Unmarshal(lines.Bytes(), c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		commits = append(commits, c)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return commits
}

func goldenLogs(t testing.TB) map[string][]*runv1.Commit {
	t.Helper()
	files, err := filepath.Glob("testdata/golden/*.jsonl")
	if err != nil || len(files) < 30 {
		t.Fatalf("only %d golden logs were found (%v)", len(files), err)
	}
	logs := map[string][]*runv1.Commit{}
	for _, f := range files {
		logs[strings.TrimSuffix(filepath.Base(f), ".jsonl")] = readLog(t, f)
	}
	return logs
}

// TestGoldenLogs decides again what is written in the logs of earlier builds: a difference means that the rules have
// changed, which is to be said by RulesVersion, or that something is broken.
func TestGoldenLogs(t *testing.T) {
	for name, commits := range goldenLogs(t) {
		if d := run.Verify(commits); d != nil {
			t.Errorf("%s: %s", name, d)
		}
		if _, err := run.Replay(commits, 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGoldenLogsHoldEveryEvent: no event type and no timer is without an example.
func TestGoldenLogsHoldEveryEvent(t *testing.T) {
	seen := map[protoreflect.Name]bool{}
	timers := map[runv1.TimerKind]bool{}
	for _, commits := range goldenLogs(t) {
		for _, c := range commits {
			for _, e := range run.EventsOf(c) {
				m := e.ProtoReflect()
				seen[m.WhichOneof(m.Descriptor().Oneofs().ByName("body")).Name()] = true
				timers[e.GetTimerFired().GetTimer()] = true
				if text := run.Explain(e); text == "" || strings.Contains(text, "does not know") {
					t.Errorf("%s is not explained", e.GetId())
				}
				if e.GetKind() == runv1.EventKind_EVENT_KIND_DECIDED && (e.GetRule().GetName() == "" || e.GetCause().GetRevision() <= 0 || e.GetCause().GetRevision() >= e.GetRevision()) {
					t.Errorf("%s: a decided event has a rule and an earlier cause: %v %v", e.GetId(), e.GetRule(), e.GetCause())
				}
			}
		}
	}
	body := (&runv1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range body.Len() {
		if !seen[body.Get(i).Name()] {
			t.Errorf("no golden log holds %s", body.Get(i).Name())
		}
	}
	for kind := range runv1.TimerKind_name {
		k := runv1.TimerKind(kind)
		if !timers[k] && k != runv1.TimerKind_TIMER_KIND_UNSPECIFIED {
			t.Errorf("no golden log holds the timer %s", k)
		}
	}
}

// TestEveryRuleIsListed: the rules that events name are those that Rules lists.
func TestEveryRuleIsListed(t *testing.T) {
	listed := map[string]bool{}
	for _, r := range run.Rules() {
		if r.Meaning == "" || listed[r.Name] {
			t.Errorf("rule %s is listed twice or without a meaning", r.Name)
		}
		listed[r.Name] = true
	}
	seen := map[string]bool{}
	for name, commits := range goldenLogs(t) {
		for _, c := range commits {
			for _, e := range c.GetEvents() {
				if n := e.GetRule().GetName(); n != "" {
					seen[n] = true
					if !listed[n] {
						t.Errorf("%s: the rule %s is not listed", name, n)
					}
				}
			}
		}
	}
	for n := range listed {
		if !seen[n] && n != "stuck" && n != "initialize" && n != "resume" && n != "judge" {
			t.Errorf("no golden log shows the rule %s", n)
		}
	}
}

// TestFoldInParts: folding a prefix, taking a snapshot, and folding the rest is folding all.
func TestFoldInParts(t *testing.T) {
	for name, commits := range goldenLogs(t) {
		whole, err := run.Replay(commits, 0)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for cut := range commits {
			part, err := run.Replay(commits[:cut], 0)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			part, err = run.Restore(proto.Clone(part.Snapshot()).(*runv1.RunState))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, c := range commits[cut:] {
				for _, e := range run.EventsOf(c) {
					part = run.Evolve(part, e)
				}
			}
			if part.Hash() != whole.Hash() {
				t.Errorf("%s: folded in parts at commit %d it is another state", name, cut)
			}
		}
	}
}

// TestLogsOfEarlierRulesFold: logs that earlier rules versions wrote still fold to their end, decide nothing more, and where this
// version decides otherwise, Verify names the other one.
func TestLogsOfEarlierRulesFold(t *testing.T) {
	files, err := filepath.Glob("testdata/rules[0-9]/*.jsonl")
	if err != nil || len(files) < 8 {
		t.Fatalf("only %d logs were found (%v)", len(files), err)
	}
	for _, f := range files {
		commits := readLog(t, f)
		s, err := run.Replay(commits, 0)
		if err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		last := commits[len(commits)-1]
		if !s.Terminal() || s.Status() != last.GetStatus() {
			t.Errorf("%s: the run is %s, the log says %s", f, s.Status(), last.GetStatus())
		}
		if step := run.Continue(s, start); len(step.Events) > 0 {
			t.Errorf("%s: %s is decided", f, run.Explain(step.Events[0]))
		}
		version := strings.TrimPrefix(filepath.Base(filepath.Dir(f)), "rules")
		if d := run.Verify(commits); d != nil && d.RulesVersion != version {
			t.Errorf("%s: %s", f, d)
		}
	}
}
