package telemetry

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/propagation"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// The W3C header names, lower case also in NATS headers, which tell cases apart.
const (
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
)

var w3c propagation.TraceContext

// natsHeader keeps the names as they are: nats.Header.Get and Set do not change case.
type natsHeader nats.Header

func (h natsHeader) Get(key string) string { return nats.Header(h).Get(key) }
func (h natsHeader) Set(key, value string) { nats.Header(h).Set(key, value) }
func (h natsHeader) Keys() []string {
	keys := make([]string, 0, len(h))
	for k := range h {
		keys = append(keys, k)
	}
	return keys
}

// Inject writes the trace context of ctx into h; without one it writes nothing.
func Inject(ctx context.Context, h nats.Header) { w3c.Inject(ctx, natsHeader(h)) }

// Extract returns ctx with the trace context of h; without a valid one it returns ctx.
func Extract(ctx context.Context, h nats.Header) context.Context {
	if h.Get(HeaderTraceparent) == "" {
		return ctx
	}
	return w3c.Extract(ctx, natsHeader(h))
}

// TraceOf returns the trace context of ctx as it stands in reports, work and events; nil without one.
func TraceOf(ctx context.Context) *runv1.TraceContext {
	c := propagation.MapCarrier{}
	w3c.Inject(ctx, c)
	if c[HeaderTraceparent] == "" {
		return nil
	}
	return &runv1.TraceContext{Traceparent: c[HeaderTraceparent], Tracestate: c[HeaderTracestate]}
}

// ContextWith returns ctx as a continuation of t; with nil or an invalid one it returns ctx.
func ContextWith(ctx context.Context, t *runv1.TraceContext) context.Context {
	if t.GetTraceparent() == "" {
		return ctx
	}
	return w3c.Extract(ctx, propagation.MapCarrier{HeaderTraceparent: t.GetTraceparent(), HeaderTracestate: t.GetTracestate()})
}
