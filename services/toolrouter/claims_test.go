package toolrouter_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/tool"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
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
