package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
)

// NATSConfig tunes a log on JetStream; the zero value works.
type NATSConfig struct {
	// AppendTimeout is how long one try of an append waits for its answer before it is repeated. Default 2 s.
	AppendTimeout time.Duration
	// RetryWait is the pause before an append without a definite answer is repeated. Default 100 ms.
	RetryWait time.Duration
	// ReadBatch and ReadBytes bound what one pull of a reader asks for. Defaults 4096 messages, 32 MB.
	ReadBatch int
	ReadBytes int
	// PullExpiry is after how long a reader's pull is renewed; a lost one is noticed by then. Default 2 s, at least 1 s.
	PullExpiry time.Duration
	// TailLostAfter is how long the server may say "another message is there" and show a log that ends before the
	// expected sequence, until the append gives up with ErrConflict: the log's tail was lost, and folding it again is all
	// that helps. Default 5 s.
	TailLostAfter time.Duration
}

func (c NATSConfig) withDefaults() NATSConfig {
	if c.AppendTimeout == 0 {
		c.AppendTimeout = 2 * time.Second
	}
	if c.RetryWait == 0 {
		c.RetryWait = 100 * time.Millisecond
	}
	if c.ReadBatch == 0 {
		c.ReadBatch = 4096
	}
	if c.ReadBytes == 0 {
		c.ReadBytes = 32 << 20
	}
	if c.PullExpiry == 0 {
		c.PullExpiry = 2 * time.Second
	}
	if c.TailLostAfter == 0 {
		c.TailLostAfter = 5 * time.Second
	}
	return c
}

// NATS is the log in stream CAIRN_LOG.
type NATS struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	store  messageStore
	config NATSConfig
}

// messageStore is the part of the stream that Append needs, so that each answer of a server can be tried.
type messageStore interface {
	publish(ctx context.Context, subject string, expected uint64, data []byte) (*jetstream.PubAck, error)
	// next returns the first message of the subject with at least this sequence, from the stream's leader.
	next(ctx context.Context, subject string, sequence uint64) (*jetstream.RawStreamMsg, error)
	// last returns the subject's last message, from the stream's leader.
	last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error)
}

// NewNATS opens the log. A missing stream is an error that wraps bus.ErrMissing.
func NewNATS(ctx context.Context, js jetstream.JetStream, c NATSConfig) (*NATS, error) {
	if _, err := bus.Partitions(ctx, js); err != nil {
		return nil, err
	}
	s, err := js.Stream(ctx, bus.StreamLog)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", bus.StreamLog, err)
	}
	return &NATS{js: js, stream: s, store: streamStore{js, s}, config: c.withDefaults()}, nil
}

type streamStore struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

func (s streamStore) publish(ctx context.Context, subject string, expected uint64, data []byte) (*jetstream.PubAck, error) {
	return s.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data},
		jetstream.WithExpectLastSequencePerSubject(expected), jetstream.WithRetryAttempts(0))
}

func (s streamStore) next(ctx context.Context, subject string, sequence uint64) (*jetstream.RawStreamMsg, error) {
	return s.stream.GetMsg(ctx, sequence, jetstream.WithGetMsgSubject(subject))
}

func (s streamStore) last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	return s.stream.GetLastMsgForSubject(ctx, subject)
}

// Append implements Log.
func (l *NATS) Append(ctx context.Context, partition int, expected uint64, data []byte) (uint64, error) {
	subject := bus.LogSubject(partition)
	var lostSince time.Time
	for try := 0; ; try++ {
		seq, err := l.appendOnce(ctx, subject, expected, data)
		switch {
		case !errors.Is(err, errTailLost):
			lostSince = time.Time{}
		case lostSince.IsZero():
			lostSince = time.Now()
		case time.Since(lostSince) >= l.config.TailLostAfter:
			return 0, fmt.Errorf("append to partition %d: %w: the log ends before sequence %d, which was acknowledged: its tail was lost",
				partition, ErrConflict, expected)
		}
		if err == nil {
			return seq, nil
		}
		if errors.Is(err, errOpen) {
			select {
			case <-ctx.Done():
				return 0, fmt.Errorf("append to partition %d after sequence %d, outcome open after %d tries (%w): %w",
					partition, expected, try+1, err, ctx.Err())
			case <-time.After(l.config.RetryWait):
			}
			continue
		}
		return 0, fmt.Errorf("append to partition %d after sequence %d: %w", partition, expected, err)
	}
}

// errOpen marks a try without a definite outcome; errTailLost one that stays so while the log is shorter than expected.
var (
	errOpen     = errors.New("no definite answer")
	errTailLost = fmt.Errorf("%w: the log ends before the expected sequence", errOpen)
)

// Server error codes with a meaning for an append.
const (
	codeInsufficientResources = 10023
	codeStorageExceeded       = 10047
	codeMessageTooLarge       = 10054
	codeWrongSequence         = 10071
	codeStoreFailed           = 10077
	codeMaxBytesExceeded      = 10122
	codeWrongSequenceConstant = 10164
)

func (l *NATS) appendOnce(ctx context.Context, subject string, expected uint64, data []byte) (uint64, error) {
	try, cancel := context.WithTimeout(ctx, l.config.AppendTimeout)
	defer cancel()
	ack, err := l.store.publish(try, subject, expected, data)
	if err == nil {
		if ack.Duplicate {
			// A duplicate says that the server dropped this message for another one: what counts is what is stored.
			return l.stored(ctx, subject, expected, data)
		}
		return ack.Sequence, nil
	}
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return 0, fmt.Errorf("%w: %d bytes: %w", ErrTooLarge, len(data), err)
	case errors.As(err, &api):
		switch api.ErrorCode {
		case codeWrongSequence, codeWrongSequenceConstant:
			return l.stored(ctx, subject, expected, data)
		case codeMessageTooLarge:
			return 0, fmt.Errorf("%w: %d bytes: %w", ErrTooLarge, len(data), err)
		case codeStorageExceeded, codeStoreFailed, codeMaxBytesExceeded, codeInsufficientResources:
			return 0, fmt.Errorf("%w: %w", ErrStorageFull, err)
		}
		return 0, fmt.Errorf("%w: %w", errOpen, err)
	default:
		// Time-out, no responders, disconnect, leader change: it may be stored or not.
		return 0, fmt.Errorf("%w: %w", errOpen, err)
	}
}

// stored compares with the first message after the expected sequence; the last one may belong to a later owner.
func (l *NATS) stored(ctx context.Context, subject string, expected uint64, data []byte) (uint64, error) {
	try, cancel := context.WithTimeout(ctx, l.config.AppendTimeout)
	defer cancel()
	msg, err := l.store.next(try, subject, expected+1)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		last, err := l.store.last(try, subject)
		if expected > 0 && (errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && last.Sequence < expected) {
			return 0, errTailLost
		}
		return 0, fmt.Errorf("%w: the server says that another message is there, and shows none yet", errOpen)
	case err != nil:
		return 0, fmt.Errorf("%w: reading what is stored: %w", errOpen, err)
	case bytes.Equal(msg.Data, data):
		return msg.Sequence, nil
	}
	return 0, fmt.Errorf("%w: sequence %d holds another group", ErrConflict, msg.Sequence)
}

// Last implements Log.
func (l *NATS) Last(ctx context.Context, partition int) (uint64, error) {
	msg, err := l.stream.GetLastMsgForSubject(ctx, bus.LogSubject(partition))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("last group of partition %d: %w", partition, err)
	}
	return msg.Sequence, nil
}

// Read implements Log.
func (l *NATS) Read(ctx context.Context, partition int, after uint64, fn func(Message) error) error {
	last, err := l.Last(ctx, partition)
	if err != nil || last <= after {
		return err
	}
	return l.deliver(ctx, partition, after, last, fn)
}

// Follow implements Log.
func (l *NATS) Follow(ctx context.Context, partition int, after uint64, fn func(Message) error) error {
	return l.deliver(ctx, partition, after, 0, fn)
}

// deliver stops after sequence last; 0: never.
func (l *NATS) deliver(ctx context.Context, partition int, after, last uint64, fn func(Message) error) error {
	cons, err := l.js.OrderedConsumer(ctx, bus.StreamLog, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{bus.LogSubject(partition)}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq: after + 1, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return fmt.Errorf("reader of partition %d: %w", partition, err)
	}
	it, err := cons.Messages(jetstream.PullMaxMessagesWithBytesLimit(l.config.ReadBatch, l.config.ReadBytes),
		jetstream.PullExpiry(l.config.PullExpiry))
	if err != nil {
		return fmt.Errorf("reader of partition %d: %w", partition, err)
	}
	// The reader's consumer is ephemeral: the server drops it when it is not used; what is known to be over goes at once.
	defer func() {
		it.Stop()
		if info := cons.CachedInfo(); info != nil {
			drop, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.AppendTimeout)
			defer cancel()
			_ = l.js.DeleteConsumer(drop, bus.StreamLog, info.Name)
		}
	}()
	stop := context.AfterFunc(ctx, it.Stop)
	defer stop()
	for {
		msg, err := it.Next()
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("reading partition %d after sequence %d: %w", partition, after, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("reading partition %d after sequence %d: %w", partition, after, err)
		}
		if meta.Sequence.Stream <= after {
			continue
		}
		if err := fn(Message{Sequence: meta.Sequence.Stream, Time: meta.Timestamp, Data: msg.Data()}); err != nil {
			return err
		}
		after = meta.Sequence.Stream
		if last != 0 && after >= last {
			return nil
		}
	}
}
