package toolrouter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/plan"
	"github.com/cairnrun/cairn/pkg/tool"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

// registry follows the tool definitions in KV.
type registry struct {
	kv      jetstream.KeyValue
	watcher jetstream.KeyWatcher
	logger  *slog.Logger

	mu    sync.RWMutex
	tools map[string]*planv1.ToolDefinition
}

// openRegistry returns when the definitions that are there now are known.
func openRegistry(ctx context.Context, js jetstream.JetStream, logger *slog.Logger) (*registry, error) {
	kv, err := js.KeyValue(ctx, bus.BucketTools)
	if err != nil {
		return nil, fmt.Errorf("registry %s: %w", bus.BucketTools, err)
	}
	watcher, err := kv.WatchAll(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", bus.BucketTools, err)
	}
	r := &registry{kv: kv, watcher: watcher, logger: logger, tools: map[string]*planv1.ToolDefinition{}}
	for {
		select {
		case e := <-watcher.Updates():
			if e == nil {
				go func() {
					for e := range watcher.Updates() {
						if e != nil {
							r.apply(ctx, e)
						}
					}
				}()
				return r, nil
			}
			r.apply(ctx, e)
		case <-ctx.Done():
			_ = watcher.Stop()
			return nil, ctx.Err()
		}
	}
}

func (r *registry) close() { _ = r.watcher.Stop() }

// get is the definition of a tool, nil where there is none. A tool that is not known yet is looked up: it may have been
// registered a moment ago.
func (r *registry) get(ctx context.Context, name string) (*planv1.ToolDefinition, error) {
	r.mu.RLock()
	def := r.tools[name]
	r.mu.RUnlock()
	if def != nil || !tool.ValidName(name) {
		return def, nil
	}
	e, err := r.kv.Get(ctx, name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	r.apply(ctx, e)
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.tools[name], nil
}

func (r *registry) apply(ctx context.Context, e jetstream.KeyValueEntry) {
	name := e.Key()
	var def *planv1.ToolDefinition
	if e.Operation() == jetstream.KeyValuePut {
		var err error
		if def, err = readDefinition(name, e.Value()); err != nil {
			r.logger.WarnContext(ctx, "a registered tool is not usable", "tool", name, "revision", e.Revision(), "error", err)
		}
		for field, schema := range map[string]*planv1.JsonText{"input_schema": def.GetInputSchema(), "output_schema": def.GetOutputSchema()} {
			if f := plan.CheckSchema(schema); f != nil {
				r.logger.WarnContext(ctx, "a registered tool has a schema that cannot be used, and its calls will fail", "tool", name, "field", field, "error", f.GetMessage())
			}
		}
	}
	r.mu.Lock()
	if def == nil {
		delete(r.tools, name)
	} else {
		r.tools[name] = def
	}
	r.mu.Unlock()
	if def != nil {
		r.seal(ctx, e, def)
	}
}

func readDefinition(name string, value []byte) (*planv1.ToolDefinition, error) {
	def := &planv1.ToolDefinition{}
	if err := exactjson.Unmarshal(value, def); err != nil {
		return nil, err
	}
	if def.GetName() != name || !tool.ValidName(name) {
		return nil, fmt.Errorf("the definition's name %q is not the key, or not dotted tokens of [a-z0-9_]", def.GetName())
	}
	// The digest is over the definition as it is written by this code: "1m30s" and "90s" are the same timeout.
	def.Digest = ""
	text, err := exactjson.Marshal(def)
	if err != nil {
		return nil, err
	}
	digest, err := tool.DefinitionDigest(text)
	if err != nil {
		return nil, err
	}
	if def.GetInputSchema() == nil {
		def.InputSchema = &planv1.JsonText{Text: `{"type":"object"}`}
	}
	def.Digest = digest
	return def, nil
}

// seal fills in a digest that whoever registered the tool left out or got wrong, so that other readers of the bucket
// find it. Losing the race to another router or to a new version is fine.
func (r *registry) seal(ctx context.Context, e jetstream.KeyValueEntry, def *planv1.ToolDefinition) {
	stored := &planv1.ToolDefinition{}
	if err := exactjson.Unmarshal(e.Value(), stored); err != nil || stored.GetDigest() == def.GetDigest() {
		return
	}
	stored.Digest = def.GetDigest()
	value, err := exactjson.Marshal(stored)
	if err != nil {
		return
	}
	if _, err := r.kv.Update(ctx, e.Key(), value, e.Revision()); err != nil && ctx.Err() == nil {
		r.logger.DebugContext(ctx, "digest not filled in", "tool", e.Key(), "error", err)
	}
}
