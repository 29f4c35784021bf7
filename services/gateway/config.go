package gateway

import (
	"log/slog"
	"time"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/plan"
	"github.com/cairnrun/cairn/pkg/telemetry"
)

// Config of the service. The zero value of every field but Bus works.
type Config struct {
	Bus    bus.Config
	Logger *slog.Logger
	// Health learns of the component "gateway".
	Health *telemetry.Health
	// Listen is the address of gRPC and HTTP, both on one port. Default 127.0.0.1:7070.
	Listen string
	// RunStore is the address of the run store's QueryService. It may come up later.
	RunStore string
	// Addr is called with the bound address once it is known.
	Addr func(addr string)
	// TokensFile names a file of bearer tokens, one "token tenant" a line. Empty: no authentication, which is refused on
	// an address that others can reach unless Insecure is set.
	TokensFile string
	Insecure   bool
	Limits     Limits
	Times      Times
}

// ConfigError is a configuration that cannot work: no tokens in the file for them, or an address that nobody protects.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }

func (e *ConfigError) Unwrap() error { return e.Err }

// Limits bound what the gateway takes. Zero means the default; sizes are bytes.
type Limits struct {
	// MaxRequestBytes of one gRPC message or HTTP body. Default 12 MiB, more than NATS takes, so that the limit that a
	// plan meets is named.
	MaxRequestBytes int
	// MaxPlanBytes of a plan document, without insignificant white space. Default: that of pkg/plan, 6 MiB.
	MaxPlanBytes int
	// MaxPatchBytes of a patch document. Default 1 MiB.
	MaxPatchBytes int
	// MaxInputBytes of a run's input, and of an answer to a question. Default 1 MiB.
	MaxInputBytes int
	// MaxGoalBytes of a goal, a reason, a name of a caller. Default 64 KiB.
	MaxGoalBytes int
	// MaxLabels of a run. Default 64.
	MaxLabels int
	// MaxLabelBytes of a label's value; a key has at most 63. Default 256.
	MaxLabelBytes int
	// MaxNames in allowed_tools and in permissions. Default 1,000.
	MaxNames int
	// MaxToolBytes of a tool definition. Default 512 KiB.
	MaxToolBytes int
	// MaxResponseBytes of one answer of the run store. Default 64 MiB.
	MaxResponseBytes int
	// MaxWatchers over gRPC and server-sent events together. Default 10,000.
	MaxWatchers int
	// MaxStreams at once of one gRPC connection. Default 1,000.
	MaxStreams int
}

// Times are how long the gateway waits. Zero means the default.
type Times struct {
	// Answer of the owner of a run's partition. Default 10 s.
	Answer time.Duration
	// Store bounds the wait for a run store that is away. Default 5 s.
	Store time.Duration
	// Bus bounds one operation on the registry or the artifact store. Default 5 s.
	Bus time.Duration
	// Comment is the pause after which a silent event stream gets a comment line. Default 15 s.
	Comment time.Duration
	// Write is how long a reader of server-sent events or of an export may take nothing. Default 10 s.
	Write time.Duration
	// Body is how long a request's header and body may take to arrive. Default 30 s.
	Body time.Duration
	// FirstEvent is how long the answer's header of server-sent events waits for the run store's first word, so that an
	// unknown or finished run gets a status of its own. Default 1 s.
	FirstEvent time.Duration
	// Ping is after how much silence a peer is asked whether it is there, PingAnswer how long it may take. Default 10 s
	// both: a peer that vanished without a word is forgotten within 20 s.
	Ping       time.Duration
	PingAnswer time.Duration
	// Retry is what server-sent events advise a client to wait before it connects again. Default 2 s.
	Retry time.Duration
	// Drain is how long requests under way may take at the end. Default 10 s.
	Drain time.Duration
	// Check is the pause between looks for NATS and its streams. Default 500 ms.
	Check time.Duration
}

const defaultListen = "127.0.0.1:7070"

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Listen == "" {
		c.Listen = defaultListen
	}
	if c.Bus.Name == "" {
		c.Bus.Name = "cairn-gateway"
	}
	l, t := &c.Limits, &c.Times
	for _, d := range []struct {
		field *int
		value int
	}{
		{&l.MaxRequestBytes, 12 << 20}, {&l.MaxPlanBytes, plan.DefaultLimits().MaxPlanBytes}, {&l.MaxPatchBytes, 1 << 20}, {&l.MaxInputBytes, 1 << 20},
		{&l.MaxGoalBytes, 64 << 10}, {&l.MaxLabels, 64}, {&l.MaxLabelBytes, 256}, {&l.MaxNames, 1000},
		{&l.MaxToolBytes, 512 << 10}, {&l.MaxResponseBytes, 64 << 20}, {&l.MaxWatchers, 10000}, {&l.MaxStreams, 1000},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Answer, 10 * time.Second}, {&t.Store, 5 * time.Second}, {&t.Bus, 5 * time.Second},
		{&t.Comment, 15 * time.Second}, {&t.Write, 10 * time.Second}, {&t.Body, 30 * time.Second},
		{&t.FirstEvent, time.Second}, {&t.Ping, 10 * time.Second}, {&t.PingAnswer, 10 * time.Second},
		{&t.Retry, 2 * time.Second}, {&t.Drain, 10 * time.Second}, {&t.Check, 500 * time.Millisecond},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return c
}
