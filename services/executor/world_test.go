package executor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/internal/bench/responder"
	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/run"
	"github.com/cairnrun/cairn/pkg/telemetry"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/services/executor"
)

// world is a bus with whatever a test starts on it.
type world struct {
	t          *testing.T
	server     *embedded.Server
	nc         *nats.Conn
	js         jetstream.JetStream
	partitions int
	reporter   *bus.Reporter
	log        eventlog.Log
}

func newWorld(t *testing.T, partitions int) *world {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	nc, js, err := bus.Connect(s.Bus("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if err := bus.Init(t.Context(), js, bus.Layout{Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	r, err := bus.NewReporter(js, partitions, bus.ReporterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := eventlog.NewNATS(t.Context(), js, eventlog.NATSConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, server: s, nc: nc, js: js, partitions: partitions, reporter: r, log: l}
}

// member is a running executor.
type member struct {
	health *telemetry.Health
	stop   context.CancelFunc
	done   chan error
	mu     sync.Mutex
	conns  []*nats.Conn
}

func testLogger(t *testing.T, name string) *slog.Logger {
	if os.Getenv("CAIRN_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil)).With("test", t.Name(), "member", name)
}

// start starts an executor and waits until it is ready.
func (w *world) start(name string, tune func(*executor.Config)) *member {
	w.t.Helper()
	m := &member{health: telemetry.NewHealth("executor"), done: make(chan error, 1)}
	c := executor.Config{Bus: w.server.Bus(name), Name: name, Health: m.health, Lease: time.Second, Logger: testLogger(w.t, name)}
	c.Bus.Options = append(c.Bus.Options, nats.ConnectHandler(func(nc *nats.Conn) {
		m.mu.Lock()
		m.conns = append(m.conns, nc)
		m.mu.Unlock()
	}))
	if tune != nil {
		tune(&c)
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() { m.done <- executor.Run(ctx, c) }()
	w.t.Cleanup(func() { m.end(w.t) })
	wait, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	if err := m.health.Wait(wait); err != nil {
		w.t.Fatal(err)
	}
	return m
}

// end drains the executor; a second call does nothing.
func (m *member) end(t *testing.T) {
	t.Helper()
	m.stop()
	select {
	case err, ok := <-m.done:
		if ok && err != nil {
			t.Errorf("executor ended with %v", err)
		}
		if ok {
			close(m.done)
		}
	case <-time.After(30 * time.Second):
		t.Error("executor did not drain within 30 s")
	}
}

// kill cuts the executor's connection for good: nothing is released, nothing finished.
func (m *member) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, nc := range m.conns {
		nc.Close()
	}
}

// respond starts planner and tool router stand-ins.
func (w *world) respond(c responder.Config) *responder.Responders {
	w.t.Helper()
	c.Bus = w.server.Bus("responder")
	r, err := responder.Start(w.t.Context(), c, true)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(r.Stop)
	return r
}

func submission(runID, goal string) *runv1.Report {
	return &runv1.Report{Id: "submit-" + runID, RunId: runID, Tenant: "t", Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{
		Spec: &runv1.RunSpec{Goal: goal},
	}}}
}

// ask sends a report and waits for its answer.
func (w *world) ask(r *runv1.Report) *runv1.Answer {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	a, err := w.reporter.Ask(ctx, r)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *world) submit(runID, goal string) *runv1.Answer {
	w.t.Helper()
	a := w.ask(submission(runID, goal))
	// Without an answer in time it is sent again, and may be answered as the repeat that it is.
	if a.GetOutcome() == runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED {
		w.t.Fatalf("submit %s: %v", runID, a)
	}
	return a
}

// follow reads a partition's log until done says so.
func (w *world) follow(partition int, done func(*runv1.Commit) bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 60*time.Second)
	defer cancel()
	stop := errors.New("stop")
	chain := eventlog.Chain{Partition: partition}
	err := w.log.Follow(ctx, partition, 0, func(m eventlog.Message) error {
		g, err := chain.Next(m)
		if err != nil {
			return err
		}
		for _, e := range g.GetEntries() {
			c, err := eventlog.DecodeCommit(e)
			if err != nil {
				return err
			}
			if done(c) {
				return stop
			}
		}
		return nil
	})
	if !errors.Is(err, stop) {
		w.t.Fatalf("following partition %d: %v", partition, err)
	}
}

// ended waits for a run's end and returns all its commits, which it checks: dense revisions, and the core agrees.
func (w *world) ended(runID string) []*runv1.Commit {
	w.t.Helper()
	var commits []*runv1.Commit
	w.follow(bus.Partition(runID, w.partitions), func(c *runv1.Commit) bool {
		if c.GetRunId() != runID {
			return false
		}
		commits = append(commits, c)
		return c.GetPhase() == runv1.RunPhase_RUN_PHASE_ENDED
	})
	w.check(runID, commits)
	return commits
}

func (w *world) check(runID string, commits []*runv1.Commit) {
	w.t.Helper()
	next := int64(1)
	for _, e := range events(commits) {
		if e.GetRevision() != next || e.GetRunId() != runID {
			w.t.Fatalf("run %s: event %s where revision %d must come", runID, e.GetId(), next)
		}
		next++
	}
	if d := run.Verify(commits); d != nil {
		w.t.Fatalf("run %s: the core disagrees with the log: %v", runID, d)
	}
}

func events(commits []*runv1.Commit) (all []*runv1.Event) {
	for _, c := range commits {
		all = append(all, c.GetEvents()...)
	}
	return all
}

// count counts events by a test.
func count(commits []*runv1.Commit, is func(*runv1.Event) bool) (n int) {
	for _, e := range events(commits) {
		if is(e) {
			n++
		}
	}
	return n
}

func status(commits []*runv1.Commit) runv1.RunStatus { return commits[len(commits)-1].GetStatus() }

// onPartition makes run ids of one partition.
func (w *world) onPartition(p int, prefix string, n int) []string {
	var ids []string
	for i := 0; len(ids) < n; i++ {
		if id := fmt.Sprintf("%s%d", prefix, i); bus.Partition(id, w.partitions) == p {
			ids = append(ids, id)
		}
	}
	return ids
}
