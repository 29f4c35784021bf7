package bus

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/cairnrun/cairn/pkg/telemetry"
)

// RouterConfig of NewRouter; the zero value works.
type RouterConfig struct {
	Logger *slog.Logger
	// CloseTimeout bounds how long closing waits for handlers; it should exceed the subscribers' DrainTimeout. Default 30 s.
	CloseTimeout time.Duration
}

// NewRouter returns a Watermill router whose handlers are traced and recovered. A handler that returns nil has its
// message acknowledged; an error lets it rest and come again, up to the subscriber's MaxDeliver; an error that wraps
// ErrPoison makes it a dead letter at once. There is no retry in the process: a message that rests holds up nobody.
func NewRouter(c RouterConfig) (*message.Router, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	r, err := message.NewRouter(message.RouterConfig{CloseTimeout: c.CloseTimeout}, routerLog{c.Logger})
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	r.AddMiddleware(traced, rememberFailure(c.Logger), recovered)
	return r, nil
}

// rememberFailure keeps a handler's error with the delivery, for the dead letter's reason and for ErrPoison.
func rememberFailure(logger *slog.Logger) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			out, err := next(m)
			if err != nil {
				if d, ok := m.Context().Value(deliveryKey{}).(*delivery); ok {
					d.fail(err)
				}
				logger.WarnContext(m.Context(), "message not handled", "subject", Subject(m), "deliveries", Deliveries(m), "error", err)
			}
			return out, err
		}
	}
}

func traced(next message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		subject := Subject(m)
		outer := m.Context()
		ctx, span := otel.Tracer(telemetry.Scope).Start(outer, "process "+message.HandlerNameFromCtx(outer),
			trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
				telemetry.MessagingSystem.String("nats"), telemetry.MessagingOperation.String("process"),
				telemetry.MessagingDestination.String(subject), telemetry.MessagingDeliveries.Int(Deliveries(m))))
		defer span.End()
		if run := RunOf(subject); run != "" {
			span.SetAttributes(telemetry.RunID.String(run))
			ctx = telemetry.WithRun(ctx, run)
		}
		m.SetContext(ctx)
		defer m.SetContext(outer)
		out, err := next(m)
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		return out, err
	}
}

func recovered(next message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) (out []*message.Message, err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("panic in handler: %v\n%s", r, debug.Stack())
			}
		}()
		return next(m)
	}
}

// routerLog is Watermill's logger over slog. Watermill tells of every step at info; here that is debug. Handler errors
// are logged by rememberFailure with the run's ids, so they are not repeated.
type routerLog struct{ logger *slog.Logger }

func (l routerLog) args(fields watermill.LogFields) []any {
	out := make([]any, 0, 2*len(fields))
	for k, v := range fields {
		out = append(out, k, v)
	}
	return out
}

func (l routerLog) Error(msg string, err error, fields watermill.LogFields) {
	if msg == "Handler returned error" {
		return
	}
	l.logger.Error(msg, append(l.args(fields), "error", err)...)
}

func (l routerLog) Info(msg string, fields watermill.LogFields)  { l.debug(msg, fields) }
func (l routerLog) Debug(msg string, fields watermill.LogFields) { l.debug(msg, fields) }
func (l routerLog) Trace(string, watermill.LogFields)            {}

func (l routerLog) debug(msg string, fields watermill.LogFields) {
	if l.logger.Enabled(context.Background(), slog.LevelDebug) {
		l.logger.Debug(msg, l.args(fields)...)
	}
}

func (l routerLog) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return routerLog{l.logger.With(l.args(fields)...)}
}
