package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go/jetstream"
)

// SubscriberConfig of a Subscriber. Stream and Durable are required; every other zero value means the default.
type SubscriberConfig struct {
	Stream string
	// Durable names the consumer that all instances of a service share.
	Durable string
	// AckWait is how long after a crash a message comes again; work that takes longer is kept alive by heartbeats every
	// third of it. Default 6 s.
	AckWait time.Duration
	// MaxDeliver is the number of deliveries after which a message becomes a dead letter. The subscriber counts, not the
	// server, which would leave such a message in the queue undelivered. Default 5; negative: no limit.
	MaxDeliver int
	// Backoff is the rest of a message between deliveries that failed. Default DefaultBackoff.
	Backoff Backoff
	// MaxAckPending bounds the messages that all instances together have in hand. Default 4096; negative: no limit.
	MaxAckPending int
	// MaxInHand bounds the messages that this instance has in hand, worked on or waiting in a lane. Default 256.
	MaxInHand int
	// MaxInHandBytes bounds their content: while it is reached no more is asked for. Default 64 MB.
	MaxInHandBytes int64
	// PullBytes bounds what one pull brings, so that large messages do not fill the connection, which the server would then
	// close as a slow one. Default 16 MB; at least two of the largest messages that the server takes.
	PullBytes int64
	// Batch is how many free places are asked for at once, so long as others are still asked for. Default 64.
	Batch int
	// PullExpiry is the life of one pull request; a lost one is noticed a second after it. Default 2 s.
	PullExpiry time.Duration
	// WorkLimit ends the heartbeats of a message, and its context, after this time with a handler: a stuck one is
	// delivered again. Default 30 min.
	WorkLimit time.Duration
	// DrainTimeout bounds how long closing waits for handlers. Default 25 s.
	DrainTimeout time.Duration
	// Lane groups subjects: the messages of a lane are handled one after the other, lanes run in parallel. One that
	// failed rests, and those behind it in its lane overtake it. Default RunOf; "" is a lane of its own for each message.
	Lane func(subject string) string
	// Exhausted is told of each dead letter after it is stored, so that the service can report to the run. Until it
	// returns nil it is called again.
	Exhausted func(ctx context.Context, d Dead) error
	// State is told when pulling works (nil) and when not, for health.
	State  func(error)
	Logger *slog.Logger
}

// lostPullGrace is how long after its expiry a pull request may stay unanswered before it counts as lost.
const lostPullGrace = time.Second

func (c SubscriberConfig) withDefaults() SubscriberConfig {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.AckWait, 6*time.Second)
	def(&c.PullExpiry, 2*time.Second)
	def(&c.WorkLimit, 30*time.Minute)
	def(&c.DrainTimeout, 25*time.Second)
	if c.MaxDeliver == 0 {
		c.MaxDeliver = 5
	}
	if c.Backoff == nil {
		c.Backoff = DefaultBackoff
	}
	if c.MaxAckPending == 0 {
		c.MaxAckPending = 4096
	}
	if c.MaxInHand == 0 {
		c.MaxInHand = 256
	}
	if c.Batch == 0 {
		c.Batch = 64
	}
	if c.MaxInHandBytes == 0 {
		c.MaxInHandBytes = 64 << 20
	}
	if c.PullBytes == 0 {
		c.PullBytes = 16 << 20
	}
	c.Batch = min(c.Batch, c.MaxInHand)
	if c.Lane == nil {
		c.Lane = RunOf
	}
	if c.State == nil {
		c.State = func(error) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Subscriber is a Watermill subscriber over one durable pull consumer of a work queue, with lanes, heartbeats and dead
// letters. It creates or updates the consumer, never the stream.
type Subscriber struct {
	js     jetstream.JetStream
	dead   *Publisher
	config SubscriberConfig

	restarts atomic.Int64

	mu     sync.Mutex
	open   *subscription
	closed bool
}

// NewSubscriber checks the configuration; Subscribe opens the consumer.
func NewSubscriber(js jetstream.JetStream, c SubscriberConfig) (*Subscriber, error) {
	if c.Stream == "" || c.Durable == "" {
		return nil, errors.New("subscriber: stream and durable name are required")
	}
	if strings.ContainsAny(c.Durable, ".*> /\\\t\r\n") {
		return nil, fmt.Errorf("subscriber: durable name %q must not hold dots, wildcards, slashes or white space", c.Durable)
	}
	return &Subscriber{js: js, dead: NewPublisher(js, PublisherConfig{}), config: c.withDefaults()}, nil
}

// Subscribe opens the consumer for topic: one subject filter, or several separated by spaces. A Subscriber has one
// consumer, so a second call is refused. The channel closes when ctx ends or Close is called, after the messages in the
// handlers' hands are acknowledged; contexts of messages outlive ctx until then.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	filters := strings.Fields(topic)
	if len(filters) == 0 {
		return nil, fmt.Errorf("subscriber %s: no subject to subscribe to", s.config.Durable)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("subscriber %s is closed", s.config.Durable)
	}
	if s.open != nil {
		return nil, fmt.Errorf("subscriber %s has its consumer already; use another Subscriber for %s", s.config.Durable, topic)
	}
	sub := newSubscription(s, ctx, filters)
	if err := sub.ensureConsumer(ctx); err != nil {
		return nil, err
	}
	if err := sub.start(ctx); err != nil {
		return nil, err
	}
	s.open = sub
	return sub.out, nil
}

// Restarts counts pulls that were lost and made again.
func (s *Subscriber) Restarts() int64 { return s.restarts.Load() }

// Close gives back what no handler has begun, waits for the others up to DrainTimeout, and closes the channel.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	sub := s.open
	s.mu.Unlock()
	if sub == nil {
		return nil
	}
	sub.stop()
	<-sub.done
	return sub.drainErr
}

func (s *subscription) consumerConfig() jetstream.ConsumerConfig {
	c := s.config
	return jetstream.ConsumerConfig{
		Durable: c.Durable, FilterSubjects: s.filters, AckPolicy: jetstream.AckExplicitPolicy, AckWait: c.AckWait,
		MaxDeliver: -1, MaxAckPending: c.MaxAckPending,
	}
}

func (s *subscription) ensureConsumer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := s.js.CreateOrUpdateConsumer(ctx, s.config.Stream, s.consumerConfig())
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return missing(s.config.Stream, err)
	default:
		return fmt.Errorf("consumer %s of %s: %w", s.config.Durable, s.config.Stream, err)
	}
}
