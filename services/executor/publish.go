package executor

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/telemetry"
	"github.com/cairnrun/cairn/pkg/tool"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

const (
	// apiTimeout bounds one question to the server.
	apiTimeout = 5 * time.Second
)

// busOutside is outside over NATS.
type busOutside struct {
	cfg *Config
	nc  *nats.Conn
	js  jetstream.JetStream
	ctx context.Context
	// work is stored by sender.
	sender *sender
	// letters stores dead letters, one after the other.
	letters *bus.Publisher
	burying sync.Mutex
	// busy counts what goes on in the background.
	busy sync.WaitGroup
}

func newBusOutside(ctx context.Context, js jetstream.JetStream, cfg *Config) (*busOutside, error) {
	sender, err := newSender(js.Conn(), cfg.Logger)
	if err != nil {
		return nil, err
	}
	return &busOutside{cfg: cfg, nc: js.Conn(), js: js, ctx: ctx, sender: sender, letters: bus.NewPublisher(js, bus.PublisherConfig{})}, nil
}

// Publish implements outside.
func (b *busOutside) Publish(w *work) {
	data, err := proto.Marshal(w.msg)
	if err != nil {
		b.cfg.Logger.Error("work cannot be encoded", "subject", w.subject, "error", err)
		return
	}
	var header nats.Header
	if t := w.msg.GetTrace(); t.GetTraceparent() != "" {
		header = nats.Header{telemetry.HeaderTraceparent: []string{t.GetTraceparent()}}
		if t.GetTracestate() != "" {
			header[telemetry.HeaderTracestate] = []string{t.GetTracestate()}
		}
	}
	if w.msg.GetRevoke() != nil {
		// A call that still waits on the same subject would keep the revocation out.
		b.later(func(ctx context.Context) {
			b.purge(ctx, bus.StreamWork, w.subject)
			b.sender.send(w.subject, header, data)
		})
		return
	}
	b.sender.send(w.subject, header, data)
}

// later runs f in the background.
func (b *busOutside) later(f func(ctx context.Context)) {
	b.busy.Add(1)
	go func() {
		defer b.busy.Done()
		f(b.ctx)
	}()
}

// drain waits until what was published is stored or given up.
func (b *busOutside) drain(limit time.Duration) {
	if !b.nc.IsConnected() {
		b.sender.close()
		return
	}
	done := make(chan struct{})
	go func() {
		b.busy.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
	if !b.sender.drain(limit) || b.nc.FlushTimeout(limit) != nil {
		b.cfg.Logger.Warn("some work was not acknowledged before the end; the next owner looks for it")
	}
	b.sender.close()
}

// Answer implements outside.
func (b *busOutside) Answer(to string, a *runv1.Answer) {
	data, err := proto.Marshal(a)
	if err == nil {
		err = b.nc.Publish(to, data)
	}
	if err != nil {
		b.cfg.Logger.Warn("answer was not sent; its sender asks again", "run_id", a.GetRunId(), "error", err)
	}
}

// Cancelled implements outside.
func (b *busOutside) Cancelled(runID string, then []*work) {
	if signal, err := (&tool.CancelMessage{Reason: "cancelled"}).Encode(); err == nil {
		_ = b.nc.Publish(bus.CancelPrefix+runID, signal)
	}
	b.later(func(ctx context.Context) {
		b.purge(ctx, bus.StreamWork, bus.PlanSubject(runID, "*"))
		b.purge(ctx, bus.StreamWork, bus.CallSubject(runID, "*"))
		b.purge(ctx, bus.StreamActions, tool.ActionPrefix+runID+".>")
		for _, w := range then {
			b.Publish(w)
		}
	})
}

// purge removes waiting messages; it only saves work.
func (b *busOutside) purge(ctx context.Context, stream, subject string) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	s, err := b.js.Stream(ctx, stream)
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(subject))
	}
	if err != nil {
		b.cfg.Logger.Info("waiting messages were not removed", "stream", stream, "subject", subject, "error", err)
	}
}

// deadTimeout bounds how long one dead letter may take to be stored.
const deadTimeout = 30 * time.Second

// Dead implements outside.
func (b *busOutside) Dead(r *report, reason string) {
	d := bus.Dead{
		Stream: bus.StreamReports, Consumer: "executor", Subject: r.subject, RunID: bus.RunOf(r.subject), Deliveries: 1, Reason: reason,
		Data: r.data, Poison: true,
	}
	if p, ok := r.settle.(pulled); ok {
		d.Sequence, d.Header = p.sequence(), p.msg.Header
	}
	b.cfg.Logger.Error("report cannot be judged, it goes to the dead letters", "subject", r.subject,
		"dead_letter", bus.DeadSubject(d.Stream, d.RunID), "reason", reason)
	telemetry.Metrics().DeadLetters.Add(context.Background(), 1)
	b.later(func(ctx context.Context) {
		// One after the other: they may be large, and renewals of leases go over the same connection.
		b.burying.Lock()
		defer b.burying.Unlock()
		ctx, cancel := context.WithTimeout(ctx, deadTimeout)
		defer cancel()
		if err := bus.Bury(ctx, b.letters, d); err != nil {
			b.cfg.Logger.Warn("dead letter was not stored; the report comes again", "subject", r.subject, "error", err)
			r.settle.Nak(b.cfg.HeldRetry)
			return
		}
		r.settle.Ack()
	})
}

// Missing implements outside. A message goes from WORK to ACTIONS to RESULTS to REPORTS and is stored in the next before
// it leaves the one before, so looking in this order misses none.
func (b *busOutside) Missing(partition int, items []*work, done func([]*work, error)) {
	b.later(func(ctx context.Context) {
		done(b.missing(ctx, partition, items))
	})
}

// wholeStream is from how many runs on a stream's subjects are listed as a whole.
const wholeStream = 16

func (b *busOutside) missing(ctx context.Context, partition int, items []*work) ([]*work, error) {
	runs := map[string]bool{}
	for _, w := range items {
		runs[w.msg.GetRunId()] = true
	}
	has := map[string]bool{}
	for _, place := range []struct {
		stream string
		filter func(run string) []string
		key    func(subject string) string
	}{
		{bus.StreamWork, func(run string) []string { return []string{bus.PlanSubject(run, "*"), bus.CallSubject(run, "*")} }, func(s string) string { return s }},
		{bus.StreamActions, func(run string) []string { return []string{tool.ActionPrefix + run + ".>"} }, callOf},
		{bus.StreamResults, func(run string) []string { return []string{tool.ResultPrefix + run + ".>"} }, callOf},
		{bus.StreamReports, func(run string) []string { return []string{bus.ReportSubject(partition, run)} }, bus.RunOf},
	} {
		filters := []string{">"}
		if place.stream == bus.StreamReports {
			filters = []string{bus.ReportSubject(partition, "*")}
		}
		if len(runs) < wholeStream {
			filters = nil
			for run := range runs {
				filters = append(filters, place.filter(run)...)
			}
		}
		if err := b.subjects(ctx, place.stream, filters, func(s string) { has[place.key(s)] = true }); err != nil {
			return nil, err
		}
	}
	var missing []*work
	for _, w := range items {
		if !has[w.subject] && !has[w.msg.GetRunId()] {
			missing = append(missing, w)
		}
	}
	return missing, nil
}

// callOf is the subject of the call that an action or a result belongs to.
func callOf(subject string) string {
	t := strings.Split(subject, ".")
	if len(t) < 4 {
		return ""
	}
	return bus.CallSubject(t[2], t[3])
}

// subjects lists the subjects of the messages in a stream.
func (b *busOutside) subjects(ctx context.Context, stream string, filters []string, each func(string)) error {
	for _, f := range filters {
		ctx, cancel := context.WithTimeout(ctx, 2*apiTimeout)
		var info *jetstream.StreamInfo
		s, err := b.js.Stream(ctx, stream)
		if err == nil {
			info, err = s.Info(ctx, jetstream.WithSubjectFilter(f))
		}
		cancel()
		if err != nil {
			return fmt.Errorf("subjects %s of stream %s: %w", f, stream, err)
		}
		for subject := range info.State.Subjects {
			each(subject)
		}
	}
	return nil
}
