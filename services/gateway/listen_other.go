//go:build !linux

package gateway

import (
	"syscall"
	"time"
)

// userTimeout: other systems have TCP keepalive and the write deadlines only.
func userTimeout(time.Duration) func(network, address string, c syscall.RawConn) error { return nil }
