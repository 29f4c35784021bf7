// Package runstore projects the log into queries, live views, replay and the event feed.
package runstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/eventlog"
)

// Component is the name of the service in health.
const Component = "runstore"

// Run serves until ctx ends, then drains. It returns at once what cannot get better by itself: a database that cannot
// be used, an address that is taken. For NATS and its streams it waits.
func Run(ctx context.Context, c Config) error {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return err
	}
	s, err := openStore(ctx, c.Database, c)
	if err != nil {
		return err
	}
	defer s.Close()
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("run store: listen on %s: %w; choose another address with --listen", c.Listen, err)
	}
	defer func() { _ = lis.Close() }()

	live := health.NewServer()
	cond := newConditions(func(err error) {
		c.Health.Set(Component, err)
		state := healthpb.HealthCheckResponse_SERVING
		if err != nil {
			state = healthpb.HealthCheckResponse_NOT_SERVING
		}
		live.SetServingStatus("", state)
	})
	cond.report("start", errors.New("starting"))
	srv := newServer(c, live)
	served := make(chan error, 1)
	go func() { served <- srv.grpc.Serve(lis) }()
	defer srv.grpc.Stop()
	c.Addr(lis.Addr().String())

	nc, js, err := bus.Connect(c.Bus)
	if err != nil {
		return err
	}
	defer nc.Close()
	log, partitions, err := waitForLog(ctx, c.Bus.URL, nc, js, cond)
	if err != nil {
		return nilIfDone(ctx, err)
	}
	p, err := newProjection(ctx, c, log, s, partitions)
	if err != nil {
		return err
	}
	p.report = cond.report

	// Parts end one after the other: questions, feed, projection.
	projecting, stopProjecting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopProjecting()
	feeding, stopFeeding := context.WithCancel(context.WithoutCancel(ctx))
	defer stopFeeding()
	closing, closeStreams := context.WithCancel(context.WithoutCancel(ctx))
	defer closeStreams()

	var parts sync.WaitGroup
	failed := make(chan error, 2)
	parts.Go(func() { failed <- p.run(projecting) })
	if !c.DisableFeed {
		parts.Go(func() {
			if err := keepFeeding(feeding, js, c, partitions, cond.report); err != nil {
				failed <- err
			}
		})
	}
	go func() {
		if p.awaitStart(ctx, cond.report) {
			srv.open(newQueries(closing, c, p, func(runID string) int { return bus.Partition(runID, partitions) }))
			cond.report("start", nil)
		}
	}()

	select {
	case <-ctx.Done():
		err = nil
	case err = <-failed:
	case err = <-served:
	}
	cond.report("stop", errors.New("shutting down"))
	live.Shutdown()
	closeStreams()
	srv.drain(c.DrainTimeout)
	stopFeeding()
	stopProjecting()
	parts.Wait()
	return err
}

// waitForLog returns once NATS answers and every stream is there. A missing one is reported, never made.
func waitForLog(ctx context.Context, url string, nc *nats.Conn, js jetstream.JetStream, cond *conditions) (eventlog.Log, int, error) {
	for {
		err := fmt.Errorf("NATS at %q is not reached; is it running?", url)
		var n int
		if nc.IsConnected() {
			if err = bus.Check(ctx, js); err == nil {
				n, err = bus.Partitions(ctx, js)
			}
		}
		if err == nil {
			var log *eventlog.NATS
			if log, err = eventlog.NewNATS(ctx, js, eventlog.NATSConfig{}); err == nil {
				cond.report("bus", nil)
				return log, n, nil
			}
		}
		cond.report("bus", err)
		if !pause(ctx, retryWait) {
			return nil, 0, err
		}
	}
}

// keepFeeding runs the feed until ctx ends and starts it again when it cannot begin.
func keepFeeding(ctx context.Context, js jetstream.JetStream, c Config, partitions int, report func(string, error)) error {
	for {
		err := runFeed(ctx, js, c, partitions, report)
		if ctx.Err() != nil {
			return nil
		}
		report("feed", fmt.Errorf("it stopped: %w; starting it again", err))
		if !pause(ctx, retryWait) {
			return nil
		}
		report("feed", nil)
	}
}

// awaitStart returns true once every partition that can be read is projected as far as the log went at the start.
func (p *projection) awaitStart(ctx context.Context, report func(string, error)) bool {
	for {
		err := p.caughtUp(ctx)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			return true
		}
		report("start", fmt.Errorf("reading the log: %w; trying again", err))
		if !pause(ctx, retryWait) {
			return false
		}
	}
}

func nilIfDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Rebuild makes the database again from the log: beside the old file, which it replaces at the end. A run store that
// has the old file open keeps it from starting.
func Rebuild(ctx context.Context, c Config) error {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return err
	}
	nc, js, err := bus.Connect(c.Bus)
	if err != nil {
		return err
	}
	defer nc.Close()
	bounded, cancel := context.WithTimeout(ctx, c.MaxWait)
	defer cancel()
	log, partitions, err := waitForLog(bounded, c.Bus.URL, nc, js, newConditions(func(error) {}))
	if err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	return rebuild(ctx, c, log, partitions, time.Now)
}
