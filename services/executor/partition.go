package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/run"
)

// owner is the one writer of a partition. Everything in it belongs to the goroutine of serve; state ahead of the log is
// dropped with the owner.
type owner struct {
	cfg        *Config
	log        *slog.Logger
	partition  int
	partitions int
	// maxMessage bounds a log message, bytes.
	maxMessage  int
	lease       lease
	journal     eventlog.Log
	checkpoints eventlog.CheckpointStore
	out         outside
	metrics     *meter
	core        core
	open        func(ctx context.Context, partition int) (source, error)
	// health names what is wrong with this partition; nil: nothing.
	health func(error)
	// counted is how many open runs the metrics know of.
	counted int

	epoch int64
	// chain is at the newest group in the log.
	chain     eventlog.Chain
	runs      map[string]*openRun
	ended     *endedRuns
	linger    *endedList
	unsettled *endedList
	timers    timerHeap
	reports   source

	// fill gathers, flight is on its way to the log. Their numbers count groups of this owner; settled is the newest done.
	fill        *group
	flight      *group
	settled     int64
	appended    chan appendResult
	appendBegan time.Time
	// lastGroup is how many reports the newest sealed group had; alarm ends the wait for the next one to fill.
	lastGroup int
	alarm     <-chan time.Time
	lingered  bool
	draining  bool
	// unfinished runs have more to decide.
	unfinished []*openRun
	// backlog are taken reports that wait for room.
	backlog []*report
	// full: the log's storage takes nothing; retry is when to try again.
	full  bool
	retry <-chan time.Time

	// recovery is over when the reports that waited at take-over are in the log; then owed work is published.
	recovering uint64
	recovered  bool
	lastReport time.Time
	missing    chan missingResult
	sweeping   bool

	commitsSince   int
	checkpointed   time.Time
	checkpointing  bool
	checkpointDone chan error
}

type appendResult struct {
	sequence uint64
	err      error
}

type missingResult struct {
	items []*work
	err   error
}

// lease says whether this process may still act as the owner.
type lease interface {
	// Valid is false once a renewal failed or the monotonic clock has passed the lease.
	Valid() bool
	// Lost is closed when it is.
	Lost() <-chan struct{}
	// Epoch of the ownership, greater than that of every earlier holder of the key.
	Epoch() int64
}

// Ways in which serve ends.
var (
	errReleased  = errors.New("released")
	errLeaseLost = errors.New("the lease was lost")
)

// takeBatch is how many reports are judged between two looks at the append.
const takeBatch = 64

func newOwner(o owner) *owner {
	n := o
	n.core = core{advance: run.Advance, proceed: run.Continue}
	n.runs = map[string]*openRun{}
	n.chain = eventlog.Chain{Partition: n.partition}
	n.ended = newEndedRuns(n.cfg.EndedMax)
	n.linger = newEndedList(n.cfg.LingerMax, n.cfg.Linger)
	n.unsettled = newEndedList(n.cfg.UnsettledMax, n.cfg.EndedRetention)
	n.fill = &group{number: 1}
	n.appended = make(chan appendResult, 1)
	n.missing = make(chan missingResult, 1)
	n.checkpointDone = make(chan error, 1)
	n.log = n.log.With("partition", n.partition)
	return &n
}

// serve runs the loop of an owner that has taken over, until the lease is lost, another owner has written, release is
// closed (errReleased, everything in the log and done), or ctx ends.
func (o *owner) serve(ctx context.Context, release <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	housekeeping := time.NewTicker(time.Second)
	defer housekeeping.Stop()
	sweep := time.NewTicker(o.cfg.SweepEvery)
	defer sweep.Stop()
	var timer <-chan time.Time
	var timerAt time.Time
	for {
		if !o.lease.Valid() {
			return errLeaseLost
		}
		now := o.cfg.Clock.Now()
		if !o.draining {
			o.fireTimers(now)
			if err := o.takeReports(); err != nil {
				return err
			}
		}
		o.finishDeciding()
		if err := o.send(ctx); err != nil {
			return err
		}
		if o.flight == nil && o.fill.empty() && len(o.unfinished) == 0 {
			if o.draining && !o.checkpointing {
				return errReleased
			}
			o.recover()
		}
		// An alarm that is too early does no harm, and deadlines that move on as runs do would each need a new one.
		if at, ok := o.timers.next(); ok && (timer == nil || at.Before(timerAt)) {
			timer, timerAt = o.cfg.Clock.After(max(0, at.Sub(now))), at
		}
		ready := o.reports.Ready()
		if !o.room() || o.draining {
			ready = nil
		} else if len(o.backlog) > 0 {
			continue
		}
		due := timer
		if o.draining || o.full {
			due = nil
		}
		select {
		case <-ready:
		case r := <-o.appended:
			if err := o.stored(r); err != nil {
				return err
			}
		case <-due:
			timer = nil
		case <-o.alarm:
			o.alarm = nil
		case <-o.retry:
			o.retry = nil
			o.begin(ctx)
		case m := <-o.missing:
			o.resend(m)
		case err := <-o.checkpointDone:
			o.checkpointing = false
			if err != nil {
				o.log.Warn("checkpoint was not written; take-over folds more of the log", "error", err)
			}
		case <-housekeeping.C:
			o.keepHouse()
		case <-sweep.C:
			if o.recovered && !o.draining {
				o.sweep(o.cfg.SweepEvery)
			}
		case <-release:
			o.draining, release = true, nil
			o.backlog = nil // not judged yet: they come again, to the next owner
			o.checkpoint(ctx)
		case <-o.lease.Lost():
			return errLeaseLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// drop gives up everything that is not in the log.
func (o *owner) drop() {
	if o.reports != nil {
		o.reports.Close()
	}
	o.runs = nil
	o.countOpen()
}

// countOpen tells the metrics how many runs are loaded.
func (o *owner) countOpen() {
	o.metrics.open(len(o.runs) - o.counted)
	o.counted = len(o.runs)
}

// room says whether more may be judged.
func (o *owner) room() bool {
	return !o.full && o.fill.bytes < o.cfg.GroupMaxBytes && len(o.fill.reports) < o.cfg.GroupMaxReports
}

func (o *owner) takeReports() error {
	if len(o.backlog) == 0 {
		o.backlog = o.reports.Take()
		if len(o.backlog) == 0 {
			return o.reports.Err()
		}
		o.lastReport = time.Now()
	}
	for n := 0; len(o.backlog) > 0 && n < takeBatch && o.room(); n++ {
		r := o.backlog[0]
		o.backlog[0] = nil
		o.backlog = o.backlog[1:]
		o.receive(r)
		if o.recovering > 0 {
			o.recovering--
		}
	}
	return nil
}

func (o *owner) fireTimers(now time.Time) {
	for n := 0; n < takeBatch && o.room(); n++ {
		at, ok := o.timers.next()
		if !ok || at.After(now) {
			return
		}
		o.fire(o.timers[0], now)
	}
}

func (o *owner) finishDeciding() {
	for len(o.unfinished) > 0 && o.room() {
		ru := o.unfinished[0]
		o.unfinished[0] = nil
		o.unfinished = o.unfinished[1:]
		if o.runs[ru.id] == ru && ru.more {
			o.goOn(ru)
		}
	}
}

// send seals the group being filled and appends it, if none is under way.
func (o *owner) send(ctx context.Context) error {
	if o.flight != nil || len(o.fill.commits) == 0 || o.lingers() {
		return nil
	}
	g := o.fill
	o.fill = &group{number: g.number + 1}
	o.flight = g
	o.lastGroup, o.alarm, o.lingered = len(g.reports), nil, false
	if err := o.seal(g); err != nil {
		return err
	}
	if err := o.message(g); err != nil {
		return err
	}
	o.begin(ctx)
	o.prepare(g)
	return nil
}

// busyGroup is how many reports a group holds of an owner that has much to do.
const busyGroup = 8

// lingers says whether the group being filled is to fill some more: small groups cost as many appends, and as many
// wake-ups of everybody, as large ones. The alarm tells when it is not.
func (o *owner) lingers() bool {
	if o.lastGroup < busyGroup || len(o.fill.reports) >= 4*o.lastGroup || o.cfg.GroupLinger < 0 || o.draining {
		return false
	}
	if o.alarm == nil && !o.lingered {
		o.alarm, o.lingered = time.After(o.cfg.GroupLinger), true
	}
	return o.alarm != nil
}

// begin appends the flight's message; the answer comes over o.appended.
func (o *owner) begin(ctx context.Context) {
	g := o.flight
	o.appendBegan = time.Now()
	data, expected := g.data, g.chain.Sequence
	go func() {
		seq, err := o.journal.Append(ctx, o.partition, expected, data)
		o.appended <- appendResult{seq, err}
	}()
}

// stored handles the answer to an append.
func (o *owner) stored(r appendResult) error {
	g := o.flight
	switch {
	case errors.Is(r.err, eventlog.ErrStorageFull):
		if !o.full {
			o.log.Error("the log's storage is full; nothing is accepted until there is room", "error", r.err)
			o.health(fmt.Errorf("partition %d: %w; free space or raise the limits of the log", o.partition, r.err))
		}
		o.full, o.retry = true, time.After(o.cfg.FullRetry)
		return nil
	case r.err != nil:
		return r.err
	}
	if o.full {
		o.full = false
		o.log.Info("the log's storage takes groups again")
		o.health(nil)
	}
	o.metrics.appended(time.Since(o.appendBegan), len(g.parts[0]))
	g.chain.Accept(g.sealed, eventlog.Message{Sequence: r.sequence, Data: g.data})
	o.chain = g.chain
	g.parts = g.parts[1:]
	if len(g.parts) > 0 {
		if err := o.message(g); err != nil {
			return err
		}
		o.retry = closedTime
		return nil
	}
	o.flight, g.data = nil, nil
	o.effects(g)
	return nil
}

// closedTime is ready at once.
var closedTime = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// effects are what a group in the log causes, in this order, always: work, answers, acknowledgements.
func (o *owner) effects(g *group) {
	for _, c := range g.cancels {
		o.out.Cancelled(c.runID, c.works)
	}
	for _, w := range g.works {
		o.out.Publish(w)
	}
	for _, j := range g.reports {
		if a := j.answer; a != nil {
			a.Partition, a.LogSequence = int32(o.partition), o.chain.Sequence
			o.out.Answer(j.report.answerTo, a)
		}
	}
	for _, j := range g.reports {
		j.report.settle.Ack()
	}
	o.metrics.reports(g.reports)
	o.settled = g.number
	o.commitsSince += len(g.commits)
	for _, c := range g.commits {
		c.run.acked = mark{c.state, c.hash, c.time, o.chain.Sequence}
		o.metrics.commit(o.partition, c)
		if c.state.Terminal() && c.run.group <= o.settled {
			if c.run.ended == nil {
				o.metrics.ended(c.run)
			}
			o.over(c.run)
		}
	}
}

// over moves a run that has ended to the lists of those that stay loaded for a while.
func (o *owner) over(ru *openRun) {
	l := o.linger
	if !ru.acked.state.LedgerSettled() {
		l = o.unsettled
	}
	for _, out := range l.add(ru) {
		o.forget(out)
	}
}

// forget keeps of a run that has ended only what a repeated submission needs.
func (o *owner) forget(ru *openRun) {
	if ru.group > o.settled {
		// Something of it is under way; it comes back to the list with its group.
		return
	}
	o.linger.remove(ru)
	o.timers.set(ru, time.Time{})
	delete(o.runs, ru.id)
	o.ended.add(endedOf(ru))
}

func endedOf(ru *openRun) *endedRun {
	s := ru.acked.state
	return &endedRun{id: ru.id, digest: s.BodyDigest(), revision: s.Revision(), status: s.Status(), at: ru.acked.time, sequence: ru.acked.sequence}
}

// keepHouse forgets what was kept long enough and starts checkpoints.
func (o *owner) keepHouse() {
	now := o.cfg.Clock.Now()
	for _, l := range []*endedList{o.linger, o.unsettled} {
		for _, ru := range l.expire(now) {
			o.forget(ru)
		}
	}
	o.ended.expire(now.Add(-o.cfg.EndedRetention))
	o.countOpen()
	if o.commitsSince >= o.cfg.CheckpointCommits || o.commitsSince > 0 && time.Since(o.checkpointed) >= o.cfg.CheckpointEvery {
		o.checkpoint(context.Background())
	}
}
