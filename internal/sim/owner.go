package main

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// held is a run in an owner's memory.
type held struct {
	state run.State
	more  bool
	last  time.Time
	timer time.Time
}

// owner is one ownership of the partition: the executor's loop, with a crash possible between any two of its lines.
type owner struct {
	w        *world
	epoch    int64
	runs     map[string]*held
	expected int
	skew     time.Duration
	dead     bool
	inFlight bool
	filling  *group
}

// group is what the next append will hold, and what waits for it.
type group struct {
	commits [][]byte
	effects []func()
}

// takeOver starts a new ownership: fold, fence, finish what Decide leaves, publish what is pending.
func (w *world) takeOver() {
	w.epochs++
	o := &owner{w: w, epoch: w.epochs, filling: &group{}}
	if w.chance(0.3) {
		o.skew = time.Duration(w.rng.IntN(20000)-10000) * time.Millisecond
	}
	w.owner = o
	o.runs = w.fold()
	o.expected = len(w.log)
	if !w.append(o.expected, stored{epoch: o.epoch}) {
		w.breaks("the fence of a take-over was refused")
		return
	}
	o.expected++
	w.say("owner %d takes over at group %d with %d runs", o.epoch, o.expected, len(o.runs))
	for _, id := range w.runs {
		r := o.runs[id]
		if r == nil {
			continue
		}
		o.advance(r, run.Continue(r.state, o.commitTime(r, time.Time{})), nil)
		for _, work := range run.Pending(r.state) {
			o.filling.effects = append(o.filling.effects, func() { w.publishWork(work) })
		}
		for _, in := range r.state.Snapshot().GetInputs() {
			if in.GetOpen() {
				// Whoever is asked sees the question in the run store, whatever became of the owner that asked it.
				w.ask(id, &runv1.UserInputRequested{RequestId: in.GetRequestId(), StepId: in.GetStepId(), Purpose: in.GetPurpose()})
			}
		}
		o.arm(id, r)
	}
	o.flush()
	for _, m := range w.reports {
		if !m.acked {
			w.deliverLater(m, w.soon())
		}
	}
}

// crash ends an ownership; what it held is gone, and another comes.
func (o *owner) crash(where string) {
	if o.dead {
		return
	}
	o.dead = true
	o.w.stats.crashes++
	o.w.say("owner %d crashes %s", o.epoch, where)
	if o.w.owner == o {
		o.w.owner = nil
		o.w.after(time.Duration(1+o.w.rng.IntN(6))*time.Second, "take over", func() {
			if o.w.owner == nil {
				o.w.takeOver()
			}
		})
	}
}

func (o *owner) clock() time.Time { return o.w.now.Add(o.skew) }

func (o *owner) commitTime(r *held, due time.Time) time.Time {
	t := o.clock()
	if r != nil && r.last.After(t) {
		t = r.last
	}
	if due.After(t) {
		t = due
	}
	return t
}

// receive judges one report on speculative state.
func (o *owner) receive(m *message) {
	if o.dead {
		return
	}
	if o.w.fault(0.005) {
		o.crash("before a report is judged")
		return
	}
	id := m.report.GetRunId()
	r := o.runs[id]
	if r == nil {
		r = &held{state: run.New(id)}
		o.runs[id] = r
	}
	before := r.state.Revision()
	step := run.Advance(r.state, m.report, o.commitTime(r, time.Time{}))
	answer := run.AnswerFor(step.State, m.report, step.Event)
	o.advance(r, step, func() {
		if o.w.fault(0.02) {
			o.w.stats.lostAcks++ // the acknowledgement is lost on its way: the report comes again
			return
		}
		m.acked = true
		o.w.answers[m.report.GetId()] = answer.GetOutcome().String()
	})
	o.w.say("report %s: revision %d to %d", m.report.GetId(), before, r.state.Revision())
	o.arm(id, r)
	o.flush()
}

// advance puts a step's events into the filling group; done runs once they are in the log.
func (o *owner) advance(r *held, step run.Step, done func()) {
	for {
		if len(step.Events) > 0 {
			now := step.Events[0].GetTime().AsTime()
			c := run.NewCommit(step.State, step.Events, step.More, now)
			raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
			if err != nil {
				o.w.breaks("commit: %v", err)
				return
			}
			r.last = now
			o.filling.commits = append(o.filling.commits, raw)
			o.w.stats.commits++
			o.w.stats.events += len(step.Events)
			state := step.State
			for _, e := range step.Events {
				o.w.say("    %d %s", e.GetRevision(), run.Explain(e))
				o.filling.effects = append(o.filling.effects, func() { o.w.follow(state, e) })
			}
		}
		r.state = step.State
		if !step.More {
			break
		}
		step = run.Continue(r.state, o.commitTime(r, time.Time{}))
	}
	if done != nil {
		o.filling.effects = append(o.filling.effects, done)
	}
}

// flush appends the filling group when no append is under way.
func (o *owner) flush() {
	if o.dead || o.inFlight || len(o.filling.commits) == 0 && len(o.filling.effects) == 0 {
		return
	}
	w := o.w
	if w.fault(0.005) {
		o.crash("before an append")
		return
	}
	g := o.filling
	o.filling = &group{}
	if len(g.commits) == 0 {
		o.release(g)
		return
	}
	o.inFlight = true
	delay := w.soon()
	if w.fault(0.004) {
		// The owner is stopped for longer than its lease; another takes over meanwhile, and then it goes on.
		w.stats.pauses++
		delay = time.Duration(20+w.rng.IntN(40)) * time.Second
		w.say("owner %d is paused", o.epoch)
		w.after(4*time.Second, "take over from a paused owner", func() {
			if w.owner == o {
				w.takeOver()
			}
		})
	}
	w.after(delay, "append", func() {
		if o.dead {
			return
		}
		if !w.append(o.expected, stored{epoch: o.epoch, commits: g.commits}) {
			w.stats.conflicts++
			w.say("owner %d is deposed", o.epoch)
			o.dead = true
			if w.owner == o {
				w.owner = nil
				w.after(time.Second, "take over", func() {
					if w.owner == nil {
						w.takeOver()
					}
				})
			}
			return
		}
		o.expected++
		o.inFlight = false
		if w.fault(0.005) {
			o.crash("after an append, before its effects")
			return
		}
		o.release(g)
		o.flush()
	})
}

// release does what waited for the append: work, answers, acknowledgements, in this order.
func (o *owner) release(g *group) {
	for _, effect := range g.effects {
		if o.w.fault(0.001) {
			o.crash("between the effects of a group")
			return
		}
		effect()
	}
}

// arm sets the alarm for a run's next deadline.
func (o *owner) arm(id string, r *held) {
	d, ok := run.NextDeadline(r.state)
	if !ok || r.timer.Equal(d.At) && !r.timer.IsZero() {
		return
	}
	r.timer = d.At
	lead := max(0, r.last.Sub(o.clock()))
	if d.Absolute {
		lead = 0
	}
	o.w.after(max(0, d.At.Sub(o.clock().Add(lead))), "timer", func() {
		if o.dead || o.runs[id] != r {
			return
		}
		now, ok := run.NextDeadline(r.state)
		if !ok || !now.At.Equal(d.At) {
			return
		}
		r.timer = time.Time{}
		due := &runv1.Report{Id: "timer", RunId: id, Tenant: r.state.Tenant(), Body: &runv1.Report_TimerDue{TimerDue: now.Timer}}
		o.advance(r, run.Advance(r.state, due, o.commitTime(r, now.At)), nil)
		o.arm(id, r)
		o.flush()
	})
}
