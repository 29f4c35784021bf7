package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

type (
	runKey  struct{}
	stepKey struct{}
)

// WithRun returns ctx naming the run, for logs.
func WithRun(ctx context.Context, runID string) context.Context {
	return context.WithValue(ctx, runKey{}, runID)
}

// WithStep returns ctx naming the step, for logs.
func WithStep(ctx context.Context, stepID string) context.Context {
	return context.WithValue(ctx, stepKey{}, stepID)
}

// LogHandler adds the run's, the step's and the trace's ids of a record's context to it.
type LogHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h LogHandler) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone()
	if run, ok := ctx.Value(runKey{}).(string); ok && run != "" {
		r.AddAttrs(slog.String("run_id", run))
	}
	if step, ok := ctx.Value(stepKey{}).(string); ok && step != "" {
		r.AddAttrs(slog.String("step_id", step))
	}
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h LogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return LogHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h LogHandler) WithGroup(name string) slog.Handler {
	return LogHandler{h.Handler.WithGroup(name)}
}
