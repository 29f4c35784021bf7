package runstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

	"github.com/cairnrun/cairn/pkg/eventlog"
)

var errDisconnected = errors.New("the client went away")

// Whatever the places where a client is cut off, how slow it is and when the database is written, resuming after the
// last event that it has gives every event once and in order.
func TestWatchResumesWithoutGapOrRepeat(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		log := eventlog.NewMemory()
		a := newAuthor(t, log, 2)
		c := quiet(t)
		c.ChunkBytes = rapid.IntRange(1, 2000).Draw(rt, "chunk bytes")
		c.WatchBuffer = rapid.IntRange(1, 4).Draw(rt, "buffer")
		c.FlushInterval = time.Duration(rapid.IntRange(1, 30).Draw(rt, "flush ms")) * time.Millisecond
		s := start(t, c, log, 2)
		defer s.stop()
		commits := rapid.IntRange(1, 40).Draw(rt, "commits")
		cuts := rapid.SliceOfN(rapid.IntRange(1, 9), 0, 12).Draw(rt, "cuts")
		seq := a.say("r1", submitted("watched"))
		if _, err := s.find(t.Context(), "r1", &apiv1.LogPosition{Partition: int32(a.partition("r1")), Sequence: seq}); err != nil {
			rt.Fatal(err)
		}
		var writing sync.WaitGroup
		writing.Go(func() {
			for i := range commits {
				a.say("r1", observed("s", fmt.Sprint(i)), succeeded("s"))
				a.say("other", observed("s", "1"))
			}
			a.say("r1", completed("1"))
		})
		defer writing.Wait()
		var got []int64
		for {
			left := -1
			if len(cuts) > 0 {
				left, cuts = cuts[0], cuts[1:]
			}
			after := int64(len(got))
			err := s.watch(t.Context(), "r1", after, func(e *runv1.Event) error {
				if left == 0 {
					return errDisconnected
				}
				left--
				if e.GetRunId() != "r1" || e.GetId() == "" || e.GetTime() == nil {
					rt.Fatalf("incomplete event %v", e)
				}
				got = append(got, e.GetRevision())
				return nil
			})
			if err == nil {
				break
			}
			if !errors.Is(err, errDisconnected) {
				rt.Fatal(err)
			}
		}
		for i, rev := range got {
			if rev != int64(i+1) {
				rt.Fatalf("revision %d at place %d of %v", rev, i, got)
			}
		}
		if want := 2*commits + 2; len(got) != want {
			rt.Fatalf("%d events, %d were written", len(got), want)
		}
	})
}

// Case 33: what a watcher sees is in the log, and it sees it before the database has it.
func TestCase33_WatchersSeeTheLogAndDoNotWaitForTheDatabase(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	c := quiet(t)
	c.FlushInterval, c.FlushLinger = time.Hour, time.Hour
	s := start(t, c, log, 1)
	asked := &runv1.Event{Body: &runv1.Event_UserInputRequested{UserInputRequested: &runv1.UserInputRequested{RequestId: "input-1"}}}
	seq := a.say("r1", submitted("ask"))
	if err := s.tail.waitSeen(t.Context(), 0, seq); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := s.watch(ctx, "r1", 0, func(e *runv1.Event) error {
		held := map[int64]bool{}
		err := log.Read(t.Context(), 0, 0, func(m eventlog.Message) error {
			g, err := eventlog.DecodeGroup(m.Data)
			for _, entry := range g.GetEntries() {
				for r := entry.GetFirstRevision(); r <= entry.GetLastRevision(); r++ {
					held[r] = true
				}
			}
			return err
		})
		if err != nil || !held[e.GetRevision()] {
			t.Errorf("revision %d was shown and is not in the log (%v)", e.GetRevision(), err)
		}
		switch e.GetBody().(type) {
		case *runv1.Event_RunSubmitted:
			a.say("r1", asked)
		case *runv1.Event_UserInputRequested:
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	var rows int
	if err := s.store.read.QueryRow("SELECT count(*) FROM runs").Scan(&rows); err != nil || rows != 0 {
		t.Fatalf("%d rows in the database, %v: the test did not watch ahead of it", rows, err)
	}
}

func TestWatchOfAnEndedRunEnds(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	s := start(t, quiet(t), log, 1)
	a.say("r1", submitted("g"))
	a.say("r1", completed("1"))
	seq := a.say("r1", observed("late", "1"))
	if err := s.tail.waitSeen(t.Context(), 0, seq); err != nil {
		t.Fatal(err)
	}
	for after, want := range map[int64]string{0: "[1 2]", 1: "[2]", 2: "[3]", 3: "[]", 9: "[]"} {
		got := []int64{}
		if err := s.watch(t.Context(), "r1", after, func(e *runv1.Event) error {
			got = append(got, e.GetRevision())
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("after %d: %v, want %s", after, got, want)
		}
	}
}

func TestASlowWatcherGetsEverythingFromHistory(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	c := quiet(t)
	c.WatchBuffer = 2
	s := start(t, c, log, 1)
	seq := a.say("r1", submitted("g"))
	if err := s.tail.waitSeen(t.Context(), 0, seq); err != nil {
		t.Fatal(err)
	}
	var got []int64
	err := s.watch(t.Context(), "r1", 0, func(e *runv1.Event) error {
		got = append(got, e.GetRevision())
		if e.GetRevision() == 1 {
			// While it is busy with the first one, more come than it may have in its queue.
			for range 50 {
				a.say("r1", observed("s", "1"))
			}
			last := a.say("r1", completed("1"))
			return s.tail.waitSeen(t.Context(), 0, last)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 52 || got[51] != 52 {
		t.Fatalf("got %v", got)
	}
}

func TestWatchBufferAtItsLimit(t *testing.T) {
	tl := newTail(1)
	w := tl.watch("r", 0, 3)
	for i, missed := range []bool{false, false, false, true} {
		if i < 3 {
			tl.mu.Lock()
			w.offer(liveCommit{})
			tl.mu.Unlock()
		}
		if i == 3 {
			for range 4 {
				tl.mu.Lock()
				w.offer(liveCommit{})
				tl.mu.Unlock()
			}
		}
		if i < 2 {
			continue
		}
		commits, got, err := w.take(t.Context())
		if err != nil || got != missed || !missed && len(commits) != 3 {
			t.Fatalf("after %d: %d commits, missed %v, %v", i, len(commits), got, err)
		}
	}
	w.close()
	if len(tl.runs) != 0 {
		t.Fatal("the run is kept after its last watcher")
	}
}

// Case 66: watchers that go away leave nothing behind.
func TestCase66_AThousandWatchersLeaveNothingBehind(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 2)
	c := quiet(t)
	s := start(t, c, log, 2)
	for i := range 10 {
		a.say(fmt.Sprintf("r%d", i), submitted("g"))
	}
	s.sync(t)
	base := runtime.NumGoroutine()
	ctx, leave := context.WithCancel(t.Context())
	var watching, seen sync.WaitGroup
	seen.Add(1000)
	for i := range 1000 {
		watching.Go(func() {
			err := s.watch(ctx, fmt.Sprintf("r%d", i%10), 0, func(e *runv1.Event) error {
				if e.GetRevision() == 2 {
					seen.Done()
				}
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("watcher %d: %v", i, err)
			}
		})
	}
	for i := range 10 {
		a.say(fmt.Sprintf("r%d", i), observed("s", "1"))
	}
	seen.Wait()
	awaitGoroutines(t, base+1010)
	leave()
	watching.Wait()
	s.sync(t)
	s.tail.mu.Lock()
	left := len(s.tail.runs)
	s.tail.mu.Unlock()
	if left != 0 {
		t.Errorf("%d runs are still held in the tail", left)
	}
	awaitGoroutines(t, base+10)
}

// awaitGoroutines waits until there are at most so many: queries under way have some for a moment, and nothing tells
// when they are gone.
func awaitGoroutines(t *testing.T, most int) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > most; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d goroutines, at most %d expected", runtime.NumGoroutine(), most)
		}
	}
}

func TestWatchersOfAStoppedPartitionAreTold(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	s := start(t, quiet(t), log, 1)
	seq := a.say("r1", submitted("g"))
	if err := s.tail.waitSeen(t.Context(), 0, seq); err != nil {
		t.Fatal(err)
	}
	err := s.watch(t.Context(), "r1", 0, func(*runv1.Event) error {
		_, err := log.Append(t.Context(), 0, seq, []byte("\xff"))
		return err
	})
	if got := asStatus("r1", err); status.Code(got) != codes.Unavailable {
		t.Fatalf("got %v", got)
	}
}
