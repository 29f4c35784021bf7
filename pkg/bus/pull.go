package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/cairnrun/cairn/pkg/telemetry"
)

// subscription is one open consumer of a Subscriber. It asks for exactly as many messages as it has places for: the
// library's own consuming keeps a buffer of messages that nobody heartbeats, which are then delivered twice.
type subscription struct {
	*Subscriber
	filters []string
	out     chan *message.Message
	attrs   metric.MeasurementOption

	// closing ends when no new message may be begun; base is the context of messages and ends when waiting is over.
	closing context.Context
	stop    context.CancelFunc
	base    context.Context
	abandon context.CancelCauseFunc
	// wake asks the loop to look at credits; failed says that the pull must be made again.
	wake     chan struct{}
	failed   chan pullFailure
	done     chan struct{}
	drainErr error
	// restarted is when the pull was last made again; only the loop uses it.
	restarted time.Time

	mu        sync.Mutex
	inbox     *nats.Subscription
	requested int // messages asked for and not yet come
	activity  time.Time
	inHand    map[uint64]*delivery // by stream sequence
	handBytes int64                // of their content
	lanes     map[string]*lane
	working   sync.WaitGroup // lanes under way
}

// pullFailure is why a pull must be made again; recreate: the consumer may be gone.
type pullFailure struct {
	reason   string
	recreate bool
}

var errAbandoned = errors.New("the subscriber closed before the message was handled")

func newSubscription(s *Subscriber, ctx context.Context, filters []string) *subscription {
	sub := &subscription{
		Subscriber: s, filters: filters, out: make(chan *message.Message), wake: make(chan struct{}, 1),
		failed: make(chan pullFailure, 1), done: make(chan struct{}), inHand: map[uint64]*delivery{}, lanes: map[string]*lane{},
		attrs: metric.WithAttributeSet(attribute.NewSet(telemetry.MessagingConsumer.String(s.config.Durable))),
	}
	sub.closing, sub.stop = context.WithCancel(ctx)
	sub.base, sub.abandon = context.WithCancelCause(context.WithoutCancel(ctx))
	return sub
}

func (s *subscription) start(ctx context.Context) error {
	if err := s.openInbox(); err != nil {
		return err
	}
	s.config.State(nil)
	go s.loop()
	return nil
}

// openInbox makes a new inbox, so that answers to requests given up are not counted as answers to new ones.
func (s *subscription) openInbox() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.inbox
	inbox, err := s.js.Conn().Subscribe(s.js.Conn().NewInbox(), s.receive)
	if err != nil {
		return fmt.Errorf("inbox of consumer %s: %w", s.config.Durable, err)
	}
	// Messages are few at a time, by request; the client must never drop one as a slow consumer.
	_ = inbox.SetPendingLimits(-1, -1)
	s.inbox, s.requested, s.activity = inbox, 0, time.Now()
	if old != nil {
		_ = old.Drain()
	}
	return nil
}

// loop keeps requests open, restarts lost pulls, beats for messages in hand, and drains at the end.
func (s *subscription) loop() {
	defer close(s.done)
	defer close(s.out)
	connected := s.js.Conn().StatusChanged(nats.CONNECTED)
	defer s.js.Conn().RemoveStatusListener(connected)
	beat := time.NewTicker(s.config.AckWait / 3)
	defer beat.Stop()
	watch := time.NewTicker(s.config.PullExpiry / 4)
	defer watch.Stop()
	s.request()
	for {
		select {
		case <-s.closing.Done():
			s.drain(beat)
			return
		case <-s.wake:
			s.request()
		case <-beat.C:
			s.heartbeat()
		case <-watch.C:
			if s.lost() {
				s.restart(pullFailure{reason: "no answer to a pull", recreate: true})
			}
			s.request()
		case f := <-s.failed:
			s.restart(f)
		case <-connected:
			s.restart(pullFailure{reason: "connected again"})
		}
	}
}

// request asks for the free places: a batch at a time, or whatever is free when nothing is asked for.
func (s *subscription) request() {
	s.mu.Lock()
	free := s.config.MaxInHand - len(s.inHand) - s.requested
	if free <= 0 || s.handBytes >= s.config.MaxInHandBytes || (s.requested > 0 && free < s.config.Batch) {
		s.mu.Unlock()
		return
	}
	if s.requested == 0 {
		s.activity = time.Now()
	}
	s.requested += free
	inbox := s.inbox.Subject
	s.mu.Unlock()
	body, _ := json.Marshal(struct {
		Batch   int           `json:"batch"`
		Expires time.Duration `json:"expires"`
		Bytes   int64         `json:"max_bytes"`
	}{free, s.config.PullExpiry, max(s.config.PullBytes, 2*s.js.Conn().MaxPayload())})
	opts := s.js.Options()
	prefix := opts.APIPrefix
	if prefix == "" {
		prefix = jetstream.DefaultAPIPrefix
		if opts.Domain != "" {
			prefix = "$JS." + opts.Domain + ".API."
		}
	}
	if prefix[len(prefix)-1] != '.' {
		prefix += "."
	}
	subject := prefix + "CONSUMER.MSG.NEXT." + s.config.Stream + "." + s.config.Durable
	if err := s.js.Conn().PublishRequest(subject, inbox, body); err != nil {
		s.fail(pullFailure{reason: err.Error()})
	}
}

func (s *subscription) lost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requested > 0 && time.Since(s.activity) > s.config.PullExpiry+lostPullGrace
}

func (s *subscription) fail(f pullFailure) {
	select {
	case s.failed <- f:
	default:
	}
}

// restart makes the pull again, and the consumer where it may be gone, until that works or the subscription closes.
func (s *subscription) restart(f pullFailure) {
	if f.recreate && time.Since(s.restarted) < time.Second && sleep(s.closing, s.config.PullExpiry/10) != nil {
		return
	}
	s.restarted = time.Now()
	s.restarts.Add(1)
	telemetry.Metrics().ConsumerRestarts.Add(s.base, 1, s.attrs)
	s.config.Logger.Info("pull made again", "consumer", s.config.Durable, "reason", f.reason)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := s.openInbox()
		if err == nil && f.recreate {
			err = s.ensureConsumer(s.closing)
		}
		if err == nil {
			break
		}
		if s.closing.Err() != nil {
			return
		}
		s.config.State(err)
		s.config.Logger.Warn("consumer is not there, trying again", "consumer", s.config.Durable, "error", err)
		s.heartbeat()
		if sleep(s.closing, pause) != nil {
			return
		}
	}
	// Failures of the requests given up are settled with them.
	select {
	case <-s.failed:
	default:
	}
	s.config.State(nil)
	s.request()
}

// receive is called by the client for each message of the inbox, one after the other.
func (s *subscription) receive(m *nats.Msg) {
	if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 {
		s.status(status, m)
		return
	}
	meta, err := m.Metadata()
	if err != nil {
		s.config.Logger.Warn("message that is no delivery", "subject", m.Subject, "error", err)
		return
	}
	s.mu.Lock()
	if m.Sub == s.inbox {
		s.requested = max(0, s.requested-1)
		s.activity = time.Now()
	}
	if d := s.inHand[meta.Sequence.Stream]; d != nil {
		// The server gave up on it while a handler still has it: go on with that one, and acknowledge this delivery.
		d.delivered(m, int(meta.NumDelivered))
		s.mu.Unlock()
		s.answer(m, ackProgress)
		return
	}
	if s.closing.Err() != nil || len(s.inHand) >= 2*s.config.MaxInHand {
		s.mu.Unlock()
		s.answer(m, nak(0))
		return
	}
	d := &delivery{seq: meta.Sequence.Stream, subject: m.Subject, data: m.Data, header: m.Header, received: time.Now()}
	d.delivered(m, int(meta.NumDelivered))
	s.inHand[d.seq] = d
	s.handBytes += int64(len(d.data))
	s.enqueue(d)
	low := s.requested == 0
	s.mu.Unlock()
	telemetry.Metrics().MessagesInHand.Add(s.base, 1, s.attrs)
	if low {
		s.nudge()
	}
}

func (s *subscription) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// status handles the server's answers that carry no message.
func (s *subscription) status(status string, m *nats.Msg) {
	s.mu.Lock()
	if m.Sub != s.inbox {
		s.mu.Unlock()
		return
	}
	s.activity = time.Now()
	pending, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	expired := status == "408" || (status == "409" && err == nil)
	if expired && err == nil {
		s.requested = max(0, s.requested-pending)
	} else if expired {
		s.requested = 0
	}
	s.mu.Unlock()
	switch {
	case expired:
		s.nudge()
	case status == "100":
	default:
		reason := status + " " + m.Header.Get("Description")
		s.fail(pullFailure{reason: reason, recreate: true})
	}
}

// Answers to a delivery, as the server reads them. The library's methods need the inbox of the delivery to be open still.
const (
	ackDone     = "+ACK"
	ackProgress = "+WPI"
	ackNever    = "+TERM"
)

func nak(delay time.Duration) string {
	if delay <= 0 {
		return "-NAK"
	}
	return fmt.Sprintf(`-NAK {"delay": %d}`, delay.Nanoseconds())
}

func (s *subscription) answer(m *nats.Msg, what string) {
	if err := s.js.Conn().Publish(m.Reply, []byte(what)); err != nil {
		s.config.Logger.Warn("answer to a delivery was not sent, the message comes again", "consumer", s.config.Durable, "subject", m.Subject, "error", err)
	}
}

// inboxDrainTimeout bounds the wait for what the server has sent already.
const inboxDrainTimeout = 2 * time.Second

// drain takes no new message, gives back what waits in lanes, and waits for the handlers.
func (s *subscription) drain(beat *time.Ticker) {
	s.mu.Lock()
	inbox := s.inbox
	s.mu.Unlock()
	drained := inbox.StatusChanged(nats.SubscriptionClosed)
	if !s.js.Conn().IsConnected() {
		// Nothing more can come, and no answer can go.
		_ = inbox.Unsubscribe()
	} else if inbox.Drain() == nil {
		// What the server sent before it saw the end of interest still comes, and is given back at once.
		select {
		case <-drained:
		case <-time.After(inboxDrainTimeout):
		}
	}
	finished := make(chan struct{})
	go func() { s.working.Wait(); close(finished) }()
	limit := time.NewTimer(s.config.DrainTimeout)
	defer limit.Stop()
	for {
		select {
		case <-finished:
			s.flush()
			return
		case <-beat.C:
			s.heartbeat()
		case <-limit.C:
			s.drainErr = fmt.Errorf("consumer %s: handlers did not finish within %s; their messages are delivered again", s.config.Durable, s.config.DrainTimeout)
			s.abandon(errAbandoned)
			<-finished
			s.flush()
			return
		}
	}
}

// flush makes sure that acknowledgements have left before the connection is closed.
func (s *subscription) flush() {
	if !s.js.Conn().IsConnected() {
		return
	}
	if err := s.js.Conn().FlushTimeout(5 * time.Second); err != nil && s.js.Conn().IsConnected() {
		s.config.Logger.Warn("acknowledgements may be lost, messages may come again", "consumer", s.config.Durable, "error", err)
	}
}
