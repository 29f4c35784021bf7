package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/pkg/bus/embedded"
)

// process is one service of its own, as in production.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	ops  string
	log  *buffer
	done chan struct{}
}

// buffer is written by a process and read by a test.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start begins "cairn args... --ops ADDRESS" and kills it at the end of the test.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: args[0], ops: freeAddress(t), log: &buffer{}, done: make(chan struct{})}
	p.cmd = exec.Command("cairn", append(args, "--ops", p.ops)...)
	p.cmd.Stderr, p.cmd.Stdout = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("log of %s:\n%s", p.name, p.log)
		}
	})
	return p
}

// kill is the end without any farewell.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// terminate asks it to end and returns the exit code.
func (p *process) terminate() int {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("%s does not end after SIGTERM:\n%s", p.name, p.log)
		return -1
	}
}

// get asks the operations address.
func (p *process) get(path string) (int, string) {
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.ops+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// until waits for something that must happen.
func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !happened(); {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *process) ready() {
	p.t.Helper()
	until(p.t, p.name+" is ready", func() bool { code, _ := p.get("/readyz"); return code == http.StatusOK })
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// natsServer is a server of its own, without streams.
func natsServer(t *testing.T) string {
	t.Helper()
	return natsServerAt(t, "127.0.0.1:0")
}

func natsServerAt(t *testing.T, address string) string {
	t.Helper()
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := embedded.Start(context.Background(), embedded.Config{Dir: t.TempDir(), Host: host, Port: port, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.URL()
}

func cairn(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "cairn", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("cairn %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
