package gateway

import (
	"net"
	"syscall"
	"testing"
	"time"
)

func TestVanishedPeersAreFoundBySystemTimers(t *testing.T) {
	ln, err := listen(t.Context(), "127.0.0.1:0", 3*time.Second, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ level, option, want int }{
		{syscall.IPPROTO_TCP, tcpUserTimeout, 5000},
		{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
		{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 3},
	} {
		var got int
		var optErr error
		if err := raw.Control(func(fd uintptr) { got, optErr = syscall.GetsockoptInt(int(fd), c.level, c.option) }); err != nil || optErr != nil {
			t.Fatal(err, optErr)
		}
		if got != c.want {
			t.Errorf("option %d is %d, want %d", c.option, got, c.want)
		}
	}
}
