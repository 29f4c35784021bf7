// Package runstore projects the log into queries, live views, replay and the event feed.
package runstore

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
	// Health learns of the component "runstore".
	Health *telemetry.Health
	// Database is the path of the SQLite file.
	Database string
	// Listen is the address of QueryService. Default 127.0.0.1:7071.
	Listen string
	// Addr is called with the bound address once it is known.
	Addr func(addr string)
	// DisableFeed turns the event feed off.
	DisableFeed bool
}

// Run serves until ctx ends, then drains.
func Run(ctx context.Context, c Config) error {
	return errors.New("runstore: not built yet")
}
