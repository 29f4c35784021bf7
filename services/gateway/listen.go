package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// http2Preface begins every HTTP/2 connection; on this port that is gRPC.
const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// listen opens the port. Peers that vanish without a word are found by the system within ping and pingAnswer.
func listen(ctx context.Context, address string, ping, pingAnswer time.Duration) (net.Listener, error) {
	lc := net.ListenConfig{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: ping, Interval: max(pingAnswer/2, time.Second), Count: 2},
		Control:         userTimeout(ping + pingAnswer),
	}
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w; choose another address, or stop what listens there", err)
	}
	return ln, nil
}

// splitter gives each connection of one port to gRPC or to HTTP, by its first bytes.
type splitter struct {
	ln net.Listener
	// patience is how long a connection may say nothing at its beginning.
	patience   time.Duration
	grpc, http *branch

	mu     sync.Mutex
	silent map[net.Conn]bool // have not said enough yet
	closed bool
}

func split(ln net.Listener, patience time.Duration) *splitter {
	return &splitter{ln: ln, patience: patience, grpc: newBranch(ln.Addr()), http: newBranch(ln.Addr()), silent: map[net.Conn]bool{}}
}

// close ends both branches, and the connections that were not given to one.
func (s *splitter) close() {
	_, _ = s.grpc.Close(), s.http.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.silent {
		_ = c.Close()
	}
}

// listening keeps a connection while its first bytes are awaited; false: it is too late.
func (s *splitter) listening(c net.Conn, begin bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if begin && !s.closed {
		s.silent[c] = true
	} else {
		delete(s.silent, c)
	}
	return !s.closed
}

// serve accepts until the listener is closed, and returns its error then.
func (s *splitter) serve() error {
	var pause time.Duration
	for {
		conn, err := s.ln.Accept()
		switch {
		case err == nil:
			pause = 0
			go s.sort(conn)
		case errors.Is(err, net.ErrClosed):
			return err
		default:
			// Out of file descriptors, most likely: it passes.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			time.Sleep(pause)
		}
	}
}

func (s *splitter) sort(conn net.Conn) {
	if !s.listening(conn, true) {
		_ = conn.Close()
		return
	}
	defer s.listening(conn, false)
	_ = conn.SetReadDeadline(time.Now().Add(s.patience))
	head := make([]byte, 0, len(http2Preface))
	for len(head) < cap(head) {
		n, err := conn.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if string(head) != http2Preface[:len(head)] {
			break
		}
		if err != nil {
			_ = conn.Close()
			return
		}
	}
	_ = conn.SetReadDeadline(time.Time{})
	to := s.http
	if string(head) == http2Preface {
		to = s.grpc
	}
	to.give(&begunConn{Conn: conn, head: head})
}

// branch is the listener of one protocol.
type branch struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newBranch(addr net.Addr) *branch {
	return &branch{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

func (b *branch) give(c net.Conn) {
	select {
	case b.conns <- c:
	case <-b.done:
		_ = c.Close()
	}
}

func (b *branch) Accept() (net.Conn, error) {
	select {
	case c := <-b.conns:
		return c, nil
	case <-b.done:
		return nil, net.ErrClosed
	}
}

func (b *branch) Close() error {
	b.once.Do(func() { close(b.done) })
	return nil
}

func (b *branch) Addr() net.Addr { return b.addr }

// begunConn reads again what was read to tell the protocol.
type begunConn struct {
	net.Conn
	head []byte
}

func (c *begunConn) Read(p []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(p, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}
