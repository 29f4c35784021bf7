// Package planner turns goals into plans and failures into patches. It owns no run state: each request holds all that it
// needs, and what it proposes is judged by the owner of the run.
package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/llm"
	"github.com/cairnrun/cairn/pkg/telemetry"
)

// component is the name in Health; durable is the consumer that all planners share.
const (
	component = "planner"
	durable   = "planner"
)

// Defaults of Config.
const (
	DefaultToolWait       = 2 * time.Second
	DefaultMaxParallel    = 64
	DefaultMaxPromptBytes = 256 << 10
	DefaultMaxFactBytes   = 4 << 10
)

// Config of the service. The zero value of every field but Bus works.
type Config struct {
	Bus    bus.Config
	Logger *slog.Logger
	// Health learns of the component "planner".
	Health *telemetry.Health
	// Templates is the path of a YAML file of goal patterns and replan rules; empty: none.
	Templates string
	// Model is asked where no plan is given and no template fits; nil: as the environment says (llm.FromEnv); one without a
	// model name: none.
	Model *llm.Config
	// Structured says how the model is held to the document's form; empty: as CAIRN_LLM_STRUCTURED says, else strict.
	Structured Structured
	// ToolWait is how long a plan waits for a tool that is not registered yet, since start-up order must not matter.
	// Default 2 s.
	ToolWait time.Duration
	// MaxParallel bounds the requests worked on at once. Default 64.
	MaxParallel int
	// MaxPromptBytes bounds a prompt; MaxFactBytes one result in it, longer ones are shortened. Defaults 256 KiB, 4 KiB.
	MaxPromptBytes, MaxFactBytes int
	// MaxDeliver bounds the deliveries of a request while the model cannot be reached. Default 5.
	MaxDeliver int
	// AckWait is how long after this process died another planner takes over its requests. Default 6 s.
	AckWait time.Duration
}

// Structured is how a model is held to the form of the document.
type Structured string

// The ways; the zero value leaves it to the environment.
const (
	// StructuredStrict asks for strict structured output.
	StructuredStrict Structured = "strict"
	// StructuredOff relies on the prompt, for endpoints without structured output.
	StructuredOff Structured = "off"
)

func (c Config) withDefaults() (Config, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.ToolWait == 0 {
		c.ToolWait = DefaultToolWait
	}
	if c.MaxParallel == 0 {
		c.MaxParallel = DefaultMaxParallel
	}
	if c.MaxPromptBytes == 0 {
		c.MaxPromptBytes = DefaultMaxPromptBytes
	}
	if c.MaxFactBytes == 0 {
		c.MaxFactBytes = DefaultMaxFactBytes
	}
	if c.Bus.Name == "" {
		c.Bus.Name = "cairn-planner"
	}
	if c.Structured == "" {
		c.Structured = Structured(os.Getenv("CAIRN_LLM_STRUCTURED"))
	}
	switch c.Structured {
	case "":
		c.Structured = StructuredStrict
	case StructuredStrict, StructuredOff:
	default:
		return c, fmt.Errorf("CAIRN_LLM_STRUCTURED is %q; use strict or off", c.Structured)
	}
	if c.Model == nil {
		m, err := llm.FromEnv(os.Getenv)
		if err != nil && !errors.Is(err, llm.ErrNotConfigured) {
			return c, err
		}
		c.Model = &m
	}
	return c, nil
}

// ConfigError is a configuration that cannot work: templates that cannot be read, or a model's settings.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return "planner: " + e.Err.Error() }

func (e *ConfigError) Unwrap() error { return e.Err }

// Run serves until ctx ends, then drains. It returns an error at once for a configuration that cannot work.
func Run(ctx context.Context, c Config) error {
	c, err := c.withDefaults()
	if err != nil {
		return &ConfigError{err}
	}
	book := &templateBook{}
	if c.Templates != "" {
		if book, err = loadTemplates(c.Templates); err != nil {
			return &ConfigError{err}
		}
	}
	var model *llm.Client
	if c.Model.Model != "" {
		if model, err = llm.New(*c.Model); err != nil {
			return &ConfigError{err}
		}
	}
	nc, js, err := bus.Connect(c.Bus)
	if err != nil {
		return fmt.Errorf("planner: %w", err)
	}
	defer nc.Close()
	tell := func(err error) {
		c.Health.Set(component, err)
		c.Logger.WarnContext(ctx, "waiting for the bus", "error", err)
	}
	if bus.Await(ctx, js, tell) != nil {
		// Only the end of ctx ends the waiting.
		return nil
	}
	s, err := newService(ctx, c, js, book, model)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("planner: %w", err)
	}
	defer s.close()
	return s.serve(ctx)
}

// service is what the handlers share.
type service struct {
	Config
	js         jetstream.JetStream
	tools      *catalogue
	artifacts  *bus.Artifacts
	reporter   *bus.Reporter
	strategies []strategy
}

func newService(ctx context.Context, c Config, js jetstream.JetStream, book *templateBook, model *llm.Client) (*service, error) {
	partitions, err := bus.Partitions(ctx, js)
	if err != nil {
		return nil, err
	}
	artifacts, err := bus.OpenArtifacts(ctx, js, 0)
	if err != nil {
		return nil, err
	}
	reporter, err := bus.NewReporter(js, partitions, bus.ReporterConfig{})
	if err != nil {
		return nil, err
	}
	tools, err := openCatalogue(ctx, js, c.Logger)
	if err != nil {
		_ = reporter.Close()
		return nil, err
	}
	s := &service{Config: c, js: js, tools: tools, artifacts: artifacts, reporter: reporter}
	s.strategies = []strategy{explicit{}, templates{book: book}}
	if model != nil {
		s.strategies = append(s.strategies, &modelStrategy{config: c, client: model, artifacts: artifacts, tools: tools})
	}
	return s, nil
}

func (s *service) close() {
	s.tools.close()
	_ = s.reporter.Close()
}

func (s *service) serve(ctx context.Context) error {
	sub, err := bus.NewSubscriber(s.js, bus.SubscriberConfig{
		Stream: bus.StreamWork, Durable: durable, MaxInHand: s.MaxParallel, MaxDeliver: s.MaxDeliver, AckWait: s.AckWait,
		Exhausted: s.exhausted, State: func(err error) { s.Health.Set(component, err) }, Logger: s.Logger,
	})
	if err != nil {
		return err
	}
	r, err := bus.NewRouter(bus.RouterConfig{Logger: s.Logger})
	if err != nil {
		return err
	}
	r.AddConsumerHandler("plan", bus.PlanPrefix+">", sub, s.handle)
	// Run returns when ctx ends and the handlers are done.
	if err := r.Run(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("planner: %w", err)
	}
	return nil
}
