package bus

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/cairnrun/cairn/pkg/telemetry"
)

// ErrPoison is wrapped by handler errors about messages that cannot be read: they become dead letters at once.
var ErrPoison = errors.New("message cannot be read")

// delivery is one message in hand.
type delivery struct {
	seq      uint64
	subject  string
	data     []byte
	header   nats.Header
	received time.Time

	mu         sync.Mutex
	msg        *nats.Msg // the newest delivery, the one to acknowledge
	deliveries int
	beaten     time.Time
	given      time.Time // to a handler
	cause      error
}

func (d *delivery) delivered(m *nats.Msg, deliveries int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.msg, d.deliveries, d.beaten = m, deliveries, time.Now()
}

func (d *delivery) newest() (*nats.Msg, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.msg, d.deliveries
}

func (d *delivery) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cause = err
}

func (d *delivery) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cause
}

// lane is the messages that must be handled one after the other. It lives as long as it has some.
type lane struct {
	waiting []*delivery
}

// enqueue is called with the lock held.
func (s *subscription) enqueue(d *delivery) {
	key := s.config.Lane(d.subject)
	if key == "" {
		s.working.Add(1)
		go func() { defer s.working.Done(); s.handle(d) }()
		return
	}
	if l := s.lanes[key]; l != nil {
		l.waiting = append(l.waiting, d)
		return
	}
	l := &lane{}
	s.lanes[key] = l
	s.working.Add(1)
	go s.run(key, l, d)
}

func (s *subscription) run(key string, l *lane, d *delivery) {
	defer s.working.Done()
	for {
		s.handle(d)
		s.mu.Lock()
		if len(l.waiting) == 0 {
			delete(s.lanes, key)
			s.mu.Unlock()
			return
		}
		d, l.waiting = l.waiting[0], l.waiting[1:]
		s.mu.Unlock()
	}
}

type deliveryKey struct{}

// handle gives one message to the handlers and settles it with the server.
func (s *subscription) handle(d *delivery) {
	defer s.release(d)
	if s.closing.Err() != nil {
		s.giveBack(d)
		return
	}
	if _, n := d.newest(); s.config.MaxDeliver > 0 && n > s.config.MaxDeliver {
		// Its last handler died with it.
		s.buryUntilDone(d)
		return
	}
	ctx, cancel := context.WithTimeout(s.base, s.config.WorkLimit)
	defer cancel()
	ctx = context.WithValue(telemetry.Extract(ctx, d.header), deliveryKey{}, d)
	m := message.NewMessage(strconv.FormatUint(d.seq, 10), d.data)
	m.SetContext(ctx)
	s.describe(d, m)
	d.mu.Lock()
	d.given = time.Now()
	d.mu.Unlock()
	select {
	case s.out <- m:
	case <-s.closing.Done():
		s.giveBack(d)
		return
	}
	begun := time.Now()
	outcome := "ack"
	select {
	case <-m.Acked():
		msg, _ := d.newest()
		s.answer(msg, ackDone)
	case <-m.Nacked():
		outcome = s.refused(d)
	case <-s.base.Done():
		outcome = "abandoned"
	}
	telemetry.Metrics().MessageDuration.Record(s.base, time.Since(begun).Seconds(), s.attrs)
	telemetry.Metrics().Messages.Add(s.base, 1, metric.WithAttributeSet(attribute.NewSet(
		telemetry.MessagingConsumer.String(s.config.Durable), telemetry.Outcome.String(outcome))))
}

func (s *subscription) describe(d *delivery, m *message.Message) {
	for k, v := range d.header {
		if len(v) > 0 {
			m.Metadata[k] = v[0]
		}
	}
	_, n := d.newest()
	m.Metadata[MetaStream] = s.config.Stream
	m.Metadata[MetaSubject] = d.subject
	m.Metadata[MetaDeliveries] = strconv.Itoa(n)
	m.Metadata[MetaSequence] = strconv.FormatUint(d.seq, 10)
}

// refused lets a message rest, or ends it when its deliveries are used up or nobody can read it.
func (s *subscription) refused(d *delivery) string {
	msg, n := d.newest()
	if errors.Is(d.failure(), ErrPoison) || (s.config.MaxDeliver > 0 && n >= s.config.MaxDeliver) {
		s.buryUntilDone(d)
		return "dead"
	}
	if s.closing.Err() != nil {
		// Another instance may do it now; what failed was most likely the end of this one.
		s.answer(msg, nak(0))
		return "nak"
	}
	s.answer(msg, nak(s.config.Backoff.After(n)))
	return "nak"
}

// buryUntilDone stores the dead letter and tells the service, until both worked or the subscription ends; the message is
// in hand meanwhile, so it is not delivered, and comes again after a crash.
func (s *subscription) buryUntilDone(d *delivery) {
	cause := d.failure()
	_, n := d.newest()
	letter := Dead{
		Stream: s.config.Stream, Consumer: s.config.Durable, Subject: d.subject, RunID: RunOf(d.subject), Sequence: d.seq,
		Deliveries: n, Header: d.header, Data: d.data, Poison: errors.Is(cause, ErrPoison),
		Reason: "the process that handled it ended each time before it answered",
	}
	if cause != nil {
		letter.Reason = cause.Error()
	}
	ctx := telemetry.Extract(s.base, d.header)
	for try := 1; ; try++ {
		err := bury(ctx, s.dead, letter, s.config.Exhausted)
		if err == nil {
			break
		}
		s.config.Logger.Error("dead letter is tried again", "consumer", s.config.Durable, "subject", d.subject, "error", err)
		if sleep(s.closing, s.config.Backoff.After(try)) != nil {
			s.giveBack(d)
			return
		}
	}
	telemetry.Metrics().DeadLetters.Add(s.base, 1, s.attrs)
	s.config.Logger.Warn("message became a dead letter", "consumer", s.config.Durable, "subject", d.subject,
		"deliveries", letter.Deliveries, "reason", letter.Reason)
	msg, _ := d.newest()
	s.answer(msg, ackNever)
}

func (s *subscription) giveBack(d *delivery) {
	msg, _ := d.newest()
	s.answer(msg, nak(0))
}

func (s *subscription) release(d *delivery) {
	s.mu.Lock()
	delete(s.inHand, d.seq)
	s.handBytes -= int64(len(d.data))
	free := s.config.MaxInHand - len(s.inHand) - s.requested
	ask := free >= s.config.Batch || s.requested == 0
	s.mu.Unlock()
	telemetry.Metrics().MessagesInHand.Add(s.base, -1, s.attrs)
	if ask {
		s.nudge()
	}
}

// heartbeat tells the server that the messages in hand are alive, those in lanes too.
func (s *subscription) heartbeat() {
	now := time.Now()
	s.mu.Lock()
	late := make([]*nats.Msg, 0, len(s.inHand))
	for _, d := range s.inHand {
		d.mu.Lock()
		stuck := !d.given.IsZero() && now.Sub(d.given) > s.config.WorkLimit
		if !stuck && now.Sub(d.beaten) >= s.config.AckWait/4 {
			d.beaten = now
			late = append(late, d.msg)
		}
		d.mu.Unlock()
	}
	s.mu.Unlock()
	for _, m := range late {
		s.answer(m, ackProgress)
	}
}
