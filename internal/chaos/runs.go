//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/eventlog"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// progress is what the log says of a run.
type progress struct {
	last    time.Time
	longest time.Duration
	ended   bool
	// completed: it ended as it should.
	completed bool
}

// runs are all that were accepted, and what the log holds.
type runs struct {
	gateway    string
	js         jetstream.JetStream
	partitions int

	mu   sync.Mutex
	all  []string
	seen map[string]*progress
	// wake is closed and made anew when the log has something new.
	wake  chan struct{}
	count map[string]int
}

func newRuns(ctx context.Context, s *system, o options) (*runs, error) {
	_, js, err := bus.Connect(bus.Config{URL: s.url, Name: "chaos"})
	if err != nil {
		return nil, err
	}
	n, err := bus.Partitions(ctx, js)
	if err != nil {
		return nil, err
	}
	log, err := eventlog.NewNATS(ctx, js, eventlog.NATSConfig{})
	if err != nil {
		return nil, err
	}
	r := &runs{gateway: s.gateway, js: js, partitions: n, seen: map[string]*progress{}, wake: make(chan struct{}), count: map[string]int{}}
	for p := range n {
		go func() {
			var after uint64
			for ctx.Err() == nil {
				// The bus is restarted meanwhile.
				_ = log.Follow(ctx, p, after, func(m eventlog.Message) error {
					after = m.Sequence
					return r.note(m)
				})
				time.Sleep(100 * time.Millisecond)
			}
		}()
	}
	return r, nil
}

func (r *runs) note(m eventlog.Message) error {
	g, err := eventlog.DecodeGroup(m.Data)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range g.GetEntries() {
		c, err := eventlog.DecodeCommit(e)
		if err != nil {
			return err
		}
		p := r.seen[e.GetRunId()]
		if p == nil {
			p = &progress{last: m.Time}
			r.seen[e.GetRunId()] = p
		}
		if !p.ended {
			p.longest = max(p.longest, m.Time.Sub(p.last))
		}
		p.last = m.Time
		p.ended = p.ended || c.GetPhase() == runv1.RunPhase_RUN_PHASE_ENDED
	}
	close(r.wake)
	r.wake = make(chan struct{})
	return nil
}

// submitAll keeps so many runs under way until the time is over or all are submitted.
func (r *runs) submitAll(ctx context.Context, o options) {
	over := time.Now().Add(o.duration)
	next := 0
	var mu sync.Mutex
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil || o.runs > 0 && next >= o.runs || o.runs == 0 && time.Now().After(over) {
			return 0, false
		}
		next++
		return next, true
	}
	var workers sync.WaitGroup
	for range o.parallel {
		workers.Go(func() {
			for n, ok := take(); ok; n, ok = take() {
				id := r.submit(ctx, n)
				// A run that waits for the end of an unknown outcome must not hold up the others for long.
				r.ended(ctx, id, 5*time.Second)
			}
		})
	}
	workers.Wait()
}

// submit repeats until the run is accepted.
func (r *runs) submit(ctx context.Context, n int) string {
	goal := fmt.Sprintf("chaos %d", n)
	if n%5 == 0 {
		goal += " spoilt"
	}
	for ctx.Err() == nil {
		resp, err := r.trySubmit(ctx, fmt.Sprintf("chaos-%d", n), goal)
		if err == nil {
			r.mu.Lock()
			r.all = append(r.all, resp.GetRunId())
			r.mu.Unlock()
			return resp.GetRunId()
		}
		time.Sleep(100 * time.Millisecond)
	}
	return ""
}

func (r *runs) trySubmit(ctx context.Context, request, goal string) (*apiv1.SubmitRunResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	c, err := client.Connect(ctx, client.Options{Server: r.gateway})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Runs.SubmitRun(ctx, &apiv1.SubmitRunRequest{RequestId: request, Spec: &runv1.RunSpec{Goal: goal}})
}

// ended waits for a run's end in the log.
func (r *runs) ended(ctx context.Context, id string, limit time.Duration) bool {
	timeout := time.After(limit)
	for {
		r.mu.Lock()
		p, wake := r.seen[id], r.wake
		ended := p != nil && p.ended
		r.mu.Unlock()
		if ended {
			return true
		}
		select {
		case <-wake:
		case <-timeout:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// await waits until all have ended, or nothing has happened in any open run for that long.
func (r *runs) await(ctx context.Context, stuck time.Duration) {
	for _, id := range r.all {
		for !r.ended(ctx, id, time.Second) && ctx.Err() == nil {
			r.mu.Lock()
			last := time.Time{}
			if p := r.seen[id]; p != nil {
				last = p.last
			}
			r.mu.Unlock()
			if time.Since(last) > stuck {
				break
			}
		}
	}
}

// longest is the longest standstill of all runs, and of those that completed: a start whose outcome stays unknown is waited
// for until its grace is over.
func (r *runs) longest() (all, completed time.Duration) {
	for _, p := range r.seen {
		all = max(all, p.longest)
		if p.completed {
			completed = max(completed, p.longest)
		}
	}
	return all.Round(10 * time.Millisecond), completed.Round(10 * time.Millisecond)
}

// current is a run that was accepted lately.
func (r *runs) current() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		return ""
	}
	return r.all[len(r.all)-1]
}

// check asks the system itself about every run.
func (r *runs) check(ctx context.Context, v *verdict, stuck time.Duration) {
	c, err := client.Connect(ctx, client.Options{Server: r.gateway})
	if err != nil {
		v.add("gateway: %v", err)
		return
	}
	defer c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range r.all {
		p := r.seen[id]
		switch {
		case p == nil:
			v.add("run %s was accepted and is not in the log", id)
			continue
		case !p.ended:
			v.add("run %s has not ended; its last commit is %s old", id, time.Since(p.last).Round(time.Second))
		case p.longest > stuck:
			v.add("run %s stood still for %s", id, p.longest.Round(time.Second))
		}
		got, err := c.Query.GetRun(ctx, &apiv1.GetRunRequest{RunId: id})
		if err != nil {
			v.add("run %s: get: %v", id, err)
			continue
		}
		outcome := strings.ToLower(strings.TrimPrefix(got.GetRun().GetStatus().String(), "RUN_STATUS_"))
		if code := got.GetRun().GetError().GetCode(); code != "" {
			outcome += " " + code
		}
		r.count[outcome]++
		p.completed = outcome == "completed"
		replayed, err := c.Query.ReplayRun(ctx, &apiv1.ReplayRunRequest{RunId: id, Verify: true})
		if err != nil {
			v.add("run %s: replay: %v", id, err)
		} else if d := replayed.GetDifference(); d != nil {
			v.add("run %s: replay differs at revision %d: %s: log %s, replay %s", id, d.GetRevision(), d.GetWhat(), d.GetLogged(), d.GetReplayed())
		}
	}
}

func (r *runs) outcomes() string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(r.count)) {
		out = append(out, fmt.Sprintf("%d %s", r.count[k], k))
	}
	return strings.Join(out, ", ")
}

// verdict gathers what must not be.
type verdict struct {
	violations       []string
	effects, repeats int
}

func (v *verdict) add(format string, args ...any) {
	v.violations = append(v.violations, fmt.Sprintf(format, args...))
}

// shown bounds the details.
const shown = 20

func (v *verdict) err() error {
	if len(v.violations) == 0 {
		return nil
	}
	for _, text := range v.violations[:min(shown, len(v.violations))] {
		fmt.Fprintln(os.Stderr, "violation:", text)
	}
	return errors.New("the system did not hold")
}
