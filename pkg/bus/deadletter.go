package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Headers of a dead letter, besides the message's own.
const (
	HeaderDeadSubject    = "Cairn-Dead-Subject"
	HeaderDeadSequence   = "Cairn-Dead-Sequence"
	HeaderDeadDeliveries = "Cairn-Dead-Deliveries"
	HeaderDeadReason     = "Cairn-Dead-Reason"
	// HeaderDeadSize is the size in bytes of content that was left out, since it does not fit beside these headers.
	HeaderDeadSize = "Cairn-Dead-Size"
)

// maxReason bounds the reason in a dead letter's header, in bytes.
const maxReason = 1 << 10

// Dead is a message that will not be delivered again.
type Dead struct {
	Stream, Consumer, Subject string
	// RunID is empty where the subject names none.
	RunID      string
	Sequence   uint64
	Deliveries int
	// Reason is the last error; for a consumer that died with it, what is known.
	Reason string
	Header nats.Header
	Data   []byte
	// Poison: the message could not be read; another delivery would not have helped.
	Poison bool
}

// DeadSubject is where a dead letter of a stream goes; messages without a run go to "-".
func DeadSubject(stream, runID string) string {
	if runID == "" {
		runID = "-"
	}
	return DeadLetterPrefix + stream + "." + runID
}

// Bury stores a dead letter, for services that read a stream without a Subscriber. One that does not fit with its headers
// is kept without its content.
func Bury(ctx context.Context, p *Publisher, d Dead) error { return bury(ctx, p, d, nil) }

// bury stores the dead letter, then tells the callback: the run learns of it only when nothing is lost any more.
func bury(ctx context.Context, p *Publisher, d Dead, told func(context.Context, Dead) error) error {
	msg := nats.NewMsg(DeadSubject(d.Stream, d.RunID))
	msg.Data = d.Data
	for k, v := range d.Header {
		if k != MetaMessageID {
			msg.Header[k] = v
		}
	}
	if d.Sequence > 0 {
		msg.Header.Set(MetaMessageID, d.Stream+"/"+strconv.FormatUint(d.Sequence, 10))
	}
	msg.Header.Set(HeaderDeadSubject, d.Subject)
	msg.Header.Set(HeaderDeadSequence, strconv.FormatUint(d.Sequence, 10))
	msg.Header.Set(HeaderDeadDeliveries, strconv.Itoa(d.Deliveries))
	msg.Header.Set(HeaderDeadReason, headerText(d.Reason, maxReason))
	_, err := p.Send(ctx, msg)
	if errors.Is(err, ErrTooLarge) {
		// With the headers of a dead letter it no longer fits: the reason matters more than the content.
		msg.Data = nil
		all := msg.Header
		msg.Header = nats.Header{HeaderDeadSize: {strconv.Itoa(len(d.Data))}}
		for _, h := range []string{MetaMessageID, HeaderDeadSubject, HeaderDeadSequence, HeaderDeadDeliveries, HeaderDeadReason} {
			if v := all[h]; v != nil {
				msg.Header[h] = v
			}
		}
		_, err = p.Send(ctx, msg)
	}
	if err != nil {
		return fmt.Errorf("dead letter of %s: %w", d.Subject, err)
	}
	if told == nil {
		return nil
	}
	if err := told(ctx, d); err != nil {
		return fmt.Errorf("tell about the dead letter of %s: %w", d.Subject, err)
	}
	return nil
}

// headerText makes s fit for a header: one line, at most limit bytes, cut at a rune border.
func headerText(s string, limit int) string {
	b := make([]byte, 0, min(len(s), limit))
	for _, r := range s {
		if r == '\r' || r == '\n' {
			r = ' '
		}
		if len(b)+len(string(r)) > limit {
			break
		}
		b = append(b, string(r)...)
	}
	return string(b)
}

// ExhaustedConfig of WatchExhausted.
type ExhaustedConfig struct {
	// Stream whose consumers have a server-side limit of deliveries, as tool services' consumers do.
	Stream string
	// Every is the time between two sweeps. Default 15 s.
	Every  time.Duration
	Logger *slog.Logger
	// Told is called for each message, after its dead letter is stored and before it is deleted; an error leaves the
	// message for the next sweep.
	Told func(context.Context, Dead) error
}

// WatchExhausted finds messages that used up the deliveries of a consumer with a limit of its own, which leaves them
// in a work queue undelivered for ever: at once by the server's advisory, and by a sweep where the advisory was lost.
// Each becomes a dead letter, is told, and is deleted. It returns when ctx ends. Several may run at once: a message is then
// told more than once.
//
// Subscribers need it not: they count deliveries themselves.
func WatchExhausted(ctx context.Context, js jetstream.JetStream, c ExhaustedConfig) error {
	if c.Every == 0 {
		c.Every = 15 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	advisories := make(chan *nats.Msg, 256)
	sub, err := js.Conn().ChanSubscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."+c.Stream+".*", advisories)
	if err != nil {
		return fmt.Errorf("advisories of %s: %w", c.Stream, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	p := NewPublisher(js, PublisherConfig{})
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for {
		if err := sweepExhausted(ctx, js, p, c); err != nil && ctx.Err() == nil {
			c.Logger.Warn("sweep of exhausted messages failed, it is repeated", "stream", c.Stream, "error", err)
		}
		for swept := false; !swept; {
			select {
			case <-ctx.Done():
				return nil
			case m := <-advisories:
				if err := exhaustedByAdvisory(ctx, js, p, c, m); err != nil && ctx.Err() == nil {
					c.Logger.Warn("exhausted message is left for the sweep", "stream", c.Stream, "error", err)
				}
			case <-tick.C:
				swept = true
			}
		}
	}
}

func exhaustedByAdvisory(ctx context.Context, js jetstream.JetStream, p *Publisher, c ExhaustedConfig, m *nats.Msg) error {
	var advisory struct {
		Consumer   string `json:"consumer"`
		StreamSeq  uint64 `json:"stream_seq"`
		Deliveries int    `json:"deliveries"`
	}
	if err := json.Unmarshal(m.Data, &advisory); err != nil {
		return fmt.Errorf("advisory on %s: %w", m.Subject, err)
	}
	stream, err := js.Stream(ctx, c.Stream)
	if err != nil {
		return missing(c.Stream, err)
	}
	raw, err := stream.GetMsg(ctx, advisory.StreamSeq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read %s: %w", c.Stream, err)
	}
	return buryExhausted(ctx, stream, p, c, raw, advisory.Consumer, advisory.Deliveries)
}

// sweepExhausted looks at consumers that wait for no acknowledgement: what they have been given and is still in the work
// queue was neither acknowledged nor will it be delivered. The server does not say which messages of a busy consumer are
// pending, so there a lost advisory is made good when the consumer comes to rest; deadlines of actions do not wait for that.
func sweepExhausted(ctx context.Context, js jetstream.JetStream, p *Publisher, c ExhaustedConfig) error {
	stream, err := js.Stream(ctx, c.Stream)
	if err != nil {
		return missing(c.Stream, err)
	}
	consumers := stream.ListConsumers(ctx)
	for info := range consumers.Info() {
		if info.Config.MaxDeliver <= 0 || info.NumAckPending > 0 {
			continue
		}
		filters := info.Config.FilterSubjects
		if info.Config.FilterSubject != "" {
			filters = append(filters, info.Config.FilterSubject)
		}
		if len(filters) == 0 {
			filters = []string{">"}
		}
		for _, f := range filters {
			if err := sweepFilter(ctx, stream, p, c, info, f); err != nil {
				return err
			}
		}
	}
	return consumers.Err()
}

func sweepFilter(ctx context.Context, stream jetstream.Stream, p *Publisher, c ExhaustedConfig, info *jetstream.ConsumerInfo, filter string) error {
	for seq := uint64(1); ; {
		m, err := stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(filter))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read %s: %w", c.Stream, err)
		}
		if m.Sequence > info.Delivered.Stream {
			return nil
		}
		if err := buryExhausted(ctx, stream, p, c, m, info.Name, info.Config.MaxDeliver); err != nil {
			return err
		}
		seq = m.Sequence + 1
	}
}

func buryExhausted(ctx context.Context, stream jetstream.Stream, p *Publisher, c ExhaustedConfig, m *jetstream.RawStreamMsg, consumer string, deliveries int) error {
	d := Dead{
		Stream: c.Stream, Consumer: consumer, Subject: m.Subject, RunID: RunOf(m.Subject), Sequence: m.Sequence,
		Deliveries: deliveries, Header: m.Header, Data: m.Data,
		Reason: fmt.Sprintf("delivered %d times to %s and never acknowledged", deliveries, consumer),
	}
	if err := bury(ctx, p, d, c.Told); err != nil {
		return err
	}
	if err := stream.DeleteMsg(ctx, m.Sequence); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("delete dead message %d of %s: %w", m.Sequence, c.Stream, err)
	}
	return nil
}
