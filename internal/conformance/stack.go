package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/telemetry"
	"github.com/cairnrun/cairn/pkg/tool"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	"github.com/cairnrun/cairn/services/executor"
	"github.com/cairnrun/cairn/services/gateway"
	"github.com/cairnrun/cairn/services/planner"
	"github.com/cairnrun/cairn/services/runstore"
	"github.com/cairnrun/cairn/services/toolrouter"
)

// stack is all services of one Cairn around an embedded NATS server.
type stack struct {
	runs     apiv1.RunServiceClient
	query    apiv1.QueryServiceClient
	observer *observer
	url      string
	dir      string
	cancel   context.CancelFunc
	wait     sync.WaitGroup
	closers  []func()
}

// shape says which services are processes of their own, to be killed.
type shape struct {
	// processes of executor and of tool router each; 0: both run in this process.
	processes int
}

const startTimeout = 60 * time.Second

// start brings a stack up on a fresh folder, with the given tools served.
func start(ctx context.Context, sh shape, tools ...*tool.Tool) (s *stack, err error) {
	dir, err := os.MkdirTemp("", "cairn-conformance-")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s = &stack{dir: dir, cancel: cancel}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	server, err := embedded.Start(ctx, embedded.Config{Dir: filepath.Join(dir, "nats"), Host: "127.0.0.1", NoSync: true})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, server.Close)
	s.url = server.URL()
	nc, js, err := bus.Connect(server.Bus("conformance"))
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, nc.Close)
	if err := bus.Init(ctx, js, bus.Layout{}); err != nil {
		return nil, err
	}
	log, err := eventlog.NewNATS(ctx, js, eventlog.NATSConfig{})
	if err != nil {
		return nil, err
	}
	partitions, err := bus.Partitions(ctx, js)
	if err != nil {
		return nil, err
	}
	s.observer = newObserver()
	for p := range partitions {
		s.goes("observer", func() error { return s.observer.follow(ctx, log, p) })
	}
	return s, s.startServices(ctx, sh, server, tools)
}

func (s *stack) startServices(ctx context.Context, sh shape, server *embedded.Server, tools []*tool.Tool) error {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	if os.Getenv("CAIRN_CONFORMANCE_LOG") != "" {
		quiet = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	names := []string{"planner", "runstore", "gateway", "tools"}
	if sh.processes == 0 {
		names = append(names, "executor", "toolrouter")
	}
	health := telemetry.NewHealth(names...)
	storeAddr, gatewayAddr := make(chan string, 1), make(chan string, 1)
	s.goes("planner", func() error {
		return planner.Run(ctx, planner.Config{Bus: server.Bus("planner"), Logger: quiet, Health: health})
	})
	s.goes("runstore", func() error {
		return runstore.Run(ctx, runstore.Config{Bus: server.Bus("runstore"), Logger: quiet, Health: health, Listen: "127.0.0.1:0",
			Database: filepath.Join(s.dir, "runs.db"), Addr: func(a string) { storeAddr <- a }})
	})
	store, err := receive(ctx, storeAddr, "the run store's address")
	if err != nil {
		return err
	}
	s.goes("gateway", func() error {
		return gateway.Run(ctx, gateway.Config{Bus: server.Bus("gateway"), Logger: quiet, Health: health, Listen: "127.0.0.1:0",
			RunStore: store, Addr: func(a string) { gatewayAddr <- a }})
	})
	s.goes("tools", func() error {
		b := server.Bus("tools")
		return tool.Serve(ctx, tool.Config{URL: b.URL, Options: append([]nats.Option{nats.Name("tools")}, b.Options...), Logger: quiet,
			OnReady: func(err error) { health.Set("tools", err) }}, tools...)
	})
	if sh.processes == 0 {
		s.goes("executor", func() error {
			return executor.Run(ctx, executor.Config{Bus: server.Bus("executor"), Logger: quiet, Health: health})
		})
		s.goes("toolrouter", func() error {
			return toolrouter.Run(ctx, toolrouter.Config{Bus: server.Bus("toolrouter"), Logger: quiet, Health: health})
		})
	}
	addr, err := receive(ctx, gatewayAddr, "the gateway's address")
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() { _ = conn.Close() })
	s.runs, s.query = apiv1.NewRunServiceClient(conn), apiv1.NewQueryServiceClient(conn)
	wait, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	return health.Wait(wait)
}

func receive(ctx context.Context, c <-chan string, what string) (string, error) {
	select {
	case a := <-c:
		return a, nil
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(startTimeout):
		return "", fmt.Errorf("%s was not known within %s", what, startTimeout)
	}
}

// goes runs a part until the stack closes; its failure before that is fatal, since every result after it would be about
// something else.
func (s *stack) goes(name string, f func() error) {
	s.wait.Add(1)
	go func() {
		defer s.wait.Done()
		if err := f(); err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintf(os.Stderr, "conformance: %s ended: %v\n", name, err)
			os.Exit(2)
		}
	}()
}

func (s *stack) close() {
	s.cancel()
	s.wait.Wait()
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
	_ = os.RemoveAll(s.dir)
}

// buildBinary builds the cairn command for the parts that are killed.
func buildBinary(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "cairn")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/cairnrun/cairn/cmd/cairn")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build cairn: %w\n%s", err, out)
	}
	return path, nil
}
