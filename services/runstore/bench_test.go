package runstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
	"github.com/cairnrun/cairn/pkg/eventlog"
)

// fill writes runs of 20 events in 7 commits each, 64 runs a group, as a busy executor does.
func fill(tb testing.TB, a *author, runs int) {
	tb.Helper()
	output := `{"text":"` + strings.Repeat("x", 200) + `","n":9007199254740993}`
	const together = 64
	byPartition := map[int][]string{}
	for i := range runs {
		id := fmt.Sprintf("r%019d", i*7919)
		p := a.partition(id)
		byPartition[p] = append(byPartition[p], id)
	}
	for _, ids := range byPartition {
		for len(ids) > 0 {
			n := min(together, len(ids))
			batch := ids[:n]
			ids = ids[n:]
			for step := range 7 {
				commits := make([]*runv1.Commit, 0, n)
				for _, id := range batch {
					switch step {
					case 0:
						commits = append(commits, a.commit(id, submitted("goal of "+id, &runv1.Label{Key: "team", Value: "shop"}), succeeded("-")))
					case 1:
						commits = append(commits, a.commit(id, planned("echo", "add", "order.pay"), succeeded("-"), succeeded("-")))
					case 6:
						commits = append(commits, a.commit(id, observed("s4", output), succeeded("s4"), completed(`"done"`)))
					default:
						commits = append(commits, a.commit(id, observed("s", output), succeeded("s"), succeeded("-")))
					}
				}
				a.write(commits...)
			}
		}
	}
}

// BenchmarkProjection reports runs a second from the log into the database, at 20 events a run.
func BenchmarkProjection(b *testing.B) {
	log := eventlog.NewMemory()
	a := newAuthor(b, log, 4)
	runs := max(b.N, 1000)
	fill(b, a, runs)
	c := quiet(b)
	c.FlushInterval, c.FlushLinger = time.Second, 50*time.Millisecond
	b.ResetTimer()
	s := start(b, c, log, 4)
	s.sync(b)
	b.ReportMetric(float64(runs)/b.Elapsed().Seconds(), "runs/s")
}

// BenchmarkEventsOfALargeRun reads one run of 5,000 steps out of a log of a million events.
func BenchmarkEventsOfALargeRun(b *testing.B) {
	log := eventlog.NewMemory()
	a := newAuthor(b, log, 4)
	fill(b, a, 49_000) // 980,000 events
	a.say("large", submitted("g"))
	for range 100 {
		var events []*runv1.Event
		for range 50 {
			events = append(events, observed("s", `{"n":1,"text":"`+strings.Repeat("y", 100)+`"}`), succeeded("s"), succeeded("-"), succeeded("-"))
		}
		a.say("large", events...)
	}
	c := quiet(b)
	s := start(b, c, log, 4)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := s.caughtUp(ctx); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		n, token := 0, ""
		for {
			page, err := s.ListEvents(ctx, &apiv1.ListEventsRequest{RunId: "large", PageSize: 10_000, PageToken: token})
			if err != nil {
				b.Fatal(err)
			}
			n += len(page.GetEvents())
			if token = page.GetNextPageToken(); token == "" {
				break
			}
		}
		if n != 20_001 {
			b.Fatalf("%d events", n)
		}
	}
}

// BenchmarkFeed reports events a second from a synced log into CAIRN_EVENTS, in the shipped configuration of one node.
func BenchmarkFeed(b *testing.B) {
	srv, err := embedded.Start(context.Background(), embedded.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close()
	_, js := connect(b, srv)
	if err := bus.Init(b.Context(), js, bus.Layout{}); err != nil {
		b.Fatal(err)
	}
	log, err := eventlog.NewNATS(b.Context(), js, eventlog.NATSConfig{})
	if err != nil {
		b.Fatal(err)
	}
	a := newAuthor(b, log, 4)
	runs := max(b.N/20, 100)
	fill(b, a, runs)
	stream, err := js.Stream(b.Context(), bus.StreamEvents)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	b.ResetTimer()
	go func() { done <- runFeed(ctx, js, quiet(b), 4, func(string, error) {}) }()
	for {
		info, err := stream.Info(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if info.State.Msgs >= uint64(runs*20) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.ReportMetric(float64(runs*20)/b.Elapsed().Seconds(), "events/s")
	b.StopTimer()
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
