// Package embedded runs a NATS server inside the process: for cairn dev and run, for kept folders, and for tests.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cairnrun/cairn/pkg/bus"
)

// MaxPayload is the largest message that the shipped configuration takes, 8 MB.
const MaxPayload = 8 << 20

// Config of the server.
type Config struct {
	// Dir is the JetStream folder; it is created where missing.
	Dir string
	// Listen is "host:port" for clients outside the process; empty: none, in-process connections only. Port 0 picks one.
	Host string
	Port int
	// NoSync leaves file syncs to the operating system: for tests that do not cut the power.
	NoSync bool
}

// Server is a running embedded server.
type Server struct {
	ns *server.Server
}

// Start returns once the server takes connections.
func Start(ctx context.Context, c Config) (*Server, error) {
	if err := os.MkdirAll(c.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("folder for the bus: %w; choose another with --dir", err)
	}
	probe, err := os.CreateTemp(c.Dir, ".probe-*")
	if err != nil {
		return nil, fmt.Errorf("folder %s cannot be written: %w; choose another with --dir", c.Dir, err)
	}
	_ = probe.Close()
	_ = os.Remove(probe.Name())
	opts := &server.Options{
		ServerName: "cairn", JetStream: true, StoreDir: c.Dir, NoSigs: true, NoLog: true,
		Host: c.Host, Port: c.Port, DontListen: c.Host == "", MaxPayload: MaxPayload, MaxPending: 256 << 20,
		SyncAlways: !c.NoSync, JetStreamMaxMemory: 256 << 20, JetStreamMaxStore: 1 << 40,
	}
	if c.Host != "" && c.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS in %s: %w", filepath.Clean(c.Dir), err)
	}
	ns.Start()
	deadline := time.Now().Add(30 * time.Second)
	for !ns.ReadyForConnections(50 * time.Millisecond) {
		switch {
		case ctx.Err() != nil:
			ns.Shutdown()
			return nil, ctx.Err()
		case !ns.Running():
			ns.Shutdown()
			return nil, fmt.Errorf("embedded NATS could not start on %s:%d in %s: is the port taken, or the folder in use?", c.Host, c.Port, c.Dir)
		case time.Now().After(deadline):
			ns.Shutdown()
			return nil, errors.New("embedded NATS was not ready within 30 s")
		}
	}
	return &Server{ns: ns}, nil
}

// Bus is how to connect from inside the process.
func (s *Server) Bus(name string) bus.Config {
	return bus.Config{URL: "nats://embedded", Name: name, Options: []nats.Option{nats.InProcessServer(s.ns)}}
}

// URL for clients outside the process; empty where it does not listen.
func (s *Server) URL() string { return s.ns.ClientURL() }

// Close stops the server and waits for it.
func (s *Server) Close() {
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
}
