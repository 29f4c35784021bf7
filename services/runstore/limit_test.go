package runstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"

	"github.com/cairnrun/cairn/pkg/eventlog"
)

func TestATransactionEndsAtItsBytes(t *testing.T) {
	for _, more := range []int{0, 1} {
		log := eventlog.NewMemory()
		a := newAuthor(t, log, 1)
		seq := a.say("r1", submitted("g"))
		var size int
		if err := log.Read(t.Context(), 0, 0, func(m eventlog.Message) error {
			size = len(m.Data)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		c := quiet(t)
		c.FlushInterval, c.FlushLinger, c.FlushBytes = time.Hour, time.Hour, size+more
		s := start(t, c, log, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if more > 0 {
			// A byte less than full: it stays open.
			if err := s.tail.waitSeen(ctx, 0, seq); err != nil {
				t.Fatal(err)
			}
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 30*time.Millisecond)
		}
		if err := s.tail.waitStored(ctx, 0, seq); (err != nil) != (more > 0) {
			t.Errorf("%d bytes more than a group: %v", more, err)
		}
		cancel()
	}
}

func TestARowOfCommitsIsExtendedUntilItIsFull(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	a.say("r1", submitted("g"))
	first := 0
	if err := log.Read(t.Context(), 0, 0, func(m eventlog.Message) error {
		g, err := eventlog.DecodeGroup(m.Data)
		first = len(appendEntry(nil, m.Sequence, g.GetEntries()[0]))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	a.say("r1", succeeded("a"))
	for limit, rows := range map[int]int{first: 2, first + 1: 1} {
		c := quiet(t)
		c.ChunkBytes = limit
		s := start(t, c, log, 1)
		s.sync(t)
		var n int
		if err := s.store.read.QueryRow("SELECT count(*) FROM commits").Scan(&n); err != nil || n != rows {
			t.Errorf("%d bytes a row, the first commit has %d: %d rows, want %d, %v", limit, first, n, rows, err)
		}
	}
}

func TestPagesOfEventsAtTheirBytes(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	s := start(t, quiet(t), log, 1)
	seq := a.say("r1", submitted("g"), succeeded("a"), succeeded("b"))
	ask := &apiv1.ListEventsRequest{RunId: "r1", Position: &apiv1.LogPosition{Sequence: seq}}
	all, err := s.ListEvents(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	two := proto.Size(all.GetEvents()[0]) + proto.Size(all.GetEvents()[1])
	for limit, want := range map[int]int{two: 2, two - 1: 1, 1: 1} {
		s.queries.config.PageBytes = limit
		page, err := s.ListEvents(t.Context(), ask)
		if err != nil || len(page.GetEvents()) != want || page.GetNextPageToken() == "" {
			t.Errorf("%d bytes: %d events, want %d, %v", limit, len(page.GetEvents()), want, err)
		}
	}
}

func TestMessagesAtTheirLimit(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	c := quiet(t)
	c.MaxMessageBytes = 4096
	s := start(t, c, log, 1)
	client := dial(t, s)
	size := func(goal int) (seq uint64, bytes int) {
		cm := a.commit(fmt.Sprintf("r%d", goal), submitted(strings.Repeat("g", goal)))
		return a.write(cm), proto.Size(&apiv1.WatchRunResponse{Event: cm.GetEvents()[0]})
	}
	ask := func(goal int, seq uint64) error {
		w, err := client.WatchRun(t.Context(), &apiv1.WatchRunRequest{RunId: fmt.Sprintf("r%d", goal), Position: &apiv1.LogPosition{Sequence: seq}})
		if err == nil {
			_, err = w.Recv()
		}
		return err
	}
	seq, bytes := size(3000)
	if err := ask(3000, seq); err != nil {
		t.Fatal(err)
	}
	fit := 3000 + c.MaxMessageBytes - bytes
	seq, bytes = size(fit)
	if bytes != c.MaxMessageBytes {
		t.Fatalf("%d bytes", bytes)
	}
	if err := ask(fit, seq); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	seq, _ = size(fit + 1)
	if err := ask(fit+1, seq); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a byte more: %v", err)
	}
}

// A state over the limit is refused with the way to see it all the same.
func TestStatesAtTheirLimit(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	seq := a.say("r1", submitted(strings.Repeat("g", 3000)))
	for over, want := range []codes.Code{codes.OK, codes.FailedPrecondition} {
		c := quiet(t)
		s := start(t, c, log, 1)
		whole, err := s.GetRun(t.Context(), &apiv1.GetRunRequest{RunId: "r1", Position: &apiv1.LogPosition{Sequence: seq}})
		if err != nil {
			t.Fatal(err)
		}
		c = quiet(t)
		c.MaxMessageBytes = proto.Size(whole) - over
		_, err = dial(t, start(t, c, log, 1)).GetRun(t.Context(), &apiv1.GetRunRequest{RunId: "r1", Position: &apiv1.LogPosition{Sequence: seq}})
		if status.Code(err) != want || over == 1 && !strings.Contains(err.Error(), "export") {
			t.Errorf("%d over the limit: %v", over, err)
		}
	}
}

// The longest wait for a position is MaxWait, on a clock of the test's own.
func TestMaxWaitAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTail(1)
		q := &queries{config: Config{MaxWait: 10 * time.Second}.withDefaults(), partitions: 1, projection: &projection{tail: tl}}
		for after, want := range map[time.Duration]codes.Code{10*time.Second - 1: codes.OK, 10*time.Second + 1: codes.Unavailable} {
			tl.begin(0, 0)
			timer := time.AfterFunc(after, func() { tl.begin(0, 5) })
			err := q.waitFor(t.Context(), &apiv1.LogPosition{Sequence: 5}, false)
			if status.Code(err) != want {
				t.Errorf("there after %s: %v", after, err)
			}
			timer.Stop()
		}
	})
}
