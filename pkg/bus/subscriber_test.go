package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/cairnrun/cairn/pkg/bus"
)

func TestOrderIsKeptWithinARunAndRunsGoOnInParallel(t *testing.T) {
	js := connect(t)
	for i := range 20 {
		for _, run := range []string{"ra", "rb", "rc"} {
			publish(t, js, bus.CallSubject(run, fmt.Sprintf("s%d-1", i)), fmt.Sprint(i))
		}
	}
	_, ch := subscribe(t, js, bus.CallPrefix+">", bus.SubscriberConfig{Stream: bus.StreamWork, Durable: "order"})
	// Three messages are handed out while none is acknowledged: one of each run.
	held := map[string]*message.Message{}
	for range 3 {
		m := receive(t, ch, "the first message of each run")
		held[bus.RunOf(bus.Subject(m))] = m
	}
	if len(held) != 3 {
		t.Fatalf("in parallel: %d runs, want 3", len(held))
	}
	got := map[string][]string{}
	take := func(m *message.Message) {
		run := bus.RunOf(bus.Subject(m))
		got[run] = append(got[run], string(m.Payload))
		m.Ack()
	}
	for _, m := range held {
		take(m)
	}
	for range 57 {
		take(receive(t, ch, "the rest"))
	}
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint(i))
	}
	for run, order := range got {
		if diff := cmp.Diff(want, order); diff != "" {
			t.Errorf("order of %s: %s", run, diff)
		}
	}
	left(t, js, bus.StreamWork, 0)
}

func TestSlowLaneDoesNotHoldUpAnother(t *testing.T) {
	js := connect(t)
	publish(t, js, bus.CallSubject("slow", "a-1"), "")
	publish(t, js, bus.CallSubject("slow", "b-1"), "")
	publish(t, js, bus.CallSubject("fast", "a-1"), "")
	_, ch := subscribe(t, js, bus.CallPrefix+">", bus.SubscriberConfig{Stream: bus.StreamWork, Durable: "lanes"})
	var slow *message.Message
	for range 2 {
		m := receive(t, ch, "one of each run")
		if bus.RunOf(bus.Subject(m)) == "slow" {
			slow = m
		} else {
			m.Ack()
		}
	}
	for i := range 50 {
		publish(t, js, bus.CallSubject("fast", fmt.Sprintf("c-%d", i)), "")
		m := receive(t, ch, "a message of the fast run")
		if run := bus.RunOf(bus.Subject(m)); run != "fast" {
			t.Fatalf("the slow run's second message came before its first was done")
		}
		m.Ack()
	}
	slow.Ack()
	receive(t, ch, "the slow run's second message").Ack()
}

func TestMessagesInHandAreBounded(t *testing.T) {
	js := connect(t)
	for i := range 10 {
		publish(t, js, bus.CallSubject(fmt.Sprintf("r%d", i), "a-1"), "")
	}
	_, ch := subscribe(t, js, bus.CallPrefix+">", bus.SubscriberConfig{Stream: bus.StreamWork, Durable: "bound", MaxInHand: 3})
	var held []*message.Message
	for range 3 {
		held = append(held, receive(t, ch, "a message within the bound"))
	}
	c, err := js.Consumer(t.Context(), bus.StreamWork, "bound")
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.NumAckPending != 3 || info.NumPending != 7 {
		t.Fatalf("in hand %d, still on the server %d; want 3 and 7", info.NumAckPending, info.NumPending)
	}
	for _, m := range held {
		m.Ack()
	}
	for range 7 {
		receive(t, ch, "the rest").Ack()
	}
	left(t, js, bus.StreamWork, 0)
}

func TestBytesInHandAreBounded(t *testing.T) {
	js := connect(t)
	const size = 1 << 20
	for i := range 40 {
		publish(t, js, bus.CallSubject(fmt.Sprintf("r%d", i), "a-1"), strings.Repeat("x", size))
	}
	_, ch := subscribe(t, js, bus.CallPrefix+">", bus.SubscriberConfig{Stream: bus.StreamWork, Durable: "bytes", MaxInHandBytes: size, PullExpiry: time.Second})
	first := receive(t, ch, "a message")
	c, err := js.Consumer(t.Context(), bus.StreamWork, "bytes")
	if err != nil {
		t.Fatal(err)
	}
	// One pull brings two of the largest messages that the server takes, and then no other is made.
	most := 2 * int(js.Conn().MaxPayload()) / size
	for limit := time.Now().Add(10 * time.Second); ; {
		info, err := c.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.NumAckPending > most {
			t.Fatalf("%d messages of %d bytes in hand, at most %d may be", info.NumAckPending, size, most)
		}
		if info.NumWaiting == 0 && info.NumAckPending > 0 {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("more is asked for while %d messages are in hand", info.NumAckPending)
		}
	}
	first.Ack()
	for range 39 {
		receive(t, ch, "the rest").Ack()
	}
	left(t, js, bus.StreamWork, 0)
}

func TestHeartbeatKeepsASlowMessageFromComingAgain(t *testing.T) {
	js := connect(t)
	beats := tap(t, js, bus.StreamWork, "slow")
	publish(t, js, bus.PlanSubject("r1", "plan-1"), "work")
	publish(t, js, bus.PlanSubject("r1", "replan-1"), "waits in the lane")
	_, ch := subscribe(t, js, bus.PlanPrefix+">", bus.SubscriberConfig{Stream: bus.StreamWork, Durable: "slow", AckWait: 600 * time.Millisecond})
	m := receive(t, ch, "the message")
	// Nine beats of two messages are four beats each, more than the ack wait.
	for n := 0; n < 9; {
		if string(receive(t, beats, "a heartbeat").Data) == "+WPI" {
			n++
		}
	}
	m.Ack()
	second := receive(t, ch, "the message that waited")
	if n := bus.Deliveries(second); n != 1 || string(second.Payload) != "waits in the lane" {
		t.Fatalf("delivery %d of %q, want the first of the second message", n, second.Payload)
	}
	second.Ack()
	left(t, js, bus.StreamWork, 0)
}

func TestMessageOfACrashedInstanceComesAgain(t *testing.T) {
	js, dial := connectTwice(t)
	publish(t, js, bus.PlanSubject("r1", "plan-1"), "work")
	c := bus.SubscriberConfig{Stream: bus.StreamWork, Durable: "crash", AckWait: 300 * time.Millisecond, DrainTimeout: time.Millisecond}
	// An instance that takes the message and is never heard of again.
	dying := dial()
	_, first := subscribe(t, dying, bus.PlanPrefix+">", c)
	receive(t, first, "the message")
	dying.Conn().Close()

	_, ch := subscribe(t, js, bus.PlanPrefix+">", c)
	m := receive(t, ch, "the message again")
	if n := bus.Deliveries(m); n != 2 {
		t.Fatalf("delivery %d, want 2", n)
	}
	m.Ack()
	left(t, js, bus.StreamWork, 0)
}

func TestCase62_ExhaustedDeliveriesAreSpacedAndBecomeADeadLetterAndAReport(t *testing.T) {
	js := connect(t)
	letters := deadLetters(t, js)
	publish(t, js, bus.PlanSubject("r1", "plan-1"), "work")
	backoff := bus.Backoff{20 * time.Millisecond, 60 * time.Millisecond, 120 * time.Millisecond}
	var mu sync.Mutex
	var at []time.Time
	told := make(chan bus.Dead, 4)
	tries := 0
	s, err := bus.NewSubscriber(js, bus.SubscriberConfig{
		Stream: bus.StreamWork, Durable: "exhausted", MaxDeliver: 4, Backoff: backoff,
		Exhausted: func(_ context.Context, d bus.Dead) error {
			if tries++; tries == 1 {
				return errors.New("the report could not be stored")
			}
			told <- d
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := bus.NewRouter(bus.RouterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	r.AddConsumerHandler("exhausted", bus.PlanPrefix+">", s, func(*message.Message) error {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
		return errors.New("the model is down")
	})
	run(t, r)

	d := receive(t, told, "the callback")
	if d.Deliveries != 4 || d.RunID != "r1" || d.Reason != "the model is down" || d.Poison || string(d.Data) != "work" {
		t.Errorf("told: %+v", d)
	}
	letter := receive(t, letters, "the dead letter")
	if letter.Subject() != "cairn.dead.CAIRN_WORK.r1" || letter.Headers().Get(bus.HeaderDeadSubject) != bus.PlanSubject("r1", "plan-1") {
		t.Errorf("dead letter on %s of %s", letter.Subject(), letter.Headers().Get(bus.HeaderDeadSubject))
	}
	left(t, js, bus.StreamWork, 0)
	mu.Lock()
	defer mu.Unlock()
	if len(at) != 4 {
		t.Fatalf("%d tries, want 4", len(at))
	}
	for i, rest := range backoff {
		if gap := at[i+1].Sub(at[i]); gap < rest {
			t.Errorf("try %d came %s after the one before, want at least %s", i+2, gap, rest)
		}
	}
}

func TestCase62_MessageThatKillsItsHandlerBecomesADeadLetter(t *testing.T) {
	js, dial := connectTwice(t)
	letters := deadLetters(t, js)
	publish(t, js, bus.PlanSubject("r1", "plan-1"), "deadly")
	c := bus.SubscriberConfig{Stream: bus.StreamWork, Durable: "deadly", MaxDeliver: 2, AckWait: 200 * time.Millisecond, DrainTimeout: time.Millisecond}
	for range 2 {
		dying := dial()
		_, ch := subscribe(t, dying, bus.PlanPrefix+">", c)
		receive(t, ch, "the message")
		dying.Conn().Close()
	}
	told := make(chan bus.Dead, 1)
	c.Exhausted = func(_ context.Context, d bus.Dead) error { told <- d; return nil }
	subscribe(t, js, bus.PlanPrefix+">", c)
	if d := receive(t, told, "the callback"); !strings.Contains(d.Reason, "ended each time") {
		t.Errorf("reason %q", d.Reason)
	}
	receive(t, letters, "the dead letter")
	left(t, js, bus.StreamWork, 0)
}

func TestPoisonIsADeadLetterAtOnce(t *testing.T) {
	js := connect(t)
	letters := deadLetters(t, js)
	publish(t, js, bus.PlanSubject("r1", "plan-1"), "garbage")
	s, err := bus.NewSubscriber(js, bus.SubscriberConfig{Stream: bus.StreamWork, Durable: "poison"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := bus.NewRouter(bus.RouterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	r.AddConsumerHandler("poison", bus.PlanPrefix+">", s, func(*message.Message) error {
		return fmt.Errorf("%w: not protobuf", bus.ErrPoison)
	})
	run(t, r)
	letter := receive(t, letters, "the dead letter")
	if h := letter.Headers(); h.Get(bus.HeaderDeadDeliveries) != "1" || h.Get(bus.HeaderDeadReason) != "message cannot be read: not protobuf" {
		t.Errorf("headers %v", h)
	}
	left(t, js, bus.StreamWork, 0)
}

func TestPanicOfAHandlerLetsTheMessageComeAgain(t *testing.T) {
	js := connect(t)
	publish(t, js, bus.PlanSubject("r1", "plan-1"), "work")
	s, err := bus.NewSubscriber(js, bus.SubscriberConfig{Stream: bus.StreamWork, Durable: "panic", Backoff: bus.Backoff{time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := bus.NewRouter(bus.RouterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	deliveries := make(chan int, 2)
	r.AddConsumerHandler("panic", bus.PlanPrefix+">", s, func(m *message.Message) error {
		deliveries <- bus.Deliveries(m)
		if bus.Deliveries(m) == 1 {
			panic("boom")
		}
		return nil
	})
	run(t, r)
	if first, second := receive(t, deliveries, "first"), receive(t, deliveries, "second"); first != 1 || second != 2 {
		t.Errorf("deliveries %d, %d", first, second)
	}
	left(t, js, bus.StreamWork, 0)
}

func TestClosingWaitsForHandlersAndGivesBackTheRest(t *testing.T) {
	js := connect(t)
	publish(t, js, bus.CallSubject("r1", "a-1"), "begun")
	publish(t, js, bus.CallSubject("r1", "b-1"), "waiting")
	c := bus.SubscriberConfig{Stream: bus.StreamWork, Durable: "drain", AckWait: time.Minute}
	s, ch := subscribe(t, js, bus.CallPrefix+">", c)
	begun := receive(t, ch, "the first message")
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	// Another instance gets what the first one gave back, long before the ack wait.
	_, other := subscribe(t, js, bus.CallPrefix+">", c)
	select {
	case err := <-closed:
		t.Fatalf("closed (%v) before the handler was done", err)
	default:
	}
	if err := begun.Context().Err(); err != nil {
		t.Fatalf("the handler's context ended with closing: %v", err)
	}
	begun.Ack()
	if err := receive(t, closed, "the end of closing"); err != nil {
		t.Fatal(err)
	}
	if _, open := <-ch; open {
		t.Fatal("a message after closing")
	}
	m := receive(t, other, "the message given back")
	if string(m.Payload) != "waiting" {
		t.Fatalf("got %q, want the one that waited", m.Payload)
	}
	m.Ack()
	left(t, js, bus.StreamWork, 0)
}

func TestClosingGivesUpOnAStuckHandler(t *testing.T) {
	js := connect(t)
	publish(t, js, bus.CallSubject("r1", "a-1"), "")
	s, ch := subscribe(t, js, bus.CallPrefix+">", bus.SubscriberConfig{Stream: bus.StreamWork, Durable: "stuck", DrainTimeout: 50 * time.Millisecond})
	m := receive(t, ch, "the message")
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "did not finish") {
		t.Fatalf("close: %v", err)
	}
	<-m.Context().Done()
}

func TestDeletedConsumerIsMadeAgain(t *testing.T) {
	js := connect(t)
	states := make(chan error, 64)
	s, ch := subscribe(t, js, bus.PlanPrefix+">", bus.SubscriberConfig{
		Stream: bus.StreamWork, Durable: "gone", PullExpiry: 200 * time.Millisecond, State: func(err error) { states <- err },
	})
	publish(t, js, bus.PlanSubject("r1", "plan-1"), "")
	receive(t, ch, "a message before").Ack()
	left(t, js, bus.StreamWork, 0)
	if err := js.DeleteConsumer(t.Context(), bus.StreamWork, "gone"); err != nil {
		t.Fatal(err)
	}
	publish(t, js, bus.PlanSubject("r1", "plan-2"), "")
	receive(t, ch, "a message after").Ack()
	if s.Restarts() == 0 {
		t.Error("no restart was counted")
	}
	if err := <-states; err != nil {
		t.Errorf("first state %v, want ready", err)
	}
}

func TestMissingStreamIsNamedAndNotCreated(t *testing.T) {
	js := connect(t)
	s, err := bus.NewSubscriber(js, bus.SubscriberConfig{Stream: "CAIRN_NOWHERE", Durable: "d"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Subscribe(t.Context(), "x.>"); !errors.Is(err, bus.ErrMissing) || !strings.Contains(err.Error(), "CAIRN_NOWHERE") {
		t.Fatalf("subscribe: %v", err)
	}
	if _, err := js.Stream(t.Context(), "CAIRN_NOWHERE"); err == nil {
		t.Fatal("the stream was created")
	}
}

func TestSubscriberConfigurationIsChecked(t *testing.T) {
	for name, c := range map[string]bus.SubscriberConfig{
		"no stream":  {Durable: "d"},
		"no durable": {Stream: "S"},
		"dots":       {Stream: "S", Durable: "a.b"},
		"wildcard":   {Stream: "S", Durable: "a*"},
	} {
		if _, err := bus.NewSubscriber(nil, c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// run runs a router until the test ends.
func run(t testing.TB, r *message.Router) {
	t.Helper()
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := receive(t, ended, "the router's end"); err != nil {
			t.Errorf("router: %v", err)
		}
	})
	<-r.Running()
}
