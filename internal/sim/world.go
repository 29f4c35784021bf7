package main

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// epoch is when every world begins.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Bounds of one world.
const (
	maxHappenings = 60_000
	maxTime       = 96 * time.Hour
	ackWait       = 10 * time.Second
	tenant        = "default"
)

// world is everything around the core, on one virtual clock. Nothing in it depends on the order of a map or on time
// outside, so that a seed always tells the same story.
type world struct {
	seed    uint64
	rng     *rand.Rand
	now     time.Time
	agenda  agenda
	order   uint64
	verbose bool
	broken  []string
	stats   stats

	log      journal
	messages []*message
	unacked  int
	made     int // reports, for their ids
	work     map[string]*queued
	owner    *owner
	epochs   int64
	tools    toolset
	runs     []string
	tool     workshop
	// calm ends all faults, so that what is left must come to an end.
	calm bool
	// large: its plans may have steps of hundreds of items, all at once, so that one decision fills more than a commit.
	large bool
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
	old[len(old)-1] = nil
	*a = old[:len(old)-1]
	return x
}

func (w *world) after(d time.Duration, do func()) {
	w.order++
	heap.Push(&w.agenda, &happening{at: w.now.Add(max(d, 0)), order: w.order, do: do})
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

// fault is chance that ends when the world calms down.
func (w *world) fault(p float64) bool { return !w.calm && w.chance(p) }

// soon is a short random delay.
func (w *world) soon() time.Duration { return time.Duration(1+w.rng.IntN(20)) * time.Millisecond }

// seconds is a random time of up to n seconds.
func (w *world) seconds(n int) time.Duration {
	return time.Duration(1+w.rng.IntN(n*1000)) * time.Millisecond
}

func pick[T any](w *world, list ...T) T { return list[w.rng.IntN(len(list))] }

// breaks notes a broken invariant by its name.
func (w *world) breaks(invariant, format string, args ...any) {
	w.broken = append(w.broken, "["+invariant+"] "+fmt.Sprintf(format, args...))
	w.say("BROKEN %s", w.broken[len(w.broken)-1])
}

func (w *world) say(format string, args ...any) {
	if w.verbose {
		fmt.Printf("%14s  %s\n", w.now.Sub(epoch), fmt.Sprintf(format, args...))
	}
}

// simulate runs one seed to its end and checks it.
func simulate(seed uint64, verbose bool) (w *world) {
	w = &world{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), now: epoch, verbose: verbose,
		work: map[string]*queued{}, tool: newWorkshop(),
	}
	w.log = journal{w: w, runs: map[string]*reader{}}
	defer func() {
		if r := recover(); r != nil {
			w.breaks("panic", "%v at %s", r, whereOf(string(debug.Stack())))
		}
	}()
	w.tools = w.makeTools()
	w.large = w.chance(0.04)
	w.takeOver()
	for i := range 1 + w.rng.IntN(4) {
		w.submit(i)
	}
	w.after(time.Duration(1+w.rng.IntN(3600))*time.Second, func() { w.calm = true })
	for n := 0; len(w.agenda) > 0 && len(w.broken) == 0; n++ {
		h := heap.Pop(&w.agenda).(*happening)
		if n > maxHappenings || h.at.Sub(epoch) > maxTime {
			break
		}
		w.now = h.at
		h.do()
		if n%32 == 0 && w.settled() {
			break
		}
	}
	if len(w.broken) == 0 {
		w.checkEnd()
	}
	return w
}

// whereOf is the first line of the core or the simulator in a panic's stack, without addresses.
func whereOf(stack string) string {
	lines := strings.Split(stack, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "panic(") {
			lines = lines[i+2:]
			break
		}
	}
	for _, l := range lines {
		if at := strings.LastIndex(l, "/pkg/"); at >= 0 && strings.Contains(l, ".go:") {
			where, _, _ := strings.Cut(l[at+1:], " ")
			return where
		}
	}
	return "the simulator"
}

// settled: every run has ended, every report has its answer, and nothing is under way.
func (w *world) settled() bool {
	if w.unacked > 0 || w.owner == nil || w.owner.flight != nil || !w.owner.fill.empty() || len(w.log.runs) < len(w.runs) {
		return false
	}
	for _, id := range w.runs {
		if r := w.log.runs[id]; r == nil || !r.state.Terminal() {
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
	send := func() {
		w.publish(&runv1.Report{RunId: id, Tenant: tenant, Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: spec}}})
	}
	w.after(w.seconds(1+i*3), send)
	if w.chance(0.2) {
		w.after(w.seconds(10), send)
	}
	if w.chance(0.1) {
		w.after(w.seconds(90), func() { w.cancel(id) })
	}
	if w.chance(0.35) {
		for range 1 + w.rng.IntN(3) {
			w.after(w.seconds(60), func() { w.patchByPerson(id) })
		}
	}
	if w.chance(0.5) {
		for range 1 + w.rng.IntN(6) {
			w.after(w.seconds(60), func() { w.forge(id) })
		}
	}
}

// publish stores a report; it is delivered until it is acknowledged.
func (w *world) publish(r *runv1.Report) {
	w.made++
	if r.GetId() == "" {
		r.Id = fmt.Sprintf("report-%d", w.made)
	}
	w.enqueue(r, w.soon())
	if w.fault(0.05) {
		w.stats.duplicates++
		w.enqueue(r, w.seconds(pick(w, 1, 30)))
	}
}

func (w *world) enqueue(r *runv1.Report, d time.Duration) {
	m := &message{report: r}
	w.messages = append(w.messages, m)
	w.unacked++
	if w.fault(0.03) {
		d += w.seconds(20) // it overtakes nobody
	}
	w.deliver(m, d)
}

func (w *world) deliver(m *message, d time.Duration) {
	w.after(d, func() {
		if m.acked {
			return
		}
		if w.owner != nil {
			if m.delivered++; m.delivered > 1 {
				w.stats.redelivered++
			}
			w.owner.receive(m)
		}
		w.deliver(m, ackWait)
	})
}
