package runstore

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/telemetry"
)

// Config of the service. The zero value of every field but Bus and Database works.
type Config struct {
	Bus    bus.Config
	Logger *slog.Logger
	// Health learns of the component "runstore".
	Health *telemetry.Health
	// Database is the path of the SQLite file; its folder is created.
	Database string
	// Listen is the address of QueryService. Default 127.0.0.1:7071.
	Listen string
	// Addr is called with the bound address once it is known.
	Addr func(addr string)
	// DisableFeed turns the event feed off.
	DisableFeed bool

	// FlushInterval is the longest that a commit waits for its transaction while more arrive; watchers and questions
	// about one run do not wait for it. Default 1 s.
	FlushInterval time.Duration
	// FlushLinger is how long the first commit after a pause waits for company. Default 50 ms.
	FlushLinger time.Duration
	// FlushBytes ends a transaction early. Default 16 MiB of stored commits.
	FlushBytes int
	// PendingBytes bounds what is read from the log and not in the database yet; beyond it reading waits. Default 64 MiB.
	PendingBytes int
	// ChunkBytes is from where on a row of commits is not extended any more. Default 64 KiB.
	ChunkBytes int
	// BusyTimeout is how long the database may be locked by somebody else. Default 5 s.
	BusyTimeout time.Duration
	// DrainTimeout bounds the last transaction at the end. Default 10 s.
	DrainTimeout time.Duration
	// Readers is the number of reading connections to the database. Default 4.
	Readers int

	// MaxWait bounds the wait for a request's position. Default 10 s.
	MaxWait time.Duration
	// WatchBuffer is the number of commits that wait for a slow watcher; beyond it the watcher reads them from history
	// instead. Default 64.
	WatchBuffer int
	// StateCache is the number of runs whose folded state is kept. Default 512.
	StateCache int
	// StateCacheBytes bounds the stored commits that those were folded from, about their size. Default 256 MiB.
	StateCacheBytes int
	// MaxRunsPage and DefaultRunsPage are page sizes of ListRuns. Defaults 1,000 and 50.
	MaxRunsPage, DefaultRunsPage int
	// MaxEventsPage and DefaultEventsPage are page sizes of ListEvents. Defaults 10,000 and 1,000.
	MaxEventsPage, DefaultEventsPage int
	// PageBytes ends a page of events or runs early; a page has one at least. Default 3 MiB.
	PageBytes int
	// MaxFilterBytes and MaxFilterTerms bound the filter of ListRuns. Defaults 4 KiB and 16.
	MaxFilterBytes, MaxFilterTerms int
	// MaxChain bounds the chain of causes that ExplainRun returns. Default 1,000.
	MaxChain int
	// MaxMessageBytes bounds one gRPC message, in and out. Default 64 MiB: a run's whole state, or an event of the size
	// that the bus takes.
	MaxMessageBytes int

	// FeedAckWait is after how long another instance takes over the feed of one that died. Default 30 s.
	FeedAckWait time.Duration
	// FeedParallel is the number of runs whose events one partition publishes at once. Default 64.
	FeedParallel int
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:7071"
	}
	if c.Addr == nil {
		c.Addr = func(string) {}
	}
	if c.Bus.Name == "" {
		c.Bus.Name = "cairn-runstore"
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.FlushInterval, time.Second}, {&c.FlushLinger, 50 * time.Millisecond}, {&c.BusyTimeout, 5 * time.Second},
		{&c.MaxWait, 10 * time.Second}, {&c.DrainTimeout, 10 * time.Second}, {&c.FeedAckWait, 30 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	for _, n := range []struct {
		field *int
		value int
	}{
		{&c.FlushBytes, 16 << 20}, {&c.PendingBytes, 64 << 20}, {&c.ChunkBytes, 64 << 10}, {&c.Readers, 4},
		{&c.WatchBuffer, 64}, {&c.StateCache, 512}, {&c.StateCacheBytes, 256 << 20}, {&c.MaxRunsPage, 1000}, {&c.DefaultRunsPage, 50},
		{&c.MaxEventsPage, 10_000}, {&c.DefaultEventsPage, 1000}, {&c.PageBytes, 3 << 20},
		{&c.MaxFilterBytes, 4 << 10}, {&c.MaxFilterTerms, 16}, {&c.MaxChain, 1000}, {&c.FeedParallel, 64}, {&c.MaxMessageBytes, 64 << 20},
	} {
		if *n.field == 0 {
			*n.field = n.value
		}
	}
	return c
}

func (c Config) check() error {
	if c.Database == "" {
		return errors.New("run store: no database file given; name one with --db")
	}
	if c.FlushInterval < 0 || c.FlushLinger < 0 || c.MaxWait < 0 || c.FlushBytes < 0 || c.WatchBuffer < 1 || c.Readers < 1 || c.ChunkBytes < 1 {
		return fmt.Errorf("run store: limits must be positive")
	}
	return nil
}
