package replay_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/replay"
	"github.com/cairnrun/cairn/pkg/replay/replaytest"
	"github.com/cairnrun/cairn/pkg/run"
)

func recorded(t *testing.T, entries []*runv1.Entry) []replay.Record {
	t.Helper()
	var out []replay.Record
	for i, e := range entries {
		r, err := replay.NewRecord(e, 0, uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// exported takes the records through a file.
func exported(t *testing.T, in []replay.Record) []replay.Record {
	t.Helper()
	out, err := replay.Read(strings.NewReader(export(t, in)))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestReplayOfAnExportVerifiesAndShowsEveryRevision(t *testing.T) {
	d := replaytest.Completed(t, "r1")
	records := exported(t, recorded(t, d.Commits))
	got, err := replay.Replay(records, replay.Options{Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	hash := d.State.Hash()
	if got.GetDifference() != nil || !proto.Equal(got.GetState(), d.State.Snapshot()) || string(got.GetStateHash()) != string(hash[:]) ||
		got.GetEvents() != d.State.Revision() || got.GetCommits() != int64(len(d.Commits)) || len(got.GetOtherRulesVersions()) != 0 ||
		got.GetRulesVersion() != run.RulesVersion {
		t.Fatalf("got %v", got)
	}
	s := run.New("r1")
	for _, r := range records {
		for _, e := range r.Commit.GetEvents() {
			s = run.Evolve(s, e)
			got, err := replay.Replay(records, replay.Options{Verify: true, Until: s.Revision()})
			if err != nil {
				t.Fatal(err)
			}
			if got.GetDifference() != nil || !proto.Equal(got.GetState(), s.Snapshot()) || got.GetEvents() != s.Revision() {
				t.Errorf("until %d: %v", s.Revision(), got)
			}
		}
	}
	if _, err := replay.Replay(records, replay.Options{Until: s.Revision() + 1}); !errors.Is(err, replay.ErrBeyond) {
		t.Errorf("beyond the end: %v", err)
	}
}

// change makes a record of a changed commit, with the commits after it made to follow.
func change(t *testing.T, records []replay.Record, i int, fn func(*runv1.Commit)) []replay.Record {
	t.Helper()
	var entries []*runv1.Entry
	var previous []byte
	for j, r := range records {
		c := proto.CloneOf(r.Commit)
		c.PreviousHash = previous
		if i == j {
			fn(c)
		}
		e, err := eventlog.EncodeCommit(c, r.Entry.GetLastRevision())
		if err != nil {
			t.Fatal(err)
		}
		previous = eventlog.Hash(e.GetCommit())
		entries = append(entries, e)
	}
	return recorded(t, entries)
}

func TestVerifyNamesTheFirstDifference(t *testing.T) {
	d := replaytest.Completed(t, "r1")
	whole := recorded(t, d.Commits)
	if len(whole) != 4 {
		t.Fatalf("%d commits", len(whole))
	}
	second := whole[1].Entry
	for name, tc := range map[string]struct {
		records  []replay.Record
		what     string
		revision int64
	}{
		"nothing changed": {change(t, whole, -1, nil), "", 0},
		"a commit is missing": {
			append(append([]replay.Record{}, whole[:1]...), whole[2:]...), replay.DiffPreviousHash, whole[2].Entry.GetLastRevision(),
		},
		"another commit before": {
			append(change(t, whole, 1, func(c *runv1.Commit) { c.Tenant = "other" })[:2], whole[2:]...), replay.DiffPreviousHash, whole[2].Entry.GetLastRevision(),
		},
		"a decided event is another": {change(t, whole, 1, func(c *runv1.Commit) {
			for _, e := range c.GetEvents() {
				if a := e.GetActionRequested(); a != nil {
					a.IdempotencyKey = "forged"
				}
			}
		}), "event", second.GetFirstRevision() + 1},
		"the state hash is another": {change(t, whole, 1, func(c *runv1.Commit) { c.StateHash = make([]byte, 32) }), "state_hash", second.GetLastRevision()},
		"revisions jump": {change(t, whole, 1, func(c *runv1.Commit) {
			for _, e := range c.GetEvents() {
				e.Revision++
			}
		}), replay.DiffOrder, second.GetFirstRevision()},
		"the export shows another commit": {func() []replay.Record {
			records := exported(t, whole)
			records[1].Shown.Tenant = "other"
			return records
		}(), replay.DiffShown, second.GetLastRevision()},
	} {
		got, err := replay.Replay(tc.records, replay.Options{Verify: true})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := got.GetDifference(); d.GetWhat() != tc.what || d.GetRevision() != tc.revision {
			t.Errorf("%s: %v, want %s at %d", name, d, tc.what, tc.revision)
		}
	}
}

func TestReplayNamesOtherRulesVersions(t *testing.T) {
	d := replaytest.New(t, "r1")
	d.RulesVersion = "0-test"
	d.Submit("g")
	d.RulesVersion = ""
	d.Plan("a")
	d.RulesVersion = "0-other"
	d.Result("a", "1")
	got, err := replay.Replay(recorded(t, d.Commits), replay.Options{})
	if err != nil || fmt.Sprint(got.GetOtherRulesVersions()) != "[0-test 0-other]" {
		t.Fatalf("%v, %v", got.GetOtherRulesVersions(), err)
	}
}

func TestALogWithoutItsHeadIsShownAndNotVerified(t *testing.T) {
	d := replaytest.New(t, "r1")
	d.Submit("g")
	d.Plan("a", "b")
	d.Snapshot()
	d.Result("a", replaytest.Exact)
	tail := recorded(t, d.Commits[2:])
	got, err := replay.Replay(tail, replay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got.GetState(), d.State.Snapshot()) {
		t.Fatalf("got %v", got.GetState())
	}
	if _, err := replay.Replay(tail, replay.Options{Verify: true}); !errors.Is(err, replay.ErrHeadMissing) {
		t.Fatalf("verified: %v", err)
	}
	if got, err = replay.Replay(recorded(t, d.Commits), replay.Options{Verify: true}); err != nil || got.GetDifference() != nil {
		t.Fatalf("the whole log with a snapshot in it: %v, %v", got.GetDifference(), err)
	}
}
