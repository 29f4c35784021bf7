// Package executor owns partitions and runs the one loop: receive, record, decide, append, publish, answer, acknowledge.
package executor

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
	// Health learns of the component "executor".
	Health *telemetry.Health
	// Name of this member, unique in the cluster; made up where empty.
	Name string
}

// Run serves until ctx ends, then drains.
func Run(ctx context.Context, c Config) error {
	return errors.New("executor: not built yet")
}
