package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/internal/bench/responder"
	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/telemetry"
	"github.com/cairnrun/cairn/pkg/tool"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/services/executor"
)

// owners waits until the keys of all partitions are held as is says.
func (w *world) owners(what string, is func(map[string]int) bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	kv, err := w.js.KeyValue(ctx, bus.BucketOwners)
	if err != nil {
		w.t.Fatal(err)
	}
	watch, err := kv.Watch(ctx, "owner.*")
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = watch.Stop() }()
	byPartition := map[string]string{}
	for {
		select {
		case <-ctx.Done():
			w.t.Fatalf("waited in vain for: %s; owners are %v", what, byPartition)
		case e := <-watch.Updates():
			if e == nil {
				continue
			}
			delete(byPartition, e.Key())
			var v struct {
				Owner string `json:"owner"`
			}
			if e.Operation() == jetstream.KeyValuePut && json.Unmarshal(e.Value(), &v) == nil {
				byPartition[e.Key()] = v.Owner
			}
			counts := map[string]int{}
			for _, o := range byPartition {
				counts[o]++
			}
			if len(byPartition) == w.partitions && is(counts) {
				return
			}
		}
	}
}

func TestTwoExecutorsShareAndTakeOver(t *testing.T) {
	w := newWorld(t, 4)
	r := w.respond(responder.Config{})
	a := w.start("a", nil)
	w.owners("a has all", func(n map[string]int) bool { return n["a"] == 4 })
	b := w.start("b", nil)
	w.owners("they share", func(n map[string]int) bool { return n["a"] == 2 && n["b"] == 2 })

	// Runs go on all the while.
	const n = 40
	var wg sync.WaitGroup
	for i := range n {
		if i == n/2 {
			b.kill()
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			w.submit(fmt.Sprintf("run%d", i), "chain 5")
		}()
		time.Sleep(5 * time.Millisecond) // spread over the kill
	}
	wg.Wait()
	began := time.Now()
	w.owners("a has all again", func(n map[string]int) bool { return n["a"] == 4 })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("take-over took %s", took)
	}
	for i := range n {
		id := fmt.Sprintf("run%d", i)
		commits := w.ended(id)
		if s := status(commits); s != runv1.RunStatus_RUN_STATUS_COMPLETED {
			t.Errorf("%s ended as %s", id, s)
		}
		if n := count(commits, func(e *runv1.Event) bool { return e.GetObservationRecorded() != nil }); n != 5 {
			t.Errorf("%s: %d observations", id, n)
		}
		_ = r.Calls(id)
	}
	// A drained member gives its partitions away at once: the next one need not wait for keys to run out.
	c := w.start("c", nil)
	w.owners("they share", func(n map[string]int) bool { return n["a"] == 2 && n["c"] == 2 })
	began = time.Now()
	a.end(t)
	w.owners("c has all", func(n map[string]int) bool { return n["c"] == 4 })
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("hand-over took %s", took)
	}
	_ = c
}

func TestCase51_ConcurrentSubmissionsOverTheBus(t *testing.T) {
	w := newWorld(t, 2)
	w.respond(responder.Config{})
	a := w.start("a", nil)
	outcomes := func(n int, goal string) map[string]int {
		var mu sync.Mutex
		var wg sync.WaitGroup
		got := map[string]int{}
		for range n {
			wg.Add(1)
			go func() {
				defer wg.Done()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				answer, err := w.reporter.Ask(ctx, submission("same", goal))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				got[strings.TrimPrefix(answer.GetOutcome().String(), "ANSWER_OUTCOME_")+" "+answer.GetCode()]++
				mu.Unlock()
			}()
		}
		wg.Wait()
		return got
	}
	if got := outcomes(3, "chain 2"); got["ACCEPTED "] != 1 || got["REPEATED "] != 2 {
		t.Errorf("at once: %v", got)
	}
	w.ended("same")
	if got := outcomes(3, "chain 2"); got["REPEATED "] != 3 {
		t.Errorf("after completion: %v", got)
	}
	a.end(t)
	w.start("b", nil)
	if got := outcomes(3, "chain 2"); got["REPEATED "] != 3 {
		t.Errorf("after restart: %v", got)
	}
	if got := outcomes(1, "chain 3"); got["REFUSED key_reused"] != 1 {
		t.Errorf("another body: %v", got)
	}
}

func TestCase44_ParallelResultsOfTwoExecutors(t *testing.T) {
	w := newWorld(t, 1)
	r := w.respond(responder.Config{})
	a := w.start("a", nil)
	w.submit("wide", "wide 64")
	// The owner goes away in the midst of the results.
	a.kill()
	w.start("b", nil)
	commits := w.ended("wide")
	if n := count(commits, func(e *runv1.Event) bool { return e.GetObservationRecorded() != nil }); n != 65 {
		t.Errorf("%d observations in the log, want 65", n)
	}
	for action, n := range r.Calls("wide") {
		if n > 2 {
			t.Errorf("action %s was called %d times", action, n)
		}
	}
}

// A restart of the bus is a take-over: nothing that was in memory only is trusted.
func TestBusRestart(t *testing.T) {
	dir := t.TempDir()
	start := func(port int) *embedded.Server {
		s, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Host: "127.0.0.1", Port: port})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := start(0)
	url := s.URL()
	port := 0
	if _, err := fmt.Sscanf(url[strings.LastIndex(url, ":")+1:], "%d", &port); err != nil {
		t.Fatal(err)
	}
	dial := bus.Config{URL: url, Name: "test"}
	nc, js, err := bus.Connect(dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		s.Close()
	})
	if err := bus.Init(t.Context(), js, bus.Layout{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	l, err := eventlog.NewNATS(t.Context(), js, eventlog.NATSConfig{})
	if err != nil {
		t.Fatal(err)
	}
	reporter, err := bus.NewReporter(js, 2, bus.ReporterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, server: s, nc: nc, js: js, partitions: 2, reporter: reporter, log: l}
	gate := make(chan struct{})
	r, err := responder.Start(t.Context(), responder.Config{Bus: dial, AckWait: time.Second, Call: func(*runv1.Work) *runv1.Observation {
		<-gate
		return responder.Success(`{}`)
	}}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	w.start("a", func(c *executor.Config) { c.Bus = bus.Config{URL: url, Options: c.Bus.Options[1:]} })
	for i := range 6 {
		w.submit(fmt.Sprintf("run%d", i), "chain 3")
	}
	s.Close()
	s = start(port)
	w.server = s
	close(gate)
	for i := range 6 {
		id := fmt.Sprintf("run%d", i)
		if st := status(w.ended(id)); st != runv1.RunStatus_RUN_STATUS_COMPLETED {
			t.Errorf("%s ended as %s", id, st)
		}
	}
}

func TestReportsThatCannotBeJudgedAreDeadLetters(t *testing.T) {
	w := newWorld(t, 2)
	w.respond(responder.Config{})
	w.start("a", nil)
	id := w.onPartition(0, "good", 1)[0]
	elsewhere := w.onPartition(1, "other", 1)[0]
	bad := map[string][]byte{"no protobuf": []byte("\xff\xff nonsense"), "nothing said": mustMarshal(t, &runv1.Report{RunId: id}), "another run": mustMarshal(t, submission("x", "chain 1")), "other partition": nil,
		"no protobuf, as large as the server takes": []byte(strings.Repeat("x", int(w.js.Conn().MaxPayload())))}
	for name, data := range bad {
		subject := bus.ReportSubject(0, id)
		if name == "other partition" {
			subject, data = bus.ReportSubject(0, elsewhere), mustMarshal(t, submission(elsewhere, "chain 1"))
		}
		if _, err := w.js.Publish(t.Context(), subject, data); err != nil {
			t.Fatal(err)
		}
	}
	w.submit(id, "chain 1")
	w.ended(id)
	cons, err := w.js.CreateConsumer(t.Context(), bus.StreamDead, jetstream.ConsumerConfig{FilterSubject: bus.DeadLetterPrefix + bus.StreamReports + ".>"})
	if err != nil {
		t.Fatal(err)
	}
	for range bad {
		m, err := cons.Next(jetstream.FetchMaxWait(10 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if m.Headers().Get(bus.HeaderDeadReason) == "" {
			t.Errorf("dead letter on %s has no reason", m.Subject())
		}
	}
	w.drained(bus.StreamReports)
}

// A bucket that is deleted and made anew ends no watch and no key: the partitions are taken again all the same.
func TestPartitionsAreTakenAgainWhenTheBucketOfOwnersIsMadeAnew(t *testing.T) {
	w := newWorld(t, 2)
	w.respond(responder.Config{})
	w.start("a", nil)
	w.start("b", nil)
	w.submit("before", "chain 1")
	if err := w.js.DeleteKeyValue(t.Context(), bus.BucketOwners); err != nil {
		t.Fatal(err)
	}
	// Nobody renews a lease, so nobody asks for reports in the end.
	for p := range 2 {
		for limit := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			c, err := w.js.Consumer(t.Context(), bus.StreamReports, fmt.Sprintf("executor-%d", p))
			if err != nil {
				t.Fatal(err)
			}
			if c.CachedInfo().NumWaiting == 0 {
				break
			}
			if time.Now().After(limit) {
				t.Fatal("a partition is served without a lease")
			}
		}
	}
	if err := bus.Init(t.Context(), w.js, bus.Layout{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	for p := range 2 {
		id := w.onPartition(p, "after", 1)[0]
		w.submit(id, "chain 1")
		w.ended(id)
	}
}

func mustMarshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// drained waits until a stream holds nothing.
func (w *world) drained(stream string) {
	w.t.Helper()
	limit := time.Now().Add(10 * time.Second)
	for {
		s, err := w.js.Stream(w.t.Context(), stream)
		if err != nil {
			w.t.Fatal(err)
		}
		if n := s.CachedInfo().State.Msgs; n == 0 {
			return
		} else if time.Now().After(limit) {
			w.t.Fatalf("stream %s still holds %d messages", stream, n)
		}
		time.Sleep(10 * time.Millisecond) // the stream has no event to wait for
	}
}

func TestCancelTellsToolsAndRemovesWaitingWork(t *testing.T) {
	w := newWorld(t, 1)
	w.start("a", nil)
	// Only the planner is there: calls wait in their stream.
	r, err := responder.Start(t.Context(), responder.Config{Bus: w.server.Bus("planner"), Batch: 8, Call: func(*runv1.Work) *runv1.Observation { return nil }}, true)
	if err != nil {
		t.Fatal(err)
	}
	w.submit("r", "fan 4")
	w.follow(0, func(c *runv1.Commit) bool { return c.GetPhase() == runv1.RunPhase_RUN_PHASE_WAITING_FOR_TOOL })
	r.Stop()
	if _, err := w.js.Publish(t.Context(), tool.ActionSubject("r", "s9-1", "x.y"), []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	signals, err := w.nc.SubscribeSync(bus.CancelPrefix + "r")
	if err != nil {
		t.Fatal(err)
	}
	answer := w.ask(&runv1.Report{Id: "c", RunId: "r", Tenant: "t", Body: &runv1.Report_CancelRun{CancelRun: &runv1.CancelRun{Reason: "enough"}}})
	if answer.GetOutcome() != runv1.AnswerOutcome_ANSWER_OUTCOME_ACCEPTED {
		t.Errorf("cancel: %v", answer)
	}
	if _, err := signals.NextMsg(10 * time.Second); err != nil {
		t.Errorf("no cancel signal: %v", err)
	}
	w.drained(bus.StreamActions)
	// What waits now is what the cancel itself owes: revocations, and no call.
	calls, err := w.js.Stream(t.Context(), bus.StreamWork)
	if err != nil {
		t.Fatal(err)
	}
	limit := time.Now().Add(10 * time.Second)
	for {
		info, err := calls.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		if err != nil {
			t.Fatal(err)
		}
		left := 0
		for subject := range info.State.Subjects {
			m, err := calls.GetLastMsgForSubject(t.Context(), subject)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			work := &runv1.Work{}
			if err := proto.Unmarshal(m.Data, work); err != nil {
				t.Fatal(err)
			}
			if work.GetCall() != nil {
				left++
			}
		}
		if left == 0 {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("%d calls still wait", left)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestMissingStreamsAreReportedAndNotMade(t *testing.T) {
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	nc, js, err := bus.Connect(s.Bus("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	h := telemetry.NewHealth("executor")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- executor.Run(ctx, executor.Config{Bus: s.Bus("a"), Health: h, Lease: time.Second, CheckEvery: 50 * time.Millisecond})
	}()
	says := func(want string) {
		t.Helper()
		limit := time.Now().Add(10 * time.Second)
		for {
			err := h.Err()
			if want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want) {
				return
			}
			if time.Now().After(limit) {
				t.Fatalf("health says %v, want %q", err, want)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	says("missing stream: CAIRN_LOG")
	if err := bus.Init(t.Context(), js, bus.Layout{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	says("")
	if err := js.DeleteStream(t.Context(), bus.StreamLog); err != nil {
		t.Fatal(err)
	}
	says("missing stream: CAIRN_LOG")
	if _, err := js.Stream(t.Context(), bus.StreamLog); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the stream was made again: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestDrainingEndsThoughTheStorageIsFull(t *testing.T) {
	w := newWorld(t, 1)
	s, err := w.js.Stream(t.Context(), bus.StreamLog)
	if err != nil {
		t.Fatal(err)
	}
	a := w.start("a", func(c *executor.Config) { c.DrainTimeout = time.Second })
	w.owners("a has it", func(n map[string]int) bool { return n["a"] == 1 })
	w.submit("first", "chain 1")
	c := s.CachedInfo().Config
	c.MaxBytes, c.Discard = 1, jetstream.DiscardNew
	if _, err := w.js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := w.reporter.Report(t.Context(), submission("second", "chain 1")); err != nil {
		t.Fatal(err)
	}
	limit := time.Now().Add(10 * time.Second)
	for !strings.Contains(fmt.Sprint(a.health.Err()), "storage full") {
		if time.Now().After(limit) {
			t.Fatalf("health says %v", a.health.Err())
		}
		time.Sleep(10 * time.Millisecond)
	}
	began := time.Now()
	a.end(t)
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("draining took %s", took)
	}
}

func TestTakeOverWithCheckpoints(t *testing.T) {
	w := newWorld(t, 1)
	gate := make(chan struct{})
	w.respond(responder.Config{Call: func(*runv1.Work) *runv1.Observation {
		<-gate
		return responder.Success(`{}`)
	}})
	a := w.start("a", nil)
	for i := range 5 {
		w.submit(fmt.Sprintf("run%d", i), "chain 2")
	}
	a.end(t) // writes one
	store, err := eventlog.NewNATSCheckpoints(t.Context(), w.js)
	if err != nil {
		t.Fatal(err)
	}
	names, err := store.List(t.Context())
	if err != nil || len(names) != 1 {
		t.Fatalf("checkpoints %v, %v", names, err)
	}
	b := w.start("b", nil)
	w.submit("more", "chain 2")
	b.end(t)
	if names, err = store.List(t.Context()); err != nil || len(names) != 2 {
		t.Fatalf("checkpoints %v, %v", names, err)
	}
	// One is broken, one belongs to another log.
	if err := store.Put(t.Context(), names[0], strings.NewReader("broken")); err != nil {
		t.Fatal(err)
	}
	foreign := &runv1.Checkpoint{Partition: 0, GroupNumber: 9999, LogSequence: 2, GroupHash: []byte("another log")}
	if err := eventlog.SaveCheckpoint(t.Context(), store, once(foreign)); err != nil {
		t.Fatal(err)
	}
	w.start("c", nil)
	close(gate)
	for _, id := range []string{"run0", "run1", "run2", "run3", "run4", "more"} {
		if s := status(w.ended(id)); s != runv1.RunStatus_RUN_STATUS_COMPLETED {
			t.Errorf("%s ended as %s", id, s)
		}
	}
}

func once(c *runv1.Checkpoint) func() *runv1.Checkpoint {
	return func() *runv1.Checkpoint {
		out := c
		c = nil
		return out
	}
}

func TestBadConfigIsRefused(t *testing.T) {
	for name, c := range map[string]executor.Config{
		"lease below a second": {Lease: 500 * time.Millisecond},
		"lease of a half":      {Lease: 2500 * time.Millisecond},
		"name with a dot":      {Name: "a.b"},
	} {
		c.Bus = bus.Config{URL: "nats://127.0.0.1:1", Options: []nats.Option{}}
		if err := executor.Run(t.Context(), c); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
