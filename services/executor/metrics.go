package executor

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/cairnrun/cairn/pkg/telemetry"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// meter counts what owners do. Attribute sets are made once: they are on the way of every report.
type meter struct {
	m        *telemetry.Instruments
	tracer   trace.Tracer
	outcomes map[runv1.AnswerOutcome]metric.MeasurementOption
}

func newMeter() *meter {
	outcome := func(s string) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(telemetry.Outcome.String(s)))
	}
	return &meter{m: telemetry.Metrics(), tracer: otel.Tracer(telemetry.Scope), outcomes: map[runv1.AnswerOutcome]metric.MeasurementOption{
		runv1.AnswerOutcome_ANSWER_OUTCOME_UNSPECIFIED: outcome("accepted"),
		runv1.AnswerOutcome_ANSWER_OUTCOME_ACCEPTED:    outcome("accepted"),
		runv1.AnswerOutcome_ANSWER_OUTCOME_REPEATED:    outcome("repeated"),
		runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED:     outcome("refused"),
	}}
}

func (m *meter) judged(o runv1.AnswerOutcome) {
	m.m.ReportsJudged.Add(context.Background(), 1, m.outcomes[o])
}

// reports counts those of a group at once.
func (m *meter) reports(all []judged) {
	var n [4]int64
	for _, j := range all {
		n[j.outcome]++
	}
	for outcome, k := range n {
		if k > 0 {
			m.m.ReportsJudged.Add(context.Background(), k, m.outcomes[runv1.AnswerOutcome(outcome)])
		}
	}
}

func (m *meter) open(n int)       { m.m.OpenRuns.Add(context.Background(), int64(n)) }
func (m *meter) stateBytes(n int) { m.m.StateBytes.Record(context.Background(), int64(n)) }
func (m *meter) takeover()        { m.m.Takeovers.Add(context.Background(), 1) }
func (m *meter) owned(n int)      { m.m.PartitionsOwned.Add(context.Background(), int64(n)) }
func (m *meter) conflict()        { m.errorCode("log_conflict") }
func (m *meter) quarantined()     { m.errorCode("quarantined") }
func (m *meter) errorCode(c string) {
	m.m.Errors.Add(context.Background(), 1, metric.WithAttributes(telemetry.ErrorType.String(c)))
}

func (m *meter) appended(took time.Duration, commits int) {
	m.m.AppendDuration.Record(context.Background(), took.Seconds())
	m.m.GroupCommits.Record(context.Background(), int64(commits))
}

// event counts what a recorded event says about plans.
func (m *meter) event(e *runv1.Event) {
	count := func(outcome string, source string, findings []*planv1.Finding) {
		ctx := context.Background()
		m.m.PlansJudged.Add(ctx, 1, metric.WithAttributes(telemetry.Outcome.String(outcome), telemetry.Source.String(source)))
		for _, f := range findings {
			m.m.PlanFindings.Add(ctx, 1, metric.WithAttributes(telemetry.ErrorType.String(f.GetCode())))
		}
	}
	switch b := e.GetBody().(type) {
	case *runv1.Event_PlanCreated:
		count("accepted", b.PlanCreated.GetPlanner().GetSource(), nil)
	case *runv1.Event_PlanPatched:
		count("accepted", b.PlanPatched.GetPlanner().GetSource(), nil)
	case *runv1.Event_PlanRejected:
		count("rejected", b.PlanRejected.GetPlanner().GetSource(), b.PlanRejected.GetFindings())
	case *runv1.Event_PatchRejected:
		count("rejected", b.PatchRejected.GetPlanner().GetSource(), b.PatchRejected.GetFindings())
	}
}

// commit counts the errors in a commit that is in the log, and gives it a span where its reports are traced.
func (m *meter) commit(partition int, c *commit) {
	for _, e := range c.events {
		switch b := e.GetBody().(type) {
		case *runv1.Event_StepFailed:
			m.errorCode(b.StepFailed.GetError().GetCode())
		case *runv1.Event_StepRetryScheduled:
			m.errorCode(b.StepRetryScheduled.GetError().GetCode())
		case *runv1.Event_PlanningFailed:
			m.errorCode(b.PlanningFailed.GetError().GetCode())
		}
	}
	if len(c.traces) == 0 {
		return
	}
	links := make([]trace.Link, 0, len(c.traces)-1)
	for _, t := range c.traces[1:] {
		links = append(links, trace.LinkFromContext(telemetry.ContextWith(context.Background(), t)))
	}
	_, span := m.tracer.Start(telemetry.ContextWith(context.Background(), c.traces[0]), "commit", trace.WithTimestamp(c.began), trace.WithLinks(links...))
	if span.IsRecording() {
		span.SetAttributes(telemetry.RunID.String(c.run.id), telemetry.Partition.Int(partition), telemetry.Revision.Int64(c.state.Revision()))
	}
	span.End()
}

// ended counts a run when its end is in the log.
func (m *meter) ended(ru *openRun) {
	ctx := context.Background()
	s := ru.acked.state
	attrs := []attribute.KeyValue{telemetry.Outcome.String(statusName(s.Status()))}
	m.m.RunsEnded.Add(ctx, 1, metric.WithAttributes(attrs...))
	m.m.RunRetries.Record(ctx, ru.retries)
	m.m.RunReplans.Record(ctx, ru.replans)
}

func statusName(s runv1.RunStatus) string {
	switch s {
	case runv1.RunStatus_RUN_STATUS_COMPLETED:
		return "completed"
	case runv1.RunStatus_RUN_STATUS_FAILED:
		return "failed"
	case runv1.RunStatus_RUN_STATUS_CANCELLED:
		return "cancelled"
	case runv1.RunStatus_RUN_STATUS_QUARANTINED:
		return "quarantined"
	}
	return "open"
}
