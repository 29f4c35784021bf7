package runstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

	"github.com/cairnrun/cairn/pkg/eventlog"
)

// scatter writes many runs in a random interleaving of commits and groups.
func scatter(a *author, r *rand.Rand, runs int) []string {
	ids := make([]string, runs)
	steps := make([]int, runs)
	byPartition := map[int][]*runv1.Commit{}
	flush := func(p int) {
		if len(byPartition[p]) > 0 {
			a.write(byPartition[p]...)
			byPartition[p] = nil
		}
	}
	for i := range ids {
		ids[i] = fmt.Sprintf("r%03d", i)
	}
	for open := runs; open > 0; {
		i := r.IntN(runs)
		id := ids[i]
		p := a.partition(id)
		// A commit names the one before by hash: that one must be written first.
		for _, c := range byPartition[p] {
			if c.GetRunId() == id {
				flush(p)
				break
			}
		}
		switch n := steps[i]; {
		case n > 6:
			continue
		case n == 0:
			byPartition[p] = append(byPartition[p], a.commit(id, submitted("", &runv1.Label{Key: "n", Value: fmt.Sprint(i % 3)})))
		case n == 1:
			byPartition[p] = append(byPartition[p], a.commit(id, planned("echo", fmt.Sprintf("tool.%d", i%4))))
		case n == 6:
			open--
			body := completed(`1`)
			if i%5 == 0 {
				body = runFailed("timeout")
			}
			byPartition[p] = append(byPartition[p], a.commit(id, body))
		case n == 4:
			patch := &runv1.Event{Body: &runv1.Event_PlanPatched{PlanPatched: &runv1.PlanPatched{Version: 2, Tools: []*planv1.ToolDefinition{{Name: "after.patch"}}}}}
			byPartition[p] = append(byPartition[p], a.commit(id, patch))
		default:
			text := strings.Repeat("x", r.IntN(300))
			byPartition[p] = append(byPartition[p], a.commit(id, observed("s", `"`+text+"\\u0000读✅\u2028"+`"`), succeeded("s")))
		}
		steps[i]++
		if r.IntN(3) == 0 {
			flush(p)
		}
	}
	for p := range a.partitions {
		flush(p)
	}
	return ids
}

func TestRebuildGivesTheSameRowsWhateverTheTransactionsWere(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 3)
	c := quiet(t)
	c.ChunkBytes = 300
	s := start(t, c, log, 3)
	scatter(a, rand.New(rand.NewPCG(1, 2)), 40)
	s.sync(t)
	s.stop()
	live := dump(t, c.Database)
	if n := strings.Count(live, "\nruns:"); n != 40 {
		t.Fatalf("%d runs in the database, 40 written", n)
	}
	if !strings.Contains(live, "chunk=2") {
		t.Fatal("no run has a third row of commits: the test does not reach what it is for")
	}
	if err := rebuild(t.Context(), c, log, 3, time.Now); err != nil {
		t.Fatal(err)
	}
	if got := dump(t, c.Database); got != live {
		t.Fatalf("rebuilt differs:\n%s", firstDifference(live, got))
	}
	left, _ := filepath.Glob(c.Database + ".rebuild*")
	if len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
}

// Case 43: state and log are written in two places; a kill between them must not matter.
func TestCase43_AKillBetweenLogAndProjectionLosesAndRepeatsNothing(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 2)
	c := quiet(t)
	c.ChunkBytes = 500
	r := rand.New(rand.NewPCG(43, 1))
	for range 12 {
		// Some of it gets into the database, some is read only, some is not even read.
		kill := start(t, c, log, 2, func(p *projection) { p.abandon = true })
		id := fmt.Sprintf("r%d", r.IntN(1<<30))
		a.smallRun(id)
		if r.IntN(2) == 0 {
			kill.sync(t)
		}
		a.say(id+"x", submitted("open"))
		kill.stop()
	}
	s := start(t, c, log, 2)
	s.sync(t)
	s.stop()
	got := dump(t, c.Database)
	fresh := quiet(t)
	fresh.ChunkBytes = 500
	if err := rebuild(t.Context(), fresh, log, 2, time.Now); err != nil {
		t.Fatal(err)
	}
	if want := dump(t, fresh.Database); got != want {
		t.Fatalf("after kills:\n%s", firstDifference(want, got))
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\nwant %.300s\ngot  %.300s", i, w[i], g[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

func TestMissingAndDoubleGroupsAreNoticed(t *testing.T) {
	data := func(g *runv1.Group) []byte {
		b, err := eventlog.EncodeGroup(g)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, tc := range map[string]struct {
		extra   func(c eventlog.Chain) []byte
		part    string
		want    string
		stopped bool
	}{
		"missing": {
			func(c eventlog.Chain) []byte {
				return data(&runv1.Group{Epoch: 1, Number: c.Number + 2, PreviousHash: c.Hash})
			}, "partition 0", "groups are missing", true,
		},
		"double": {
			func(c eventlog.Chain) []byte {
				return data(&runv1.Group{Epoch: 1, Number: c.Number, PreviousHash: c.Hash, Owner: "deposed"})
			}, "partition 0 fork", `"deposed"`, false,
		},
		"damaged": {
			func(c eventlog.Chain) []byte { return []byte("\xff\xff") }, "partition 0", "corrupt", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := eventlog.NewMemory()
			a := newAuthor(t, log, 1)
			a.smallRun("r1")
			c := quiet(t)
			s := start(t, c, log, 1)
			s.sync(t)
			last, _ := log.Last(t.Context(), 0)
			seq, err := log.Append(t.Context(), 0, last, tc.extra(a.chains[0]))
			if err != nil {
				t.Fatal(err)
			}
			a.chains[0].Sequence = seq
			after := a.say("r2", submitted("behind it"))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			err = s.tail.waitSeen(ctx, 0, after)
			var stopped *stoppedError
			if errors.As(err, &stopped) != tc.stopped || !tc.stopped && err != nil {
				t.Fatalf("waiting for what is behind it: %v", err)
			}
			if got := s.troubles()[tc.part]; got == nil || !strings.Contains(got.Error(), tc.want) {
				t.Fatalf("reported %v, want %q at %q", s.troubles(), tc.want, tc.part)
			}
			// What is before it is still served.
			if _, err := s.ListEvents(t.Context(), &apiv1.ListEventsRequest{RunId: "r1"}); err != nil {
				t.Fatal(err)
			}
			_, err = s.ListEvents(t.Context(), &apiv1.ListEventsRequest{RunId: "r2", Position: &apiv1.LogPosition{Sequence: after}})
			want := codes.OK
			if tc.stopped {
				want = codes.Unavailable
			}
			if status.Code(err) != want {
				t.Fatalf("asking for what is behind it: %v", err)
			}
		})
	}
}

func TestADatabaseOfAnotherLogIsRefused(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	a.smallRun("r1")
	c := quiet(t)
	s := start(t, c, log, 1)
	s.sync(t)
	s.stop()
	s = start(t, c, eventlog.NewMemory(), 1)
	err := s.tail.waitSeen(t.Context(), 0, 1000)
	if err == nil || !strings.Contains(err.Error(), "--rebuild") {
		t.Fatalf("got %v", err)
	}
}

func TestBadDatabaseIsOneClearSentence(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := filepath.Join(dir, "foreign.db")
	other := filepath.Join(dir, "other.db")
	for path, statement := range map[string]string{foreign: "CREATE TABLE x (y)", other: "PRAGMA user_version = 77"} {
		db, err := openSQLite(path, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
		db.Close()
	}
	taken := filepath.Join(dir, "taken.db")
	s, err := openStore(t.Context(), taken, quiet(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for path, want := range map[string]string{
		write("file", "x") + "/runs.db":            "not a directory",
		write("text.db", strings.Repeat("no", 99)): "--rebuild",
		foreign:                             "something else",
		other:                               "another version",
		taken:                               "another run store has it open",
		filepath.Join(dir, "taken.db.lock"): "", // the side file of a lock is no database of ours either
		dir:                                 "choose another",
	} {
		c := quiet(t)
		c.BusyTimeout = 10 * time.Millisecond
		s, err := openStore(t.Context(), path, c)
		if err == nil {
			s.Close()
			if want != "" {
				t.Errorf("%s was opened", path)
			}
			continue
		}
		if !errors.Is(err, ErrDatabase) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestPendingBytesHoldReadingBack(t *testing.T) {
	tl := newTail(1)
	group := func(seq uint64, size int) *liveGroup {
		return &liveGroup{at: position{Sequence: seq}, bytes: size}
	}
	if err := tl.add(t.Context(), group(1, 60), 100); err != nil {
		t.Fatal(err)
	}
	if err := tl.add(t.Context(), group(2, 40), 100); err != nil {
		t.Fatalf("at the limit: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := tl.add(ctx, group(3, 1), 100); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("beyond the limit: %v", err)
	}
	b := newBatch()
	b.add(group(2, 100))
	tl.saved(b)
	if err := tl.add(t.Context(), group(3, 1000), 100); err != nil {
		t.Fatalf("a group alone may be larger: %v", err)
	}
}
