package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// step is the neutral form of a step.
type step struct {
	ID        string          `json:"id"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	DependsOn []string        `json:"depends_on"`
}

type toolSpec struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	OutputSchema json.RawMessage `json:"output_schema"`
}

// readLines reads a file of one JSON document a line.
func readLines[T any](path string) ([]T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var all []T
	r := bufio.NewReaderSize(f, 1<<20)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var c T
			if err := json.Unmarshal(line, &c); err != nil {
				return nil, fmt.Errorf("%s line %d: %w", path, n, err)
			}
			all = append(all, c)
		}
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// document makes a plan of neutral steps; finish, where given, is the arguments of a finish step behind all last steps.
func document(goal string, steps []step, finish any) (string, error) {
	type action struct {
		Kind      string `json:"kind"`
		Name      string `json:"name"`
		Arguments any    `json:"arguments"`
	}
	type planStep struct {
		ID        string   `json:"id"`
		Objective string   `json:"objective"`
		Action    action   `json:"action"`
		DependsOn []string `json:"depends_on,omitempty"`
	}
	doc := struct {
		Goal  string     `json:"goal"`
		Steps []planStep `json:"steps"`
	}{Goal: goal}
	for _, s := range steps {
		doc.Steps = append(doc.Steps, planStep{ID: s.ID, Objective: "call " + s.Tool, Action: action{"tool", s.Tool, s.Arguments}, DependsOn: s.DependsOn})
	}
	if finish != nil {
		doc.Steps = append(doc.Steps, planStep{ID: "finish", Objective: "answer", Action: action{"control", "finish", finish}, DependsOn: lastSteps(steps)})
	}
	b, err := json.Marshal(doc)
	return string(b), err
}

func lastSteps(steps []step) []string {
	needed := map[string]bool{}
	for _, s := range steps {
		for _, d := range s.DependsOn {
			needed[d] = true
		}
	}
	var last []string
	for _, s := range steps {
		if !needed[s.ID] {
			last = append(last, s.ID)
		}
	}
	return last
}

// canonical is a value's text with sorted keys and numbers by value, so that 20 equals 20.0.
func canonical(text []byte) string {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "not JSON: " + string(text)
	}
	var b strings.Builder
	writeCanonical(&b, v)
	return b.String()
}

func writeCanonical(b *strings.Builder, v any) {
	switch v := v.(type) {
	case json.Number:
		if r, ok := new(big.Rat).SetString(v.String()); ok {
			b.WriteString(r.RatString())
			return
		}
		b.WriteString(v.String())
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		b.WriteByte('{')
		for _, k := range keys {
			fmt.Fprintf(b, "%q:", k)
			writeCanonical(b, v[k])
			b.WriteByte(',')
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for _, x := range v {
			writeCanonical(b, x)
			b.WriteByte(',')
		}
		b.WriteByte(']')
	default:
		fmt.Fprintf(b, "%#v", v)
	}
}

// byRun finds the case that a tool call belongs to. A call may come before the submitter has been told the run's id, so
// looking waits.
type byRun[T any] struct {
	mu    sync.Mutex
	cases map[string]T
	added chan struct{}
}

func newByRun[T any]() *byRun[T] {
	return &byRun[T]{cases: map[string]T{}, added: make(chan struct{})}
}

func (b *byRun[T]) put(runID string, c T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cases[runID] = c
	close(b.added)
	b.added = make(chan struct{})
}

func (b *byRun[T]) get(ctx context.Context, runID string) (T, error) {
	for {
		b.mu.Lock()
		c, ok := b.cases[runID]
		added := b.added
		b.mu.Unlock()
		if ok {
			return c, nil
		}
		select {
		case <-added:
		case <-ctx.Done():
			return c, fmt.Errorf("no case is known for run %s", runID)
		}
	}
}

// now is get without waiting.
func (b *byRun[T]) now(runID string) (T, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, ok := b.cases[runID]
	return c, ok
}

// caseTimeout bounds one case.
const caseTimeout = 3 * time.Minute

// submit hands a plan to the gateway.
func (s *stack) submit(ctx context.Context, name, plan string, parallel int32) (*apiv1.SubmitRunResponse, error) {
	return s.runs.SubmitRun(ctx, &apiv1.SubmitRunRequest{RequestId: requestID(name), Spec: &runv1.RunSpec{
		Plan: &planv1.JsonText{Text: plan}, Limits: &runv1.RunLimits{MaxParallel: parallel},
	}})
}

// requestID makes a request id of a case's name, which may be longer than a request id can be.
func requestID(name string) string {
	sum := sha256.Sum256([]byte(name))
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, name)
	return clean[:min(len(clean), 40)] + "-" + hex.EncodeToString(sum[:6])
}

// finished waits for a run's end and reads its state from the run store.
func (s *stack) finished(ctx context.Context, runID string, position *apiv1.LogPosition) (*runv1.RunState, string) {
	o, err := s.observer.ended(ctx, runID)
	if err != nil {
		return nil, fmt.Sprintf("run %s has not ended at revision %d: %v", runID, o.revision, err)
	}
	if o.status != runv1.RunStatus_RUN_STATUS_COMPLETED {
		return nil, fmt.Sprintf("run %s ended as %s: %s", runID, o.status, o.failure)
	}
	for {
		got, err := s.query.GetRun(ctx, &apiv1.GetRunRequest{RunId: runID, Position: position})
		if err != nil {
			return nil, "get: " + err.Error()
		}
		if got.GetRun().GetRevision() >= o.revision {
			return got.GetRun(), ""
		}
		select {
		case <-time.After(20 * time.Millisecond): // the store projects a little behind the log
		case <-ctx.Done():
			return nil, fmt.Sprintf("run %s: the run store stays at revision %d of %d", runID, got.GetRun().GetRevision(), o.revision)
		}
	}
}

// eachCase runs fn for all cases, some at once.
func eachCase[T any](ctx context.Context, cases []T, atOnce int, fn func(context.Context, T)) {
	var wg sync.WaitGroup
	gate := make(chan struct{}, atOnce)
	for _, c := range cases {
		gate <- struct{}{}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-gate }()
			ctx, stop := context.WithTimeout(ctx, caseTimeout)
			defer stop()
			fn(ctx, c)
		}()
	}
	wg.Wait()
}

// distinct is the first definition of each tool name.
func distinct(all []toolSpec) []toolSpec {
	var out []toolSpec
	for _, t := range all {
		if !slices.ContainsFunc(out, func(o toolSpec) bool { return o.Name == t.Name }) {
			out = append(out, t)
		}
	}
	return out
}
