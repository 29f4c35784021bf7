package dev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
	"github.com/cairnrun/cairn/pkg/telemetry"
	"github.com/cairnrun/cairn/pkg/tool"
	"github.com/cairnrun/cairn/services/executor"
	"github.com/cairnrun/cairn/services/gateway"
	"github.com/cairnrun/cairn/services/planner"
	"github.com/cairnrun/cairn/services/runstore"
	"github.com/cairnrun/cairn/services/toolrouter"
)

// startTimeout bounds how long the services may take to be ready.
const startTimeout = 60 * time.Second

// A person who has just submitted wants to find the run in the list; throughput matters less here.
const (
	flushInterval = 50 * time.Millisecond
	flushLinger   = 10 * time.Millisecond
)

// Dev is the running assembly.
type Dev struct {
	config Config
	lock   *lock
	server *embedded.Server
	health *telemetry.Health
	// created: the folder was made by this process.
	created bool

	// door stops what lets requests in; inner stops the rest.
	door, inner *group
	stop        chan struct{}
	stopOnce    sync.Once
	failOnce    sync.Once
	err         error

	mu       sync.Mutex
	runStore string
	gateway  string
}

// Start returns when every service is ready. After an error nothing runs, and a folder that was not there is gone again.
func Start(ctx context.Context, c Config) (*Dev, error) {
	c = c.withDefaults()
	for _, s := range c.Services {
		if !slices.Contains(Services, s) {
			return nil, fmt.Errorf("no service is named %q; there are %v", s, Services)
		}
	}
	for _, a := range []struct{ what, addr, flag string }{{"NATS", c.NATS, "--nats-listen"}, {"the gateway", c.Gateway, "--listen"}, {"the run store", c.RunStore, "--runstore-listen"}} {
		if err := portFree(ctx, a.what, a.addr, a.flag); err != nil {
			return nil, err
		}
	}
	d := &Dev{config: c, stop: make(chan struct{})}
	if err := d.open(ctx); err != nil {
		d.Close()
		if d.created {
			_ = os.RemoveAll(c.Dir)
		}
		return nil, err
	}
	return d, nil
}

// portFree says early, before anything is created, that an address cannot be had.
func portFree(ctx context.Context, what, addr, flag string) error {
	if addr == "" {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("%s cannot listen on %s: %w; stop what uses it, or choose another address with %s", what, addr, err, flag)
	}
	return l.Close()
}

func (d *Dev) open(ctx context.Context) error {
	c := d.config
	if _, err := os.Stat(c.Dir); errors.Is(err, os.ErrNotExist) {
		d.created = true
	}
	if err := os.MkdirAll(c.Dir, 0o750); err != nil {
		d.created = false
		return fmt.Errorf("kept folder %s: %w; choose another with --dir", c.Dir, err)
	}
	var err error
	if d.lock, err = acquire(c.Dir); err != nil {
		d.created = false
		return err
	}
	if err := d.openBus(ctx); err != nil {
		return err
	}
	return d.startServices(ctx)
}

func (d *Dev) openBus(ctx context.Context) error {
	host, port := "", 0
	if d.config.NATS != "" {
		h, p, err := net.SplitHostPort(d.config.NATS)
		if err != nil {
			return fmt.Errorf("address %q for NATS: %w", d.config.NATS, err)
		}
		if port, err = strconv.Atoi(p); err != nil {
			return fmt.Errorf("address %q for NATS: the port is no number", d.config.NATS)
		}
		if host = h; host == "" {
			host = "0.0.0.0"
		}
	}
	var err error
	d.server, err = embedded.Start(ctx, embedded.Config{Dir: filepath.Join(d.config.Dir, busFolder), Host: host, Port: port, NoSync: d.config.NoSync})
	if err != nil {
		return err
	}
	nc, js, err := bus.Connect(d.server.Bus("cairn-init"))
	if err != nil {
		return err
	}
	defer nc.Close()
	layout := bus.Layout{Partitions: d.config.Partitions}
	if n, err := bus.Partitions(ctx, js); err == nil {
		layout.Partitions = n
	}
	return bus.Init(ctx, js, layout)
}

func (d *Dev) startServices(ctx context.Context) error {
	c := d.config
	components := slices.Clone(c.Services)
	for name := range c.Tools {
		components = append(components, name)
	}
	d.health = telemetry.NewHealth(components...)
	d.inner, d.door = newGroup(d.fail), newGroup(d.fail)
	log := c.Logger
	storeAddr := make(chan string, 1)
	if c.runs(RunStore) {
		d.inner.run(RunStore, func(ctx context.Context) error {
			return runstore.Run(ctx, runstore.Config{
				Bus: d.server.Bus("cairn-runstore"), Logger: log, Health: d.health, Database: c.database(), Listen: c.RunStore,
				DisableFeed: c.DisableFeed, Addr: func(a string) { storeAddr <- a },
				FlushInterval: flushInterval, FlushLinger: flushLinger,
			})
		})
		select {
		case d.runStore = <-storeAddr:
		case <-d.stop:
			return d.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if c.runs(Executor) {
		d.inner.run(Executor, func(ctx context.Context) error {
			return executor.Run(ctx, executor.Config{Bus: d.server.Bus("cairn-executor"), Logger: log, Health: d.health})
		})
	}
	if c.runs(Planner) {
		d.inner.run(Planner, func(ctx context.Context) error {
			return planner.Run(ctx, planner.Config{Bus: d.server.Bus("cairn-planner"), Logger: log, Health: d.health, Templates: c.Templates})
		})
	}
	if c.runs(ToolRouter) {
		d.inner.run(ToolRouter, func(ctx context.Context) error {
			return toolrouter.Run(ctx, toolrouter.Config{Bus: d.server.Bus("cairn-toolrouter"), Logger: log, Health: d.health, Root: c.Root})
		})
	}
	for name, tools := range c.Tools {
		d.inner.run(name, func(ctx context.Context) error { return d.serveTools(ctx, name, tools) })
	}
	if c.runs(Gateway) {
		d.door.run(Gateway, func(ctx context.Context) error {
			return gateway.Run(ctx, gateway.Config{
				Bus: d.server.Bus("cairn-gateway"), Logger: log, Health: d.health, Listen: c.Gateway, RunStore: d.runStore, Addr: d.setGateway,
				TokensFile: c.Tokens, Insecure: c.Insecure,
			})
		})
	}
	return d.ready(ctx)
}

func (d *Dev) serveTools(ctx context.Context, name string, tools []*tool.Tool) error {
	b := d.server.Bus("cairn-tool-" + name)
	return tool.Serve(ctx, tool.Config{
		URL: b.URL, Name: b.Name, Options: b.Options, Logger: d.config.Logger,
		OnReady: func(err error) { d.health.Set(name, err) },
	}, tools...)
}

// ready waits until every component is, or one has ended.
func (d *Dev) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	waited := make(chan error, 1)
	go func() { waited <- d.health.Wait(ctx) }()
	select {
	case err := <-waited:
		if err != nil {
			return err
		}
	case <-d.stop:
		return d.err
	}
	return d.lock.say(Holder{PID: os.Getpid(), Gateway: d.Gateway()})
}

func (d *Dev) setGateway(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gateway = addr
}

// ServiceError is a service that ended although nobody asked it to.
type ServiceError struct {
	Service string
	Err     error
}

func (e *ServiceError) Error() string {
	return e.Service + ": " + strings.TrimPrefix(e.Err.Error(), e.Service+": ")
}

func (e *ServiceError) Unwrap() error { return e.Err }

// fail is called when a service ends although nobody asked for it.
func (d *Dev) fail(name string, err error) {
	if err == nil {
		err = errors.New("ended without being asked to")
	}
	d.failOnce.Do(func() {
		d.err = &ServiceError{Service: name, Err: err}
		d.stopOnce.Do(func() { close(d.stop) })
	})
}

// Gateway is the address of gRPC and HTTP.
func (d *Dev) Gateway() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gateway
}

// RunStore is the address of the run store's QueryService.
func (d *Dev) RunStore() string { return d.runStore }

// NATS is the URL for clients outside the process; empty where it takes none.
func (d *Dev) NATS() string {
	if d.config.NATS == "" {
		return ""
	}
	return d.server.URL()
}

// Bus is how to connect from inside the process.
func (d *Dev) Bus(name string) bus.Config { return d.server.Bus(name) }

// Health of all components.
func (d *Dev) Health() *telemetry.Health { return d.health }

// Failed is closed when a service ends although nobody asked for it; Err says why.
func (d *Dev) Failed() <-chan struct{} { return d.stop }

// Err is what made a service end, after Failed is closed.
func (d *Dev) Err() error {
	select {
	case <-d.stop:
		return d.err
	default:
		return nil
	}
}

// Close drains: first the gateway, then the services, then the bus. The folder stays.
func (d *Dev) Close() {
	if d.door != nil {
		d.door.end()
	}
	if d.inner != nil {
		d.inner.end()
	}
	if d.server != nil {
		d.server.Close()
	}
	if d.lock != nil {
		d.lock.release()
	}
}
