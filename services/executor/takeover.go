package executor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// conflictWindow: a second conflict within it makes the next try wait.
const conflictWindow = 10 * time.Second

// takeOver folds the log and fences every earlier owner; after it serve may run.
func (o *owner) takeOver(ctx context.Context) error {
	began := time.Now()
	o.load(ctx)
	from := o.chain.Number
	if err := o.fold(ctx); err != nil {
		return err
	}
	o.epoch = max(o.lease.Epoch(), o.chain.Epoch+1)
	if err := o.fence(ctx); err != nil {
		return err
	}
	o.ready()
	src, err := o.open(ctx, o.partition)
	if err != nil {
		return err
	}
	o.reports, o.recovering, o.lastReport = src, src.Waiting(), time.Now()
	o.checkpointed = time.Now()
	if folded := o.chain.Number - from; folded > 1000 {
		o.commitsSince = max(o.commitsSince, 1)
		o.checkpointed = time.Time{}
	}
	o.metrics.takeover()
	o.log.Info("partition taken over", "epoch", o.epoch, "open_runs", len(o.runs), "groups_folded", o.chain.Number-from,
		"reports_waiting", o.recovering, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// load takes the newest checkpoint that fits the log.
func (o *owner) load(ctx context.Context) {
	err := eventlog.LoadCheckpoint(ctx, o.checkpoints, o.partition, func(chunks []*runv1.Checkpoint) error {
		if err := o.checkPlace(ctx, chunks[0]); err != nil {
			return err
		}
		return o.restore(chunks)
	}, func(err error) { o.log.Warn("checkpoint cannot be used; more of the log is folded", "error", err) })
	if err != nil {
		o.log.Info("no checkpoint, the log is folded from its start")
	}
}

// checkPlace compares a checkpoint with the group in the log that it says it was made at.
func (o *owner) checkPlace(ctx context.Context, c *runv1.Checkpoint) error {
	errFound := errors.New("found")
	err := o.journal.Read(ctx, o.partition, c.GetLogSequence()-1, func(m eventlog.Message) error {
		g, err := eventlog.DecodeGroup(m.Data)
		if err != nil {
			return err
		}
		if m.Sequence != c.GetLogSequence() || g.GetNumber() != c.GetGroupNumber() || string(eventlog.Hash(m.Data)) != string(c.GetGroupHash()) {
			return errors.New("the log holds another group at its place")
		}
		return errFound
	})
	if err == nil {
		return errors.New("the log ends before its place")
	}
	if !errors.Is(err, errFound) {
		return err
	}
	return nil
}

// restore fills the owner from a checkpoint, or leaves it empty.
func (o *owner) restore(chunks []*runv1.Checkpoint) (err error) {
	head := chunks[0]
	now := o.cfg.Clock.Now()
	runs, ended := map[string]*openRun{}, newEndedRuns(o.cfg.EndedMax)
	for _, c := range chunks {
		for _, r := range c.GetRuns() {
			s, err := run.Restore(r.GetState())
			if err != nil {
				return fmt.Errorf("run %s: %w", r.GetState().GetRunId(), err)
			}
			ru := newOpenRun(s.RunID())
			ru.acked = mark{s, r.GetCommitHash(), r.GetLastTime().AsTime(), head.GetLogSequence()}
			ru.head = ru.acked
			ru.snapshotAt = s.Revision()
			ru.retries, ru.replans = int64(r.GetState().GetRetries()), int64(r.GetState().GetReplans())
			ru.touched = now
			runs[ru.id] = ru
		}
		for _, e := range c.GetEnded() {
			ended.add(&endedRun{
				id: e.GetRunId(), digest: e.GetBodyDigest(), revision: e.GetRevision(), status: e.GetStatus(),
				at: e.GetEndedAt().AsTime(), sequence: head.GetLogSequence(),
			})
		}
	}
	o.runs, o.ended = runs, ended
	o.chain = eventlog.Chain{
		Partition: o.partition, Number: head.GetGroupNumber(), Hash: head.GetGroupHash(), Sequence: head.GetLogSequence(), Epoch: head.GetEpoch(),
	}
	return nil
}

// fold reads what the log holds beyond the chain.
func (o *owner) fold(ctx context.Context) error {
	return o.journal.Read(ctx, o.partition, o.chain.Sequence, func(m eventlog.Message) error {
		g, err := o.chain.Next(m)
		if errors.Is(err, eventlog.ErrFork) {
			o.log.Error("a group of the log is left out", "error", err)
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range g.GetEntries() {
			o.foldEntry(e, m)
		}
		o.commitsSince += len(g.GetEntries())
		return nil
	})
}

// foldEntry applies a commit. What cannot be applied holds its run back and no other.
func (o *owner) foldEntry(e *runv1.Entry, m eventlog.Message) {
	id := e.GetRunId()
	ru := o.runs[id]
	if ru == nil {
		if end := o.ended.byID[id]; end != nil {
			// What comes after the end changes no outcome.
			end.revision, end.sequence = max(end.revision, e.GetLastRevision()), m.Sequence
			return
		}
		ru = newOpenRun(id)
		o.runs[id] = ru
	}
	if ru.held != "" {
		return
	}
	if err := ru.fold(e, m.Sequence); err != nil {
		o.hold(ru, err.Error())
		return
	}
	if ru.acked.state.Terminal() {
		o.over(ru)
	}
}

// fold applies one commit of the log to the run.
func (ru *openRun) fold(e *runv1.Entry, sequence uint64) error {
	c, err := eventlog.DecodeCommit(e)
	if err != nil {
		return err
	}
	s := ru.acked.state
	known := s.Revision() > 0 || e.GetFirstRevision() <= 1
	if err := eventlog.CheckCommit(e, c, known, s.Revision(), ru.acked.hash); err != nil {
		return err
	}
	if c.GetSnapshot() != nil && !known {
		if s, err = run.Restore(c.GetSnapshot()); err != nil {
			return fmt.Errorf("snapshot at revision %d: %w", e.GetLastRevision(), err)
		}
	} else if !known {
		return fmt.Errorf("the log starts at its revision %d, without a snapshot", e.GetFirstRevision())
	} else {
		for _, ev := range c.GetEvents() {
			if !run.KnownEvent(ev) {
				return fmt.Errorf("event %s is of a kind that this binary does not know; a newer one wrote it", ev.GetId())
			}
		}
		step, err := guarded(func() run.Step {
			for _, ev := range c.GetEvents() {
				s = run.Evolve(s, ev)
			}
			return run.Step{State: s}
		})
		if err != nil {
			return err
		}
		s = step.State
	}
	if c.GetSnapshot() != nil {
		ru.snapshotAt = s.Revision()
	}
	for _, ev := range c.GetEvents() {
		switch {
		case ev.GetStepRetryScheduled() != nil:
			ru.retries++
		case ev.GetReplanRequested() != nil:
			ru.replans++
		}
	}
	ru.acked = mark{s, eventlog.Hash(e.GetCommit()), c.GetTime().AsTime(), sequence}
	ru.head = ru.acked
	ru.lastCommit = c
	return nil
}

// checkHash compares the folded state with what its newest commit says, where the same rules made both.
func (ru *openRun) checkHash() error {
	c := ru.lastCommit
	ru.lastCommit = nil
	if c == nil || c.GetRulesVersion() != run.RulesVersion || len(c.GetStateHash()) == 0 {
		return nil
	}
	if h := ru.acked.state.Hash(); string(h[:]) != string(c.GetStateHash()) {
		return fmt.Errorf("at revision %d the folded state is another one than the log says", ru.acked.state.Revision())
	}
	return nil
}

// fence appends an empty group in the new epoch: every earlier owner's next append conflicts.
func (o *owner) fence(ctx context.Context) error {
	var last time.Time
	pause := 100 * time.Millisecond
	for {
		if !o.lease.Valid() {
			return errLeaseLost
		}
		g := &group{chain: o.chain, parts: [][]*runv1.Entry{nil}}
		if err := o.message(g); err != nil {
			return err
		}
		seq, err := o.journal.Append(ctx, o.partition, g.chain.Sequence, g.data)
		if err == nil {
			o.chain.Accept(g.sealed, eventlog.Message{Sequence: seq, Data: g.data})
			return nil
		}
		if !errors.Is(err, eventlog.ErrConflict) {
			return err
		}
		o.metrics.conflict()
		if time.Since(last) < conflictWindow {
			select {
			case <-time.After(pause/2 + rand.N(pause)):
			case <-o.lease.Lost():
				return errLeaseLost
			case <-ctx.Done():
				return ctx.Err()
			}
			pause = min(2*pause, 2*time.Second)
		}
		last = time.Now()
		before := o.chain.Sequence
		if err := o.fold(ctx); err != nil {
			return err
		}
		if o.chain.Sequence == before {
			return fmt.Errorf("partition %d: %w, and nothing new to fold: its tail was lost", o.partition, eventlog.ErrConflict)
		}
		o.epoch = max(o.epoch, o.chain.Epoch+1)
	}
}

// ready makes the folded runs go on: timers are set, and what a dead owner had not finished deciding is decided.
func (o *owner) ready() {
	now := o.cfg.Clock.Now()
	for _, ru := range o.runs {
		if ru.held != "" {
			continue
		}
		if err := ru.checkHash(); err != nil {
			o.hold(ru, err.Error())
			continue
		}
		ru.touched = now
		ru.lead = lead(ru.acked.time, now)
		if ru.acked.state.Terminal() {
			if ru.ended == nil {
				o.over(ru)
			}
			continue
		}
		o.schedule(ru)
		ru.more = true
		o.unfinished = append(o.unfinished, ru)
	}
	o.countOpen()
}
