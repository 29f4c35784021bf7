package runstore

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/telemetry"
)

// serving is the whole service under way.
type serving struct {
	conn   *grpc.ClientConn
	health *telemetry.Health
	stop   func() error
}

func serve(t *testing.T, c Config) *serving {
	t.Helper()
	addr := make(chan string, 1)
	c.Listen, c.Addr, c.Health = "127.0.0.1:0", func(a string) { addr <- a }, telemetry.NewHealth(Component)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, c) }()
	s := &serving{health: c.Health}
	stopped := false
	s.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() { _ = s.stop() })
	select {
	case a := <-addr:
		conn, err := grpc.NewClient(a, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		s.conn = conn
	case err := <-done:
		t.Fatalf("run store ended: %v", err)
	}
	return s
}

func (s *serving) awaitReady(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.health.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestServiceStartsInAnyOrderServesAndDrains(t *testing.T) {
	srv := natsServer(t, false)
	nc, js := connect(t, srv)
	c := quiet(t)
	c.Bus = srv.Bus("runstore")
	s := serve(t, c)
	// Without streams it says which one is missing and makes none.
	limit, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !strings.Contains(s.health.Err().Error(), "missing stream") {
		if limit.Err() != nil {
			t.Fatalf("health: %v", s.health.Err())
		}
		time.Sleep(5 * time.Millisecond)
	}
	q := apiv1.NewQueryServiceClient(s.conn)
	if _, err := q.ListRuns(t.Context(), &apiv1.ListRunsRequest{}); status.Code(err) != codes.Unavailable || reasonOf(err) != reasonNotProjected {
		t.Fatalf("before the log is read: %v", err)
	}
	live, err := healthpb.NewHealthClient(s.conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || live.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Fatalf("health over gRPC: %v, %v", live, err)
	}
	if err := bus.Init(t.Context(), js, bus.Layout{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	s.awaitReady(t)
	log, err := eventlog.NewNATS(t.Context(), js, eventlog.NATSConfig{})
	if err != nil {
		t.Fatal(err)
	}
	a := newAuthor(t, log, 2)
	events := collect(t, nc, "cairn.event.>")
	pos := &apiv1.LogPosition{Partition: int32(a.partition("r1")), Sequence: a.say("r1", submitted("g"))}
	watch, err := q.WatchRun(t.Context(), &apiv1.WatchRunRequest{RunId: "r1", Position: pos})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := watch.Recv(); err != nil || m.GetEvent().GetRevision() != 1 {
		t.Fatalf("%v, %v", m, err)
	}
	a.say("r1", planned("echo"))
	if m, err := watch.Recv(); err != nil || m.GetEvent().GetPlanCreated() == nil {
		t.Fatalf("%v, %v", m, err)
	}
	events.until(t, func(m []*nats.Msg) bool { return len(m) == 2 })
	// A drain ends open watches with words that tell to come again.
	ended := make(chan error, 1)
	go func() {
		_, err := watch.Recv()
		ended <- err
	}()
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; status.Code(err) != codes.Unavailable || reasonOf(err) != reasonShuttingDown {
		t.Fatalf("watch at the drain: %v", err)
	}
	// Started again it has everything, and goes on.
	s = serve(t, c)
	s.awaitReady(t)
	page, err := apiv1.NewQueryServiceClient(s.conn).ListEvents(t.Context(), &apiv1.ListEventsRequest{RunId: "r1"})
	if err != nil || len(page.GetEvents()) != 2 {
		t.Fatalf("%v, %v", page, err)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	before := dump(t, c.Database)
	if err := Rebuild(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := dump(t, c.Database); got != before {
		t.Fatal(firstDifference(before, got))
	}
}

func TestServiceWithoutFeedPublishesNothing(t *testing.T) {
	srv := natsServer(t, true)
	_, js := connect(t, srv)
	c := quiet(t)
	c.Bus, c.DisableFeed = srv.Bus("runstore"), true
	s := serve(t, c)
	s.awaitReady(t)
	stream, err := js.Stream(t.Context(), bus.StreamLog)
	if err != nil {
		t.Fatal(err)
	}
	for name := range stream.ConsumerNames(t.Context()).Name() {
		if strings.HasPrefix(name, "feed-") {
			t.Fatalf("consumer %s", name)
		}
	}
}

func TestWhatCannotGetBetterIsSaidAtOnce(t *testing.T) {
	srv := natsServer(t, true)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	good := quiet(t)
	good.Bus = srv.Bus("runstore")
	inUse := good
	inUse.Database, inUse.BusyTimeout = filepath.Join(t.TempDir(), "used.db"), 10*time.Millisecond
	store, err := openStore(t.Context(), inUse.Database, inUse)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	port := good
	port.Listen = taken.Addr().String()
	none := good
	none.Database = ""
	for want, run := range map[string]func(context.Context) error{
		"in use; choose another address with --listen": func(ctx context.Context) error { return Run(ctx, port) },
		"another run store has it open":                func(ctx context.Context) error { return Run(ctx, inUse) },
		"another run store has it open: stop":          func(ctx context.Context) error { return Rebuild(ctx, inUse) },
		"no database file given":                       func(ctx context.Context) error { return Run(ctx, none) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if err := run(ctx); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %q", err, want)
		}
		cancel()
	}
}

func TestRebuildSaysThatNATSDoesNotAnswer(t *testing.T) {
	c := quiet(t)
	c.Bus, c.MaxWait = bus.Config{URL: "nats://127.0.0.1:1"}, 50*time.Millisecond
	if err := Rebuild(t.Context(), c); err == nil || !strings.Contains(err.Error(), `"nats://127.0.0.1:1" is not reached`) {
		t.Fatalf("got %v", err)
	}
}
