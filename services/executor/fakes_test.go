package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/internal/bench/responder"
	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/eventlog"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// stage is a partition without a bus: a log in memory, and everything that the owner does written down in order.
type stage struct {
	t           *testing.T
	cfg         *Config
	clock       *fakeClock
	journal     *stageLog
	checkpoints *eventlog.MemoryCheckpoints

	mu      sync.Mutex
	done    []string
	changed chan struct{}
	answers map[string]*runv1.Answer
	works   []*work
	// queue is what the report stream holds: delivered again to the next owner until it is acknowledged.
	queue []*report
	// held are subjects that somebody has a message of; Missing leaves them out.
	held map[string]bool
	// tune changes an owner before it takes over; few makes its source give one report first.
	tune func(*owner)
	few  bool
}

func newStage(t *testing.T, tune func(*Config)) *stage {
	c := Config{Name: "test"}
	if tune != nil {
		tune(&c)
	}
	clock := newFakeClock()
	if c.Clock == nil {
		c.Clock = clock
	}
	c = c.withDefaults()
	s := &stage{
		t: t, cfg: &c, clock: clock, checkpoints: eventlog.NewMemoryCheckpoints(), changed: make(chan struct{}),
		answers: map[string]*runv1.Answer{}, held: map[string]bool{},
	}
	s.journal = &stageLog{Memory: eventlog.NewMemory(), stage: s}
	return s
}

// note writes down what was done.
func (s *stage) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = append(s.done, fmt.Sprintf(format, args...))
	close(s.changed)
	s.changed = make(chan struct{})
}

// until waits until is holds, looking after each thing that is done.
func (s *stage) until(what string, is func(done []string) bool) []string {
	s.t.Helper()
	limit := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		done, changed := append([]string(nil), s.done...), s.changed
		s.mu.Unlock()
		if is(done) {
			return done
		}
		select {
		case <-changed:
		case <-limit:
			s.t.Fatalf("waited in vain for: %s; done so far:\n%s", what, strings.Join(done, "\n"))
		}
	}
}

// history is what was done so far.
func (s *stage) history() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.done...)
}

// answer is what a report's sender was told last.
func (s *stage) answer(id string) *runv1.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers[id]
}

// has waits for one thing.
func (s *stage) has(want string) []string {
	s.t.Helper()
	return s.until(want, func(done []string) bool {
		for _, d := range done {
			if d == want {
				return true
			}
		}
		return false
	})
}

// stageLog notes appends and can be told to fail.
type stageLog struct {
	*eventlog.Memory
	stage *stage

	mu sync.Mutex
	// before is called with each append; an error is its answer, and stored says whether the log holds it all the same.
	before func(n int) (err error, stored bool)
	// gate, where set, must give a value for each append to go on.
	gate chan struct{}
	n    int
}

func (l *stageLog) Append(ctx context.Context, p int, expected uint64, data []byte) (uint64, error) {
	l.mu.Lock()
	l.n++
	before, gate, n := l.before, l.gate, l.n
	l.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if before != nil {
		if err, stored := before(n); err != nil {
			if stored {
				_, _ = l.Memory.Append(ctx, p, expected, data)
			}
			l.stage.note("append failed")
			return 0, err
		}
	}
	// Noted before the owner can know of it.
	seq, err := l.Memory.Append(ctx, p, expected, data)
	if err != nil {
		l.stage.note("append refused")
		return seq, err
	}
	g, _ := eventlog.DecodeGroup(data)
	l.stage.note("append %s", strings.Join(runsOf(g), ","))
	return seq, nil
}

func runsOf(g *runv1.Group) (ids []string) {
	for _, e := range g.GetEntries() {
		ids = append(ids, e.GetRunId())
	}
	return ids
}

// Publish implements outside.
func (s *stage) Publish(w *work) {
	s.mu.Lock()
	s.works = append(s.works, w)
	s.mu.Unlock()
	s.note("publish %s", w.subject)
}

// Cancelled implements outside.
func (s *stage) Cancelled(runID string, then []*work) {
	s.note("cancel %s", runID)
	for _, w := range then {
		s.Publish(w)
	}
}

// Answer implements outside.
func (s *stage) Answer(to string, a *runv1.Answer) {
	s.mu.Lock()
	s.answers[to] = a
	s.mu.Unlock()
	s.note("answer %s", to)
}

// Dead implements outside.
func (s *stage) Dead(r *report, reason string) {
	s.note("dead %s: %s", r.subject, reason)
	r.settle.Ack()
}

// Missing implements outside.
func (s *stage) Missing(_ int, items []*work, done func([]*work, error)) {
	var missing []*work
	for _, w := range items {
		if !s.held[w.subject] {
			missing = append(missing, w)
		}
	}
	s.note("looked for %d items", len(items))
	go done(missing, nil)
}

// stageSource hands over what the stage's queue holds.
type stageSource struct {
	stage *stage
	ready chan struct{}
	next  int
	n     uint64
	held  bool // by the stage's lock
	// few lets only one report through at first, until letGo.
	few bool
}

// hold keeps reports back until letGo, which hands them over all at once.
func (s *stageSource) hold() {
	s.stage.mu.Lock()
	s.held = true
	s.stage.mu.Unlock()
}

func (s *stageSource) letGo() {
	s.stage.mu.Lock()
	s.held, s.few = false, false
	s.stage.mu.Unlock()
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

func (s *stageSource) Take() []*report {
	s.stage.mu.Lock()
	defer s.stage.mu.Unlock()
	var out []*report
	if s.held {
		return nil
	}
	for ; s.next < len(s.stage.queue); s.next++ {
		if r := s.stage.queue[s.next]; r.data != nil {
			fresh := *r
			out = append(out, &fresh)
			if s.few {
				s.held = true
				s.next++
				break
			}
		}
	}
	return out
}

func (s *stageSource) Ready() <-chan struct{} { return s.ready }
func (s *stageSource) Waiting() uint64        { return s.n }
func (s *stageSource) Err() error             { return nil }
func (s *stageSource) Close()                 {}

// stageDelivery notes what becomes of a report.
type stageDelivery struct {
	stage *stage
	id    string
}

func (d stageDelivery) Ack() {
	s := d.stage
	s.mu.Lock()
	for i, r := range s.queue {
		if r.settle == delivery(d) {
			// Sources count by place, so it stays as a hole.
			s.queue[i] = &report{}
		}
	}
	s.mu.Unlock()
	s.note("ack %s", d.id)
}

func (d stageDelivery) Nak(time.Duration) { d.stage.note("nak %s", d.id) }

// fakeLease is valid until it is ended.
type fakeLease struct {
	epoch int64
	lost  chan struct{}
}

func (l *fakeLease) Valid() bool {
	select {
	case <-l.lost:
		return false
	default:
		return true
	}
}
func (l *fakeLease) Lost() <-chan struct{} { return l.lost }
func (l *fakeLease) Epoch() int64          { return l.epoch }

// actor is a running owner.
type actor struct {
	*owner
	stage   *stage
	source  *stageSource
	lease   *fakeLease
	release chan struct{}
	cancel  context.CancelFunc
	ended   chan error
}

// owner takes over and serves.
func (s *stage) owner(epoch int64) *actor {
	s.t.Helper()
	a := &actor{stage: s, lease: &fakeLease{epoch, make(chan struct{})}, release: make(chan struct{}), ended: make(chan error, 1)}
	s.mu.Lock()
	a.source = &stageSource{stage: s, ready: make(chan struct{}, 1), few: s.few}
	for _, r := range s.queue {
		if r.data != nil {
			a.source.n++
		}
	}
	s.mu.Unlock()
	a.source.ready <- struct{}{}
	a.owner = newOwner(owner{
		cfg: s.cfg, log: slog.New(slog.DiscardHandler), partition: 0, partitions: 1, maxMessage: 8 << 20, lease: a.lease,
		journal: s.journal, checkpoints: s.checkpoints, out: s, metrics: newMeter(),
		open:   func(context.Context, int) (source, error) { return a.source, nil },
		health: func(err error) { s.note("health %v", err) },
	})
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	if s.tune != nil {
		s.tune(a.owner)
	}
	if err := a.takeOver(ctx); err != nil {
		s.t.Fatal(err)
	}
	go func() { a.ended <- a.serve(ctx, a.release) }()
	s.t.Cleanup(func() {
		a.cancel()
		a.wait()
	})
	return a
}

// wait returns why the owner ended; a second call returns nil.
func (a *actor) wait() error {
	select {
	case err, first := <-a.ended:
		if first {
			close(a.ended)
		}
		return err
	case <-time.After(10 * time.Second):
		return errors.New("the owner did not end")
	}
}

// crash stops the owner at once: what is under way is dropped.
func (a *actor) crash() {
	a.cancel()
	_ = a.wait()
}

// deliver puts a report into the stream; it is answered under its id.
func (a *actor) deliver(r *runv1.Report) {
	a.stage.t.Helper()
	data, err := proto.Marshal(r)
	if err != nil {
		a.stage.t.Fatal(err)
	}
	a.raw(bus.ReportSubject(0, r.GetRunId()), r.GetId(), data)
}

func (a *actor) raw(subject, id string, data []byte) {
	s := a.stage
	s.mu.Lock()
	s.queue = append(s.queue, &report{subject: subject, data: data, answerTo: id, settle: stageDelivery{s, id}})
	s.mu.Unlock()
	select {
	case a.source.ready <- struct{}{}:
	default:
	}
}

func submit(id, goal string) *runv1.Report {
	return &runv1.Report{Id: "submit:" + id, RunId: id, Tenant: "t", Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: &runv1.RunSpec{Goal: goal}}}}
}

func proposal(t *testing.T, id, goal string) *runv1.Report {
	t.Helper()
	p, tools, err := responder.ByGoal(goal)
	if err != nil {
		t.Fatal(err)
	}
	return &runv1.Report{Id: "plan:" + id, RunId: id, Tenant: "t", Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{
		RequestId: "plan-1", Plan: p, Tools: tools, Planner: &runv1.PlannerTrace{Source: "template"},
	}}}
}

func observed(id, action string) *runv1.Report {
	return observedAs(id, action, action)
}

func observedAs(id, action, reportID string) *runv1.Report {
	return &runv1.Report{Id: reportID + ":" + id, RunId: id, Tenant: "t", Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{
		ActionId: action, Observation: responder.Success(`{}`),
	}}}
}

func cancelRun(id string) *runv1.Report {
	return &runv1.Report{Id: "cancel:" + id, RunId: id, Tenant: "t", Body: &runv1.Report_CancelRun{CancelRun: &runv1.CancelRun{Reason: "enough"}}}
}

// commits reads a run's commits from the log, through the chain.
func (s *stage) commits(id string) (out []*runv1.Commit) {
	s.t.Helper()
	chain := eventlog.Chain{}
	err := s.journal.Read(s.t.Context(), 0, 0, func(m eventlog.Message) error {
		g, err := chain.Next(m)
		if err != nil {
			return err
		}
		for _, e := range g.GetEntries() {
			if e.GetRunId() == id {
				c, err := eventlog.DecodeCommit(e)
				if err != nil {
					return err
				}
				out = append(out, c)
			}
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// fakeClock stands still until it is moved.
type fakeClock struct {
	mu      sync.Mutex
	now     time.Time
	waiting []clockWait
}

type clockWait struct {
	at time.Time
	c  chan time.Time
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := clockWait{c.now.Add(d), make(chan time.Time, 1)}
	if d <= 0 {
		w.c <- c.now
		return w.c
	}
	c.waiting = append(c.waiting, w)
	return w.c
}

// move sets the clock and wakes who waits.
func (c *fakeClock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	var rest []clockWait
	for _, w := range c.waiting {
		if w.at.After(c.now) {
			rest = append(rest, w)
			continue
		}
		w.c <- c.now
	}
	c.waiting = rest
}
