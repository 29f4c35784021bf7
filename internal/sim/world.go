package main

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// epoch is when every world begins.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Bounds of one world.
const (
	maxHappenings = 20_000
	maxTime       = 72 * time.Hour
	ackWait       = 10 * time.Second
)

// world is everything around the core, on one virtual clock.
type world struct {
	rng     *rand.Rand
	now     time.Time
	agenda  agenda
	order   uint64
	verbose bool
	broken  []string
	stats   stats

	log     []stored
	reports []*message
	work    map[string]*runv1.Work // by subject: one message a subject
	owner   *owner
	epochs  int64
	claims  map[string]string // action -> executed | revoked
	effects map[string]int    // idempotency key -> executions
	starts  map[string]int    // run/action -> executions
	known   map[string][]byte // idempotency key -> observation given, for tools that honour keys
	runs    []string
	answers map[string]string // report id -> outcome told
	tools   toolset
	// calm ends all faults, so that what is left must come to an end.
	calm bool
}

// stored is one group of the log.
type stored struct {
	epoch   int64
	commits [][]byte
}

// message is a report in the queue.
type message struct {
	report    *runv1.Report
	acked     bool
	delivered int
}

type happening struct {
	at    time.Time
	order uint64
	what  string
	do    func()
}

type agenda []*happening

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	if !a[i].at.Equal(a[j].at) {
		return a[i].at.Before(a[j].at)
	}
	return a[i].order < a[j].order
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(*happening)) }
func (a *agenda) Pop() any {
	old := *a
	x := old[len(old)-1]
	*a = old[:len(old)-1]
	return x
}

func (w *world) after(d time.Duration, what string, do func()) {
	w.order++
	heap.Push(&w.agenda, &happening{at: w.now.Add(d), order: w.order, what: what, do: do})
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

// fault is chance that ends when the world calms down.
func (w *world) fault(p float64) bool { return !w.calm && w.chance(p) }

// soon is a short random delay.
func (w *world) soon() time.Duration { return time.Duration(1+w.rng.IntN(20)) * time.Millisecond }

func (w *world) breaks(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

func (w *world) say(format string, args ...any) {
	if w.verbose {
		fmt.Printf("%12s  %s\n", w.now.Sub(epoch), fmt.Sprintf(format, args...))
	}
}

// simulate runs one seed to its end and checks it.
func simulate(seed uint64, verbose bool) (w *world) {
	w = &world{
		rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), now: epoch, verbose: verbose,
		work: map[string]*runv1.Work{}, claims: map[string]string{}, effects: map[string]int{}, starts: map[string]int{},
		known: map[string][]byte{}, answers: map[string]string{},
	}
	defer func() {
		if r := recover(); r != nil {
			if verbose {
				panic(r)
			}
			w.breaks("panic: %v", r)
		}
	}()
	w.tools = w.makeTools()
	w.takeOver()
	for i := range 1 + w.rng.IntN(3) {
		w.submit(i)
	}
	w.after(time.Duration(1+w.rng.IntN(3600))*time.Second, "calm", func() { w.calm = true })
	for n := 0; len(w.agenda) > 0 && len(w.broken) == 0; n++ {
		h := heap.Pop(&w.agenda).(*happening)
		if n > maxHappenings || h.at.Sub(epoch) > maxTime {
			break
		}
		w.now = h.at
		h.do()
		if n%16 == 0 && w.allEnded() {
			break
		}
	}
	w.checkEnd()
	return w
}

func (w *world) allEnded() bool {
	if w.owner == nil || w.owner.inFlight || len(w.owner.filling.commits) > 0 {
		return false
	}
	for _, id := range w.runs {
		if r := w.owner.runs[id]; r == nil || !r.state.Terminal() {
			return false
		}
	}
	return true
}

func (w *world) submit(i int) {
	id := fmt.Sprintf("run%d", i)
	w.runs = append(w.runs, id)
	w.stats.runs++
	spec := &runv1.RunSpec{Goal: "simulate", Limits: w.limits()}
	send := func(n int) {
		w.publish(&runv1.Report{Id: fmt.Sprintf("%s-submit-%d", id, n), RunId: id, Tenant: "default",
			Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: spec}}})
	}
	w.after(w.soon(), "submit", func() { send(0) })
	if w.chance(0.2) {
		w.after(time.Duration(w.rng.IntN(5000))*time.Millisecond, "submit again", func() { send(1) })
	}
	if w.chance(0.1) {
		w.after(time.Duration(w.rng.IntN(60000))*time.Millisecond, "cancel", func() {
			w.publish(&runv1.Report{Id: id + "-cancel", RunId: id, Tenant: "default",
				Body: &runv1.Report_CancelRun{CancelRun: &runv1.CancelRun{Reason: "simulated", By: "somebody"}}})
		})
	}
}

// publish stores a report; it is delivered until it is acknowledged.
func (w *world) publish(r *runv1.Report) {
	m := &message{report: proto.Clone(r).(*runv1.Report)}
	w.reports = append(w.reports, m)
	if w.fault(0.05) {
		w.stats.duplicates++
		w.reports = append(w.reports, &message{report: proto.Clone(r).(*runv1.Report)})
		w.deliverLater(w.reports[len(w.reports)-1], w.soon()*7)
	}
	w.deliverLater(m, w.soon())
}

func (w *world) deliverLater(m *message, d time.Duration) {
	w.after(d, "deliver", func() {
		if m.acked {
			return
		}
		if w.owner != nil {
			if m.delivered++; m.delivered > 1 {
				w.stats.redelivered++
			}
			w.owner.receive(m)
		}
		w.deliverLater(m, ackWait)
	})
}

// append is the log's conditional append.
func (w *world) append(expected int, g stored) bool {
	if len(w.log) != expected {
		return false
	}
	w.log = append(w.log, g)
	return true
}

// fold rebuilds every run from the log, as a take-over does.
func (w *world) fold() map[string]*held {
	runs := map[string]*held{}
	for _, g := range w.log {
		for _, raw := range g.commits {
			c := &runv1.Commit{}
			if err := proto.Unmarshal(raw, c); err != nil {
				w.breaks("the log holds a commit that cannot be decoded: %v", err)
				return runs
			}
			r := runs[c.GetRunId()]
			if r == nil {
				r = &held{state: run.New(c.GetRunId())}
				runs[c.GetRunId()] = r
			}
			for _, e := range run.EventsOf(c) {
				if e.GetRevision() != r.state.Revision()+1 {
					w.breaks("%s: revision %d follows %d", c.GetRunId(), e.GetRevision(), r.state.Revision())
				}
				r.state = run.Evolve(r.state, e)
			}
			r.more = c.GetMore()
			r.last = c.GetTime().AsTime()
			if h := r.state.Hash(); string(h[:]) != string(c.GetStateHash()) {
				w.breaks("%s: folding to revision %d gives another state hash than the commit's", c.GetRunId(), r.state.Revision())
			}
		}
	}
	return runs
}
