package main

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// held is a run in an owner's memory, ahead of the log.
type held struct {
	id    string
	state run.State
	// more: it has more to decide; waiting reports come after that.
	more    bool
	waiting []*message
	last    time.Time
	lead    time.Duration
	// group is the number of the newest group that holds something of it.
	group    int64
	building *commit
	alarm    time.Time
	// snapshotAt is the revision of its newest snapshot in the log.
	snapshotAt int64
	// acked is the state in the log.
	acked     run.State
	ackedTime time.Time
}

// commit is one being built.
type commit struct {
	run    *held
	events []*runv1.Event
	state  run.State
	time   time.Time
	more   bool
}

// group is what the next append will hold, and what waits for it.
type group struct {
	number  int64
	commits []*commit
	reports []judged
	sealed  *stored
}

func (g *group) empty() bool { return len(g.commits) == 0 && len(g.reports) == 0 }

// judged is a report whose answer waits for its group.
type judged struct {
	m      *message
	answer *runv1.Answer
}

// owner is one ownership of the partition: the executor's loop, with a crash or a pause possible between any two of its
// lines.
type owner struct {
	w        *world
	epoch    int64
	runs     map[string]*held
	expected int
	skew     time.Duration
	dead     bool
	paused   time.Time // until then it does nothing
	fill     *group
	flight   *group
	settled  int64 // number of the newest group in the log
	// unfinished runs have more to decide.
	unfinished []*held
	// every is after how many revisions a commit holds a snapshot; 0: never.
	every int64
}

// crash ends an ownership; what it held is gone, and another comes.
func (o *owner) crash(where string) {
	if o.dead {
		return
	}
	o.w.stats.crashes++
	o.w.say("owner %d crashes %s", o.epoch, where)
	o.end(time.Duration(1+o.w.rng.IntN(6)) * time.Second)
}

// end makes room for the next ownership.
func (o *owner) end(vacant time.Duration) {
	o.dead = true
	if o.w.owner == o {
		o.w.owner = nil
		o.w.after(vacant, func() {
			if o.w.owner == nil {
				o.w.takeOver()
			}
		})
	}
}

// pause stops the owner's process for longer than its lease; another takes over meanwhile, and then it goes on.
func (o *owner) pause() time.Duration {
	w := o.w
	w.stats.pauses++
	d := time.Duration(10+w.rng.IntN(80)) * time.Second
	o.paused = w.now.Add(d)
	w.say("owner %d is paused for %s", o.epoch, d)
	w.after(4*time.Second, func() {
		if w.owner == o {
			w.takeOver()
		}
	})
	return d
}

func (o *owner) clock() time.Time { return o.w.now.Add(o.skew) }

// stepClock moves the owner's clock now and then.
func (o *owner) stepClock() {
	if o.w.fault(0.002) {
		o.skew += time.Duration(o.w.rng.IntN(40000)-20000) * time.Millisecond
		o.w.say("the clock of owner %d steps to %s", o.epoch, o.skew)
		for _, id := range o.w.runs {
			if r := o.runs[id]; r != nil {
				r.alarm = time.Time{}
				o.schedule(r)
			}
		}
	}
}

// receive takes a delivered report.
func (o *owner) receive(m *message) {
	if o.dead || o.w.now.Before(o.paused) {
		return
	}
	if o.w.fault(0.004) {
		o.crash("before a report is judged")
		return
	}
	o.stepClock()
	id := m.report.GetRunId()
	r := o.runs[id]
	if r == nil {
		r = &held{id: id, state: run.New(id)}
	}
	o.judge(r, m, m.report)
	o.flush()
}

// judge lets the core judge a report on a run, and takes what follows into the group being filled. m is nil for a timer.
func (o *owner) judge(r *held, m *message, report *runv1.Report) {
	if r.more {
		if m != nil {
			r.waiting = append(r.waiting, m)
		}
		return
	}
	c := o.open(r, report.GetTimerDue())
	step := run.Advance(r.state, report, c.time)
	var answer *runv1.Answer
	if m != nil {
		answer = run.AnswerFor(step.State, report, step.Event)
		o.w.say("owner %d: report %s is %s", o.epoch, m.report.GetId(), answer.GetOutcome())
	}
	if len(step.Events) == 0 {
		if m == nil {
			o.w.breaks("timers", "%s: the deadline %s is due and changes nothing", r.id, report.GetTimerDue())
			return
		}
		o.repeat(r, judged{m, answer})
		return
	}
	o.take(r, c, step)
	if m != nil {
		o.fill.reports = append(o.fill.reports, judged{m, answer})
	}
}

// repeat answers what is known already, once the log holds what it is known from.
func (o *owner) repeat(r *held, j judged) {
	switch {
	case r.group <= o.settled:
		o.answer(j)
	case o.flight != nil && r.group == o.flight.number:
		o.flight.reports = append(o.flight.reports, j)
	default:
		o.fill.reports = append(o.fill.reports, j)
	}
}

// open returns the commit of the run that takes more, or a new one.
func (o *owner) open(r *held, timer *runv1.TimerDue) *commit {
	var due time.Time
	if timer.GetDue() != nil {
		due = timer.GetDue().AsTime()
	}
	if b := r.building; b != nil && len(b.events) < run.CommitEvents && !due.After(b.time) {
		return b
	}
	t := o.clock()
	for _, x := range []time.Time{r.last, due} {
		if x.After(t) {
			t = x
		}
	}
	return &commit{run: r, time: t}
}

// take puts a step's events into the group being filled.
func (o *owner) take(r *held, c *commit, step run.Step) {
	if r.building != c {
		o.fill.commits = append(o.fill.commits, c)
	}
	o.runs[r.id] = r
	c.events = append(c.events, step.Events...)
	c.state, c.more = step.State, step.More
	r.building = c
	if step.More {
		r.building = nil
		r.more = true
		o.unfinished = append(o.unfinished, r)
	}
	r.state, r.last, r.group = step.State, c.time, o.fill.number
	r.lead = max(0, c.time.Sub(o.clock()))
	if o.w.fault(0.01) {
		// Its memory is given up and read back, as after a take-over from a checkpoint.
		r.state = o.w.restored(r.state)
	}
	o.schedule(r)
}

// goOn lets the core finish deciding for a run whose last commit said that there is more.
func (o *owner) goOn(r *held) {
	r.more = false
	c := o.open(r, nil)
	if step := run.Continue(r.state, c.time); len(step.Events) > 0 {
		o.take(r, c, step)
	}
	if r.more {
		return
	}
	waiting := r.waiting
	r.waiting = nil
	for _, m := range waiting {
		o.judge(r, m, m.report)
	}
	o.schedule(r)
}

// flush appends the filling group when no append is under way.
func (o *owner) flush() {
	if o.dead || o.flight != nil || len(o.w.broken) > 0 {
		return
	}
	w := o.w
	// Where the group has no room left, what is not finished goes into the next one.
	if full := len(o.fill.commits) > 0 && w.chance(0.5); !full {
		unfinished := o.unfinished
		o.unfinished = nil
		for _, r := range unfinished {
			if r.more && o.runs[r.id] == r {
				o.goOn(r)
			}
		}
	}
	if len(o.fill.commits) == 0 {
		return
	}
	if w.fault(0.004) {
		o.crash("before an append")
		return
	}
	g := o.fill
	o.fill = &group{number: g.number + 1}
	o.flight = g
	o.seal(g)
	delay := w.soon()
	if w.fault(0.004) {
		delay = o.pause()
	}
	o.send(g, delay)
}

// seal encodes a group. Nothing is added to it after that.
func (o *owner) seal(g *group) {
	g.sealed = &stored{epoch: o.epoch, number: g.number}
	for _, c := range g.commits {
		c.run.building = nil
		msg := run.NewCommit(c.state, c.events, c.more, c.time)
		if rev := c.state.Revision(); o.every > 0 && rev-c.run.snapshotAt >= o.every {
			msg.Snapshot = c.state.Snapshot()
			c.run.snapshotAt = rev
		}
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(msg)
		if err != nil {
			o.w.breaks("log", "a commit of %s cannot be encoded: %v", c.run.id, err)
			return
		}
		g.sealed.commits = append(g.sealed.commits, raw)
	}
}

// send tries an append; the request, its answer, or both may get lost, and then the same bytes are sent again.
func (o *owner) send(g *group, d time.Duration) {
	w := o.w
	expected := o.expected
	w.after(d, func() {
		if o.dead {
			if w.fault(0.5) {
				return
			}
			// It was on its way when its owner crashed.
			w.log.append(expected, g.sealed)
			return
		}
		lost := w.fault(0.02)
		result := unheard
		if !lost {
			result = w.log.append(expected, g.sealed)
		}
		if lost || w.fault(0.02) {
			w.stats.openAppends++
			w.say("owner %d hears nothing of its append", o.epoch)
			if w.fault(0.3) {
				// The first request is only late.
				w.after(w.seconds(5), func() { w.log.append(expected, g.sealed) })
			}
			again := time.Second + w.soon()
			if w.fault(0.1) {
				again = o.pause() // it reaches nobody for longer than its lease
			}
			o.send(g, again)
			return
		}
		if len(w.broken) > 0 {
			return
		}
		if result == conflict {
			result = o.reconcile(g, expected)
		}
		w.after(w.soon()/4, func() { o.stored(g, result) })
	})
}

// reconcile finds out whether a conflicting append is its own from before: that is what follows the expected sequence.
func (o *owner) reconcile(g *group, expected int) outcome {
	there := o.w.log.next(expected)
	result := conflict
	if there != nil && there.equal(g.sealed) {
		result = appended
	}
	if truth := o.w.log.holds(g.sealed); truth != (result == appended) {
		o.w.breaks("append_known", "owner %d takes group %d for stored: %v, and stored it is: %v", o.epoch, g.number, result == appended, truth)
	}
	return result
}

// stored goes on after an append.
func (o *owner) stored(g *group, result outcome) {
	w := o.w
	if o.dead {
		return
	}
	if result == conflict {
		w.stats.deposed++
		w.say("owner %d is deposed", o.epoch)
		o.end(time.Second)
		return
	}
	odds := 0.004
	for _, c := range g.commits {
		if c.more {
			odds = 0.5 // between the commits of one decision
		}
	}
	if w.fault(odds) {
		o.crash("after an append, before its effects")
		return
	}
	if w.fault(0.003) {
		w.after(o.pause(), func() { o.release(g) })
		return
	}
	o.release(g)
}

// release does what waited for the append: work, answers, acknowledgements, in this order.
func (o *owner) release(g *group) {
	if o.dead {
		return
	}
	o.expected++
	o.flight, o.settled = nil, g.number
	for _, c := range g.commits {
		c.run.acked, c.run.ackedTime = c.state, c.time
		for _, e := range c.events {
			if work := run.WorkFor(c.state, e); work != nil {
				if o.w.fault(0.001) {
					o.crash("between the effects of a group")
					return
				}
				o.w.publishWork(work)
			}
		}
	}
	for _, j := range g.reports {
		if o.w.fault(0.001) {
			o.crash("between the acknowledgements of a group")
			return
		}
		o.answer(j)
	}
	o.flush()
}

// answer tells the sender and acknowledges the report. What is told must be in the log.
func (o *owner) answer(j judged) {
	w := o.w
	if j.m.acked {
		return
	}
	w.checkAnswer(j.m.report, j.answer)
	if w.fault(0.02) {
		w.stats.lostAcks++ // the acknowledgement is lost on its way: the report comes again
		return
	}
	j.m.acked = true
	w.unacked--
}

// schedule sets the alarm for a run's next deadline, on the owner's clock.
func (o *owner) schedule(r *held) {
	due, _, ok := o.due(r)
	if !ok {
		r.alarm = time.Time{}
		return
	}
	at := o.w.now.Add(max(0, due.Sub(o.clock())))
	if !r.alarm.IsZero() && !r.alarm.After(at) {
		return // an alarm that is too early does no harm
	}
	r.alarm = at
	o.w.after(at.Sub(o.w.now), func() { o.ring(r, at) })
}

func (o *owner) due(r *held) (time.Time, run.Deadline, bool) {
	d, ok := run.NextDeadline(r.state)
	if !ok {
		return time.Time{}, d, false
	}
	if d.Absolute {
		return d.At, d, true
	}
	return d.At.Add(-r.lead), d, true
}

// ring turns a due deadline into a report.
func (o *owner) ring(r *held, at time.Time) {
	if o.dead || o.runs[r.id] != r || !r.alarm.Equal(at) || len(o.w.broken) > 0 {
		return
	}
	r.alarm = time.Time{}
	if o.w.now.Before(o.paused) {
		later := o.paused
		r.alarm = later
		o.w.after(later.Sub(o.w.now), func() { o.ring(r, later) })
		return
	}
	o.stepClock()
	due, d, ok := o.due(r)
	if !ok || r.more {
		return
	}
	if due.After(o.clock()) {
		o.schedule(r)
		return
	}
	o.judge(r, nil, &runv1.Report{Id: fmt.Sprintf("timer-%s-%d", r.id, r.state.Revision()), RunId: r.id, Tenant: r.state.Tenant(),
		Body: &runv1.Report_TimerDue{TimerDue: d.Timer}})
	o.schedule(r)
	o.flush()
}
