package bus_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/telemetry"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestReportGoesToItsPartitionWithItsTrace(t *testing.T) {
	js := connect(t)
	r, err := bus.NewReporter(js, 4, bus.ReporterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := telemetry.ContextWith(t.Context(), &runv1.TraceContext{Traceparent: traceparent})
	if err := r.Report(ctx, &runv1.Report{RunId: "r1"}); err != nil {
		t.Fatal(err)
	}
	_, ch := subscribe(t, js, bus.ReportPrefix+">", bus.SubscriberConfig{Stream: bus.StreamReports, Durable: "d"})
	m := receive(t, ch, "the report")
	m.Ack()
	if want := bus.ReportSubject(bus.Partition("r1", 4), "r1"); bus.Subject(m) != want {
		t.Errorf("on %s, want %s", bus.Subject(m), want)
	}
	got := &runv1.Report{}
	if err := proto.Unmarshal(m.Payload, got); err != nil {
		t.Fatal(err)
	}
	if got.GetId() == "" || got.GetTrace().GetTraceparent() != traceparent || m.Metadata.Get("traceparent") != traceparent {
		t.Errorf("report %v, headers %v", got, m.Metadata)
	}
}

func TestAskRepeatsTheSameBytesUntilItIsAnswered(t *testing.T) {
	js := connect(t)
	r, err := bus.NewReporter(js, 1, bus.ReporterConfig{RepeatAfter: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, ch := subscribe(t, js, bus.ReportPrefix+">", bus.SubscriberConfig{Stream: bus.StreamReports, Durable: "owner"})
	answers := make(chan *runv1.Answer, 1)
	go func() {
		a, err := r.Ask(context.Background(), &runv1.Report{RunId: "r1", Body: &runv1.Report_CancelRun{CancelRun: &runv1.CancelRun{Reason: "enough"}}})
		if err != nil {
			t.Error(err)
		}
		answers <- a
	}()
	first := receive(t, ch, "the report")
	first.Ack()
	second := receive(t, ch, "the repeat")
	second.Ack()
	if !bytes.Equal(first.Payload, second.Payload) {
		t.Error("the repeat differs")
	}
	header := map[string][]string{bus.HeaderAnswer: {second.Metadata.Get(bus.HeaderAnswer)}}
	want := &runv1.Answer{RunId: "r1", Outcome: runv1.AnswerOutcome_ANSWER_OUTCOME_ACCEPTED, Revision: 7, LogSequence: 42}
	if err := bus.SendAnswer(js.Conn(), header, want); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, answers, "the answer"); !proto.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestAskEndsWithItsContext(t *testing.T) {
	js := connect(t)
	r, err := bus.NewReporter(js, 1, bus.ReporterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = r.Ask(ctx, &runv1.Report{RunId: "r1"})
	if !errors.Is(err, bus.ErrNoAnswer) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	left(t, js, bus.StreamReports, 1)
}

func TestReportWithoutARunIsRefused(t *testing.T) {
	js := connect(t)
	r, err := bus.NewReporter(js, 1, bus.ReporterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Report(t.Context(), &runv1.Report{}); err == nil {
		t.Error("accepted")
	}
}
