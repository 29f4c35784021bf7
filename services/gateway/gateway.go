// Package gateway is the door: gRPC, HTTP/JSON and server-sent events.
package gateway

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
	// Health learns of the component "gateway".
	Health *telemetry.Health
	// Listen is the address of gRPC and HTTP, both on one port. Default 127.0.0.1:7070.
	Listen string
	// RunStore is the address of the run store's QueryService.
	RunStore string
	// Addr is called with the bound address once it is known.
	Addr func(addr string)
}

// Run serves until ctx ends, then drains.
func Run(ctx context.Context, c Config) error {
	return errors.New("gateway: not built yet")
}
