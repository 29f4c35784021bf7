// Package executor owns partitions and runs the one loop: receive, record, decide, append, publish, answer, acknowledge.
package executor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/eventlog"
)

const (
	// startRetry is the pause between two looks for a bus and streams that are not there yet.
	startRetry = time.Second
	// drainLimit bounds how long work published last is waited for at the end.
	drainLimit = 5 * time.Second
	// groupMargin is what a group needs of a message besides its entries.
	groupMargin = 64 << 10
)

// Run serves until ctx ends, then drains.
func Run(ctx context.Context, c Config) error {
	c = c.withDefaults()
	if c.Lease < time.Second || c.Lease%time.Second != 0 {
		return fmt.Errorf("executor: lease %s must be whole seconds, at least one: the server counts times to live in seconds", c.Lease)
	}
	if memberToken(c.Name) != c.Name {
		return fmt.Errorf("executor: name %q must be 1 to 40 of [A-Za-z0-9_-]", c.Name)
	}
	s := &service{cfg: &c, metrics: newMeter(), problems: map[string]error{}}
	return s.run(ctx)
}

type service struct {
	cfg     *Config
	metrics *meter

	nc          *nats.Conn
	js          jetstream.JetStream
	partitions  int
	journal     eventlog.Log
	checkpoints eventlog.CheckpointStore
	out         *busOutside

	mu       sync.Mutex
	problems map[string]error
	// reconnected is closed and made anew at each reconnect.
	reconnected chan struct{}
}

func (s *service) run(ctx context.Context) error {
	s.reconnected = make(chan struct{})
	dial := s.cfg.Bus
	if dial.Name == "" {
		dial.Name = "executor " + s.cfg.Name
	}
	dial.Options = append(append([]nats.Option(nil), dial.Options...), nats.ReconnectHandler(func(*nats.Conn) { s.onReconnect() }))
	nc, js, err := bus.Connect(dial)
	if err != nil {
		return fmt.Errorf("executor: %w", err)
	}
	defer nc.Close()
	s.nc, s.js = nc, js
	if err := s.waitForBus(ctx); err != nil {
		return nil // ctx ended before there was anything to serve
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if s.out, err = newBusOutside(background, js, s.cfg); err != nil {
		return fmt.Errorf("executor: %w", err)
	}
	m := newMembership(s.cfg, js, s.partitions)
	m.hold = s.hold
	s.problem("bus", nil)
	s.cfg.Logger.Info("executor serves", "name", s.cfg.Name, "partitions", s.partitions)
	go s.watchStreams(ctx)
	m.run(ctx)
	s.out.drain(drainLimit)
	s.cfg.Logger.Info("executor has drained", "name", s.cfg.Name)
	return nil
}

// waitForBus returns when every stream is there.
func (s *service) waitForBus(ctx context.Context) error {
	for {
		err := s.openBus(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			// Who was called off says nothing of the bus.
			return ctx.Err()
		}
		s.problem("bus", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(startRetry):
		}
	}
}

func (s *service) openBus(ctx context.Context) error {
	if !s.nc.IsConnected() {
		return fmt.Errorf("NATS at %q is not reached; is it running?", s.cfg.Bus.URL)
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if err := bus.Check(ctx, s.js); err != nil {
		return err
	}
	var err error
	if s.partitions, err = bus.Partitions(ctx, s.js); err != nil {
		return err
	}
	if s.journal, err = eventlog.NewNATS(ctx, s.js, eventlog.NATSConfig{}); err != nil {
		return err
	}
	s.checkpoints, err = eventlog.NewNATSCheckpoints(ctx, s.js)
	return err
}

// watchStreams reports streams that went away, and steps of the clock.
func (s *service) watchStreams(ctx context.Context) {
	t := time.NewTicker(s.cfg.CheckEvery)
	defer t.Stop()
	clock := watchClock(s.cfg.Clock, s.cfg.Logger)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		clock()
		check, cancel := context.WithTimeout(ctx, apiTimeout)
		err := bus.Check(check, s.js)
		cancel()
		if ctx.Err() == nil {
			s.problem("bus", err)
		}
	}
}

// problem sets or clears one reason not to be ready.
func (s *service) problem(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, had := s.problems[what]; had && (old == nil) == (err == nil) && (err == nil || old.Error() == err.Error()) {
		return
	}
	s.problems[what] = err
	var all []string
	for _, e := range s.problems {
		if e != nil {
			all = append(all, e.Error())
		}
	}
	if len(all) == 0 {
		s.cfg.Health.Set("executor", nil)
		return
	}
	sort.Strings(all)
	s.cfg.Health.Set("executor", errors.New(strings.Join(all, "; ")))
	if err != nil {
		s.cfg.Logger.Warn("not ready", "what", what, "error", err)
	}
}

func (s *service) onReconnect() {
	s.mu.Lock()
	close(s.reconnected)
	s.reconnected = make(chan struct{})
	s.mu.Unlock()
}

// hold serves a partition while the key is held: take over, serve, and after a conflict or a reconnect again.
func (s *service) hold(ctx context.Context, h *holding, partition int, release <-chan struct{}) {
	s.metrics.owned(1)
	defer s.metrics.owned(-1)
	log := s.cfg.Logger.With("partition", partition)
	name := fmt.Sprintf("partition %d", partition)
	defer s.problem(name, nil)
	pause := 100 * time.Millisecond
	var lastConflict time.Time
	for h.Valid() {
		began := time.Now()
		err := s.serve(ctx, h, partition, release, name)
		switch {
		case errors.Is(err, errReleased):
			return
		case errors.Is(err, errLeaseLost):
			log.Warn("partition lost: the lease was not renewed in time")
			return
		case ctx.Err() != nil:
			return
		case errors.Is(err, errReconnected):
			log.Info("connected again; the partition is taken over anew")
			continue
		case errors.Is(err, eventlog.ErrConflict):
			s.metrics.conflict()
			log.Warn("another owner has written; everything held is dropped and folded anew", "error", err)
			again := time.Since(lastConflict) < conflictWindow
			lastConflict = time.Now()
			if !again {
				continue
			}
		default:
			log.Error("partition stopped, trying again", "error", err)
			s.problem(name, fmt.Errorf("partition %d: %w", partition, err))
		}
		if time.Since(began) > time.Minute {
			pause = 100 * time.Millisecond
		}
		select {
		case <-release:
			return
		case <-h.Lost():
			return
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, 10*time.Second)
	}
}

// errReconnected: the bus may have been restarted, and its streams may have lost their tails.
var errReconnected = errors.New("connected again")

func (s *service) serve(ctx context.Context, h *holding, partition int, release <-chan struct{}, name string) error {
	s.mu.Lock()
	reconnected := s.reconnected
	s.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	defer close(watched)
	go func() {
		select {
		case <-reconnected:
			cancel(errReconnected)
		case <-h.Lost():
			cancel(errLeaseLost)
		case <-watched:
		}
	}()
	o := newOwner(owner{
		cfg: s.cfg, log: s.cfg.Logger, partition: partition, partitions: s.partitions, maxMessage: int(s.nc.MaxPayload()) - groupMargin,
		lease: h, journal: s.journal, checkpoints: s.checkpoints, out: s.out, metrics: s.metrics,
		open:   func(ctx context.Context, p int) (source, error) { return openSource(ctx, s.js, s.cfg, p) },
		health: func(err error) { s.problem(name, err) },
	})
	defer o.drop()
	err := o.takeOver(ctx)
	if err == nil {
		s.problem(name, nil)
		err = o.serve(ctx, release)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
