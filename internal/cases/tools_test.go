package cases

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/pkg/tool"
)

// row is one effect.
type row struct {
	run, step string
	attempt   int
	key       string
}

// effects is the world that tools change.
type effects struct {
	mu      sync.Mutex
	rows    []row
	changed chan struct{}
}

func newEffects() *effects { return &effects{changed: make(chan struct{})} }

func (e *effects) add(ctx context.Context) {
	a := tool.Action(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rows = append(e.rows, row{a.RunID, a.StepID, a.Attempt, a.IdempotencyKey})
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *effects) of(run, step string) []row {
	rows, _ := e.look(run, step)
	return rows
}

func (e *effects) look(run, step string) ([]row, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []row
	for _, r := range e.rows {
		if r.run == run && r.step == step {
			out = append(out, r)
		}
	}
	return out, e.changed
}

// await waits for a step's effect.
func (e *effects) await(ctx context.Context, run, step string) error {
	for {
		rows, changed := e.look(run, step)
		if len(rows) > 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const anyObject = `{"type":"object"}`

// tools of all runs. add must not be repeated, add.again may; both write a row a call. With "after" they end only when
// another step of the run has an effect.
func (e *effects) tools() []*tool.Tool {
	add := func(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
		var args struct {
			After string `json:"after"`
		}
		if err := json.Unmarshal(in, &args); err != nil {
			return nil, err
		}
		e.add(ctx)
		if args.After != "" {
			if err := e.await(ctx, tool.Action(ctx).RunID, args.After); err != nil {
				return nil, err
			}
		}
		return in, nil
	}
	echo := func(_ context.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil }
	type brokenIn struct {
		Code    string `json:"code"`
		Message string `json:"message,omitempty"`
		Times   int    `json:"times,omitempty"`
	}
	type repeatIn struct {
		Text  string `json:"text"`
		Times int    `json:"times"`
	}
	type bigIn struct {
		Bytes int `json:"bytes"`
	}
	return []*tool.Tool{
		tool.New("echo", echo, tool.InputSchema(anyObject), tool.OutputSchema("true"), tool.Idempotent(), tool.Concurrency(64)),
		tool.New("add", add, tool.InputSchema(anyObject), tool.OutputSchema("true"), tool.Concurrency(256)),
		tool.New("add.again", add, tool.InputSchema(anyObject), tool.OutputSchema("true"), tool.Idempotent(), tool.Concurrency(64)),
		tool.New("nullable", echo, tool.OutputSchema("true"), tool.Idempotent(), tool.InputSchema(
			`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":["string","null"]},"c":{"type":"string"}},"additionalProperties":false}`)),
		tool.New("void", func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil }, tool.InputSchema(anyObject), tool.OutputSchema("true"), tool.Idempotent()),
		tool.New("broken", func(ctx context.Context, in brokenIn) (string, error) {
			e.add(ctx)
			return "", tool.Errorf(in.Code, "broken, as asked for: %s", strings.Repeat(in.Message, in.Times))
		}, tool.Idempotent()),
		tool.New("repeat", func(_ context.Context, in repeatIn) (string, error) { return strings.Repeat(in.Text, in.Times), nil }, tool.Idempotent()),
		tool.New("big", func(_ context.Context, in bigIn) (json.RawMessage, error) {
			// The whole output has so many bytes.
			frame := len(`{"first":"here","text":""}`)
			return json.RawMessage(`{"first":"here","text":"` + strings.Repeat("x", in.Bytes-frame) + `"}`), nil
		}, tool.OutputSchema(anyObject), tool.Idempotent()),
		tool.New("search_resume", echo, tool.InputSchema(`{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}`), tool.OutputSchema("true"), tool.Idempotent()),
	}
}
