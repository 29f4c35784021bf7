//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/pkg/bus/embedded"
)

// readyWithin is how long a process may take until it is ready.
const readyWithin = 30 * time.Second

// process is one that can be killed, stopped and started again.
type process struct {
	name string
	path string
	args []string
	// ops is where readiness is asked for; empty: it listens on listen when it is ready.
	ops, listen string
	log         *os.File

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	fmt.Fprintf(p.log, "--- %s started at %s\n", p.name, time.Now().UTC().Format(time.RFC3339Nano))
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := cmd.Wait()
		fmt.Fprintf(p.log, "--- %s ended at %s: %v\n", p.name, time.Now().UTC().Format(time.RFC3339Nano), err)
	}()
	p.cmd, p.done = cmd, done
	return nil
}

// signal sends one to the process, by its id.
func (p *process) signal(s syscall.Signal) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		c := make(chan struct{})
		close(c)
		return c
	}
	_ = p.cmd.Process.Signal(s)
	return p.done
}

// died says that a process ended by itself.
func (p *process) died() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) ready(ctx context.Context) bool {
	if p.ops == "" {
		c, err := net.DialTimeout("tcp", p.listen, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.ops+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (p *process) awaitReady(ctx context.Context) error {
	for end := time.Now().Add(readyWithin); ; time.Sleep(50 * time.Millisecond) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case p.ready(ctx):
			return nil
		case p.died():
			return fmt.Errorf("%s ended by itself, see %s", p.name, p.log.Name())
		case time.Now().After(end):
			return fmt.Errorf("%s is not ready after %s, see %s", p.name, readyWithin, p.log.Name())
		}
	}
}

// system is all processes.
type system struct {
	dir, cairn, url, gateway string
	nats                     *process
	services                 []*process
}

func (s *system) database() string { return filepath.Join(s.dir, "runs.db") }
func (s *system) effects() string  { return filepath.Join(s.dir, "effects") }

func (s *system) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s.cairn = filepath.Join(s.dir, "cairn")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", s.cairn, "github.com/cairnrun/cairn/cmd/cairn").CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	templates := filepath.Join(s.dir, "templates.yaml")
	if err := os.WriteFile(templates, []byte(templatesText), 0o600); err != nil {
		return err
	}
	free, err := freeAddresses(12)
	if err != nil {
		return err
	}
	s.url, s.gateway = "nats://"+free[0], free[1]
	store := free[2]
	next := 3
	add := func(name, path, ops, listen string, args ...string) (*process, error) {
		log, err := os.Create(filepath.Join(s.dir, name+".log"))
		p := &process{name: name, path: path, args: args, ops: ops, listen: listen, log: log}
		return p, err
	}
	service := func(name string, args ...string) error {
		args = append(args, "--nats", s.url, "--ops", free[next])
		p, err := add(name, s.cairn, free[next], "", args...)
		next++
		s.services = append(s.services, p)
		return err
	}
	s.nats, err = add("nats", self, "", free[0], "nats", filepath.Join(s.dir, "nats"), free[0])
	err = errors.Join(err,
		service("gateway", "gateway", "--listen", s.gateway, "--runstore", store),
		service("planner", "planner", "--templates", templates),
		service("executor-a", "executor"), service("executor-b", "executor"),
		service("toolrouter-a", "toolrouter"), service("toolrouter-b", "toolrouter"),
		service("runstore", "runstore", "--listen", store, "--db", s.database()))
	tools, toolsErr := add("tools", self, free[next], "", "tools", s.url+" "+free[next], s.effects())
	s.services = append(s.services, tools)
	if err := errors.Join(err, toolsErr); err != nil {
		return err
	}
	return s.startAll(ctx)
}

// freeAddresses are all different.
func freeAddresses(n int) (all []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		all = append(all, l.Addr().String())
	}
	return all, nil
}

func (s *system) startAll(ctx context.Context) error {
	for _, step := range []func() error{
		s.nats.start,
		func() error { return s.nats.awaitReady(ctx) },
		func() error { return s.command(ctx, "init", "--nats", s.url) },
		s.startServices,
		func() error { return s.readyAll(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (s *system) startServices() error {
	for _, p := range s.services {
		if err := p.start(); err != nil {
			return err
		}
	}
	return nil
}

func (s *system) readyAll(ctx context.Context) error {
	for _, p := range append([]*process{s.nats}, s.services...) {
		if err := p.awaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *system) command(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, s.cairn, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("cairn %v: %w\n%s", args, err, out)
	}
	return nil
}

func (s *system) kill() {
	for _, p := range append(s.services, s.nats) {
		if p != nil {
			<-p.signal(syscall.SIGKILL)
		}
	}
}

type faultCounts struct{ kills, stops, bus int }

// stopFor is longer than any lease or wait for an acknowledgement.
const stopFor = 8 * time.Second

// break_ does faults until ctx ends; then everything runs again.
func (s *system) break_(ctx context.Context, o options, r *rand.Rand) (n faultCounts) {
	var stopped sync.WaitGroup
	defer stopped.Wait()
	frozen := map[*process]bool{}
	thawed := make(chan *process, len(s.services))
	busAt := time.Now().Add(o.duration / 2)
	for i := 1; ; i++ {
		select {
		case <-ctx.Done():
			return n
		case p := <-thawed:
			delete(frozen, p)
			continue
		case <-time.After(o.every/2 + upTo(r, o.every)):
		}
		if n.bus == 0 && time.Now().After(busAt) {
			<-s.nats.signal(syscall.SIGKILL)
			time.Sleep(upTo(r, time.Second))
			if err := s.nats.start(); err != nil {
				fmt.Fprintln(os.Stderr, "chaos:", err)
			}
			n.bus++
			continue
		}
		p := s.services[r.IntN(len(s.services))]
		switch {
		case frozen[p], o.spareTools && p.name == "tools":
		case i%5 == 0:
			frozen[p] = true
			pause := stopFor + upTo(r, stopFor/4)
			p.signal(syscall.SIGSTOP)
			n.stops++
			stopped.Go(func() {
				select {
				case <-time.After(pause):
				case <-ctx.Done():
				}
				p.signal(syscall.SIGCONT)
				thawed <- p
			})
		default:
			<-p.signal(syscall.SIGKILL)
			time.Sleep(upTo(r, o.every/2))
			if err := p.start(); err != nil {
				fmt.Fprintln(os.Stderr, "chaos:", err)
			}
			n.kills++
		}
	}
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

func serveNATS(dir, address string) error {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	if _, err := embedded.Start(context.Background(), embedded.Config{Dir: dir, Host: host, Port: port}); err != nil {
		return err
	}
	select {}
}
