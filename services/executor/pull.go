package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
)

// pullSource receives a partition's reports. It asks for batches ahead, since the owner takes whatever is there, and hands
// over slices, since one channel operation a report would cost more than judging it.
type pullSource struct {
	nc      *nats.Conn
	cfg     *Config
	next    string // subject of pull requests
	waiting uint64
	ready   chan struct{}
	stop    chan struct{}
	once    sync.Once

	mu       sync.Mutex
	inbox    *nats.Subscription
	queue    []*report
	bytes    int
	asked    int // messages asked for and not yet come
	activity time.Time
	err      error
}

// reportConsumer names the durable consumer of a partition.
func reportConsumer(partition int) string { return fmt.Sprintf("executor-%d", partition) }

// openSource makes the partition's consumer anew, so that whatever an earlier owner had in hand comes again, in order.
func openSource(ctx context.Context, js jetstream.JetStream, cfg *Config, partition int) (source, error) {
	name := reportConsumer(partition)
	if err := js.DeleteConsumer(ctx, bus.StreamReports, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("reset consumer %s: %w", name, err)
	}
	c, err := js.CreateConsumer(ctx, bus.StreamReports, jetstream.ConsumerConfig{
		Durable: name, AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
		AckWait: cfg.ReportAckWait, MaxDeliver: -1, MaxAckPending: cfg.ReportMaxPending,
		FilterSubject: bus.ReportSubject(partition, "*"),
		// What is not acknowledged is still in the work queue, and after a restart of the bus the consumer is made anew: its
		// place in files would only cost writes.
		MemoryStorage: true,
	})
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", name, err)
	}
	s := &pullSource{
		nc: js.Conn(), cfg: cfg, next: jetstream.DefaultAPIPrefix + "CONSUMER.MSG.NEXT." + bus.StreamReports + "." + name,
		waiting: c.CachedInfo().NumPending, ready: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	if err := s.reopen(); err != nil {
		return nil, err
	}
	s.ask()
	go s.watch()
	return s, nil
}

// reopen takes a new inbox, so that answers to requests given up are not counted.
func (s *pullSource) reopen() error {
	inbox, err := s.nc.Subscribe(s.nc.NewInbox(), s.receive)
	if err != nil {
		return fmt.Errorf("inbox for reports: %w", err)
	}
	// They come by request; the client must never drop one as a slow consumer.
	_ = inbox.SetPendingLimits(-1, -1)
	s.mu.Lock()
	old := s.inbox
	s.inbox, s.asked, s.activity = inbox, 0, time.Now()
	s.mu.Unlock()
	if old != nil {
		_ = old.Drain()
	}
	return nil
}

// ask keeps a batch asked for while there is room.
func (s *pullSource) ask() {
	s.mu.Lock()
	if s.asked > s.cfg.ReportBatch/2 || s.bytes > s.cfg.ReportQueueBytes || len(s.queue) > s.cfg.ReportMaxPending || s.err != nil {
		s.mu.Unlock()
		return
	}
	n := s.cfg.ReportBatch - s.asked
	if s.asked == 0 {
		s.activity = time.Now()
	}
	s.asked += n
	inbox := s.inbox.Subject
	s.mu.Unlock()
	body, _ := json.Marshal(struct {
		Batch   int           `json:"batch"`
		Expires time.Duration `json:"expires"`
		// Without a bound in bytes a batch of large reports is more than the server keeps for one connection: it closes it
		// as a slow one, and with it everything that this executor owns.
		MaxBytes int64 `json:"max_bytes"`
	}{n, s.cfg.PullExpiry, max(int64(s.cfg.ReportPullBytes), 2*s.nc.MaxPayload())})
	if err := s.nc.PublishRequest(s.next, inbox, body); err != nil {
		s.mu.Lock()
		s.asked -= n
		s.mu.Unlock()
	}
}

// receive is called by the client for each message of the inbox.
func (s *pullSource) receive(m *nats.Msg) {
	if len(m.Data) == 0 && m.Header.Get("Status") != "" {
		s.status(m)
		return
	}
	r := &report{subject: m.Subject, data: m.Data, settle: pulled{s.nc, m}}
	if to := m.Header.Get(bus.HeaderAnswer); to != "" && len(to) > len(s.cfg.AnswerPrefix) && to[:len(s.cfg.AnswerPrefix)] == s.cfg.AnswerPrefix {
		r.answerTo = to
	}
	s.mu.Lock()
	if m.Sub == s.inbox {
		s.asked--
		s.activity = time.Now()
	}
	s.queue = append(s.queue, r)
	s.bytes += len(m.Data)
	low := s.asked < s.cfg.ReportBatch/2
	s.mu.Unlock()
	s.signal()
	if low {
		s.ask()
	}
}

func (s *pullSource) status(m *nats.Msg) {
	code, text := m.Header.Get("Status"), m.Header.Get("Description")
	s.mu.Lock()
	if m.Sub != s.inbox {
		s.mu.Unlock()
		return
	}
	s.activity = time.Now()
	pending, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	switch {
	case code == "100":
	case err == nil:
		// The pull ended, by its time or with the consumer's leader; so many messages of it will not come.
		s.asked = max(0, s.asked-pending)
	case code == "408":
		s.asked = 0
	default:
		s.err = fmt.Errorf("consumer of reports: %s %s", code, text)
	}
	failed := s.err != nil
	s.mu.Unlock()
	if failed {
		s.signal()
		return
	}
	s.ask()
}

func (s *pullSource) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// watch makes a lost pull again.
func (s *pullSource) watch() {
	t := time.NewTicker(s.cfg.PullExpiry / 4)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		s.mu.Lock()
		lost := s.asked > 0 && time.Since(s.activity) > s.cfg.PullExpiry+time.Second
		s.mu.Unlock()
		if lost {
			s.cfg.Logger.Info("pull of reports made again", "reason", "no answer in time")
			_ = s.reopen()
		}
		s.ask()
	}
}

// Take implements source.
func (s *pullSource) Take() []*report {
	s.mu.Lock()
	out := s.queue
	s.queue, s.bytes = nil, 0
	s.mu.Unlock()
	if out != nil {
		s.ask()
	}
	return out
}

// Ready implements source.
func (s *pullSource) Ready() <-chan struct{} { return s.ready }

// Waiting implements source.
func (s *pullSource) Waiting() uint64 { return s.waiting }

// Err implements source.
func (s *pullSource) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close implements source.
func (s *pullSource) Close() {
	s.once.Do(func() {
		close(s.stop)
		s.mu.Lock()
		inbox := s.inbox
		s.mu.Unlock()
		_ = inbox.Unsubscribe()
	})
}

// pulled is a delivery of a pull consumer.
type pulled struct {
	nc  *nats.Conn
	msg *nats.Msg
}

var ackDone = []byte("+ACK")

// Ack implements delivery. One that gets lost makes the report come again, as a repeat.
func (p pulled) Ack() { _ = p.nc.Publish(p.msg.Reply, ackDone) }

// sequence is the report's place in its stream, 0 where it is not known.
func (p pulled) sequence() uint64 {
	meta, err := p.msg.Metadata()
	if err != nil {
		return 0
	}
	return meta.Sequence.Stream
}

// Nak implements delivery.
func (p pulled) Nak(delay time.Duration) {
	_ = p.nc.Publish(p.msg.Reply, fmt.Appendf(nil, `-NAK {"delay": %d}`, delay.Nanoseconds()))
}
