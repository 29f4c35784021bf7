// Package tool is what the author of a tool service imports: a typed function, Serve, and nothing of Cairn's services.
//
//	type In struct{ SKU string `json:"sku"` }
//	type Out struct{ Left int `json:"left"` }
//
//	err := tool.Serve(ctx, tool.Config{URL: "nats://127.0.0.1:4222"},
//		tool.New("stock.check", func(ctx context.Context, in In) (Out, error) { … },
//			tool.Version("1.0.0"), tool.Description("How many are left"), tool.Idempotent()))
//
// Serve registers the tool's definition, takes its actions from NATS JetStream, and sends results. A tool that is not
// marked Idempotent is started at most once per action; an idempotent one at least once, always with the same
// idempotency key (Action(ctx).IdempotencyKey). Any NATS client can do the same: see docs/tools.md.
package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// DefaultTimeout is a call's time where neither step nor tool names one.
const DefaultTimeout = 30 * time.Second

// DefaultConcurrency is how many calls of one tool an instance runs at once.
const DefaultConcurrency = 16

// Tool is one function with its definition. Make it with New.
type Tool struct {
	def         Definition
	concurrency int
	call        func(ctx context.Context, arguments json.RawMessage) (json.RawMessage, error)
	err         error
}

// Option says something about a tool.
type Option func(*Tool)

// Version is the tool's version, dotted numbers by preference; "0.0.0" where not given.
func Version(v string) Option { return func(t *Tool) { t.def.Version = v } }

// Description tells planners what the tool does and when to use it.
func Description(s string) Option { return func(t *Tool) { t.def.Description = s } }

// Permission is what a run must have been granted to use the tool.
func Permission(p string) Option { return func(t *Tool) { t.def.Permission = p } }

// Risk is "low", "medium" or "high"; steps with high risk need a confirmation.
func Risk(r string) Option { return func(t *Tool) { t.def.Risk = r } }

// Timeout is a call's time where the step names none; DefaultTimeout where not given.
func Timeout(d time.Duration) Option { return func(t *Tool) { t.def.Timeout = Duration(d) } }

// RetryableErrors are codes that a repeat may cure, besides those of the code table.
func RetryableErrors(codes ...string) Option {
	return func(t *Tool) { t.def.RetryableErrors = codes }
}

// Idempotent promises that a repeat with the same idempotency key has no further effect. Without it every start is
// claimed first, and a call whose end is not known is never repeated.
func Idempotent() Option { return func(t *Tool) { t.def.Idempotent = true } }

// Concurrency is how many calls an instance runs at once; DefaultConcurrency where not given.
func Concurrency(n int) Option { return func(t *Tool) { t.concurrency = n } }

// InputSchema replaces the schema inferred from the function's input.
func InputSchema(schema string) Option {
	return func(t *Tool) { t.def.InputSchema = json.RawMessage(schema) }
}

// OutputSchema replaces the schema inferred from the function's output.
func OutputSchema(schema string) Option {
	return func(t *Tool) { t.def.OutputSchema = json.RawMessage(schema) }
}

// New makes a tool of a typed function. The JSON Schemas of In and Out are inferred (see Schema); In must be an object:
// a struct, a map with string keys, or json.RawMessage for the exact text. An Out of json.RawMessage is sent as it is.
// Mistakes (a bad name, a type without schema) are reported by Serve.
func New[In, Out any](name string, fn func(context.Context, In) (Out, error), opts ...Option) *Tool {
	t := &Tool{def: Definition{Name: name, Version: "0.0.0"}, concurrency: DefaultConcurrency}
	t.call = func(ctx context.Context, arguments json.RawMessage) (json.RawMessage, error) {
		in, err := decodeInput[In](arguments)
		if err != nil {
			return nil, Errorf(CodeInvalidArguments, "arguments of %s: %w", name, err)
		}
		out, callErr := fn(ctx, in)
		if callErr != nil && !asError(callErr).partial {
			return nil, callErr
		}
		text, err := encodeOutput(out)
		if err != nil {
			return nil, Errorf(CodeInvalidOutput, "output of %s: %w", name, err)
		}
		return text, callErr
	}
	for _, o := range opts {
		o(t)
	}
	t.err = t.complete(reflect.TypeFor[In](), reflect.TypeFor[Out]())
	return t
}

func (t *Tool) complete(in, out reflect.Type) error {
	d := &t.def
	if !ValidName(d.Name) {
		return fmt.Errorf("tool name %q: want dotted tokens of [a-z0-9_], each beginning with a letter, at most %d bytes, as stock.check", d.Name, maxNameLength)
	}
	switch d.Risk {
	case "", "low", "medium", "high":
	default:
		return fmt.Errorf("tool %s: risk %q is none of low, medium, high", d.Name, d.Risk)
	}
	if t.concurrency < 1 {
		return fmt.Errorf("tool %s: concurrency %d is below 1", d.Name, t.concurrency)
	}
	if d.Timeout < 0 {
		return fmt.Errorf("tool %s: timeout %s is negative", d.Name, d.Timeout)
	}
	var err error
	if d.InputSchema == nil {
		if d.InputSchema, err = inputSchema(in); err != nil {
			return fmt.Errorf("tool %s: input: %w", d.Name, err)
		}
	}
	if d.OutputSchema == nil {
		if d.OutputSchema, err = outputSchema(out); err != nil {
			return fmt.Errorf("tool %s: output: %w", d.Name, err)
		}
	}
	if d.InputSchema, err = compact(d.InputSchema); err != nil {
		return fmt.Errorf("tool %s: input schema: %w", d.Name, err)
	}
	if d.OutputSchema != nil {
		if d.OutputSchema, err = compact(d.OutputSchema); err != nil {
			return fmt.Errorf("tool %s: output schema: %w", d.Name, err)
		}
	}
	for _, s := range []struct {
		what string
		text json.RawMessage
	}{{"input", d.InputSchema}, {"output", d.OutputSchema}} {
		if err := usableSchema(s.text); err != nil {
			return fmt.Errorf("tool %s: %s schema: %w", d.Name, s.what, err)
		}
	}
	return d.seal()
}

// Definition is what Serve registers.
func (t *Tool) Definition() Definition { return t.def }

// Call runs the function as Serve would, without NATS: for an author's tests.
func (t *Tool) Call(ctx context.Context, arguments json.RawMessage) (output json.RawMessage, err error) {
	if t.err != nil {
		return nil, t.err
	}
	defer func() {
		if p := recover(); p != nil {
			output, err = nil, panicError(p)
		}
	}()
	return t.call(ctx, arguments)
}

func decodeInput[In any](arguments json.RawMessage) (In, error) {
	var in In
	if len(bytes.TrimSpace(arguments)) == 0 {
		arguments = json.RawMessage("{}")
	}
	if raw, ok := any(&in).(*json.RawMessage); ok {
		*raw = arguments
		return in, nil
	}
	d := json.NewDecoder(bytes.NewReader(arguments))
	// A number in an untyped place keeps its text.
	d.UseNumber()
	if err := d.Decode(&in); err != nil {
		return in, err
	}
	return in, nil
}

func encodeOutput(out any) (json.RawMessage, error) {
	raw, ok := out.(json.RawMessage)
	if !ok {
		return encode(out)
	}
	if raw == nil {
		return json.RawMessage("null"), nil
	}
	return compact(raw)
}

func compact(text []byte) (json.RawMessage, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return nil, errors.New("not valid JSON: " + err.Error())
	}
	return b.Bytes(), nil
}

func panicError(p any) *Error { return Errorf(CodeInternal, "the tool panicked: %v", p) }
