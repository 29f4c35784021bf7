package toolrouter_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/tool"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/services/toolrouter"
)

// Work can come again after its action was dispatched. A refusal must not be reported then, unless it is true.
func TestARefusalOfStartedWorkIsNotReported(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	for i, refuse := range []func(*runv1.Work){
		func(w *runv1.Work) { w.GetCall().NotAfter = timestamppb.New(time.Now().Add(-time.Second)) },
		func(w *runv1.Work) { w.ValidUntil = timestamppb.New(time.Now().Add(-time.Second)) },
		func(w *runv1.Work) { w.GetCall().Tool = "gone" },
	} {
		started := notIdempotent(call(runID(2*i), "s-1", "gone", "{}"))
		refuse(started)
		if created, err := tool.Claim(t.Context(), w.js, runID(2*i), "s-1", tool.NewClaim(tool.ClaimStarted, "a tool")); err != nil || !created {
			t.Fatal(created, err)
		}
		w.send(started)
		w.empty(bus.StreamWork)
		if len(w.reports) != 0 {
			t.Errorf("%d: reported: %v", i, <-w.reports)
		}
		fresh := notIdempotent(call(runID(2*i+1), "s-1", "gone", "{}"))
		refuse(fresh)
		if o := w.do(fresh); o.GetError() == nil || o.GetExecutedBy() != "" {
			t.Errorf("%d: %v", i, o)
		}
		if c, err := tool.ReadClaim(t.Context(), w.js, runID(2*i+1), "s-1"); err != nil || c.State != tool.ClaimRevoked {
			t.Errorf("%d: claim %v, %v: a refusal must be final", i, c, err)
		}
	}
}

// foreign is a tool instance that is not ours and can be as bad as it likes.
func (w *world) foreign(name string, ackWait time.Duration, maxDeliver int) jetstream.Consumer {
	w.t.Helper()
	value := `{"name":"` + name + `","version":"1.0.0","input_schema":{"type":"object"},"idempotent":true}`
	if kv, err := w.js.KeyValue(w.t.Context(), tool.BucketTools); err != nil {
		w.t.Fatal(err)
	} else if _, err := kv.Get(w.t.Context(), name); err != nil {
		_, err := kv.Put(w.t.Context(), name, []byte(value))
		must(w.t, err)
	}
	cons, err := w.js.CreateOrUpdateConsumer(w.t.Context(), tool.StreamActions, tool.ConsumerConfig(name, ackWait, maxDeliver))
	must(w.t, err)
	return cons
}

func (w *world) next(cons jetstream.Consumer) jetstream.Msg {
	w.t.Helper()
	m, err := cons.Next(jetstream.FetchMaxWait(patience))
	must(w.t, err)
	return m
}

// answer is what a well-behaved instance sends for an action.
func (w *world) answer(m jetstream.Msg, body string) {
	w.t.Helper()
	run, action, name, _ := tool.ParseSubject(m.Subject())
	r := &nats.Msg{Subject: tool.ResultSubject(run, action, name), Data: []byte(body), Header: nats.Header{}}
	r.Header.Set(tool.HeaderAttempt, m.Headers().Get(tool.HeaderAttempt))
	r.Header.Set(tool.HeaderContext, m.Headers().Get(tool.HeaderContext))
	_, err := w.js.PublishMsg(w.t.Context(), r)
	must(w.t, err)
}

func notIdempotent(w *runv1.Work) *runv1.Work {
	w.GetCall().Idempotent = false
	return w
}

// An instance that holds an action beyond its acknowledgement wait loses it to another. Both answer under the same attempt
// token, and the effect is there once per idempotency key.
func TestCase54_ALateInstanceDoesNotExecuteTwice(t *testing.T) {
	for name, idempotent := range map[string]bool{"idempotent": true, "claimed": false} {
		t.Run(name, func(t *testing.T) {
			w := withStreams(t)
			w.router(nil)
			paused := w.foreign("pay", time.Second, 5)
			work := call(runID(1), "s-1", "pay", "{}")
			work.GetCall().Idempotent = idempotent
			w.send(work)
			held := w.next(paused)
			var fx effects
			if !idempotent {
				// It had begun when it was stopped.
				created, err := tool.Claim(t.Context(), w.js, runID(1), "s-1", tool.NewClaim(tool.ClaimStarted, "paused"))
				if err != nil || !created {
					t.Fatal(created, err)
				}
				fx.add(held.Headers().Get(tool.HeaderIdempotencyKey))
			}
			second := []tool.Option{tool.Version("1.0.0")}
			if idempotent {
				second = append(second, tool.Idempotent())
			}
			w.serve(func(c *tool.Config) { c.AckWait = time.Second }, tool.New("pay", func(ctx context.Context, _ struct{}) (string, error) {
				fx.add(tool.Action(ctx).IdempotencyKey)
				return "second", nil
			}, second...))
			if idempotent {
				if got := success(t, w.report(runID(1), "s-1")); got != `"second"` {
					t.Errorf("output %s", got)
				}
			}
			// The second instance is done with it, by its result or by the claim.
			w.empty(tool.StreamActions)
			w.answer(held, `{"status":"success","output":"first"}`)
			_ = held.Ack()
			if got := success(t, w.report(runID(1), "s-1")); got != `"first"` {
				t.Errorf("output %s", got)
			}
			if n := fx.of("key-" + runID(1) + "-s"); n != 1 {
				t.Errorf("the effect is there %d times", n)
			}
		})
	}
}

// Case 36: an instance is killed in the middle of a call.
func TestCase36_AKilledCallIsRepeatedOnlyIfThatDoesNoHarm(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	killed := w.foreign("book", time.Second, 5)
	w.send(notIdempotent(call(runID(1), "s-1", "book", "{}")))
	m := w.next(killed)
	if m.Headers().Get(tool.HeaderIdempotent) != "false" {
		t.Errorf("header %v", m.Headers())
	}
	created, err := tool.Claim(t.Context(), w.js, runID(1), "s-1", tool.NewClaim(tool.ClaimStarted, "killed"))
	if err != nil || !created {
		t.Fatal(created, err)
	}
	// Nothing more is heard of it. Another instance takes the action, sees the claim and does nothing.
	var fx effects
	w.serve(func(c *tool.Config) { c.AckWait = time.Second }, tool.New("book", func(ctx context.Context, _ struct{}) (string, error) {
		fx.add(tool.Action(ctx).RunID)
		return "booked", nil
	}, tool.Version("1.0.0")))
	w.empty(tool.StreamActions)
	// The run's deadline passes; it asks.
	w.send(revocation(runID(1), "s-1", "book", false))
	if o := w.report(runID(1), "s-1"); o.GetOutcome() != runv1.Outcome_OUTCOME_STARTED {
		t.Errorf("outcome %s", o.GetOutcome())
	}
	if n := fx.of(runID(1)); n != 0 {
		t.Errorf("a call that was started was started again, %d times", n)
	}
}

func TestARevokedActionNeverStarts(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	w.foreign("book", 5*time.Second, 5)
	w.send(notIdempotent(call(runID(1), "s-1", "book", "{}")))
	w.eventually("the action waits", func() bool {
		s, err := w.js.Stream(t.Context(), tool.StreamActions)
		return err == nil && s.CachedInfo().State.Msgs == 1
	})
	w.empty(bus.StreamWork)
	for range 2 {
		// Asked twice, answered twice alike.
		w.send(revocation(runID(1), "s-1", "book", false))
		if o := w.report(runID(1), "s-1"); o.GetOutcome() != runv1.Outcome_OUTCOME_REVOKED {
			t.Errorf("outcome %s", o.GetOutcome())
		}
		w.empty(bus.StreamWork)
	}
	w.empty(tool.StreamActions)
	// It comes again all the same, as after a kill of the bus.
	var fx effects
	w.serve(nil, tool.New("book", func(ctx context.Context, _ struct{}) (string, error) {
		fx.add(tool.Action(ctx).ActionID)
		return "booked", nil
	}, tool.Version("1.0.0")))
	w.send(notIdempotent(call(runID(1), "s-1", "book", "{}")))
	w.empty(bus.StreamWork)
	w.empty(tool.StreamActions)
	if n := fx.of("s-1"); n != 0 {
		t.Errorf("a revoked action was executed %d times", n)
	}
	w.send(revocation(runID(2), "s-1", "echo", true))
	if o := w.report(runID(2), "s-1"); o.GetOutcome() != runv1.Outcome_OUTCOME_REVOKED {
		t.Errorf("an idempotent action: outcome %s", o.GetOutcome())
	}
}

func TestARepeatedDeliveryIsAnsweredNotExecuted(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	var fx effects
	w.serve(nil, tool.New("echo", func(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
		fx.add(tool.Action(ctx).ActionID)
		return in, nil
	}, tool.Version("1.0.0"), tool.Idempotent()))
	tap, err := w.nc.SubscribeSync(tool.ActionPrefix + ">")
	must(t, err)
	first := w.do(call(runID(1), "s-1", "echo", `{"a":1}`))
	again, err := tap.NextMsg(patience)
	must(t, err)
	w.empty(tool.StreamActions)
	copied := nats.NewMsg(again.Subject)
	copied.Data, copied.Header = again.Data, again.Header
	copied.Reply = ""
	_, err = w.js.PublishMsg(t.Context(), copied)
	must(t, err)
	second := w.report(runID(1), "s-1")
	if success(t, second) != `{"a":1}` || second.GetStartedAt().AsTime() != first.GetStartedAt().AsTime() {
		t.Errorf("the repeat is %v, first %v", second, first)
	}
	// A retry is another action with the same key, and is executed.
	retry := call(runID(1), "s-2", "echo", `{"a":1}`)
	success(t, w.do(retry))
	if fx.of("s-1") != 1 || fx.of("s-2") != 1 {
		t.Errorf("executed %d and %d times", fx.of("s-1"), fx.of("s-2"))
	}
}

func TestCase62_AnActionThatIsAlwaysPutBackFails(t *testing.T) {
	for name, lost := range map[string]bool{"advisory": false, "advisory lost": true} {
		t.Run(name, func(t *testing.T) {
			w := withStreams(t)
			stop := w.router(nil)
			cons := w.foreign("stubborn", 5*time.Second, 5)
			w.send(call(runID(1), "s-1", "stubborn", "{}"))
			w.empty(bus.StreamWork)
			if lost {
				// Nobody listens while the deliveries are used up.
				stop()
			}
			var times []time.Time
			for i := 1; i <= 5; i++ {
				m := w.next(cons)
				times = append(times, time.Now())
				delay := tool.RedeliveryDelay(i)
				if i > 3 {
					// The 8 s after the fourth are not waited for here.
					delay = time.Millisecond
				}
				must(t, m.NakWithDelay(delay))
			}
			for i, least := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
				if gap := times[i+1].Sub(times[i]); gap < least || gap > 2*least+time.Second {
					t.Errorf("delivery %d came after %s", i+2, gap)
				}
			}
			// The server notices when the message would be delivered once more.
			if _, err := cons.Next(jetstream.FetchMaxWait(time.Second)); err == nil {
				t.Error("delivered a sixth time")
			}
			begun := time.Now()
			if lost {
				w.router(func(c *toolrouter.Config) { c.SweepEvery = 500 * time.Millisecond })
			}
			e := failure(t, w.report(runID(1), "s-1"), tool.CodeDeliveryExhaust)
			if e.GetRetryable() || time.Since(begun) > 30*time.Second {
				t.Errorf("%v after %s", e, time.Since(begun))
			}
			w.empty(tool.StreamActions)
		})
	}
}

// Used-up deliveries say nothing about an effect: where the start was claimed, the outcome is not known.
func TestCase62_AStartedActionThatIsPutBackHasAnUnknownOutcome(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	cons := w.foreign("stubborn", 5*time.Second, 2)
	w.send(notIdempotent(call(runID(1), "s-1", "stubborn", "{}")))
	m := w.next(cons)
	if created, err := tool.Claim(t.Context(), w.js, runID(1), "s-1", tool.NewClaim(tool.ClaimStarted, "stubborn")); err != nil || !created {
		t.Fatal(created, err)
	}
	must(t, m.NakWithDelay(time.Millisecond))
	must(t, w.next(cons).NakWithDelay(time.Millisecond))
	_, _ = cons.Next(jetstream.FetchMaxWait(time.Second))
	failure(t, w.report(runID(1), "s-1"), tool.CodeUnknownOutcome)
	w.empty(tool.StreamActions)
}

func TestCancelAndDeadlineEndACall(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	started := make(chan string, 16)
	wait4ever := func(ctx context.Context, _ struct{}) (string, error) {
		started <- tool.Action(ctx).ActionID
		<-ctx.Done()
		return "", ctx.Err()
	}
	w.serve(nil, tool.New("idle", wait4ever, tool.Version("1.0.0"), tool.Idempotent()), tool.New("idle.once", wait4ever, tool.Version("1.0.0")))

	w.send(call(runID(1), "s-1", "idle", "{}"))
	w.send(call(runID(1), "t-1", "idle", "{}"))
	wait(t, started, "start")
	wait(t, started, "start")
	// One action, by its id.
	must(t, w.nc.Publish(tool.CancelPrefix+runID(1), []byte(`{"action_id":"t-1"}`)))
	failure(t, w.report(runID(1), "t-1"), tool.CodeCancelled)
	// The whole run.
	must(t, w.nc.Publish(tool.CancelPrefix+runID(1), nil))
	failure(t, w.report(runID(1), "s-1"), tool.CodeCancelled)

	for name, code := range map[string]string{"idle": tool.CodeTimeout, "idle.once": tool.CodeUnknownOutcome} {
		work := call(w.newRun(), "s-1", name, "{}")
		work.GetCall().NotAfter = timestamppb.New(time.Now().Add(700 * time.Millisecond))
		failure(t, w.do(work), code)
	}

	// A revocation cancels what it finds started.
	work := notIdempotent(call(runID(3), "s-1", "idle.once", "{}"))
	for len(started) > 0 {
		<-started
	}
	w.send(work)
	wait(t, started, "start")
	w.empty(bus.StreamWork)
	w.send(revocation(runID(3), "s-1", "idle.once", false))
	outcomes := map[runv1.Outcome]bool{}
	for range 2 {
		outcomes[w.report(runID(3), "s-1").GetOutcome()] = true
	}
	if !outcomes[runv1.Outcome_OUTCOME_STARTED] || !outcomes[runv1.Outcome_OUTCOME_ERROR] {
		t.Errorf("outcomes %v", outcomes)
	}
}

func TestAnActionIsNotStartedAfterItsDeadline(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	w.foreign("pay", 5*time.Second, 5)
	w.foreign("look", 5*time.Second, 5)
	deadline := time.Now().Add(time.Second)
	for _, name := range []string{"pay", "look"} {
		work := call(runID(1), name+"-1", name, "{}")
		work.GetCall().NotAfter, work.GetCall().Idempotent = timestamppb.New(deadline), name == "look"
		w.send(work)
	}
	w.empty(bus.StreamWork)
	// No instance is there before the deadline.
	time.Sleep(time.Until(deadline))
	var fx effects
	act := func(ctx context.Context, _ struct{}) (string, error) {
		fx.add("any")
		return "done", nil
	}
	w.serve(nil, tool.New("pay", act, tool.Version("1.0.0")), tool.New("look", act, tool.Version("1.0.0"), tool.Idempotent()))
	for range 2 {
		r := wait(t, w.reports, "a refusal")
		o := r.GetResultReported().GetObservation()
		failure(t, o, tool.CodeTimeout)
		if o.GetExecutedBy() != "" || o.GetStartedAt() != nil {
			t.Errorf("somebody is said to have executed it: %v", o)
		}
	}
	if fx.of("any") != 0 {
		t.Error("executed after the deadline")
	}
	c, err := tool.ReadClaim(t.Context(), w.js, runID(1), "pay-1")
	if err != nil || c.State != tool.ClaimRevoked {
		t.Errorf("claim %v, %v: a late refusal must be final", c, err)
	}
}

func TestCase64_NothingIsPublishedUnderAnotherRunsName(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	w.serve(nil, echo())
	var mu sync.Mutex
	var seen []string
	tap, err := w.nc.Subscribe("cairn.>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, m.Subject)
	})
	must(t, err)
	defer func() { _ = tap.Unsubscribe() }()
	bad := []*runv1.Work{
		call("rvictim", "s-1", "echo", "{}"),
		call("a.>", "s-1", "echo", "{}"),
		call("*", "s-1", "echo", "{}"),
		call("", "s-1", "echo", "{}"),
		call("选择", "s-1", "echo", "{}"),
		call(strings.Repeat("r", 300), "s-1", "echo", "{}"),
		call(runID(1), "x *", "echo", "{}"),
		call(runID(1), "s-1.evil", "echo", "{}"),
		revocation("rvictim", "s-1", "echo", false),
	}
	for i, work := range bad {
		w.sendTo(bus.CallSubject(runID(1), "bad-"+string(rune('a'+i))), work)
	}
	// Results that name another run than the action they answer.
	w.foreign("liar", 5*time.Second, 5)
	w.send(call(runID(2), "s-1", "liar", "{}"))
	cons, err := w.js.Consumer(t.Context(), tool.StreamActions, tool.DurableName("liar"))
	must(t, err)
	m := w.next(cons)
	for _, header := range []string{tool.HeaderContext, tool.HeaderAttempt} {
		r := nats.NewMsg(tool.ResultSubject("rvictim", "s-1", "liar"))
		if header == tool.HeaderAttempt {
			// The right context, of an action of its own, with the token of another.
			r.Subject = tool.ResultSubject(runID(2), "s-1", "liar")
		}
		r.Data = []byte(`{"status":"success","output":1}`)
		r.Header.Set(tool.HeaderContext, m.Headers().Get(tool.HeaderContext))
		r.Header.Set(tool.HeaderAttempt, "0123456789abcdef")
		_, err := w.js.PublishMsg(t.Context(), r)
		must(t, err)
	}
	w.empty(bus.StreamWork)
	w.empty(bus.StreamResults)
	must(t, m.Ack())
	// They are all dead letters, and no run heard of them.
	w.eventually("dead letters", func() bool {
		s, err := w.js.Stream(t.Context(), bus.StreamDead)
		return err == nil && s.CachedInfo().State.Msgs == uint64(len(bad)+2)
	})
	if len(w.reports) != 0 {
		t.Errorf("reported: %v", <-w.reports)
	}
	success(t, w.do(call(runID(3), "s-1", "echo", "{}")))
	mu.Lock()
	defer mu.Unlock()
	for _, subject := range seen {
		// What this test sent itself, and dead letters, which are filed under the run of the subject they came on.
		if strings.Contains(subject, "rvictim") && subject != tool.ResultSubject("rvictim", "s-1", "liar") && !strings.HasPrefix(subject, bus.DeadLetterPrefix) {
			t.Errorf("published on %s", subject)
		}
		if run, _, _, ok := tool.ParseSubject(subject); ok && strings.HasPrefix(subject, tool.ActionPrefix) && run != runID(2) && run != runID(3) {
			t.Errorf("action on %s", subject)
		}
	}
}

func TestResultsWithoutTheirHeadersAreReported(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	cons := w.foreign("bare", 5*time.Second, 5)
	for _, missing := range []string{tool.HeaderAttempt, tool.HeaderContext} {
		run := w.newRun()
		w.send(call(run, "s-1", "bare", "{}"))
		m := w.next(cons)
		r := nats.NewMsg(tool.ResultSubject(run, "s-1", "bare"))
		r.Data = []byte(`{"status":"success"}`)
		for _, h := range []string{tool.HeaderAttempt, tool.HeaderContext} {
			if h != missing {
				r.Header.Set(h, m.Headers().Get(h))
			}
		}
		_, err := w.js.PublishMsg(t.Context(), r)
		must(t, err)
		must(t, m.Ack())
		if e := failure(t, w.report(run, "s-1"), tool.CodeInvalidOutput); !strings.Contains(e.GetMessage(), missing) {
			t.Errorf("message %q does not name %s", e.GetMessage(), missing)
		}
	}
	for _, body := range []string{`not JSON`, `{"status":"done"}`, `{"status":"success","output":{"a":1,"a":2}}`} {
		run := w.newRun()
		w.send(call(run, "s-1", "bare", "{}"))
		m := w.next(cons)
		w.answer(m, body)
		must(t, m.Ack())
		failure(t, w.report(run, "s-1"), tool.CodeInvalidOutput)
	}
}

// acks listens to a tool's acknowledgements of its next action. The function returned waits for the last one, which must be of
// the first delivery, and returns the number of heartbeats before it.
func (w *world) acks(name string) (beats func() int) {
	w.t.Helper()
	sub, err := w.nc.SubscribeSync("$JS.ACK." + tool.StreamActions + "." + tool.DurableName(name) + ".>")
	must(w.t, err)
	must(w.t, w.nc.Flush())
	return func() int {
		w.t.Helper()
		for n := 0; ; n++ {
			m, err := sub.NextMsg(patience)
			must(w.t, err)
			if delivery := strings.Split(m.Subject, ".")[4]; delivery != "1" {
				w.t.Fatalf("%s of delivery %s", m.Data, delivery)
			}
			if string(m.Data) == "+ACK" {
				must(w.t, sub.Unsubscribe())
				return n
			}
		}
	}
}

func TestLongCallsAreKeptAlive(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	release := make(chan struct{})
	w.serve(func(c *tool.Config) { c.AckWait = 600 * time.Millisecond }, tool.New("long", func(ctx context.Context, _ struct{}) (string, error) {
		<-release
		return "done", nil
	}, tool.Idempotent()))
	heard, err := w.nc.SubscribeSync("$JS.ACK.CAIRN_ACTIONS.tool-long.>")
	must(t, err)
	acks := w.acks("long")
	w.send(call(runID(1), "s-1", "long", "{}"))
	for range 8 {
		// Eight heartbeats take more than two acknowledgement waits.
		_, err := heard.NextMsg(patience)
		must(t, err)
	}
	close(release)
	success(t, w.report(runID(1), "s-1"))
	if n := acks(); n < 8 {
		t.Errorf("%d heartbeats", n)
	}
}

func TestToolsSeeTheirActionAndTellProgress(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	heard, err := w.nc.SubscribeSync(tool.ProgressPrefix + runID(1))
	must(t, err)
	seen := make(chan *tool.Call, 1)
	w.serve(nil, tool.New("look", func(ctx context.Context, _ struct{}) (string, error) {
		a := tool.Action(ctx)
		a.Progress(ctx, 0.25, "读")
		a.ProgressData(ctx, -1, "", json.RawMessage(`{"token":"a"}`))
		a.SetUsage(tool.Usage{InputTokens: 5, OutputTokens: 6, Model: "m"})
		seen <- a
		return "", nil
	}, tool.Idempotent()))
	work := call(runID(1), "s=0-2", "look", "{}")
	work.GetCall().StepId, work.GetCall().Attempt = "s[0]", 2
	work.Trace = &runv1.TraceContext{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	o := w.do(work)
	if u := o.GetUsage(); u.GetInputTokens() != 5 || u.GetOutputTokens() != 6 || u.GetModel() != "m" {
		t.Errorf("usage %v", u)
	}
	a := <-seen
	if a.RunID != runID(1) || a.StepID != "s[0]" || a.ActionID != "s=0-2" || a.Attempt != 2 || a.Tool != "look" || a.ToolVersion != "1.0.0" ||
		a.IdempotencyKey != work.GetCall().GetIdempotencyKey() || !a.NotAfter.Equal(work.GetCall().GetNotAfter().AsTime()) {
		t.Errorf("action %+v", a)
	}
	if !strings.Contains(a.Traceparent, "0af7651916cd43dd8448eb211c80319c") {
		t.Errorf("traceparent %q", a.Traceparent)
	}
	for _, want := range []string{
		`{"run_id":"rtest0001","step_id":"s[0]","action_id":"s=0-2","tool":"look","fraction":0.25,"message":"读"}`,
		`{"run_id":"rtest0001","step_id":"s[0]","action_id":"s=0-2","tool":"look","data":{"token":"a"}}`,
	} {
		m, err := heard.NextMsg(patience)
		must(t, err)
		if string(m.Data) != want {
			t.Errorf("progress %s, want %s", m.Data, want)
		}
	}
}
