package bus_test

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
)

func TestSubscriberGoesOnAfterTheServerRestarts(t *testing.T) {
	dir := t.TempDir()
	start := func(port int) *embedded.Server {
		s, err := embedded.Start(context.Background(), embedded.Config{Dir: dir, Host: "127.0.0.1", Port: port})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := start(0)
	t.Cleanup(func() { s.Close() })
	_, portText, err := net.SplitHostPort(s.URL()[len("nats://"):])
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		t.Fatal(err)
	}
	nc, js, err := bus.Connect(bus.Config{URL: s.URL(), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if err := bus.Init(t.Context(), js, bus.Layout{}); err != nil {
		t.Fatal(err)
	}
	sub, ch := subscribe(t, js, bus.PlanPrefix+">", bus.SubscriberConfig{Stream: bus.StreamWork, Durable: "d", AckWait: time.Second})
	publish(t, js, bus.PlanSubject("r1", "plan-1"), "before")
	receive(t, ch, "the message before").Ack()
	publish(t, js, bus.PlanSubject("r1", "plan-2"), "held")
	held := receive(t, ch, "the message held over the restart")

	s.Close()
	s = start(port)
	p := bus.NewPublisher(js, bus.PublisherConfig{Attempts: 50})
	if err := p.Publish(bus.PlanSubject("r2", "plan-3"), message.NewMessage("", []byte("after"))); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, ch, "the message after"); string(got.Payload) != "after" {
		t.Errorf("got %q, want the new one: the held one is still in hand", got.Payload)
	} else {
		got.Ack()
	}
	held.Ack()
	left(t, js, bus.StreamWork, 0)
	if sub.Restarts() == 0 {
		t.Error("no restart of the pull was counted")
	}
}
