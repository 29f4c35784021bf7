package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/cairnrun/cairn/pkg/telemetry"
)

// flushTimeout bounds how long the last spans may take to be sent.
const flushTimeout = 5 * time.Second

// observe sets telemetry up and serves liveness, readiness and metrics; an empty address serves none. The returned
// function stops both.
func observe(ctx context.Context, name, addr string, log *slog.Logger, health *telemetry.Health) (func(), error) {
	shutdown, err := telemetry.Setup(ctx, name, log)
	if err != nil {
		return nil, badInput(err)
	}
	flush := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := shutdown(ctx); err != nil {
			log.Warn("telemetry", "error", err)
		}
	}
	if addr == "" {
		return flush, nil
	}
	// Readiness is asked for until the service has drained, so the server outlives ctx.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	bound, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- telemetry.ServeOps(serving, addr, health, func(a string) { bound <- a }) }()
	select {
	case a := <-bound:
		log.Info("operations", "address", a)
	case err := <-ended:
		stop()
		flush()
		return nil, unavailable(err)
	}
	return func() {
		stop()
		if err := <-ended; err != nil {
			log.Warn("operations", "error", err)
		}
		flush()
	}, nil
}
