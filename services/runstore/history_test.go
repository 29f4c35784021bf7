package runstore

import (
	"fmt"
	"testing"

	"github.com/cairnrun/cairn/pkg/eventlog"
)

// Between a transaction and the tail's forgetting a commit is in both; it is read once all the same.
func TestHistoryReadsACommitOnceThatIsInDatabaseAndTail(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	a.say("r1", submitted("g"))
	a.say("r1", succeeded("a"), succeeded("b"))
	a.say("r1", succeeded("c"))
	c := quiet(t)
	s, err := openStore(t.Context(), c.Database, c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w, err := newWriter(t.Context(), s.write, c.ChunkBytes)
	if err != nil {
		t.Fatal(err)
	}
	tl := newTail(1)
	h := &history{db: s.read, tail: tl}
	read := func(after int64) string {
		t.Helper()
		got := []string{}
		if err := h.read(t.Context(), "r1", after, func(e storedEntry) (bool, error) {
			got = append(got, fmt.Sprintf("%d-%d", e.Entry.GetFirstRevision(), e.Entry.GetLastRevision()))
			return true, nil
		}); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(got)
	}
	chain := &eventlog.Chain{}
	var groups []*liveGroup
	if err := log.Read(t.Context(), 0, 0, func(m eventlog.Message) error {
		g, err := decode(chain, m)
		groups = append(groups, g)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	b := newBatch()
	for i, g := range groups {
		if err := tl.add(t.Context(), g, 1<<20); err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			b.add(g)
		}
	}
	const all = "[1-1 2-3 4-4]"
	if got := read(-1); got != all {
		t.Errorf("tail alone: %s", got)
	}
	if err := w.write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for after, want := range map[int64]string{-1: all, 0: all, 1: "[2-3 4-4]", 2: "[2-3 4-4]", 3: "[4-4]", 4: "[]"} {
		if got := read(after); got != want {
			t.Errorf("in both, after %d: %s, want %s", after, got, want)
		}
	}
	tl.saved(b)
	if got := read(-1); got != all {
		t.Errorf("after the tail forgot: %s", got)
	}
	if pending, _ := tl.pending("r1"); len(pending) != 1 {
		t.Errorf("%d commits are still in the tail, want the one that is not in the database", len(pending))
	}
}
