package bus_test

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
)

// refuseAll is a consumer of somebody else's making, with a server-side limit: it refuses its message every time.
func refuseAll(t *testing.T, js jetstream.JetStream, limit int) {
	t.Helper()
	c, err := js.CreateConsumer(t.Context(), bus.StreamActions, jetstream.ConsumerConfig{
		Durable: "tool", FilterSubject: "cairn.action.*.*.always.fails", MaxDeliver: limit, AckWait: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan struct{}, limit)
	cc, err := c.Consume(func(m jetstream.Msg) {
		_ = m.Nak()
		refused <- struct{}{}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cc.Stop)
	for range limit {
		receive(t, refused, "a refusal")
	}
}

func TestCase62_ExhaustedMessageOfAForeignConsumerIsFound(t *testing.T) {
	const subject = "cairn.action.r1.a-1.always.fails"
	watch := func(t *testing.T, js jetstream.JetStream) <-chan bus.Dead {
		told := make(chan bus.Dead, 1)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- bus.WatchExhausted(ctx, js, bus.ExhaustedConfig{Stream: bus.StreamActions, Every: 50 * time.Millisecond,
				Told: func(_ context.Context, d bus.Dead) error { told <- d; return nil }})
		}()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return told
	}
	check := func(t *testing.T, js jetstream.JetStream, told <-chan bus.Dead) {
		d := receive(t, told, "the callback")
		if d.Subject != subject || d.RunID != "r1" || d.Consumer != "tool" || d.Deliveries != 3 || string(d.Data) != "do it" || !strings.Contains(d.Reason, "3 times") {
			t.Errorf("told %+v", d)
		}
		left(t, js, bus.StreamActions, 0)
		left(t, js, bus.StreamDead, 1)
	}
	t.Run("with the advisory", func(t *testing.T) {
		js := connect(t)
		told := watch(t, js)
		publish(t, js, subject, "do it")
		refuseAll(t, js, 3)
		check(t, js, told)
	})
	t.Run("the advisory was lost", func(t *testing.T) {
		js := connect(t)
		sub, err := js.Conn().SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES." + bus.StreamActions + ".*")
		if err != nil {
			t.Fatal(err)
		}
		publish(t, js, subject, "do it")
		refuseAll(t, js, 3)
		if _, err := sub.NextMsg(patience); err != nil {
			t.Fatalf("the server's advisory: %v", err)
		}
		check(t, js, watch(t, js))
	})
}

func TestExhaustedSweepLeavesLiveMessagesAlone(t *testing.T) {
	js := connect(t)
	c, err := js.CreateConsumer(t.Context(), bus.StreamActions, jetstream.ConsumerConfig{
		Durable: "tool", FilterSubject: "cairn.action.*.*.slow", MaxDeliver: 3, AckWait: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, js, "cairn.action.r1.a-1.slow", "in hand")
	publish(t, js, "cairn.action.r1.b-1.slow", "waiting")
	if _, err := c.Next(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err = bus.WatchExhausted(ctx, js, bus.ExhaustedConfig{Stream: bus.StreamActions, Every: 10 * time.Millisecond,
		Told: func(_ context.Context, d bus.Dead) error { t.Errorf("took %s for dead", d.Subject); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	left(t, js, bus.StreamActions, 2)
}

func TestDeadLetterThatDoesNotFitIsKeptWithoutItsContent(t *testing.T) {
	js := connect(t)
	letters := deadLetters(t, js)
	data := bytes.Repeat([]byte("x"), embedded.MaxPayload-200)
	if _, err := js.Publish(t.Context(), bus.PlanSubject("r1", "plan-1"), data); err != nil {
		t.Fatal(err)
	}
	s, err := bus.NewSubscriber(js, bus.SubscriberConfig{Stream: bus.StreamWork, Durable: "large"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := bus.NewRouter(bus.RouterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	r.AddConsumerHandler("large", bus.PlanPrefix+">", s, func(*message.Message) error { return bus.ErrPoison })
	run(t, r)
	letter := receive(t, letters, "the dead letter")
	if h := letter.Headers(); len(letter.Data()) != 0 || h.Get(bus.HeaderDeadSize) != strconv.Itoa(len(data)) || h.Get(bus.HeaderDeadSubject) != bus.PlanSubject("r1", "plan-1") {
		t.Errorf("%d bytes, headers %v", len(letter.Data()), h)
	}
	left(t, js, bus.StreamWork, 0)
}

func TestDeadLettersAreBoundedAndHoldUpNobody(t *testing.T) {
	js := connect(t)
	s, err := js.Stream(t.Context(), bus.StreamDead)
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	if c.MaxBytes != 1<<30 || c.MaxAge != 7*24*time.Hour || c.Discard != jetstream.DiscardOld {
		t.Errorf("dead letters are kept for %s and up to %d bytes", c.MaxAge, c.MaxBytes)
	}
	if c.PersistMode != jetstream.AsyncPersistMode {
		t.Error("a large dead letter is synced before anything else of its sender goes on")
	}
}
