package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Defaults of Config.
const (
	// DefaultAckWait is after how long a silent instance's action is given to another. Heartbeats come three times as often.
	DefaultAckWait = 5 * time.Second
	// DefaultMaxDeliver is how often an action is delivered before it counts as undeliverable.
	DefaultMaxDeliver = 5
	// DefaultDrainTimeout is how long running calls may go on after the context of Serve has ended.
	DefaultDrainTimeout = 30 * time.Second
	// DefaultMaxOutput is the largest output in bytes; those over the server's payload limit travel as artifacts.
	DefaultMaxOutput = 32 << 20
	// DefaultPullWait is how long one pull waits for actions. A lost pull and the end of Serve's context are noticed after it.
	DefaultPullWait = time.Second
	// DefaultRetryWait is the pause between tries while NATS or a stream is missing.
	DefaultRetryWait = time.Second
)

// Config of Serve. The zero value of every field but URL works.
type Config struct {
	// URL of NATS, as nats://127.0.0.1:4222.
	URL string
	// Name of the connection, shown by the server; "cairn-tool" where empty.
	Name string
	// Options for the connection are added last: credentials, TLS.
	Options []nats.Option
	// Instance is reported as executed_by; host and process id where empty.
	Instance string
	Logger   *slog.Logger

	// AckWait and MaxDeliver are those of the tools' consumers: every instance of a tool should have the same.
	AckWait      time.Duration
	MaxDeliver   int
	DrainTimeout time.Duration
	MaxOutput    int64
	PullWait     time.Duration
	RetryWait    time.Duration

	// OnReady is told nil when every tool is registered and taking actions, and the reason whenever that is not so.
	OnReady func(error)
	// HealthAddr, as ":8081", serves /livez and /readyz over HTTP. Empty: it does not.
	HealthAddr string
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "cairn-tool"
	}
	if c.Instance == "" {
		host, _ := os.Hostname()
		c.Instance = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.AckWait <= 0 {
		c.AckWait = DefaultAckWait
	}
	if c.MaxDeliver == 0 {
		c.MaxDeliver = DefaultMaxDeliver
	}
	if c.DrainTimeout <= 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	if c.MaxOutput <= 0 {
		c.MaxOutput = DefaultMaxOutput
	}
	if c.PullWait <= 0 {
		c.PullWait = DefaultPullWait
	}
	if c.RetryWait <= 0 {
		c.RetryWait = DefaultRetryWait
	}
	return c
}

var (
	errCancelled = errors.New("cancelled")
	errShutdown  = errors.New("the tool service is shutting down")
)

// Serve registers the tools and executes their actions until ctx ends, then lets running calls finish. It returns an
// error at once for what cannot get better (no tools, a bad name, a name twice); while NATS or a stream is missing it
// says so in the log and keeps trying.
func Serve(ctx context.Context, c Config, tools ...*Tool) error {
	if len(tools) == 0 {
		return errors.New("tool.Serve: no tools given")
	}
	seen := map[string]bool{}
	for _, t := range tools {
		if t.err != nil {
			return t.err
		}
		if seen[t.def.Name] {
			return fmt.Errorf("tool.Serve: %s is given twice", t.def.Name)
		}
		seen[t.def.Name] = true
	}
	c = c.withDefaults()
	nc, err := nats.Connect(c.URL, append([]nats.Option{
		nats.Name(c.Name), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.Timeout(5 * time.Second),
	}, c.Options...)...)
	if err != nil {
		return fmt.Errorf("connect to NATS at %q: %w", c.URL, err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("JetStream at %q: %w", c.URL, err)
	}
	s := newServer(c, nc, js, tools)
	return s.serve(ctx)
}

// lifetimes outlive the context of Serve: calling by the drain timeout, sending by as long as results need to be stored.
type lifetimes struct{ calling, sending context.Context }

type server struct {
	Config
	nc      *nats.Conn
	js      jetstream.JetStream
	workers []*worker
	calls   *calls
	ready   *readiness
}

func newServer(c Config, nc *nats.Conn, js jetstream.JetStream, tools []*Tool) *server {
	s := &server{Config: c, nc: nc, js: js, calls: newCalls(), ready: newReadiness(c.OnReady)}
	for _, t := range tools {
		s.ready.set(t.def.Name, errors.New("starting"))
		s.workers = append(s.workers, &worker{server: s, tool: t, recent: newRecent(), slots: make(chan struct{}, t.concurrency)})
	}
	return s
}

func (s *server) serve(ctx context.Context) error {
	if s.HealthAddr != "" {
		stop, err := serveHealth(s.HealthAddr, s.ready)
		if err != nil {
			return err
		}
		defer stop()
	}
	sub, err := s.nc.Subscribe(CancelPrefix+"*", s.onCancel)
	if err != nil {
		return fmt.Errorf("subscribe to the cancel signal: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()

	calling, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errShutdown)
	sending, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(errShutdown)
	var loops sync.WaitGroup
	for _, w := range s.workers {
		loops.Go(func() { w.run(ctx, lifetimes{calling: calling, sending: sending}) })
	}
	<-ctx.Done()
	s.ready.shutdown()
	loops.Wait()
	if !s.calls.wait(s.DrainTimeout) {
		s.Logger.Warn("calls are still running after the drain timeout and are stopped", "timeout", s.DrainTimeout)
		stop(errShutdown)
		if !s.calls.wait(s.AckWait) {
			s.Logger.Warn("calls do not heed the end of their context and are left behind; their actions come again")
		}
	}
	// Acknowledgements and results on their way should leave before the connection closes.
	if err := s.nc.FlushTimeout(s.AckWait); err != nil {
		s.Logger.Warn("last acknowledgements may not have reached NATS; their actions come again", "error", err)
	}
	return nil
}

func (s *server) onCancel(m *nats.Msg) {
	runID := strings.TrimPrefix(m.Subject, CancelPrefix)
	var c CancelMessage
	if len(m.Data) > 0 {
		if err := json.Unmarshal(m.Data, &c); err != nil {
			s.Logger.Warn("a cancel signal is not JSON and is taken for the whole run", "run_id", runID, "error", err)
		}
	}
	s.calls.cancel(runID, c.ActionID)
}

// calls are the ones under way, to cancel them and to wait for them.
type calls struct {
	mu      sync.Mutex
	running map[*running]struct{}
	idle    chan struct{}
}

type running struct {
	runID, actionID string
	cancel          context.CancelCauseFunc
}

func newCalls() *calls { return &calls{running: map[*running]struct{}{}, idle: make(chan struct{})} }

func (c *calls) add(r *running) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[r] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, r)
		if len(c.running) == 0 {
			close(c.idle)
			c.idle = make(chan struct{})
		}
	}
}

func (c *calls) cancel(runID, actionID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.running {
		if r.runID == runID && (actionID == "" || r.actionID == actionID) {
			r.cancel(errCancelled)
		}
	}
}

// wait says whether all calls ended within d.
func (c *calls) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		c.mu.Lock()
		n, idle := len(c.running), c.idle
		c.mu.Unlock()
		if n == 0 {
			return true
		}
		select {
		case <-idle:
		case <-timer.C:
			return false
		}
	}
}
