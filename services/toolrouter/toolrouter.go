// Package toolrouter checks actions against the registry and dispatches them to tools, judges what comes back, and
// reports it to the run. It owns no run state: everything it needs of a call travels with the action and its result.
package toolrouter

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/llm"
	"github.com/cairnrun/cairn/pkg/telemetry"
	"github.com/cairnrun/cairn/pkg/tool"
)

// Defaults of Config.
const (
	// DefaultMaxInlineBytes is used for calls that name no limit of their own, 64 KiB.
	DefaultMaxInlineBytes = 64 << 10
	// MaxInlineBytes bounds what a call may ask for, 2 MiB: a report holds an output and a result, and must fit into a message
	// and into the log.
	MaxInlineBytes = 2 << 20
	// DefaultSweepEvery is the time between two sweeps for actions that used up their deliveries unnoticed.
	DefaultSweepEvery = 10 * time.Second
)

// Config of the service. The zero value of every field but Bus works.
type Config struct {
	Bus    bus.Config
	Logger *slog.Logger
	// Health learns of the component "toolrouter".
	Health *telemetry.Health
	// Root confines the built-in file tools; empty: they are not offered.
	Root string
	// MaxArtifactBytes is the largest output; one byte more is output_too_large. Default 32 MiB.
	MaxArtifactBytes int64
	// SweepEvery is the time between two sweeps for undeliverable actions. Default 10 s.
	SweepEvery time.Duration
	// Instance is reported as executed_by of built-in tools; host and process id where empty.
	Instance string
	// Model is asked by the built-in llm tools. Without a name it is taken from the environment (llm.FromEnv); where that
	// names none either, they are not offered.
	Model llm.Config
	// Tools are further tools served in this process, through the same subjects as any other.
	Tools []*tool.Tool
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxArtifactBytes == 0 {
		c.MaxArtifactBytes = bus.DefaultMaxArtifactBytes
	}
	if c.SweepEvery == 0 {
		c.SweepEvery = DefaultSweepEvery
	}
	if c.Instance == "" {
		host, _ := os.Hostname()
		c.Instance = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if c.Bus.Name == "" {
		c.Bus.Name = "cairn-toolrouter"
	}
	return c
}

// component is the name in Health.
const component = "toolrouter"

// The consumers that all routers share.
const (
	durableWork    = "toolrouter"
	durableResults = "toolrouter-results"
)

// builtinPart stands beside them in the readiness.
const builtinPart = "built-in tools"

// router holds what the handlers share.
type router struct {
	Config
	js        jetstream.JetStream
	registry  *registry
	artifacts *bus.Artifacts
	actions   *bus.Publisher
	reporter  *bus.Reporter
}

// Run serves until ctx ends, then drains.
func Run(ctx context.Context, c Config) error {
	c = c.withDefaults()
	builtin, closeRoot, err := builtinTools(c)
	if err != nil {
		return err
	}
	defer closeRoot()
	nc, js, err := bus.Connect(c.Bus)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := waitForStreams(ctx, c, nc, js); err != nil {
		// Only the end of ctx ends the waiting.
		return nil
	}
	r, stop, err := newRouter(ctx, c, js)
	if err != nil {
		return err
	}
	defer stop()

	parts := []string{durableWork, durableResults}
	if len(builtin) > 0 {
		parts = append(parts, builtinPart)
	}
	ready := newStates(c.Health, parts...)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.serve(ctx, ready) })
	g.Go(func() error { return r.watchExhausted(ctx) })
	if len(builtin) > 0 {
		// Through the subjects that any tool uses: the router calls nothing directly.
		g.Go(func() error {
			return tool.Serve(ctx, tool.Config{
				URL: c.Bus.URL, Name: c.Bus.Name + "-tools", Options: c.Bus.Options, Instance: c.Instance, Logger: c.Logger,
				MaxOutput: c.MaxArtifactBytes, OnReady: func(err error) { ready.set(builtinPart, err) },
			}, builtin...)
		})
	}
	return g.Wait()
}

// waitForStreams returns nil when everything is there. It reports what is missing and keeps waiting; it creates nothing.
func waitForStreams(ctx context.Context, c Config, nc *nats.Conn, js jetstream.JetStream) error {
	said := ""
	for {
		err := fmt.Errorf("NATS at %q is not reached; is it running?", c.Bus.URL)
		if nc.IsConnected() {
			try, cancel := context.WithTimeout(ctx, 5*time.Second)
			err = bus.Check(try, js)
			cancel()
		}
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		c.Health.Set(component, err)
		if err.Error() != said {
			said = err.Error()
			c.Logger.WarnContext(ctx, "waiting for the bus", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func newRouter(ctx context.Context, c Config, js jetstream.JetStream) (*router, func(), error) {
	partitions, err := bus.Partitions(ctx, js)
	if err != nil {
		return nil, nil, err
	}
	reporter, err := bus.NewReporter(js, partitions, bus.ReporterConfig{})
	if err != nil {
		return nil, nil, err
	}
	artifacts, err := bus.OpenArtifacts(ctx, js, c.MaxArtifactBytes)
	if err != nil {
		return nil, nil, err
	}
	reg, err := openRegistry(ctx, js, c.Logger)
	if err != nil {
		return nil, nil, err
	}
	r := &router{
		Config: c, js: js, registry: reg, artifacts: artifacts, reporter: reporter,
		actions: bus.NewPublisher(js, bus.PublisherConfig{QueuedIsSuccess: true}),
	}
	stop := func() {
		reg.close()
		_ = reporter.Close()
	}
	return r, stop, nil
}

// serve takes work and results until ctx ends.
func (r *router) serve(ctx context.Context, ready *states) error {
	w, err := bus.NewRouter(bus.RouterConfig{Logger: r.Logger})
	if err != nil {
		return err
	}
	work, err := bus.NewSubscriber(r.js, r.subscriber(bus.StreamWork, durableWork, ready, r.workExhausted))
	if err != nil {
		return err
	}
	results, err := bus.NewSubscriber(r.js, r.subscriber(bus.StreamResults, durableResults, ready, r.resultExhausted))
	if err != nil {
		return err
	}
	w.AddConsumerHandler("call", bus.CallPrefix+">", work, r.handleWork)
	w.AddConsumerHandler("result", tool.ResultPrefix+">", results, r.handleResult)
	// Run returns when ctx ends and the handlers are done.
	if err := w.Run(ctx); err != nil {
		return fmt.Errorf("tool router: %w", err)
	}
	return nil
}

// maxDeliver bounds the deliveries of work and results to the router: with the pauses between them about a minute of a
// fault that is not the bus's, after which the run is told.
const maxDeliver = 10

func (r *router) subscriber(stream, durable string, s *states, exhausted func(context.Context, bus.Dead) error) bus.SubscriberConfig {
	return bus.SubscriberConfig{
		Stream: stream, Durable: durable, MaxDeliver: maxDeliver, Logger: r.Logger,
		// Actions of one run do not wait for each other.
		Lane:      func(subject string) string { return subject },
		Exhausted: exhausted,
		State:     func(err error) { s.set(durable, err) },
	}
}
