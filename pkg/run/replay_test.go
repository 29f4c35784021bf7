package run_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func cloned(commits []*runv1.Commit) []*runv1.Commit {
	out := make([]*runv1.Commit, len(commits))
	for i, c := range commits {
		out[i] = proto.Clone(c).(*runv1.Commit)
	}
	return out
}

// TestVerifyNamesTheFirstDifference: whatever is changed in a log, the first place is found.
func TestVerifyNamesTheFirstDifference(t *testing.T) {
	good := goldenLogs(t)["chain"]
	for _, c := range []struct {
		name     string
		change   func(log []*runv1.Commit) []*runv1.Commit
		what     string
		revision int64
	}{
		{"a decided event says something else", func(log []*runv1.Commit) []*runv1.Commit {
			log[1].Events[1].GetActionRequested().Tool = "other"
			return log
		}, "event", 4},
		{"its rule saw something else", func(log []*runv1.Commit) []*runv1.Commit {
			log[1].Events[1].Rule.Name = "other"
			return log
		}, "event", 4},
		{"its cause is another one", func(log []*runv1.Commit) []*runv1.Commit {
			log[1].Events[1].Cause.Revision = 1
			return log
		}, "event", 4},
		{"a decided event is missing", func(log []*runv1.Commit) []*runv1.Commit {
			log[1].Events = log[1].Events[:1]
			return log
		}, "missing_event", 4},
		{"an event that nothing led to", func(log []*runv1.Commit) []*runv1.Commit {
			extra := proto.Clone(log[1].Events[1]).(*runv1.Event)
			extra.Revision++
			log[1].Events = append(log[1].Events, extra)
			return log
		}, "extra_event", 5},
		{"a recorded result was changed", func(log []*runv1.Commit) []*runv1.Commit {
			log[2].Events[0].GetObservationRecorded().Observation.Output = inlineValue(`{"id":1,"p":2}`)
			return log
		}, "event", 7},
		{"the last result was changed", func(log []*runv1.Commit) []*runv1.Commit {
			log[3].Events[0].GetObservationRecorded().Observation.Output = inlineValue(`7`)
			return log
		}, "event", 10},
		{"the state hash is another one", func(log []*runv1.Commit) []*runv1.Commit {
			log[2].StateHash[0] ^= 1
			return log
		}, "state_hash", 7},
		{"a commit is missing", func(log []*runv1.Commit) []*runv1.Commit {
			return append(log[:1], log[2:]...)
		}, "gap", 3},
		{"two commits changed places", func(log []*runv1.Commit) []*runv1.Commit {
			log[1], log[2] = log[2], log[1]
			return log
		}, "gap", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := run.Verify(c.change(cloned(good)))
			if d == nil || d.What != c.what || d.Revision != c.revision {
				t.Errorf("found %v, not %s at revision %d", d, c.what, c.revision)
			}
		})
	}
	if d := run.Verify(cloned(good)); d != nil {
		t.Errorf("the good log differs: %s", d)
	}
}

func TestVerifySaysThatTheRulesAreOthers(t *testing.T) {
	log := cloned(goldenLogs(t)["chain"])
	log[1].RulesVersion = "0"
	if d := run.Verify(log); d != nil {
		t.Errorf("a log that other rules wrote in the same way differs: %s", d)
	}
	log[1].Events[1].GetActionRequested().Tool = "other"
	d := run.Verify(log)
	if d == nil || d.RulesVersion != "0" || !strings.Contains(d.String(), "rules version 0") {
		t.Errorf("found %v", d)
	}
}

func TestReplayUntil(t *testing.T) {
	log := goldenLogs(t)["chain"]
	for until := int64(1); until <= 10; until++ {
		s, err := run.Replay(log, until)
		if err != nil || s.Revision() != until {
			t.Errorf("until %d: revision %d, %v", until, s.Revision(), err)
		}
	}
}

func TestReplayNamesWhatIsWrong(t *testing.T) {
	log := cloned(goldenLogs(t)["chain"])
	if _, err := run.Replay(append(log[:1:1], log[2:]...), 0); !errors.Is(err, run.ErrGap) {
		t.Errorf("a missing commit gives %v", err)
	}
	log[2].Events[0].Body = nil
	if _, err := run.Replay(log, 0); !errors.Is(err, run.ErrUnknownEvent) {
		t.Errorf("an unknown event gives %v", err)
	}
}

// TestReplayFromSnapshot: where the log's head is gone, a snapshot commit stands in for it.
func TestReplayFromSnapshot(t *testing.T) {
	log := cloned(goldenLogs(t)["chain"])
	head, err := run.Replay(log[:2], 0)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := run.Replay(log, 0)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := run.NewCommit(head, nil, false, start)
	snapshot.Snapshot = proto.Clone(head.Snapshot()).(*runv1.RunState)
	tail := append([]*runv1.Commit{snapshot}, log[2:]...)
	got, err := run.Replay(tail, 0)
	if err != nil || got.Hash() != whole.Hash() {
		t.Errorf("from a snapshot it is another state (%v)", err)
	}
	if d := run.Verify(tail); d != nil {
		t.Errorf("from a snapshot it differs: %s", d)
	}
	if _, err := run.Replay(tail, 2); !errors.Is(err, run.ErrGap) {
		t.Errorf("a revision before the snapshot gives %v", err)
	}
	// In the middle of a whole log it changes nothing.
	middle := append(append(log[:2:2], snapshot), log[2:]...)
	if got, err := run.Replay(middle, 0); err != nil || got.Hash() != whole.Hash() {
		t.Errorf("with a snapshot in its middle it is another state (%v)", err)
	}
	if d := run.Verify(middle); d != nil {
		t.Errorf("with a snapshot in its middle it differs: %s", d)
	}
}

func TestRestoreRefusesNonsense(t *testing.T) {
	s, err := run.Replay(goldenLogs(t)["for_each"], 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(m *runv1.RunState){
		"no spec":           func(m *runv1.RunState) { m.Spec = nil },
		"fewer steps":       func(m *runv1.RunState) { m.Steps = m.Steps[:1] },
		"another step":      func(m *runv1.RunState) { m.Steps[0].StepId = "other" },
		"no such action":    func(m *runv1.RunState) { m.Steps[0].Action = 99 },
		"a loop of actions": func(m *runv1.RunState) { m.Actions[0].Previous = 5 },
		"an item too few":   func(m *runv1.RunState) { m.Steps = append(m.Steps[:3:3], m.Steps[4:]...) },
		"steps, no plan":    func(m *runv1.RunState) { m.Plan = nil },
	} {
		m := proto.Clone(s.Snapshot()).(*runv1.RunState)
		change(m)
		if _, err := run.Restore(m); err == nil || !strings.Contains(err.Error(), "r1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := run.Restore(nil); err == nil {
		t.Errorf("no snapshot is restored")
	}
}
