package tool

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// readiness gathers the tools' states.
type readiness struct {
	notify func(error)

	mu    sync.Mutex
	state map[string]error
	last  string
	told  bool
}

func newReadiness(notify func(error)) *readiness {
	return &readiness{notify: notify, state: map[string]error{}}
}

func (r *readiness) set(tool string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state[tool] = err
	r.tell()
}

func (r *readiness) shutdown() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state[""] = errShutdown
	r.tell()
}

// tell runs under the lock, so that notifications come in order.
func (r *readiness) tell() {
	err := r.errLocked()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if r.notify != nil && (!r.told || text != r.last) {
		r.notify(err)
	}
	r.told, r.last = true, text
}

func (r *readiness) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errLocked()
}

func (r *readiness) errLocked() error {
	var bad []string
	for tool, err := range r.state {
		if err != nil {
			bad = append(bad, strings.TrimPrefix(tool+": "+err.Error(), ": "))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	slices.Sort(bad)
	return errors.New(strings.Join(bad, "; "))
}

func serveHealth(addr string, r *readiness) (stop func(), err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("health address %q: %w; choose another or leave it empty", addr, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := r.err(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = srv.Serve(l) }()
	return func() { _ = srv.Close() }, nil
}
