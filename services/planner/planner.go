// Package planner turns goals into plans and failures into patches.
package planner

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
	// Health learns of the component "planner".
	Health *telemetry.Health
	// Templates is the path of a YAML file of goal patterns and replan rules; empty: none.
	Templates string
}

// Run serves until ctx ends, then drains.
func Run(ctx context.Context, c Config) error {
	return errors.New("planner: not built yet")
}
