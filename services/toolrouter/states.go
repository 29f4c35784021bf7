package toolrouter

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cairnrun/cairn/pkg/telemetry"
)

// states makes one readiness of the states of the router's parts.
type states struct {
	health *telemetry.Health
	// expected parts that have not reported yet keep the router from being ready.
	expected []string

	mu    sync.Mutex
	known map[string]error
}

func newStates(h *telemetry.Health, expected ...string) *states {
	return &states{health: h, expected: expected, known: map[string]error{}}
}

func (s *states) set(part string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[part] = err
	var all []error
	for _, name := range s.expected {
		err, ok := s.known[name]
		switch {
		case !ok:
			all = append(all, fmt.Errorf("%s: starting", name))
		case err != nil:
			all = append(all, fmt.Errorf("%s: %w", name, err))
		}
	}
	s.health.Set(component, errors.Join(all...))
}
