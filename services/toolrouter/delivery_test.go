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
	run := w.newRun()
	w.send(call(run, "s-1", "bare", "{}"))
	m := w.next(cons)
	w.answer(m, `{"status":"success"}`)
	must(t, m.Ack())
	if got := success(t, w.report(run, "s-1")); got != "null" {
		t.Errorf("an absent output is %s", got)
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
