package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/telemetry"
)

// MetaMessageID is the metadata key, and NATS header, of a message id for the server's duplicate window. Ids are per
// stream: put kind, run, step and attempt into it, since a wanted retry must not be swallowed.
const MetaMessageID = jetstream.MsgIDHeader

// ErrTooLarge is wrapped by errors of messages over the server's limit; nothing was sent.
var ErrTooLarge = errors.New("message too large")

// TooLargeError says how large a message was and what the server takes, in bytes.
type TooLargeError struct {
	Subject     string
	Size, Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("message on %s has %d bytes, the server takes %d (max_payload); put large payloads into artifacts", e.Subject, e.Size, e.Limit)
}

// Is makes errors.Is(err, ErrTooLarge) true.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// errStreamStoreFailed is the server's code 10077: the store took nothing, for the reason in the description.
const errStreamStoreFailed jetstream.ErrorCode = 10077

// IsQueued tells whether err is the server's answer that a message of the same subject is still in a stream that holds
// one a subject: for work and actions that is success, somebody has it.
func IsQueued(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == errStreamStoreFailed && strings.Contains(api.Description, "per subject")
}

// PublisherConfig of a Publisher; the zero value works.
type PublisherConfig struct {
	// Timeout of one try. Default 5 s.
	Timeout time.Duration
	// Attempts in all when the server does not answer. A try without an answer may have been stored: receivers know
	// repeats. Default 3.
	Attempts int
	// RetryWait lies between two tries. Default 250 ms.
	RetryWait time.Duration
	// QueuedIsSuccess takes IsQueued answers as success, for work and actions.
	QueuedIsSuccess bool
}

func (c PublisherConfig) withDefaults() PublisherConfig {
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Attempts == 0 {
		c.Attempts = 3
	}
	if c.RetryWait == 0 {
		c.RetryWait = 250 * time.Millisecond
	}
	return c
}

// Publisher stores messages in JetStream; it is a Watermill publisher whose topics are subjects. Publish returns when
// the message is stored.
type Publisher struct {
	js     jetstream.JetStream
	config PublisherConfig
}

// NewPublisher returns a publisher on js, which stays the caller's to close.
func NewPublisher(js jetstream.JetStream, c PublisherConfig) *Publisher {
	return &Publisher{js: js, config: c.withDefaults()}
}

// Publish stores the messages in order and stops at the first that cannot be stored. Metadata become headers; the trace
// context of a message's context is added.
func (p *Publisher) Publish(subject string, messages ...*message.Message) error {
	for _, m := range messages {
		msg := &nats.Msg{Subject: subject, Data: m.Payload, Header: nats.Header{}}
		for k, v := range m.Metadata {
			if !isDeliveryMeta(k) {
				msg.Header.Set(k, v)
			}
		}
		if _, err := p.Send(m.Context(), msg); err != nil {
			return err
		}
	}
	return nil
}

// Send stores one message and returns where. The acknowledgement is nil when the message was queued before and
// QueuedIsSuccess is set. Errors wrap ErrTooLarge and ErrMissing where that is the cause.
func (p *Publisher) Send(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	if limit := p.js.Conn().MaxPayload(); limit > 0 && int64(msg.Size()) > limit {
		return nil, &TooLargeError{Subject: msg.Subject, Size: int64(msg.Size()), Limit: limit}
	}
	if msg.Header == nil {
		msg.Header = nats.Header{}
	}
	if msg.Header.Get(telemetry.HeaderTraceparent) == "" {
		telemetry.Inject(ctx, msg.Header)
	}
	var err error
	for attempt := 1; ; attempt++ {
		var ack *jetstream.PubAck
		ack, err = p.try(ctx, msg)
		switch {
		case err == nil:
			return ack, nil
		case p.config.QueuedIsSuccess && IsQueued(err):
			return nil, nil
		case errors.Is(err, nats.ErrMaxPayload):
			return nil, &TooLargeError{Subject: msg.Subject, Size: int64(msg.Size()), Limit: p.js.Conn().MaxPayload()}
		case !retryable(err) || attempt >= p.config.Attempts || ctx.Err() != nil:
			return nil, publishError(msg.Subject, attempt, err)
		}
		if sleep(ctx, p.config.RetryWait) != nil {
			return nil, publishError(msg.Subject, attempt, err)
		}
	}
}

func (p *Publisher) try(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	// The library's own retry hides which try was answered; this loop owns retrying.
	return p.js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0))
}

// retryable are answers that another try may change: none at all, or a server without a leader or in trouble.
func retryable(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.Code == 503 && api.ErrorCode != errStreamStoreFailed
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionReconnecting)
}

func publishError(subject string, attempts int, err error) error {
	if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w: no stream takes %s; create streams with: cairn init --nats URL", ErrMissing, subject)
	}
	return fmt.Errorf("publish on %s, %d tries: %w", subject, attempts, err)
}

// Close does nothing: the connection is the caller's, and Publish does not return before the message is stored.
func (p *Publisher) Close() error { return nil }

// sleep waits for d or until ctx ends, whose error it returns.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
