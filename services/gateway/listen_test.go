package gateway

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

func TestConnectionsAreToldApartByTheirFirstBytes(t *testing.T) {
	in := newBranch(&net.TCPAddr{})
	// The splitter listens on a branch of its own, whose connections this test makes.
	s := split(in, time.Minute)
	served := make(chan error, 1)
	go func() { served <- s.serve() }()
	for _, c := range []struct {
		pieces []string
		to     *branch
	}{
		{[]string{http2Preface}, s.grpc},
		{[]string{http2Preface + "more"}, s.grpc},
		{[]string{"P", "RI * HTTP/2.0\r\n", "\r\nSM\r\n\r\n"}, s.grpc},
		{[]string{"GET / HTTP/1.1\r\n\r\n"}, s.http},
		{[]string{"P", "OST / HTTP/1.1\r\n\r\n"}, s.http},
		{[]string{"PRI * HTTP/2.0\r\n\r\nXX"}, s.http},
		{[]string{"G"}, s.http},
	} {
		here, there := net.Pipe()
		in.give(there)
		var sent string
		for _, p := range c.pieces {
			sent += p
		}
		go func() {
			for _, p := range c.pieces {
				_, _ = io.WriteString(here, p)
			}
			_ = here.Close()
		}()
		conn, err := c.to.Accept()
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if err != nil || string(got) != sent {
			t.Errorf("%q: read %q, %v", c.pieces, got, err)
		}
	}
	// Who says nothing is let go when the gateway ends, and nobody is taken after.
	here, there := net.Pipe()
	in.give(there)
	eventually(t, 10*time.Second, "the silent connection is there", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.silent) == 1
	})
	s.close()
	if _, err := here.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("silent: %v", err)
	}
	if _, err := s.http.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after the end: %v", err)
	}
	_ = in.Close()
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Errorf("serve: %v", err)
	}
}

func TestWhoSaysNothingIsLetGo(t *testing.T) {
	in := newBranch(&net.TCPAddr{})
	s := split(in, 10*time.Millisecond)
	go func() { _ = s.serve() }()
	defer in.Close()
	here, there := net.Pipe()
	in.give(there)
	if _, err := here.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
}
