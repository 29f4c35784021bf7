package gateway

import (
	"context"
	"net/http"
	"runtime/debug"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/cairnrun/cairn/pkg/telemetry"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// unary and stream come first of all interceptors: they turn a panic into an answer, and take up the caller's trace
// where telemetry is off, so that it reaches the log all the same.
func (g *gateway) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	defer func() { err = g.recovered(ctx, recover(), info.FullMethod, err) }()
	return next(continueTrace(ctx), req)
}

func (g *gateway) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() { err = g.recovered(s.Context(), recover(), info.FullMethod, err) }()
	return next(srv, tenantStream{s, continueTrace(s.Context())})
}

func (g *gateway) recovered(ctx context.Context, panicked any, method string, err error) error {
	if panicked == nil {
		return err
	}
	g.log.ErrorContext(ctx, "panic in a call", "method", method, "panic", panicked, "stack", string(debug.Stack()))
	return newProblem(codes.Internal, reasonInternal, "the gateway failed at %s; its log says how", method)
}

func continueTrace(ctx context.Context) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	md, _ := metadata.FromIncomingContext(ctx)
	first := func(key string) string {
		if v := md.Get(key); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	return telemetry.ContextWith(ctx, &runv1.TraceContext{
		Traceparent: first(telemetry.HeaderTraceparent), Tracestate: first(telemetry.HeaderTracestate),
	})
}

// traced gives each HTTP request a span; with telemetry off the caller's trace goes on untouched.
func (g *gateway) traced(next http.Handler) http.Handler {
	tracer := otel.Tracer(telemetry.Scope)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := telemetry.ContextWith(r.Context(), &runv1.TraceContext{
			Traceparent: r.Header.Get(telemetry.HeaderTraceparent), Tracestate: r.Header.Get(telemetry.HeaderTracestate),
		})
		ctx, span := tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
		if span.IsRecording() {
			span.SetAttributes(attribute.String("http.request.method", r.Method), attribute.String("url.path", r.URL.Path))
		}
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// statsHandler gives gRPC calls spans; where no traces are exported it is left out and costs nothing.
func (g *gateway) statsHandler() []grpc.ServerOption {
	if _, on := otel.GetTracerProvider().(*sdktrace.TracerProvider); !on {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler())}
}
