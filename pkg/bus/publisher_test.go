package bus_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
)

func TestPublishKeepsMetadataAndPayload(t *testing.T) {
	js := connect(t)
	m := message.NewMessage("", []byte("payload"))
	m.Metadata.Set("Some-Header", "value")
	m.Metadata.Set(bus.MetaSubject, "describes the delivery it came with")
	if err := bus.NewPublisher(js, bus.PublisherConfig{}).Publish(bus.PlanSubject("r1", "plan-1"), m); err != nil {
		t.Fatal(err)
	}
	_, ch := subscribe(t, js, bus.PlanPrefix+">", bus.SubscriberConfig{Stream: bus.StreamWork, Durable: "d"})
	got := receive(t, ch, "the message")
	if string(got.Payload) != "payload" || got.Metadata.Get("Some-Header") != "value" ||
		bus.Subject(got) != bus.PlanSubject("r1", "plan-1") || bus.Deliveries(got) != 1 || bus.Sequence(got) != 1 {
		t.Errorf("got %q with %v", got.Payload, got.Metadata)
	}
	got.Ack()
}

func TestWorkThatIsStillQueuedCountsAsPublished(t *testing.T) {
	js := connect(t)
	subject := bus.PlanSubject("r1", "plan-1")
	once := bus.NewPublisher(js, bus.PublisherConfig{QueuedIsSuccess: true})
	plain := bus.NewPublisher(js, bus.PublisherConfig{})
	send := func(p *bus.Publisher) (bool, error) {
		ack, err := p.Send(t.Context(), &nats.Msg{Subject: subject})
		return ack != nil, err
	}
	if stored, err := send(once); err != nil || !stored {
		t.Fatalf("first: stored %v, %v", stored, err)
	}
	if stored, err := send(once); err != nil || stored {
		t.Errorf("second: stored %v, %v; want success without storing", stored, err)
	}
	if _, err := send(plain); !bus.IsQueued(err) {
		t.Errorf("without the option: %v, want the server's refusal", err)
	}
	left(t, js, bus.StreamWork, 1)
}

func TestMessageIDIsUsedForTheDuplicateWindow(t *testing.T) {
	js := connect(t)
	p := bus.NewPublisher(js, bus.PublisherConfig{})
	for range 2 {
		m := message.NewMessage("", nil)
		m.Metadata.Set(bus.MetaMessageID, "plan/r1/plan-1/1")
		if err := p.Publish(bus.ReportSubject(0, "r1"), m); err != nil {
			t.Fatal(err)
		}
	}
	left(t, js, bus.StreamReports, 1)
}

func TestMessageAtAndOverTheServersLimit(t *testing.T) {
	js := connect(t)
	p := bus.NewPublisher(js, bus.PublisherConfig{})
	send := func(size int) error {
		m := &nats.Msg{Subject: bus.ReportSubject(0, "r1"), Header: nats.Header{}}
		m.Data = bytes.Repeat([]byte("x"), size-m.Size())
		_, err := p.Send(t.Context(), m)
		return err
	}
	// The size counts subject and headers, which max_payload does not, so the limit errs on the safe side.
	if err := send(embedded.MaxPayload); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	var large *bus.TooLargeError
	if err := send(embedded.MaxPayload + 1); !errors.As(err, &large) || !errors.Is(err, bus.ErrTooLarge) || large.Limit != embedded.MaxPayload {
		t.Errorf("over the limit: %v", err)
	}
}

func TestPublishWithoutAStreamSaysSo(t *testing.T) {
	js := connect(t)
	p := bus.NewPublisher(js, bus.PublisherConfig{Attempts: 2, RetryWait: time.Millisecond})
	_, err := p.Send(context.Background(), &nats.Msg{Subject: "nowhere.at.all"})
	if !errors.Is(err, bus.ErrMissing) || !strings.Contains(err.Error(), "nowhere.at.all") || !strings.Contains(err.Error(), "cairn init") {
		t.Errorf("got %v", err)
	}
}

func TestBackoffNeverComesEarlyAndRepeatsItsLast(t *testing.T) {
	for n, want := range map[int]time.Duration{0: 100 * time.Millisecond, 1: 100 * time.Millisecond, 2: 500 * time.Millisecond, 4: 8 * time.Second, 9: 8 * time.Second} {
		for range 100 {
			if got := bus.DefaultBackoff.After(n); got < want || got > want+want/5 {
				t.Fatalf("after %d: %s, want %s to %s", n, got, want, want+want/5)
			}
		}
	}
}
