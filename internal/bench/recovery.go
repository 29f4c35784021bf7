package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/internal/bench/responder"
	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/run"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// takeover measures how long a partition with many open runs is without an owner when one gives it away, from a
// checkpoint and by folding the log.
func takeover(ctx context.Context, o options) ([]row, error) {
	o.partitions = 1
	s, err := newStack(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	stop, err := s.executor(ctx, "bench-a")
	if err != nil {
		return nil, err
	}
	// Calls are never answered, so every run stays open with work owed.
	r, err := responder.Start(ctx, responder.Config{Bus: s.dial("responder"), Call: func(*runv1.Work) *runv1.Observation { return nil }}, false)
	if err != nil {
		return nil, err
	}
	defer r.Stop()
	n := 10_000 / o.scale
	for i := range n {
		if _, err := s.submit(fmt.Sprintf("open-%d", i), "chain 5"); err != nil {
			return nil, err
		}
	}
	// Each run has its submission and its plan in the log.
	groups, events, err := s.settled(ctx, n*4)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, name := range []string{"from the log alone", "from a checkpoint"} {
		if name == "from the log alone" {
			if err := s.dropCheckpoints(ctx); err != nil {
				return nil, err
			}
		}
		stop()
		if name == "from the log alone" {
			if err := s.dropCheckpoints(ctx); err != nil {
				return nil, err
			}
		}
		began := time.Now()
		if stop, err = s.executor(ctx, "bench-b"); err != nil {
			return nil, err
		}
		// It owns the partition when it judges a report.
		done, err := s.submit("probe-"+fmt.Sprint(len(rows)), "fan 1")
		if err != nil {
			return nil, err
		}
		_ = done
		if err := s.inLog(ctx, "probe-"+fmt.Sprint(len(rows))); err != nil {
			return nil, err
		}
		rows = append(rows, row{
			fmt.Sprintf("take-over, %d open runs, %s", n, name), time.Since(began).Round(time.Millisecond).String(),
			fmt.Sprintf("%d groups, %d events", groups, events),
		})
	}
	stop()
	return rows, nil
}

func (s *stack) dropCheckpoints(ctx context.Context) error {
	c, err := eventlog.NewNATSCheckpoints(ctx, s.js)
	if err != nil {
		return err
	}
	names, err := c.List(ctx)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := c.Delete(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

var errStop = errors.New("stop")

// settled follows the only partition until so many events are in it.
func (s *stack) settled(ctx context.Context, want int) (groups, events int, err error) {
	err = s.log.Follow(ctx, 0, 0, func(m eventlog.Message) error {
		g, err := eventlog.DecodeGroup(m.Data)
		if err != nil {
			return err
		}
		groups++
		for _, e := range g.GetEntries() {
			events += int(e.GetLastRevision() - e.GetFirstRevision() + 1)
		}
		if events >= want {
			return errStop
		}
		return nil
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return groups, events, err
}

// inLog waits until a run has a commit.
func (s *stack) inLog(ctx context.Context, id string) error {
	last, err := s.log.Last(ctx, 0)
	if err != nil {
		return err
	}
	// It may have been written before this looks.
	err = s.log.Follow(ctx, 0, max(1, last)-1, func(m eventlog.Message) error {
		g, err := eventlog.DecodeGroup(m.Data)
		if err != nil {
			return err
		}
		for _, e := range g.GetEntries() {
			if e.GetRunId() == id {
				return errStop
			}
		}
		return nil
	})
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// readLarge measures reading one run of 5,000 steps out of a log of a million events.
func readLarge(ctx context.Context, o options) ([]row, error) {
	o.partitions, o.noSync = 1, true // what is measured is reading
	s, err := newStack(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	w := &writer{ctx: ctx, log: s.log, chain: eventlog.Chain{}}
	began := time.Now()
	if err := w.write("wanted", 5000/o.scale, 1_000_000/o.scale); err != nil {
		return nil, err
	}
	wrote := time.Since(began)
	began = time.Now()
	groups := 0
	chain := eventlog.Chain{}
	var commits []*runv1.Commit
	err = s.log.Read(ctx, 0, 0, func(m eventlog.Message) error {
		groups++
		g, err := chain.Next(m)
		if err != nil {
			return err
		}
		for _, e := range g.GetEntries() {
			if e.GetRunId() != "wanted" {
				continue
			}
			c, err := eventlog.DecodeCommit(e)
			if err != nil {
				return err
			}
			commits = append(commits, c)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	read := time.Since(began)
	state, err := run.Replay(commits, 0)
	if err != nil {
		return nil, err
	}
	folded := time.Since(began) - read
	return []row{{
		fmt.Sprintf("one run of %d steps out of %d events", 5000/o.scale, w.events), read.Round(time.Millisecond).String(),
		fmt.Sprintf("%d groups, %d commits of the run, folded to revision %d in %s, written in %s",
			groups, len(commits), state.Revision(), folded.Round(time.Millisecond), wrote.Round(time.Millisecond)),
	}}, nil
}

// writer drives the core itself and writes what an executor would.
type writer struct {
	ctx    context.Context
	log    eventlog.Log
	chain  eventlog.Chain
	group  *runv1.Group
	bytes  int
	events int
}

type live struct {
	state run.State
	hash  []byte
}

func (w *writer) report(l *live, r *runv1.Report) error {
	now := time.Now()
	for step := run.Advance(l.state, r, now); ; step = run.Continue(l.state, now) {
		l.state = step.State
		c := run.NewCommit(step.State, step.Events, step.More, now)
		c.PreviousHash = l.hash
		e, err := eventlog.EncodeCommit(c, step.State.Revision())
		if err != nil {
			return err
		}
		l.hash = eventlog.Hash(e.GetCommit())
		if w.group == nil {
			w.group = &runv1.Group{Number: w.chain.Number + 1, Epoch: 1, PreviousHash: w.chain.Hash, Time: timestamppb.New(now), Owner: "bench"}
		}
		w.group.Entries = append(w.group.Entries, e)
		w.bytes += len(e.GetCommit())
		w.events += len(step.Events)
		if !step.More {
			return nil
		}
		if err := w.flush(1 << 20); err != nil {
			return err
		}
	}
}

// flush appends the group when it has reached so many bytes.
func (w *writer) flush(over int) error {
	if w.group == nil || w.bytes < over {
		return nil
	}
	data, err := eventlog.EncodeGroup(w.group)
	if err != nil {
		return err
	}
	seq, err := w.log.Append(w.ctx, 0, w.chain.Sequence, data)
	if err != nil {
		return err
	}
	w.chain.Accept(w.group, eventlog.Message{Sequence: seq, Data: data})
	w.group, w.bytes = nil, 0
	return nil
}

// write makes the wanted run's commits lie evenly among those of runs of five steps.
func (w *writer) write(id string, steps, total int) error {
	large, err := w.begin(id, fmt.Sprintf("fan %d", steps))
	if err != nil {
		return err
	}
	next := 0
	for i := 0; w.events < total; i++ {
		other, err := w.begin(fmt.Sprintf("other-%d", i), "chain 5")
		if err != nil {
			return err
		}
		for s := range 5 {
			if err := w.report(other, result(other, s)); err != nil {
				return err
			}
		}
		for next < steps && next*total < w.events*steps {
			if err := w.report(large, result(large, next)); err != nil {
				return err
			}
			next++
		}
		// A group of a busy partition holds some thirty commits.
		if err := w.flush(24 << 10); err != nil {
			return err
		}
	}
	for ; next < steps; next++ {
		if err := w.report(large, result(large, next)); err != nil {
			return err
		}
	}
	if !large.state.Terminal() {
		return fmt.Errorf("run %s did not end: %s", id, large.state.Status())
	}
	return w.flush(0)
}

func (w *writer) begin(id, goal string) (*live, error) {
	l := &live{state: run.New(id)}
	err := w.report(l, &runv1.Report{Id: "submit", RunId: id, Tenant: "bench", Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{
		Spec: &runv1.RunSpec{Goal: goal, Limits: &runv1.RunLimits{MaxSteps: 10_000, MaxParallel: 10_000, MaxEvents: 100_000}},
	}}})
	if err != nil {
		return nil, err
	}
	p, tools, err := responder.ByGoal(goal)
	if err != nil {
		return nil, err
	}
	return l, w.report(l, &runv1.Report{Id: "plan", RunId: id, Tenant: "bench", Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{
		RequestId: "plan-1", Plan: p, Tools: tools, Planner: &runv1.PlannerTrace{Source: "template", Name: "bench"},
	}}})
}

func result(l *live, step int) *runv1.Report {
	action := fmt.Sprintf("s%d-1", step)
	return &runv1.Report{Id: action, RunId: l.state.RunID(), Tenant: "bench", Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{
		ActionId: action, Observation: &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_SUCCESS, Output: &runv1.Value{Value: &runv1.Value_Inline{Inline: &planv1.JsonText{Text: `{}`}}}},
	}}}
}
