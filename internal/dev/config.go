// Package dev assembles the whole of Cairn in one process: embedded NATS on a kept folder, every service, and tool
// services. cairn run and cairn dev are this; tests and the conformance run use it too.
package dev

import (
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/cairnrun/cairn/pkg/tool"
)

// Names of the services, in the order in which they start.
const (
	RunStore   = "runstore"
	Executor   = "executor"
	Planner    = "planner"
	ToolRouter = "toolrouter"
	Gateway    = "gateway"
)

// Services are all of them.
var Services = []string{RunStore, Executor, Planner, ToolRouter, Gateway}

// Config of the assembly. Only Dir is needed.
type Config struct {
	// Dir is the kept folder: the bus in "nats", the run store's database in "runs.db". It is created where missing.
	Dir string
	// NATS, Gateway and RunStore are addresses as host:port; port 0 picks one. An empty NATS takes no connections from
	// outside the process. An empty Gateway or RunStore listens on 127.0.0.1 with a port of its own.
	NATS     string
	Gateway  string
	RunStore string
	// Tokens is the path of the gateway's file of bearer tokens; Insecure lets it listen without one where others can reach it.
	Tokens   string
	Insecure bool
	// Partitions of a new log. Default 4; a kept folder's log keeps its own number.
	Partitions int
	// Templates is the path of the planner's goal patterns and replan rules; empty: none.
	Templates string
	// Root confines the built-in file tools; empty: they are not offered.
	Root string
	// Services to run; nil: all.
	Services []string
	// Tools are tool services to run, by name.
	Tools map[string][]*tool.Tool
	// NoSync leaves file syncs of the bus to the operating system: faster, for tests.
	NoSync bool
	// DisableFeed turns the event feed off.
	DisableFeed bool
	Logger      *slog.Logger
}

// Folders and files of a kept folder.
const (
	busFolder = "nats"
	database  = "runs.db"
)

func (c Config) withDefaults() Config {
	const local = "127.0.0.1:0"
	if c.Gateway == "" {
		c.Gateway = local
	}
	if c.RunStore == "" {
		c.RunStore = local
	}
	if c.Services == nil {
		c.Services = Services
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) runs(service string) bool { return slices.Contains(c.Services, service) }

func (c Config) database() string { return filepath.Join(c.Dir, database) }
