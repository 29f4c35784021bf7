package cases

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/internal/dev"
	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/tool"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// wireTool is an instance of a tool that speaks the bare wire, so that it can do everything wrong.
type wireTool struct {
	t    *testing.T
	s    *system
	cons jetstream.Consumer
}

func (s *system) wireTool(t *testing.T, name string, idempotent bool, ackWait time.Duration) *wireTool {
	t.Helper()
	kv, err := s.js.KeyValue(within(t), bus.BucketTools)
	if err != nil {
		t.Fatal(err)
	}
	definition := fmt.Sprintf(`{"name":%q,"version":"1.0.0","input_schema":{"type":"object"},"idempotent":%t}`, name, idempotent)
	if _, err := kv.PutString(within(t), name, definition); err != nil {
		t.Fatal(err)
	}
	w := &wireTool{t: t, s: s}
	w.connect(name, ackWait)
	return w
}

func (w *wireTool) connect(name string, ackWait time.Duration) {
	w.t.Helper()
	cons, err := w.s.js.CreateOrUpdateConsumer(within(w.t), tool.StreamActions, tool.ConsumerConfig(name, ackWait, 5))
	if err != nil {
		w.t.Fatal(err)
	}
	w.cons = cons
}

// next takes an action.
func (w *wireTool) next() jetstream.Msg {
	w.t.Helper()
	m, err := w.cons.Next(jetstream.FetchMaxWait(patience))
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// answer sends a result under the action's token.
func (w *wireTool) answer(m jetstream.Msg, output string) {
	w.t.Helper()
	w.say(m, `{"status":"success","output":`+output+`}`)
}

func (w *wireTool) fail(m jetstream.Msg, code string) {
	w.t.Helper()
	w.say(m, fmt.Sprintf(`{"status":"error","error":{"code":%q,"message":"not now"}}`, code))
}

func (w *wireTool) say(m jetstream.Msg, body string) {
	w.t.Helper()
	run, action, name, _ := tool.ParseSubject(m.Subject())
	r := &nats.Msg{Subject: tool.ResultSubject(run, action, name), Data: []byte(body), Header: nats.Header{}}
	r.Header.Set(tool.HeaderAttempt, m.Headers().Get(tool.HeaderAttempt))
	r.Header.Set(tool.HeaderContext, m.Headers().Get(tool.HeaderContext))
	if _, err := w.s.js.PublishMsg(within(w.t), r); err != nil {
		w.t.Fatal(err)
	}
}

func observed(action string) func(*runv1.Event) bool {
	return func(e *runv1.Event) bool { return e.GetObservationRecorded().GetActionId() == action }
}

const hold = `{"id":"hold","action":{"kind":"control","name":"user.ask","arguments":{"question":"end?"}}}`

// An attempt that was given up answers late, before or after the attempt that counts: it is kept and has no effect.
func TestCase37_LateResultOfAnOlderAttempt(t *testing.T) {
	t.Parallel()
	ends := map[bool]string{}
	for _, first := range []bool{true, false} {
		w := shared.wireTool(t, fmt.Sprintf("late.%t", first), true, 0)
		h := shared.plan(t, fmt.Sprintf(`{"goal":"g","steps":[{"id":"a","tool":"late.%t","arguments":{},"timeout":"1s","retry":2},
			{"id":"b","tool":"echo","arguments":{"of":{"$ref":"steps.a.result.attempt"}}},%s]}`, first, hold))
		one := w.next()
		_ = one.Ack()
		two := w.next()
		_ = two.Ack()
		if one.Headers().Get(tool.HeaderIdempotencyKey) != two.Headers().Get(tool.HeaderIdempotencyKey) ||
			one.Headers().Get(tool.HeaderAttempt) == two.Headers().Get(tool.HeaderAttempt) {
			t.Errorf("headers %v and %v", one.Headers(), two.Headers())
		}
		answers := []func(){
			func() { w.answer(one, `{"attempt":1}`); h.until(observed("a-1")) },
			func() { w.answer(two, `{"attempt":2}`); h.until(observed("a-2")) },
		}
		if first {
			answers[0]()
			answers[1]()
		} else {
			answers[1]()
			answers[0]()
		}
		h.answer("input-1", "true")
		s := h.completed()
		late := h.all(observed("a-1"))
		if len(late) != 1 || !late[0].GetObservationRecorded().GetLate() || late[0].GetObservationRecorded().GetAttempt() != 1 ||
			late[0].GetObservationRecorded().GetObservation().GetOutput().GetInline().GetText() != `{"attempt":1}` {
			t.Errorf("the late result: %v", late)
		}
		if h.all(observed("a-2"))[0].GetObservationRecorded().GetLate() {
			t.Error("attempt 2 counts as late")
		}
		ends[first] = result(s, "a") + arguments(s, "b") + fmt.Sprint(s.GetActions()[0].GetLate(), s.GetActions()[0].GetStatus(), s.GetActions()[1].GetStatus())
		if result(s, "a") != `{"attempt":2}` || arguments(s, "b") != `{"of":2}` {
			t.Errorf("a gave %s, b took %s\n%s", result(s, "a"), arguments(s, "b"), h.told())
		}
	}
	if ends[true] != ends[false] {
		t.Errorf("the order of arrival decides: %v", ends)
	}
}

// An attempt fails and is given up by its tool; the next one reaches the tool at once, though all of it but the attempt is
// the same.
func TestCase57_ARetryIsNoDuplicate(t *testing.T) {
	t.Parallel()
	w := shared.wireTool(t, "moody", true, 0)
	h := shared.plan(t, `{"goal":"g","steps":[{"id":"a","tool":"moody","arguments":{},"retry":4}]}`)
	var tokens []string
	for i := range 4 {
		m := w.next()
		tokens = append(tokens, m.Headers().Get(tool.HeaderAttempt))
		if i == 3 {
			w.answer(m, `"at last"`)
			_ = m.Ack()
			break
		}
		w.fail(m, tool.CodeUnavailable)
		if i%2 == 0 {
			_ = m.Term()
		} else {
			_ = m.Ack()
		}
	}
	s := h.completed()
	slices.Sort(tokens)
	if result(s, "a") != `"at last"` || len(slices.Compact(tokens)) != 4 {
		t.Errorf("tokens %v\n%s", tokens, h.told())
	}
	begun, ended := h.all(requested("a")), h.all(observed("a-4"))
	if took := ended[0].GetTime().AsTime().Sub(begun[0].GetTime().AsTime()); took > 5*time.Second {
		t.Errorf("four attempts took %s", took)
	}
}

// An instance pauses beyond its acknowledgement wait and another gets its action. What the first does when it goes on
// changes nothing: the effect is there once a key, and the run has one result.
func TestCase54_APausedInstanceIsNotTheHolder(t *testing.T) {
	t.Parallel()
	for _, idempotent := range []bool{true, false} {
		t.Run(fmt.Sprintf("idempotent %t", idempotent), func(t *testing.T) {
			name := fmt.Sprintf("paused.%t", idempotent)
			var mu sync.Mutex
			keys := map[string]int{}
			effect := func(key string) {
				mu.Lock()
				defer mu.Unlock()
				keys[key]++
			}
			paused := shared.wireTool(t, name, idempotent, time.Second)
			h := shared.plan(t, fmt.Sprintf(`{"goal":"g","steps":[{"id":"a","tool":%q,"arguments":{}},{"id":"b","tool":"echo","arguments":{"by":{"$ref":"steps.a.result"}}},%s]}`, name, hold))
			held := paused.next()
			run, action, _, _ := tool.ParseSubject(held.Subject())
			key := held.Headers().Get(tool.HeaderIdempotencyKey)
			if !idempotent {
				// It had begun when it was stopped.
				created, err := tool.Claim(within(t), shared.js, run, action, tool.NewClaim(tool.ClaimStarted, "paused"))
				if err != nil || !created {
					t.Fatal(created, err)
				}
				effect(key)
			}
			options := []tool.Option{tool.Version("1.0.0"), tool.InputSchema(anyObject)}
			if idempotent {
				options = append(options, tool.Idempotent())
			}
			second := tool.New(name, func(ctx context.Context, _ map[string]any) (string, error) {
				effect(tool.Action(ctx).IdempotencyKey)
				return "second", nil
			}, options...)
			ctx, cancel := context.WithCancel(context.Background())
			served := make(chan error, 1)
			b := shared.dev.Bus(name)
			go func() {
				served <- tool.Serve(ctx, tool.Config{URL: b.URL, Options: b.Options, AckWait: time.Second, Logger: slog.New(slog.DiscardHandler)}, second)
			}()
			defer func() { cancel(); <-served }()
			if idempotent {
				h.until(observed("a-1"))
			}
			h.settled()
			// The paused one goes on: it acknowledges and reports under the token that it was given.
			_ = held.Ack()
			paused.answer(held, `"first"`)
			want := `"second"`
			if !idempotent {
				h.until(observed("a-1"))
				want = `"first"`
			} else {
				h.until(func(e *runv1.Event) bool { return e.GetReportRefused().GetCode() == "answer_conflict" })
			}
			h.answer("input-1", "true")
			s := h.completed()
			if result(s, "a") != want || arguments(s, "b") != `{"by":`+want+`}` {
				t.Errorf("a gave %s, b took %s", result(s, "a"), arguments(s, "b"))
			}
			if n := len(h.all(observed("a-1"))); n != 1 || len(s.GetActions()) != 2 {
				t.Errorf("%d results:\n%s", n, h.told())
			}
			if len(keys) != 1 || keys[key] != 1 {
				t.Errorf("effects by key: %v", keys)
			}
		})
	}
}

// A tool that always puts its action back uses up its deliveries: the step fails, also when nobody heard the server say so.
func TestCase62_DeliveriesUsedUp(t *testing.T) {
	t.Parallel()
	stubborn := `{"goal":"g","steps":[{"id":"a","tool":"stubborn","arguments":{},"timeout":"2m"}]}`
	// The whole wait is in tool.RedeliveryDelay, which the router's tests keep to.
	putBack := func(w *wireTool, from, to int) {
		for i := from; i <= to; i++ {
			m := w.next()
			if meta, err := m.Metadata(); err != nil || meta.NumDelivered != uint64(i) {
				t.Fatalf("delivery %d: %v, %v", i, meta, err)
			}
			if err := m.NakWithDelay(time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		if to < 5 {
			return
		}
		// The server notices when it would deliver once more.
		if _, err := w.cons.Next(jetstream.FetchMaxWait(time.Second)); err == nil {
			t.Error("delivered a sixth time")
		}
	}
	fails := func(h *history) {
		s := h.failed("delivery_exhausted")
		if e := step(s, "a").GetError(); e.GetCode() != "delivery_exhausted" || e.GetRetryable() {
			t.Errorf("%v", e)
		}
		h.settled()
	}
	w := shared.wireTool(t, "stubborn", true, 0)
	h := shared.plan(t, stubborn)
	putBack(w, 1, 5)
	fails(h)

	s := ownSystem(t)
	w = s.wireTool(t, "stubborn", true, 0)
	h = s.plan(t, stubborn)
	putBack(w, 1, 1)
	// Nobody listens while the deliveries are used up.
	s.restart(t, nil, dev.ToolRouter)
	w = &wireTool{t: t, s: s}
	w.connect("stubborn", 0)
	putBack(w, 2, 5)
	begun := time.Now()
	s.restart(t, nil)
	fails(s.watch(t, h.id, nil))
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("found after %s", took)
	}
}
