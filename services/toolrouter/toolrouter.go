// Package toolrouter checks actions against the registry and dispatches them to tools.
package toolrouter

import (
	"context"
	"errors"
	"log/slog"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/telemetry"
)

// Config of the service. The zero value of every field but Bus works.
type Config struct {
	Bus    bus.Config
	Logger *slog.Logger
	// Health learns of the component "toolrouter".
	Health *telemetry.Health
	// Root confines the built-in file tools; empty: they are not offered.
	Root string
}

// Run serves until ctx ends, then drains.
func Run(ctx context.Context, c Config) error {
	return errors.New("toolrouter: not built yet")
}
