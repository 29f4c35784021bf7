package planner

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/tool"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

// catalogue follows the registered tools.
type catalogue struct {
	watcher jetstream.KeyWatcher
	logger  *slog.Logger

	mu      sync.Mutex
	tools   map[string]*planv1.ToolDefinition
	changed chan struct{}
}

// openCatalogue returns when the tools that are registered now are known.
func openCatalogue(ctx context.Context, js jetstream.JetStream, logger *slog.Logger) (*catalogue, error) {
	kv, err := js.KeyValue(ctx, bus.BucketTools)
	if err != nil {
		return nil, fmt.Errorf("tools in %s: %w", bus.BucketTools, err)
	}
	w, err := kv.WatchAll(context.WithoutCancel(ctx))
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", bus.BucketTools, err)
	}
	c := &catalogue{watcher: w, logger: logger, tools: map[string]*planv1.ToolDefinition{}, changed: make(chan struct{})}
	known := make(chan struct{})
	go func() {
		for e := range w.Updates() {
			if e == nil {
				// The end of what was there at the start comes once.
				close(known)
				continue
			}
			c.apply(e)
		}
	}()
	select {
	case <-known:
		return c, nil
	case <-ctx.Done():
		c.close()
		return nil, ctx.Err()
	}
}

func (c *catalogue) close() { _ = c.watcher.Stop() }

func (c *catalogue) apply(e jetstream.KeyValueEntry) {
	var def *planv1.ToolDefinition
	if e.Operation() == jetstream.KeyValuePut {
		var err error
		if def, err = readDefinition(e.Key(), e.Value()); err != nil {
			c.logger.Warn("a registered tool cannot be used in plans", "tool", e.Key(), "error", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if def == nil {
		delete(c.tools, e.Key())
	} else {
		c.tools[e.Key()] = def
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

func readDefinition(key string, value []byte) (*planv1.ToolDefinition, error) {
	def := &planv1.ToolDefinition{}
	if err := exactjson.Unmarshal(value, def); err != nil {
		return nil, err
	}
	if def.GetName() != key {
		return nil, fmt.Errorf("its definition is named %q", def.GetName())
	}
	// The digest is over the definition as this code writes it: "1m30s" and "90s" are the same timeout.
	def.Digest = ""
	text, err := exactjson.Marshal(def)
	if err != nil {
		return nil, err
	}
	if def.Digest, err = tool.DefinitionDigest(text); err != nil {
		return nil, err
	}
	if def.GetInputSchema() == nil {
		def.InputSchema = &planv1.JsonText{Text: `{"type":"object"}`}
	}
	return def, nil
}

// now returns the tools as they are, the caller's to keep.
func (c *catalogue) now() map[string]*planv1.ToolDefinition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.tools)
}

// await returns when enough says so of the tools, after limit, or when ctx ends.
func (c *catalogue) await(ctx context.Context, limit time.Duration, enough func(map[string]*planv1.ToolDefinition) bool) {
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		c.mu.Lock()
		ok, changed := enough(c.tools), c.changed
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
