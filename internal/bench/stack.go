package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/internal/bench/responder"
	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/telemetry"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/services/executor"
)

// stack is a bus and what serves on it.
type stack struct {
	o      options
	dir    string
	server *embedded.Server
	dial   func(name string) bus.Config
	nc     *nats.Conn
	js     jetstream.JetStream
	log    eventlog.Log
	closes []func()

	mu   sync.Mutex
	done map[string]chan struct{}
	// groups and commits in the log, as seen by watch.
	groups, commits atomic.Int64
}

func newStack(ctx context.Context, o options) (*stack, error) {
	dir, err := os.MkdirTemp(o.dir, "cairn-bench-")
	if err != nil {
		return nil, err
	}
	s := &stack{o: o, dir: dir, done: map[string]chan struct{}{}}
	c := embedded.Config{Dir: dir, NoSync: o.noSync}
	if o.tcp {
		c.Host = "127.0.0.1"
	}
	if s.server, err = embedded.Start(ctx, c); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	s.dial = s.server.Bus
	if o.tcp {
		s.dial = func(name string) bus.Config { return bus.Config{URL: s.server.URL(), Name: name} }
	}
	if s.nc, _, err = bus.Connect(s.dial("bench")); err != nil {
		return nil, err
	}
	if s.js, err = jetstream.New(s.nc, jetstream.WithPublishAsyncMaxPending(1<<16)); err != nil {
		return nil, err
	}
	if err := bus.Init(ctx, s.js, bus.Layout{Partitions: o.partitions}); err != nil {
		return nil, err
	}
	s.log, err = eventlog.NewNATS(ctx, s.js, eventlog.NATSConfig{})
	return s, err
}

func (s *stack) close() {
	for i := len(s.closes) - 1; i >= 0; i-- {
		s.closes[i]()
	}
	s.nc.Close()
	s.server.Close()
	_ = os.RemoveAll(s.dir)
}

// executor starts one and returns what drains it.
func (s *stack) executor(ctx context.Context, name string) (stop func(), err error) {
	h := telemetry.NewHealth("executor")
	log := slog.New(slog.DiscardHandler)
	if s.o.verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() {
		done <- executor.Run(run, executor.Config{Bus: s.dial(name), Name: name, Health: h, Logger: log})
	}()
	if err := h.Wait(ctx); err != nil {
		cancel()
		return nil, err
	}
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			fmt.Fprintln(os.Stderr, "bench: executor:", err)
		}
	}), nil
}

// serve starts executor and responders.
func (s *stack) serve(ctx context.Context, c responder.Config) error {
	start := func() (func(), error) { return s.executor(ctx, "bench-a") }
	if s.o.bare {
		start = func() (func(), error) { return s.bare(ctx) }
	}
	stop, err := start()
	if err != nil {
		return err
	}
	s.closes = append(s.closes, stop)
	c.Bus = s.dial("responder")
	r, err := responder.Start(ctx, c, false)
	if err != nil {
		return err
	}
	s.closes = append(s.closes, r.Stop)
	return nil
}

// watch follows every partition's log and wakes those who wait for the end of a run.
func (s *stack) watch(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	s.closes = append(s.closes, cancel)
	for p := range s.o.partitions {
		go func() {
			err := s.log.Follow(ctx, p, 0, func(m eventlog.Message) error {
				g, err := eventlog.DecodeGroup(m.Data)
				if err != nil {
					return err
				}
				if len(g.GetEntries()) > 0 {
					s.groups.Add(1)
					s.commits.Add(int64(len(g.GetEntries())))
				}
				for _, e := range g.GetEntries() {
					if hasEnded(e) {
						s.wake(e.GetRunId())
					}
				}
				return nil
			})
			if err != nil && !errors.Is(err, context.Canceled) {
				fmt.Fprintln(os.Stderr, "bench: following the log:", err)
			}
		}()
	}
}

// phaseField is cairn.run.v1.Commit.phase.
const phaseField = 10

// hasEnded reads only the phase of a commit, since decoding all would cost more than what is measured.
func hasEnded(e *runv1.Entry) bool {
	if e.GetEncoding() != runv1.Encoding_ENCODING_RAW {
		c, err := eventlog.DecodeCommit(e)
		return err == nil && c.GetPhase() == runv1.RunPhase_RUN_PHASE_ENDED
	}
	b := e.GetCommit()
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		if num == phaseField && typ == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(b)
			return runv1.RunPhase(v) == runv1.RunPhase_RUN_PHASE_ENDED
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return false
		}
		b = b[n:]
	}
	return false
}

func (s *stack) wake(id string) {
	s.mu.Lock()
	c := s.done[id]
	delete(s.done, id)
	s.mu.Unlock()
	if c != nil {
		close(c)
	}
}

// submit starts a run; the channel is closed when its end is in the log.
func (s *stack) submit(id, goal string) (<-chan struct{}, error) {
	c := make(chan struct{})
	s.mu.Lock()
	s.done[id] = c
	s.mu.Unlock()
	data, err := proto.Marshal(&runv1.Report{Id: "submit", RunId: id, Tenant: "bench", Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{
		Spec: &runv1.RunSpec{Goal: goal},
	}}})
	if err != nil {
		return nil, err
	}
	_, err = s.js.PublishMsgAsync(&nats.Msg{Subject: bus.ReportSubject(bus.Partition(id, s.o.partitions), id), Data: data})
	return c, err
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// await waits for a run's end.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a run did not end: %w", ctx.Err())
	case <-time.After(time.Minute):
		return errors.New("a run did not end within a minute")
	}
}
