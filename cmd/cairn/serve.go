package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/telemetry"
)

// defaultNATS is where a NATS server listens when nobody says otherwise.
const defaultNATS = "nats://127.0.0.1:4222"

// service is what every service command has.
type service struct {
	name  string
	nats  string
	creds string
	ops   string
	level string
}

func (s *service) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.nats, "nats", env("CAIRN_NATS", defaultNATS), "URL of NATS (CAIRN_NATS)")
	f.StringVar(&s.creds, "nats-creds", "", "credentials file for NATS")
	f.StringVar(&s.ops, "ops", "", "address of /livez, /readyz and /metrics, as :9090; empty: none")
	f.StringVar(&s.level, "log-level", "info", "debug, info, warn or error; logs go to standard error")
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func (s *service) bus() bus.Config {
	return bus.Config{URL: s.nats, Name: "cairn-" + s.name, Options: natsCredentials(s.creds)}
}

func (a *app) logger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, badInputf("--log-level %s: choose debug, info, warn or error", level)
	}
	return slog.New(telemetry.LogHandler{Handler: slog.NewJSONHandler(a.err, &slog.HandlerOptions{Level: l})}), nil
}

// serve runs one service until SIGTERM or SIGINT, then lets it drain.
func (a *app) serve(ctx context.Context, s *service, run func(context.Context, *slog.Logger, *telemetry.Health) error) error {
	log, err := a.logger(s.level)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	health := telemetry.NewHealth(s.name)
	closeObserver, err := observe(ctx, s.name, s.ops, log, health)
	if err != nil {
		return err
	}
	defer closeObserver()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	go logHealth(watching, log, health)
	if err := run(ctx, log, health); err != nil && !errors.Is(err, context.Canceled) {
		if badConfig(err) {
			return badInput(named(s.name, err))
		}
		return unavailable(named(s.name, err))
	}
	return nil
}

// named begins an error with the service's name where it does not say it itself.
func named(service string, err error) error {
	if strings.HasPrefix(err.Error(), service+":") {
		return err
	}
	return fmt.Errorf("%s: %w", service, err)
}

// logHealth says when the service becomes ready, and each new reason why it is not.
func logHealth(ctx context.Context, log *slog.Logger, health *telemetry.Health) {
	last := "starting"
	look := time.NewTicker(250 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		now := "ready"
		if err := health.Err(); err != nil {
			now = err.Error()
		}
		if now != last {
			log.Info(now)
			last = now
		}
	}
}
