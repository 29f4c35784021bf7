package gateway

import (
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of linux/tcp.h: how long sent data may go unacknowledged. Without it a peer that
// vanished while data was under way is noticed after a quarter of an hour.
const tcpUserTimeout = 18

func userTimeout(d time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		// Accepted connections inherit it from the listening socket.
		if e := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
		}); e != nil {
			return e
		}
		return err
	}
}
