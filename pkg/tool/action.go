package tool

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// Call is what a tool function can know of the action it executes, and what it can say meanwhile.
type Call struct {
	RunID, StepID, ActionID string
	// Attempt is 1 for the first.
	Attempt int
	Tool    string
	// ToolVersion is the version that the plan was validated against.
	ToolVersion string
	// IdempotencyKey is the same for every attempt and delivery of one effect: hand it on to whoever does the effect.
	IdempotencyKey string
	// NotAfter is the deadline, also that of the context.
	NotAfter time.Time
	// Traceparent and Tracestate are W3C trace context.
	Traceparent, Tracestate string

	publish func(subject string, body []byte) error

	mu    sync.Mutex
	usage *Usage
}

type callKey struct{}

// Action is the call that a tool function's context belongs to. Outside of Serve it is an empty one, never nil.
func Action(ctx context.Context) *Call {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		return c
	}
	return &Call{}
}

// Progress tells watchers how far the work is: fraction from 0 to 1 (below 0: not known) and a sentence. It is not
// stored and may be lost. Keeping the action alive needs no progress: Serve does it.
func (c *Call) Progress(_ context.Context, fraction float64, message string) {
	c.send(ProgressMessage{Fraction: known(fraction), Message: message})
}

// ProgressData is Progress with JSON data, such as tokens as they come.
func (c *Call) ProgressData(_ context.Context, fraction float64, message string, data json.RawMessage) {
	c.send(ProgressMessage{Fraction: known(fraction), Message: message, Data: data})
}

func known(fraction float64) *float64 {
	if fraction < 0 {
		return nil
	}
	return &fraction
}

func (c *Call) send(m ProgressMessage) {
	if c.publish == nil {
		return
	}
	m.RunID, m.StepID, m.ActionID, m.Tool = c.RunID, c.StepID, c.ActionID, c.Tool
	body, err := encode(m)
	if err != nil {
		return
	}
	// Progress is best effort: a lost one changes nothing.
	_ = c.publish(ProgressPrefix+c.RunID, body)
}

// SetUsage records what the call cost; the last one stands.
func (c *Call) SetUsage(u Usage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.usage = &u
}

func (c *Call) usageSet() *Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usage
}
