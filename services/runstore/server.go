package runstore

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

// keepaliveTime and keepaliveTimeout find clients that are gone without a word, within 20 s.
const (
	keepaliveTime    = 15 * time.Second
	keepaliveTimeout = 5 * time.Second
)

// server is the gRPC server. It takes connections from the start and questions once the log is read.
type server struct {
	grpc    *grpc.Server
	queries *queries
	ready   atomic.Bool
	logger  *slog.Logger
	// largest message in bytes.
	largest int
}

func newServer(c Config, live *health.Server) *server {
	s := &server{queries: &queries{}, logger: c.Logger, largest: c.MaxMessageBytes}
	s.grpc = grpc.NewServer(
		grpc.StatsHandler(otelgrpc.NewServerHandler()),
		grpc.MaxRecvMsgSize(c.MaxMessageBytes), grpc.MaxSendMsgSize(c.MaxMessageBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(s.unary), grpc.ChainStreamInterceptor(s.stream),
	)
	apiv1.RegisterQueryServiceServer(s.grpc, s.queries)
	healthpb.RegisterHealthServer(s.grpc, live)
	reflection.Register(s.grpc)
	return s
}

// open lets questions in.
func (s *server) open(q *queries) {
	*s.queries = *q
	s.ready.Store(true)
}

// drain waits for questions under way.
func (s *server) drain(timeout time.Duration) {
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		s.grpc.Stop()
		<-done
	}
}

func (s *server) admit(method string) error {
	if s.ready.Load() || !strings.HasPrefix(method, "/"+apiv1.QueryService_ServiceDesc.ServiceName+"/") {
		return nil
	}
	return tryAgain(reasonNotProjected, "the run store is still reading the log; ask again", time.Second)
}

// recovered turns a panic, which one damaged run may cause, into an answer: the others are served on.
func (s *server) recovered(ctx context.Context, method string, err *error) {
	if r := recover(); r != nil {
		s.logger.ErrorContext(ctx, "panic in a question", "method", method, "panic", r, "stack", string(debug.Stack()))
		*err = failure(codes.Internal, reasonInternal, fmt.Sprintf("%s failed inside; the log of the run store has the stack", method), nil)
	}
}

func (s *server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (out any, err error) {
	defer s.recovered(ctx, info.FullMethod, &err)
	if err := s.admit(info.FullMethod); err != nil {
		return nil, err
	}
	if out, err = handler(ctx, req); err != nil {
		return nil, err
	}
	if m, ok := out.(proto.Message); ok {
		if size := proto.Size(m); size > s.largest {
			return nil, failure(codes.FailedPrecondition, reasonTooLarge, fmt.Sprintf(
				"the answer has %d bytes, at most %d are sent (max_message_bytes); list or export the run's events instead", size, s.largest), nil)
		}
	}
	return out, nil
}

func (s *server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer s.recovered(ss.Context(), info.FullMethod, &err)
	if err := s.admit(info.FullMethod); err != nil {
		return err
	}
	return handler(srv, ss)
}
