package main

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// checkpoint is what an owner keeps of its runs at a place of the log: a cache.
type checkpoint struct {
	groups int
	runs   map[string][]byte
	last   map[string]time.Time
}

// takeOver starts a new ownership: fold, fence, finish what Decide leaves, and, when the reports that wait had their turn,
// publish what is owed.
func (w *world) takeOver() {
	w.epochs++
	o := &owner{w: w, epoch: w.epochs, fill: &group{number: 1}, every: pick[int64](w, 0, 5, 20, 50)}
	if w.chance(0.3) {
		o.skew = time.Duration(w.rng.IntN(6000)-3000) * time.Millisecond
	}
	w.owner = o
	o.runs = w.fold()
	o.expected = len(w.log.groups)
	if w.log.append(o.expected, &stored{epoch: o.epoch}) != appended {
		w.breaks("one_writer", "the fence of a take-over was refused")
		return
	}
	o.expected++
	w.say("owner %d takes over at group %d with %d runs", o.epoch, o.expected, len(o.runs))
	for _, id := range w.runs {
		r := o.runs[id]
		if r == nil {
			continue
		}
		r.acked, r.ackedTime = r.state, r.last
		r.lead = max(0, r.last.Sub(o.clock()))
		r.more = true
		o.unfinished = append(o.unfinished, r)
		o.schedule(r)
	}
	o.flush()
	w.after(w.seconds(3), func() { o.owed() })
	w.after(w.seconds(60), func() { o.checkpoint() })
	for _, m := range w.messages {
		if !m.acked && w.chance(0.5) {
			w.deliver(m, w.soon())
		}
	}
}

// owed publishes what a dead owner may not have published. Of runs with something under way, that does.
func (o *owner) owed() {
	if o.dead {
		return
	}
	if o.w.now.Before(o.paused) {
		o.w.after(o.paused.Sub(o.w.now), o.owed)
		return
	}
	again := false
	for _, id := range o.w.runs {
		r := o.runs[id]
		if r == nil || r.more || r.group > o.settled {
			again = again || r != nil
			continue
		}
		for _, work := range run.Pending(r.acked) {
			o.w.publishWork(work)
		}
	}
	if again {
		o.w.after(o.w.seconds(5), o.owed)
	}
}

// checkpoint keeps the runs as they are in the log now.
func (o *owner) checkpoint() {
	if o.dead || o.w.now.Before(o.paused) || o.w.owner != o {
		return
	}
	c := &checkpoint{groups: o.expected, runs: map[string][]byte{}, last: map[string]time.Time{}}
	for _, id := range o.w.runs {
		if r := o.runs[id]; r != nil && r.acked.Revision() > 0 {
			raw, err := proto.Marshal(r.acked.Snapshot())
			if err != nil {
				o.w.breaks("snapshot", "%s cannot be encoded: %v", id, err)
				return
			}
			c.runs[id], c.last[id] = raw, r.ackedTime
		}
	}
	o.w.log.checkpoint = c
	o.w.after(o.w.seconds(120), o.checkpoint)
}

// fold rebuilds every run from the log, as a take-over does: from its beginning, or from a checkpoint.
func (w *world) fold() map[string]*held {
	runs := map[string]*held{}
	from := 0
	if c := w.log.checkpoint; c != nil && w.chance(0.6) {
		w.stats.checkpoints++
		from = c.groups
		for _, id := range w.runs {
			raw, ok := c.runs[id]
			if !ok {
				continue
			}
			m := &runv1.RunState{}
			if err := proto.Unmarshal(raw, m); err != nil {
				w.breaks("snapshot", "%s cannot be decoded: %v", id, err)
				return runs
			}
			s, err := run.Restore(m)
			if err != nil {
				w.breaks("snapshot", "%s: %v", id, err)
				return runs
			}
			runs[id] = &held{id: id, state: s, last: c.last[id], snapshotAt: s.Revision()}
		}
	}
	for _, g := range w.log.groups[from:] {
		for _, c := range g.decoded {
			r := runs[c.GetRunId()]
			if r == nil {
				r = &held{id: c.GetRunId(), state: run.New(c.GetRunId())}
				runs[r.id] = r
			}
			for _, e := range run.EventsOf(c) {
				r.state = run.Evolve(r.state, e)
			}
			if c.GetSnapshot() != nil {
				r.snapshotAt = r.state.Revision()
			}
			r.more, r.last = c.GetMore(), c.GetTime().AsTime()
		}
	}
	for _, id := range w.runs {
		a, b := runs[id], w.log.runs[id]
		if (a == nil) != (b == nil) || a != nil && (a.state.Hash() != b.state.Hash() || a.state.Revision() != b.state.Revision()) {
			w.breaks("hash_equal", "%s is folded by a take-over to another state than what the log tells", id)
		}
	}
	return runs
}
