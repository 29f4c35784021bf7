// Package telemetry sets up OpenTelemetry, carries trace context over NATS headers, holds attribute names, and serves
// liveness, readiness and metrics.
package telemetry

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
)

// Health collects the readiness of a process's components. A nil *Health takes everything and says nothing.
type Health struct {
	mu      sync.Mutex
	state   map[string]error
	changed chan struct{}
}

// NewHealth names the components that must call Set(name, nil) before the process is ready.
func NewHealth(components ...string) *Health {
	h := &Health{state: map[string]error{}, changed: make(chan struct{})}
	for _, c := range components {
		h.state[c] = fmt.Errorf("starting")
	}
	return h
}

// Set records a component's readiness: nil is ready.
func (h *Health) Set(component string, err error) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state[component] = err
	close(h.changed)
	h.changed = make(chan struct{})
}

// Err is nil when every component is ready, else it names those that are not.
func (h *Health) Err() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var bad []string
	for c, err := range h.state {
		if err != nil {
			bad = append(bad, c+": "+err.Error())
		}
	}
	if len(bad) == 0 {
		return nil
	}
	sort.Strings(bad)
	return fmt.Errorf("not ready: %s", strings.Join(bad, "; "))
}

// Wait returns when every component is ready, or with Err when ctx ends first.
func (h *Health) Wait(ctx context.Context) error {
	if h == nil {
		return nil
	}
	for {
		h.mu.Lock()
		ch := h.changed
		h.mu.Unlock()
		if h.Err() == nil {
			return nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return h.Err()
		}
	}
}
