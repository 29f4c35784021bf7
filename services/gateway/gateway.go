// Package gateway is the door: gRPC, HTTP/JSON and server-sent events on one port. It owns no state. Requests that change
// a run become reports to the owner of the run's partition, questions go to the run store.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/telemetry"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// component is the gateway's name in Health.
const component = "gateway"

// checksPerLook is how many pauses pass between two looks at the streams once they were there.
const checksPerLook = 10

// asker reports and waits for the owner's answer.
type asker interface {
	Ask(ctx context.Context, r *runv1.Report) (*runv1.Answer, error)
}

type gateway struct {
	log      *slog.Logger
	limits   Limits
	times    Times
	tokens   tokens
	loopback bool
	health   *telemetry.Health
	serving  *health.Server

	nc       *nats.Conn
	js       jetstream.JetStream
	registry *registry
	state    atomic.Pointer[readiness]

	store        apiv1.QueryServiceClient
	storeConn    *grpc.ClientConn
	storeAddress string

	runs    *runService
	queries *queryService
	tools   *toolService

	watchers atomic.Int64
	// draining ends when the gateway is to stop: watchers are sent away then.
	draining context.Context
	drain    context.CancelCauseFunc
}

// readiness is whether reports can be sent, and if not, why.
type readiness struct {
	reporter asker
	err      error
}

// Run serves until ctx ends, then drains.
func Run(ctx context.Context, c Config) error {
	c = c.withDefaults()
	var known tokens
	if c.TokensFile != "" {
		var err error
		if known, err = readTokens(c.TokensFile); err != nil {
			return &ConfigError{err}
		}
	}
	if err := checkListen(c.Listen, known != nil, c.Insecure); err != nil {
		return &ConfigError{err}
	}
	ln, err := listen(ctx, c.Listen, c.Times.Ping, c.Times.PingAnswer)
	if err != nil {
		return err
	}
	if c.Addr != nil {
		c.Addr(ln.Addr().String())
	}
	return serve(ctx, c, known, ln)
}

// serve is Run on a listener that is there already.
func serve(ctx context.Context, c Config, known tokens, ln net.Listener) error {
	defer func() { _ = ln.Close() }()
	nc, js, err := bus.Connect(c.Bus)
	if err != nil {
		return err
	}
	defer nc.Close()
	g := &gateway{
		log: c.Logger, limits: c.Limits, times: c.Times, tokens: known, loopback: loopback(c.Listen), health: c.Health,
		serving: health.NewServer(), nc: nc, js: js, registry: newRegistry(c.Logger), storeAddress: c.RunStore,
	}
	g.draining, g.drain = context.WithCancelCause(context.Background())
	defer g.drain(nil)
	g.setState(nil, errors.New("starting"))
	if err := g.dialStore(); err != nil {
		return err
	}
	defer func() { _ = g.storeConn.Close() }()
	g.runs, g.queries, g.tools = &runService{g: g}, &queryService{g: g}, &toolService{g: g}

	work, stop := context.WithCancel(context.Background())
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	background.Go(func() { g.keepReady(work) })
	background.Go(func() { g.registry.run(work, js, c.Times.Check) })
	return g.serveUntil(ctx, ln)
}

// serveUntil answers both protocols until ctx ends and requests under way are done, or the drain time is over.
func (g *gateway) serveUntil(ctx context.Context, ln net.Listener) error {
	handler, err := g.handler(ctx)
	if err != nil {
		return err
	}
	gs := g.grpcServer()
	hs := &http.Server{Handler: handler, ReadHeaderTimeout: g.times.Body, IdleTimeout: 2 * time.Minute, ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelDebug)}
	s := split(ln, g.times.Body)
	failed := make(chan error, 3)
	var servers sync.WaitGroup
	servers.Go(func() { failed <- s.serve() })
	servers.Go(func() { failed <- gs.Serve(s.grpc) })
	servers.Go(func() { failed <- hs.Serve(s.http) })

	select {
	case <-ctx.Done():
		err = nil
	case err = <-failed:
		err = fmt.Errorf("gateway: %w", err)
	}
	g.setState(nil, errors.New("shutting down"))
	g.serving.Shutdown()
	_ = ln.Close()
	g.drain(unavailable(reasonDraining, "the gateway is shutting down; connect again and go on after the last revision"))
	limit, cancel := context.WithTimeout(context.Background(), g.times.Drain)
	defer cancel()
	var drained sync.WaitGroup
	drained.Go(func() {
		if hs.Shutdown(limit) != nil {
			_ = hs.Close()
		}
	})
	drained.Go(func() {
		stop := context.AfterFunc(limit, gs.Stop)
		defer stop()
		gs.GracefulStop()
	})
	drained.Wait()
	s.close()
	servers.Wait()
	return err
}

func (g *gateway) grpcServer() *grpc.Server {
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(g.limits.MaxRequestBytes), grpc.MaxConcurrentStreams(uint32(g.limits.MaxStreams)),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: g.times.Ping, Timeout: g.times.PingAnswer}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(g.unary, g.tokens.unary), grpc.ChainStreamInterceptor(g.stream, g.tokens.stream),
	}
	gs := grpc.NewServer(append(opts, g.statsHandler()...)...)
	apiv1.RegisterRunServiceServer(gs, g.runs)
	apiv1.RegisterQueryServiceServer(gs, g.queries)
	apiv1.RegisterToolServiceServer(gs, g.tools)
	healthpb.RegisterHealthServer(gs, g.serving)
	reflection.Register(gs)
	return gs
}

// dialStore prepares the way to the run store; it is gone when it is needed.
func (g *gateway) dialStore() error {
	address := g.storeAddress
	if address == "" {
		address = "unset.invalid:0"
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(g.limits.MaxResponseBytes)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: max(g.times.Ping, 10*time.Second), Timeout: g.times.PingAnswer}),
	)
	if err != nil {
		return fmt.Errorf("run store at %q: %w", g.storeAddress, err)
	}
	g.storeConn, g.store = conn, apiv1.NewQueryServiceClient(conn)
	return nil
}

// storeUp waits for a run store that is away, within its time. After that the call itself says what is wrong.
func (g *gateway) storeUp(ctx context.Context) error {
	if g.storeAddress == "" {
		return unavailable(reasonStoreAway, "the gateway was started without the address of a run store: it cannot answer questions about runs")
	}
	ctx, cancel := context.WithTimeout(ctx, g.times.Store)
	defer cancel()
	for {
		state := g.storeConn.GetState()
		switch state {
		case connectivity.Ready, connectivity.Shutdown:
			return nil
		case connectivity.Idle:
			g.storeConn.Connect()
		}
		if !g.storeConn.WaitForStateChange(ctx, state) {
			return nil
		}
	}
}

// keepReady looks for NATS and its streams until ctx ends, and says in Health what is missing. It creates nothing.
func (g *gateway) keepReady(ctx context.Context) {
	var reporter asker
	tick := time.NewTicker(g.times.Check)
	defer tick.Stop()
	for n := 0; ; n++ {
		if connected := g.nc.IsConnected(); !connected || reporter == nil || g.state.Load().err != nil || n%checksPerLook == 0 {
			err := g.look(ctx)
			if err == nil && reporter == nil {
				reporter, err = g.newReporter(ctx)
			}
			if ctx.Err() != nil || g.draining.Err() != nil {
				return
			}
			g.setState(reporter, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (g *gateway) look(ctx context.Context) error {
	if !g.nc.IsConnected() {
		return fmt.Errorf("NATS at %q is not reached; is it running?", strings.Join(g.nc.Servers(), ","))
	}
	ctx, cancel := context.WithTimeout(ctx, g.times.Bus)
	defer cancel()
	if err := bus.Check(ctx, g.js); err != nil {
		return err
	}
	select {
	case <-g.registry.full:
		return nil
	case <-ctx.Done():
		return errors.New("the tool registry has not been read yet")
	}
}

func (g *gateway) setState(reporter asker, err error) {
	before := g.state.Swap(&readiness{reporter: reporter, err: err})
	status := healthpb.HealthCheckResponse_SERVING
	if err != nil {
		status = healthpb.HealthCheckResponse_NOT_SERVING
	}
	if before == nil || fmt.Sprint(before.err) != fmt.Sprint(err) {
		g.serving.SetServingStatus("", status)
		g.health.Set(component, err)
		g.log.Info("gateway readiness", "error", err)
	}
}

// ready returns the way to report, or why there is none.
func (g *gateway) ready() (asker, error) {
	s := g.state.Load()
	if s.reporter == nil {
		return nil, unavailable(reasonNotReady, "the gateway is not ready: %v", s.err)
	}
	return s.reporter, nil
}

func (g *gateway) maxPayload() int { return int(g.nc.MaxPayload()) }

// untilDrain is ctx that also ends when the gateway is to stop, with that as its cause.
func (g *gateway) untilDrain(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.draining, func() { cancel(context.Cause(g.draining)) })
	return ctx, func() { stop(); cancel(nil) }
}

// newReporter makes the way to the partitions' owners once the log is there to tell their number.
func (g *gateway) newReporter(ctx context.Context) (asker, error) {
	ctx, cancel := context.WithTimeout(ctx, g.times.Bus)
	defer cancel()
	n, err := bus.Partitions(ctx, g.js)
	if err != nil {
		return nil, err
	}
	return bus.NewReporter(g.js, n, bus.ReporterConfig{})
}
