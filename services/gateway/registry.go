package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

// registry mirrors the bucket of tool definitions, so that questions about tools need no way to NATS.
type registry struct {
	log *slog.Logger

	mu     sync.RWMutex
	kv     jetstream.KeyValue
	tools  map[string]*planv1.ToolDefinition
	seen   map[string]uint64
	loaded bool
	full   chan struct{}
}

func newRegistry(log *slog.Logger) *registry {
	return &registry{log: log, tools: map[string]*planv1.ToolDefinition{}, seen: map[string]uint64{}, full: make(chan struct{})}
}

// run follows the bucket until ctx ends; after a failure it begins anew.
func (r *registry) run(ctx context.Context, js jetstream.JetStream, pause time.Duration) {
	for ctx.Err() == nil {
		if err := r.watch(ctx, js); err != nil && ctx.Err() == nil {
			r.log.Warn("tool registry: watch broke off, trying again", "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (r *registry) watch(ctx context.Context, js jetstream.JetStream) error {
	kv, err := js.KeyValue(ctx, bus.BucketTools)
	if err != nil {
		return err
	}
	w, err := kv.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = w.Stop() }()
	r.mu.Lock()
	r.kv = kv
	r.mu.Unlock()
	for {
		select {
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return fmt.Errorf("bucket %s: the watch ended", bus.BucketTools)
			case e == nil:
				r.setLoaded()
			default:
				r.take(e)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *registry) setLoaded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.loaded {
		r.loaded = true
		close(r.full)
	}
}

func (r *registry) take(e jetstream.KeyValueEntry) {
	if e.Operation() != jetstream.KeyValuePut {
		r.put(e.Key(), e.Revision(), nil)
		return
	}
	d := &planv1.ToolDefinition{}
	if err := exactjson.Unmarshal(e.Value(), d); err != nil {
		r.log.Warn("tool registry: an entry cannot be read and is left out", "tool", e.Key(), "error", err)
		d = nil
	}
	r.put(e.Key(), e.Revision(), d)
}

// put takes an entry unless a newer one is there; nil removes the tool.
func (r *registry) put(name string, revision uint64, d *planv1.ToolDefinition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if revision < r.seen[name] {
		return
	}
	r.seen[name] = revision
	// The map that all handed out stays as it was.
	next := make(map[string]*planv1.ToolDefinition, len(r.tools)+1)
	for k, v := range r.tools {
		next[k] = v
	}
	if d == nil {
		delete(next, name)
	} else {
		next[name] = d
	}
	r.tools = next
}

// all returns the definitions by name; the map must not be changed.
func (r *registry) all() (map[string]*planv1.ToolDefinition, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.loaded {
		return nil, unavailable(reasonNotReady, "the tool registry %s has not been read yet", bus.BucketTools)
	}
	return r.tools, nil
}

// write stores a definition and takes it at once, so that who wrote it sees it.
func (r *registry) write(ctx context.Context, d *planv1.ToolDefinition) error {
	r.mu.RLock()
	kv := r.kv
	r.mu.RUnlock()
	if kv == nil {
		return unavailable(reasonNotReady, "the tool registry %s is not there yet", bus.BucketTools)
	}
	data, err := exactjson.Marshal(d)
	if err != nil {
		return err
	}
	revision, err := kv.Put(ctx, d.GetName(), data)
	if err != nil {
		return unavailable(reasonBusAway, "the tool registry %s did not take the definition: %v; it may safely be sent again", bus.BucketTools, err)
	}
	r.put(d.GetName(), revision, d)
	return nil
}
