package dev

import (
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// TestOneTraceGoesThroughEveryService: from the gateway through executor, planner, tool router and back, over NATS headers.
func TestOneTraceGoesThroughEveryService(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	before, beforeText := otel.GetTracerProvider(), otel.GetTextMapPropagator()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	otel.SetTextMapPropagator(propagation.TraceContext{})
	t.Cleanup(func() {
		otel.SetTracerProvider(before)
		otel.SetTextMapPropagator(beforeText)
	})
	_, _, conn := shopOf(t)
	id, events := runToEnd(t, conn, &runv1.RunSpec{Goal: "Order 1 iPhone 15 Pro 256G black, ship to Shanghai"})

	var traceID string
	for _, e := range events {
		parts := strings.Split(e.GetTrace().GetTraceparent(), "-")
		if len(parts) != 4 {
			t.Fatalf("event %s has traceparent %q", e.GetId(), e.GetTrace().GetTraceparent())
		}
		if traceID == "" {
			traceID = parts[1]
		}
		if parts[1] != traceID {
			t.Errorf("event %s belongs to trace %s, the run to %s", e.GetId(), parts[1], traceID)
		}
	}
	var names []string
	for _, s := range spans.Ended() {
		if s.SpanContext().TraceID().String() == traceID && !slices.Contains(names, s.Name()) {
			names = append(names, s.Name())
		}
	}
	for _, want := range []string{"SubmitRun", "commit", "plan", "call", "result"} {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, want) }) {
			t.Errorf("the trace of run %s has no span of %q: %q", id, want, names)
		}
	}
}
