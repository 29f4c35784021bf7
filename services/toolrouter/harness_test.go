package toolrouter_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
	"github.com/cairnrun/cairn/pkg/telemetry"
	"github.com/cairnrun/cairn/pkg/tool"
	"github.com/cairnrun/cairn/services/toolrouter"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// The tests mostly wait for each other's processes, so that more of them than processors run at once.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set("8")
	}
	os.Exit(m.Run())
}

// patience is when a test gives up waiting for what should come at once.
const patience = time.Minute

// world is a bus with its streams, and this test in the executor's place: it publishes work and reads reports.
type world struct {
	t       *testing.T
	server  *embedded.Server
	nc      *nats.Conn
	js      jetstream.JetStream
	reports chan *runv1.Report
	runs    int
}

// newWorld listens on a port only where a process from outside has to connect.
func newWorld(t *testing.T, listen bool) *world {
	t.Helper()
	t.Parallel()
	c := embedded.Config{Dir: t.TempDir(), NoSync: true}
	if listen {
		c.Host = "127.0.0.1"
	}
	server, err := embedded.Start(t.Context(), c)
	must(t, err)
	t.Cleanup(server.Close)
	nc, js, err := bus.Connect(server.Bus("executor"))
	must(t, err)
	t.Cleanup(nc.Close)
	w := &world{t: t, server: server, nc: nc, js: js, reports: make(chan *runv1.Report, 1024)}
	return w
}

// withStreams is the usual world.
func withStreams(t *testing.T) *world {
	w := newWorld(t, false)
	w.init()
	return w
}

func (w *world) init() {
	w.t.Helper()
	must(w.t, bus.Init(w.t.Context(), w.js, bus.Layout{Partitions: 1}))
	cons, err := w.js.CreateConsumer(w.t.Context(), bus.StreamReports, jetstream.ConsumerConfig{Durable: "executor", AckPolicy: jetstream.AckExplicitPolicy})
	must(w.t, err)
	cc, err := cons.Consume(func(m jetstream.Msg) {
		r := &runv1.Report{}
		if err := proto.Unmarshal(m.Data(), r); err != nil {
			w.t.Errorf("report: %v", err)
		}
		w.reports <- r
		_ = m.Ack()
	})
	must(w.t, err)
	w.t.Cleanup(cc.Stop)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// background runs f until the test ends or stop is called, and waits for it.
func background(t *testing.T, f func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("service ended: %v", err)
			}
		case <-time.After(patience):
			t.Errorf("service did not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

// router starts a tool router and waits until it is ready.
func (w *world) router(change func(*toolrouter.Config)) (stop func()) {
	w.t.Helper()
	c := toolrouter.Config{Bus: w.server.Bus("toolrouter"), Health: telemetry.NewHealth("toolrouter"), Logger: testLogger(w.t)}
	if change != nil {
		change(&c)
	}
	stop = background(w.t, func(ctx context.Context) error { return toolrouter.Run(ctx, c) })
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	must(w.t, c.Health.Wait(ctx))
	return stop
}

// toolConfig connects an instance of a tool service; ready closes when it takes actions.
func (w *world) toolConfig() (c tool.Config, ready chan struct{}) {
	ready = make(chan struct{})
	once := sync.OnceFunc(func() { close(ready) })
	b := w.server.Bus("tool")
	return tool.Config{URL: b.URL, Options: b.Options, Logger: testLogger(w.t), Instance: "tool-1", PullWait: 200 * time.Millisecond, OnReady: func(err error) {
		if err == nil {
			once()
		}
	}}, ready
}

// serve starts a tool service and waits until it takes actions.
func (w *world) serve(change func(*tool.Config), tools ...*tool.Tool) (stop func()) {
	w.t.Helper()
	c, ready := w.toolConfig()
	if change != nil {
		change(&c)
	}
	stop = background(w.t, func(ctx context.Context) error { return tool.Serve(ctx, c, tools...) })
	wait(w.t, ready, "the tool service is ready")
	return stop
}

func wait[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited in vain: %s", what)
		panic("unreachable")
	}
}

// call is a call of a run, as the core asks for it.
func call(run, action, name, arguments string) *runv1.Work {
	return &runv1.Work{RunId: run, Tenant: "default", Revision: 7, Body: &runv1.Work_Call{Call: &runv1.CallWork{
		ActionId: action, StepId: "s", Attempt: 1, Tool: name, ToolVersion: "1.0.0", Arguments: text(arguments),
		IdempotencyKey: "key-" + run + "-s", NotAfter: timestamppb.New(time.Now().Add(time.Minute)), Idempotent: true,
	}}}
}

func revocation(run, action, name string, idempotent bool) *runv1.Work {
	return &runv1.Work{RunId: run, Tenant: "default", Body: &runv1.Work_Revoke{Revoke: &runv1.RevokeWork{ActionId: action, StepId: "s", Tool: name, Idempotent: idempotent}}}
}

func text(s string) *planv1.JsonText {
	if s == "" {
		return nil
	}
	return &planv1.JsonText{Text: s}
}

func (w *world) send(work *runv1.Work) {
	w.t.Helper()
	id := work.GetCall().GetActionId() + work.GetRevoke().GetActionId()
	w.sendTo(bus.CallSubject(work.GetRunId(), id), work)
}

func (w *world) sendTo(subject string, work *runv1.Work) {
	w.t.Helper()
	data, err := proto.Marshal(work)
	must(w.t, err)
	_, err = w.js.Publish(w.t.Context(), subject, data)
	must(w.t, err)
}

// report is the next report; it must be about this run and action.
func (w *world) report(run, action string) *runv1.Observation {
	w.t.Helper()
	r := wait(w.t, w.reports, "a report on "+run+" "+action)
	if r.GetRunId() != run || r.GetResultReported().GetActionId() != action {
		w.t.Fatalf("report on %s %s, want %s %s", r.GetRunId(), r.GetResultReported().GetActionId(), run, action)
	}
	return r.GetResultReported().GetObservation()
}

// do sends a call and returns what is reported.
func (w *world) do(work *runv1.Work) *runv1.Observation {
	w.t.Helper()
	w.send(work)
	return w.report(work.GetRunId(), work.GetCall().GetActionId())
}

// empty waits until a stream holds nothing.
func (w *world) empty(stream string) {
	w.t.Helper()
	w.eventually(stream+" is empty", func() bool {
		s, err := w.js.Stream(w.t.Context(), stream)
		must(w.t, err)
		return s.CachedInfo().State.Msgs == 0
	})
}

// eventually is for what NATS tells nobody: it asks until it is so.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited in vain: %s", what)
		}
	}
}

func success(t *testing.T, o *runv1.Observation) string {
	t.Helper()
	if o.GetOutcome() != runv1.Outcome_OUTCOME_SUCCESS || o.GetError() != nil {
		t.Fatalf("outcome %s, error %v", o.GetOutcome(), o.GetError())
	}
	return o.GetOutput().GetInline().GetText()
}

func failure(t *testing.T, o *runv1.Observation, code string) *runv1.Error {
	t.Helper()
	if o.GetOutcome() != runv1.Outcome_OUTCOME_ERROR || o.GetError().GetCode() != code {
		t.Fatalf("outcome %s, error %v; want the code %s", o.GetOutcome(), o.GetError(), code)
	}
	return o.GetError()
}

func testLogger(t *testing.T) *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

// echo returns its arguments.
func echo() *tool.Tool {
	return tool.New("echo", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil },
		tool.Version("1.0.0"), tool.Idempotent())
}

// effects counts executions by idempotency key, as the outside world would see them.
type effects struct {
	mu    sync.Mutex
	count map[string]int
}

func (e *effects) add(key string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.count == nil {
		e.count = map[string]int{}
	}
	e.count[key]++
	return e.count[key]
}

func (e *effects) of(key string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count[key]
}

// newRun is an id that was not used before in this world.
func (w *world) newRun() string {
	w.runs++
	return fmt.Sprintf("rnew%05d", w.runs)
}

func runID(i int) string { return fmt.Sprintf("rtest%04d", i) }
