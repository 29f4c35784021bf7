package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"

	"github.com/cairnrun/cairn/pkg/tool"
)

// asyncCase: steps that take time; the run must take no longer than its critical path.
type asyncCase struct {
	ID    string `json:"id"`
	Steps []step `json:"steps"`
	Gold  struct {
		MakespanS json.RawMessage `json:"makespan_s"`
		SerialS   float64         `json:"serial_s"`
	} `json:"gold"`
}

type asyncRun struct {
	c       *asyncCase
	workers int
}

// first is a number, or the first of a range of two.
func first(text json.RawMessage) (float64, error) {
	var one float64
	if json.Unmarshal(text, &one) == nil {
		return one, nil
	}
	var two []float64
	if err := json.Unmarshal(text, &two); err != nil || len(two) == 0 {
		return 0, fmt.Errorf("%s is neither a number nor a range", text)
	}
	return two[0], nil
}

func runAsynchow(ctx context.Context, folder string, o options) (*tally, error) {
	cases, err := readLines[*asyncCase](filepath.Join(folder, "cases.jsonl"))
	if err != nil {
		return nil, err
	}
	clocks := newByRun[*virtualClock]()
	work := tool.New("work", func(ctx context.Context, in struct {
		Seconds json.RawMessage `json:"seconds"`
	}) (map[string]bool, error) {
		seconds, err := first(in.Seconds)
		if err != nil {
			return nil, err
		}
		clock, err := clocks.get(ctx, tool.Action(ctx).RunID)
		if err != nil {
			return nil, err
		}
		return map[string]bool{"done": true}, clock.work(ctx, tool.Action(ctx).ActionID, seconds)
	}, tool.InputSchema(`{"type":"object","required":["seconds"]}`), tool.OutputSchema("true"), tool.Idempotent(), tool.Concurrency(4096))
	s, err := start(ctx, shape{}, work)
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.observer.setOnCommit(func(runID string) {
		if clock, ok := clocks.now(runID); ok {
			clock.move()
		}
	})
	var runs []asyncRun
	for i, c := range cases {
		if o.short && i%5 != 0 {
			continue
		}
		for workers := range 4 {
			runs = append(runs, asyncRun{c, workers})
		}
	}
	t := &tally{}
	eachCase(ctx, runs, 64, func(ctx context.Context, r asyncRun) {
		name := fmt.Sprintf("%s with %d workers", r.c.ID, r.workers)
		plan, err := document("work", r.c.Steps, nil)
		if err != nil {
			t.add(name, err.Error())
			return
		}
		got, err := s.submit(ctx, fmt.Sprintf("%d-%s", r.workers, r.c.ID), plan, int32(r.workers))
		if err != nil {
			t.add(name, "submit: "+err.Error())
			return
		}
		clock := newVirtualClock(s.observer, got.GetRunId())
		clocks.put(got.GetRunId(), clock)
		end, err := s.observer.ended(ctx, got.GetRunId())
		if err != nil || end.failure != "" {
			t.add(name, fmt.Sprintf("at revision %d: %v %s", end.revision, err, end.failure))
			return
		}
		span, peak := clock.end()
		t.add(name, r.problems(span, peak)...)
	})
	return t, nil
}

// problems: without a worker limit the makespan is the critical path; with one it lies within Graham's bounds.
func (r asyncRun) problems(span float64, peak int) []string {
	path, err := first(r.c.Gold.MakespanS)
	if err != nil {
		return []string{err.Error()}
	}
	if r.workers == 0 {
		if span != path {
			return []string{fmt.Sprintf("makespan %g, gold %g", span, path)}
		}
		return nil
	}
	var out []string
	w, total := float64(r.workers), r.c.Gold.SerialS
	low, high := math.Max(path, total/w), total/w+path*(w-1)/w
	if span < low-1e-6 || span > high+1e-6 {
		out = append(out, fmt.Sprintf("makespan %g outside of %g to %g", span, low, high))
	}
	if peak > r.workers {
		out = append(out, fmt.Sprintf("%d at once", peak))
	}
	return out
}
