package runstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/telemetry"
)

// The feed publishes every event to CAIRN_EVENTS, at least once and in order per run. One stored consumer a partition,
// shared by all instances, gives out one group of the log at a time: it is the feed's position, and it sees to it that
// only one instance feeds a partition at any moment, the next one taking over FeedAckWait after a death.

// feedName of a partition's consumer.
func feedName(partition int) string { return fmt.Sprintf("feed-%d", partition) }

// contentType of what the feed publishes.
const contentType = "application/cloudevents+json; charset=UTF-8"

type feed struct {
	config    Config
	publisher *bus.Publisher
	payload   func() int64
	logger    *slog.Logger
}

// runFeed feeds all partitions until ctx ends; the group in hand is finished.
func runFeed(ctx context.Context, js jetstream.JetStream, c Config, partitions int, report func(part string, err error)) error {
	f := &feed{
		config: c, publisher: bus.NewPublisher(js, bus.PublisherConfig{}), logger: c.Logger,
		payload: js.Conn().MaxPayload,
	}
	router, err := bus.NewRouter(bus.RouterConfig{Logger: c.Logger, CloseTimeout: c.DrainTimeout})
	if err != nil {
		return err
	}
	for p := range partitions {
		sub, err := bus.NewSubscriber(js, bus.SubscriberConfig{
			Stream: bus.StreamLog, Durable: feedName(p), AckWait: c.FeedAckWait, MaxDeliver: -1,
			Backoff: bus.Backoff{time.Second}, MaxAckPending: 1, MaxInHand: 1, DrainTimeout: c.DrainTimeout,
			Lane:  func(string) string { return "feed" },
			State: func(err error) { report(fmt.Sprintf("feed %d", p), err) }, Logger: c.Logger,
		})
		if err != nil {
			return err
		}
		router.AddConsumerHandler(feedName(p), bus.LogSubject(p), sub, f.group)
	}
	return router.Run(ctx)
}

// group publishes the events of one log message. An error brings the message again; what was published then is known
// by its message id, or repeated.
func (f *feed) group(m *message.Message) error {
	g, err := eventlog.DecodeGroup(m.Payload)
	if err != nil {
		return fmt.Errorf("%w: %w", bus.ErrPoison, err)
	}
	// Events of one run one after the other, since a lost one must not be overtaken; runs side by side.
	byRun := map[string][]*runv1.Event{}
	for _, entry := range g.GetEntries() {
		c, err := eventlog.DecodeCommit(entry)
		if err != nil {
			return fmt.Errorf("%w: %w", bus.ErrPoison, err)
		}
		byRun[c.GetRunId()] = append(byRun[c.GetRunId()], c.GetEvents()...)
	}
	work, ctx := errgroup.WithContext(m.Context())
	work.SetLimit(f.config.FeedParallel)
	for _, events := range byRun {
		work.Go(func() error {
			for _, e := range events {
				if err := f.publish(ctx, e); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return work.Wait()
}

func (f *feed) publish(ctx context.Context, e *runv1.Event) error {
	name := EventType(e)
	if name == "" {
		// Written by a newer version; one that knows it will be upgraded to before anybody can want it.
		f.logger.WarnContext(ctx, "event of an unknown type is not fed", "event", e.GetId())
		return nil
	}
	data, err := CloudEvent(e, true)
	if err != nil {
		// One event that cannot be shown must not hold up all that follow.
		f.logger.WarnContext(ctx, "event is fed by reference", "event", e.GetId(), "error", err)
		if data, err = CloudEvent(e, false); err != nil {
			return err
		}
	}
	msg := &nats.Msg{Subject: bus.EventSubject(name, e.GetRunId()), Data: data, Header: nats.Header{}}
	msg.Header.Set(jetstream.MsgIDHeader, e.GetId())
	msg.Header.Set("Content-Type", contentType)
	if t := e.GetTrace(); t.GetTraceparent() != "" {
		msg.Header.Set(telemetry.HeaderTraceparent, t.GetTraceparent())
		if t.GetTracestate() != "" {
			msg.Header.Set(telemetry.HeaderTracestate, t.GetTracestate())
		}
	}
	if limit := f.payload(); limit > 0 && int64(msg.Size()) > limit {
		if msg.Data, err = CloudEvent(e, false); err != nil {
			return err
		}
	}
	_, err = f.publisher.Send(ctx, msg)
	if errors.Is(err, bus.ErrTooLarge) {
		return fmt.Errorf("%w: %w", bus.ErrPoison, err)
	}
	return err
}
