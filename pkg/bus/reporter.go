package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/telemetry"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// ErrNoAnswer is wrapped by Ask's error when ctx ended first: the report may be in the log or may still get there.
var ErrNoAnswer = errors.New("no answer yet from the owner of the run's partition")

// ReporterConfig of a Reporter; the zero value works.
type ReporterConfig struct {
	Publisher PublisherConfig
	// RepeatAfter is how long Ask waits for an answer before it sends the same bytes again; it doubles with each repeat up
	// to RepeatAtMost. Owners know repeats and answer them too. Defaults 2 s and 15 s.
	RepeatAfter, RepeatAtMost time.Duration
}

// Reporter sends reports to the partitions of their runs.
type Reporter struct {
	js         jetstream.JetStream
	publisher  *Publisher
	partitions int
	config     ReporterConfig

	answers *nats.Subscription
	prefix  string
	next    atomic.Int64
	mu      sync.Mutex
	asking  map[string]chan *runv1.Answer
}

// NewReporter returns a reporter for a log of so many partitions; bus.Partitions tells the number.
func NewReporter(js jetstream.JetStream, partitions int, c ReporterConfig) (*Reporter, error) {
	if partitions < 1 {
		return nil, fmt.Errorf("reporter: %d partitions; take the number from bus.Partitions", partitions)
	}
	if c.RepeatAfter == 0 {
		c.RepeatAfter = 2 * time.Second
	}
	if c.RepeatAtMost == 0 {
		c.RepeatAtMost = 15 * time.Second
	}
	r := &Reporter{
		js: js, publisher: NewPublisher(js, c.Publisher), partitions: partitions, config: c,
		prefix: js.Conn().NewInbox() + ".", asking: map[string]chan *runv1.Answer{},
	}
	// One subscription for all questions: one for each would cost the server an interest change a request.
	sub, err := js.Conn().Subscribe(r.prefix+"*", r.answered)
	if err != nil {
		return nil, fmt.Errorf("reporter: %w", err)
	}
	r.answers = sub
	return r, nil
}

// Close ends waiting for answers; Ask calls under way end with their contexts.
func (r *Reporter) Close() error { return r.answers.Unsubscribe() }

// Report returns when the report is stored; what becomes of it shows in the log. An empty id is filled in; the trace
// context of ctx is added where the report has none.
func (r *Reporter) Report(ctx context.Context, report *runv1.Report) error {
	msg, err := r.message(ctx, report)
	if err != nil {
		return err
	}
	_, err = r.publisher.Send(ctx, msg)
	return err
}

// Ask sends the report and waits for the owner's answer, which comes when the outcome is in the log. While none comes it
// sends the same bytes again, until ctx ends; then the error wraps ErrNoAnswer and what was in the way.
func (r *Reporter) Ask(ctx context.Context, report *runv1.Report) (*runv1.Answer, error) {
	msg, err := r.message(ctx, report)
	if err != nil {
		return nil, err
	}
	token := strconv.FormatInt(r.next.Add(1), 36)
	answer := make(chan *runv1.Answer, 1)
	r.mu.Lock()
	r.asking[token] = answer
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.asking, token)
		r.mu.Unlock()
	}()
	msg.Header.Set(HeaderAnswer, r.prefix+token)

	var obstacle error
	for wait := r.config.RepeatAfter; ; wait = min(2*wait, r.config.RepeatAtMost) {
		_, err := r.publisher.Send(ctx, msg)
		if errors.Is(err, ErrTooLarge) {
			return nil, err
		}
		if ctx.Err() == nil || obstacle == nil {
			obstacle = err
		}
		t := time.NewTimer(wait)
		select {
		case a := <-answer:
			t.Stop()
			return a, nil
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("report %s on run %s: %w: %w", report.GetId(), report.GetRunId(), ErrNoAnswer, errors.Join(ctx.Err(), obstacle))
		case <-t.C:
		}
	}
}

func (r *Reporter) answered(m *nats.Msg) {
	a := &runv1.Answer{}
	if proto.Unmarshal(m.Data, a) != nil {
		return
	}
	r.mu.Lock()
	c := r.asking[m.Subject[len(r.prefix):]]
	r.mu.Unlock()
	select {
	case c <- a:
	default:
		// Asked twice, answered twice; or nobody asks any more (a nil channel).
	}
}

func (r *Reporter) message(ctx context.Context, report *runv1.Report) (*nats.Msg, error) {
	if report.GetRunId() == "" {
		return nil, errors.New("report without a run id")
	}
	if report.GetId() == "" {
		report.Id = nuid.Next()
	}
	if report.GetTrace() == nil {
		report.Trace = telemetry.TraceOf(ctx)
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(report)
	if err != nil {
		return nil, fmt.Errorf("report %s on run %s: %w", report.GetId(), report.GetRunId(), err)
	}
	msg := nats.NewMsg(ReportSubject(Partition(report.GetRunId(), r.partitions), report.GetRunId()))
	msg.Data = data
	telemetry.Inject(telemetry.ContextWith(ctx, report.GetTrace()), msg.Header)
	return msg, nil
}

// SendAnswer tells the sender of a report its outcome: data and header are the report message's. Reports that ask for no
// answer get none.
func SendAnswer(nc *nats.Conn, report nats.Header, a *runv1.Answer) error {
	to := report.Get(HeaderAnswer)
	if to == "" {
		return nil
	}
	data, err := proto.Marshal(a)
	if err != nil {
		return fmt.Errorf("answer on run %s: %w", a.GetRunId(), err)
	}
	return nc.Publish(to, data)
}
