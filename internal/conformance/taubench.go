package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cairnrun/cairn/pkg/tool"
)

// tauCase: calls change versioned records; a call is taken only in the versions in which it was recorded.
type tauCase struct {
	ID              string            `json:"id"`
	Goal            string            `json:"goal"`
	Tools           []toolSpec        `json:"tools"`
	Steps           []step            `json:"steps"`
	Recorded        []tauRecord       `json:"recorded"`
	InitialVersions map[string]string `json:"initial_versions"`
	Gold            struct {
		ResolvedArguments map[string]json.RawMessage `json:"resolved_arguments"`
		FinalVersions     map[string]string          `json:"final_versions"`
	} `json:"gold"`
}

type tauRecord struct {
	Tool      string            `json:"tool"`
	Arguments json.RawMessage   `json:"arguments"`
	Output    json.RawMessage   `json:"output"`
	Reads     map[string]string `json:"reads"`
	Writes    map[string]struct {
		Before string `json:"before"`
		After  string `json:"after"`
	} `json:"writes"`
}

// tauServer is one run's world.
type tauServer struct {
	c *tauCase

	mu       sync.Mutex
	versions map[string]string
	bad      []string
	writes   []string
	resolved map[string]string
	// answered holds results by idempotency key, as a tool that honours keys does.
	answered map[string]json.RawMessage
}

func newTauServer(c *tauCase) *tauServer {
	s := &tauServer{c: c, versions: map[string]string{}, resolved: map[string]string{}, answered: map[string]json.RawMessage{}}
	for k, v := range c.InitialVersions {
		s.versions[k] = v
	}
	return s
}

func (s *tauServer) call(name string, a *tool.Call, args json.RawMessage) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if out, ok := s.answered[a.IdempotencyKey]; ok {
		return out
	}
	want := canonical(args)
	s.resolved[a.StepID] = want
	var known *tauRecord
	for i, r := range s.c.Recorded {
		if r.Tool != name || canonical(r.Arguments) != want {
			continue
		}
		known = &s.c.Recorded[i]
		if s.fits(r) {
			for k, w := range r.Writes {
				s.versions[k] = w.After
			}
			if len(r.Writes) > 0 {
				s.writes = append(s.writes, name+" "+want)
			}
			s.answered[a.IdempotencyKey] = r.Output
			return r.Output
		}
	}
	if known == nil {
		s.bad = append(s.bad, fmt.Sprintf("%s: no call with %.120s was recorded", name, args))
		return json.RawMessage("{}")
	}
	if len(known.Writes) > 0 {
		s.writes = append(s.writes, name+" "+want)
	}
	s.bad = append(s.bad, name+": wrong versions: order, repeat or lost write")
	return known.Output
}

func (s *tauServer) fits(r tauRecord) bool {
	for k, v := range r.Reads {
		if v != "" && s.versions[k] != v {
			return false
		}
	}
	for k, w := range r.Writes {
		if s.versions[k] != w.Before {
			return false
		}
	}
	return true
}

func (s *tauServer) problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.bad)
	for k, v := range s.c.Gold.FinalVersions {
		if s.versions[k] != v {
			out = append(out, fmt.Sprintf("final version of %s is %s, gold %s", k, s.versions[k], v))
		}
	}
	var gold []string
	for _, r := range s.c.Recorded {
		if len(r.Writes) > 0 {
			gold = append(gold, r.Tool+" "+canonical(r.Arguments))
		}
	}
	slices.Sort(gold)
	slices.Sort(s.writes)
	if !slices.Equal(gold, s.writes) {
		out = append(out, fmt.Sprintf("%d writes, gold %d", len(s.writes), len(gold)))
	}
	for step, args := range s.c.Gold.ResolvedArguments {
		if s.resolved[step] != canonical(args) {
			out = append(out, fmt.Sprintf("step %s was called with %s, gold %s", step, s.resolved[step], canonical(args)))
		}
	}
	return out
}

func runTaubench(ctx context.Context, folder string, _ options) (*tally, error) {
	cases, err := readLines[*tauCase](filepath.Join(folder, "cases.jsonl"))
	if err != nil {
		return nil, err
	}
	t := &tally{}
	if err := tauPass(ctx, cases, t, shape{}, "calm"); err != nil {
		return nil, err
	}
	return t, tauPass(ctx, cases, t, shape{processes: 2}, "killed")
}

// tauPass runs all cases once; with processes, executors and tool routers are killed while it runs.
func tauPass(ctx context.Context, cases []*tauCase, t *tally, sh shape, label string) error {
	running := newByRun[*tauServer]()
	var specs []toolSpec
	writes := map[string]bool{}
	for _, c := range cases {
		specs = append(specs, c.Tools...)
		for _, r := range c.Recorded {
			writes[r.Tool] = writes[r.Tool] || len(r.Writes) > 0
		}
	}
	var tools []*tool.Tool
	for _, spec := range distinct(specs) {
		answer := func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			server, err := running.get(ctx, tool.Action(ctx).RunID)
			if err != nil {
				return nil, err
			}
			return server.call(spec.Name, tool.Action(ctx), args), nil
		}
		opts := []tool.Option{tool.InputSchema(string(spec.InputSchema)), tool.OutputSchema("true"), tool.Description(spec.Description), tool.Concurrency(64)}
		if !writes[spec.Name] {
			opts = append(opts, tool.Idempotent()) // writing tools are not: their starts are claimed
		}
		tools = append(tools, tool.New(spec.Name, answer, opts...))
	}
	s, err := start(ctx, sh, tools...)
	if err != nil {
		return err
	}
	defer s.close()
	atOnce := 16
	if sh.processes > 0 {
		stop, err := s.killers(ctx, sh.processes)
		if err != nil {
			return err
		}
		defer stop()
		atOnce = 4
	}
	eachCase(ctx, cases, atOnce, func(ctx context.Context, c *tauCase) {
		name := c.ID + " " + label
		plan, err := document(c.Goal, c.Steps, nil)
		if err != nil {
			t.add(name, err.Error())
			return
		}
		got, err := s.submit(ctx, label+"-"+c.ID, plan, 0)
		if err != nil {
			t.add(name, "submit: "+err.Error())
			return
		}
		server := newTauServer(c)
		running.put(got.GetRunId(), server)
		if _, problem := s.finished(ctx, got.GetRunId(), got.GetPosition()); problem != "" {
			t.add(name, append(server.problems(), problem)...)
			return
		}
		t.add(name, server.problems()...)
	})
	return nil
}

// killers runs n executors and n tool routers as processes and kills one of them at random moments, always leaving it to
// come back.
func (s *stack) killers(ctx context.Context, n int) (stop func(), err error) {
	binary, err := buildBinary(ctx, s.dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, service := range []string{"executor", "toolrouter"} {
		for i := range n {
			wg.Add(1)
			go func() {
				defer wg.Done()
				rng := rand.New(rand.NewPCG(uint64(i), uint64(len(service))))
				for ctx.Err() == nil {
					life := time.Duration(1500+rng.IntN(6000)) * time.Millisecond
					if err := oneLife(ctx, binary, service, s.url, life); err != nil {
						fmt.Fprintf(os.Stderr, "conformance: %s %d: %v\n", service, i, err)
					}
				}
			}()
		}
	}
	return func() { cancel(); wg.Wait() }, nil
}

// oneLife is a process from start to SIGKILL.
func oneLife(ctx context.Context, binary, service, url string, life time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, life)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, service, "--nats", url, "--ops", "127.0.0.1:0") // the context's end is SIGKILL
	if os.Getenv("CAIRN_CONFORMANCE_LOG") != "" {
		cmd.Stderr = os.Stderr
	}
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("it ended by itself: %w", err)
}
