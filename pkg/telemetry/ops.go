package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Time limits of the operations server.
const (
	opsReadTimeout  = 5 * time.Second
	opsWriteTimeout = 30 * time.Second
	opsStopTimeout  = 2 * time.Second
)

// OpsHandler answers /livez (the process runs), /readyz (every component of h is ready, else 503 and which are not) and
// /metrics.
func OpsHandler(h *Health) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := h.Err(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", MetricsHandler())
	return mux
}

// ServeOps serves OpsHandler on addr until ctx ends. Once it listens it tells bound the address, for port 0.
func ServeOps(ctx context.Context, addr string, h *Health, bound ...func(addr string)) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("operations address %s: %w; choose another with --ops", addr, err)
	}
	for _, f := range bound {
		f(l.Addr().String())
	}
	s := &http.Server{
		Handler: OpsHandler(h), ReadTimeout: opsReadTimeout, WriteTimeout: opsWriteTimeout,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), opsStopTimeout)
		defer cancel()
		_ = s.Shutdown(stop)
	}()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("operations server on %s: %w", addr, err)
	}
	<-stopped
	return nil
}
