package bus_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
)

// patience bounds every wait for an event; reaching it fails the test.
const patience = 20 * time.Second

// connect starts a server with Cairn's streams for this test.
func connect(t testing.TB) jetstream.JetStream {
	t.Helper()
	js, _ := connectTwice(t)
	return js
}

// connectTwice also returns a second connection, for an instance that crashes.
func connectTwice(t testing.TB) (js jetstream.JetStream, dial func() jetstream.JetStream) {
	t.Helper()
	s, err := embedded.Start(context.Background(), embedded.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	dial = func() jetstream.JetStream {
		nc, js, err := bus.Connect(s.Bus("test"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return js
	}
	js = dial()
	if err := bus.Init(context.Background(), js, bus.Layout{}); err != nil {
		t.Fatal(err)
	}
	return js, dial
}

func publish(t testing.TB, js jetstream.JetStream, subject, body string) {
	t.Helper()
	if _, err := js.Publish(context.Background(), subject, []byte(body)); err != nil {
		t.Fatal(err)
	}
}

func subscribe(t testing.TB, js jetstream.JetStream, topic string, c bus.SubscriberConfig) (*bus.Subscriber, <-chan *message.Message) {
	t.Helper()
	s, err := bus.NewSubscriber(js, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ch, err := s.Subscribe(context.Background(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return s, ch
}

func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case m, ok := <-ch:
		if !ok {
			t.Fatalf("waiting for %s: the channel is closed", what)
		}
		return m
	case <-time.After(patience):
		t.Fatalf("%s did not come within %s", what, patience)
	}
	panic("unreachable")
}

// left waits until a stream holds n messages.
func left(t testing.TB, js jetstream.JetStream, stream string, n uint64) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		s, err := js.Stream(context.Background(), stream)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.CachedInfo().State.Msgs; got == n {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("stream %s holds %d messages, want %d", stream, got, n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// deadLetters returns a channel of what is stored as dead letters.
func deadLetters(t testing.TB, js jetstream.JetStream) <-chan jetstream.Msg {
	t.Helper()
	c, err := js.OrderedConsumer(context.Background(), bus.StreamDead, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan jetstream.Msg, 64)
	cc, err := c.Consume(func(m jetstream.Msg) { out <- m })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cc.Stop)
	return out
}

// tap returns the subjects of acknowledgements of one consumer, as the server gets them.
func tap(t testing.TB, js jetstream.JetStream, stream, durable string) <-chan *nats.Msg {
	t.Helper()
	out := make(chan *nats.Msg, 1024)
	sub, err := js.Conn().ChanSubscribe("$JS.ACK.*.*."+stream+"."+durable+".>", out)
	if err != nil {
		t.Fatal(err)
	}
	old, err := js.Conn().ChanSubscribe("$JS.ACK."+stream+"."+durable+".>", out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe(); _ = old.Unsubscribe() })
	return out
}
