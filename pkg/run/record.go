package run

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Record judges one report at the commit's time: it returns the event that accepts or refuses it, and nil where the
// report changes nothing: an exact repeat, a timer that is no longer wanted, or a report for a run that has ended.
// AnswerFor tells these apart for the sender.
func Record(s State, report *runv1.Report, now time.Time) *runv1.Event {
	d := s.data()
	v := d.weigh(report)
	if v.outcome == verdictRefuse {
		v = d.refusal(report, v)
	}
	if v.event == nil {
		return nil
	}
	e := v.event
	now = laterOf(now.UTC(), timeOf(d.updatedAt))
	e.RunId, e.Tenant, e.Trace = d.runID, d.tenant, report.GetTrace()
	if e.RunId == "" {
		e.RunId = report.GetRunId()
	}
	if d.revision == 0 {
		e.Tenant = report.GetTenant()
	}
	e.Revision = d.revision + 1
	e.Id = eventID(e.RunId, e.Revision)
	e.Kind = runv1.EventKind_EVENT_KIND_RECORDED
	e.Time = timestamppb.New(now)
	e.Cause = &runv1.Cause{ReportId: report.GetId(), ReportDigest: v.digest}
	return e
}

// verdict is what a report is worth.
type verdict struct {
	outcome verdictOutcome
	// event accepts the report; of a refusal that is recorded, refuses it.
	event    *runv1.Event
	code     string
	message  string
	findings []*planv1.Finding
	// quiet refusals are answered and not recorded.
	quiet  bool
	digest string
}

type verdictOutcome uint8

const (
	verdictRepeat verdictOutcome = iota
	verdictAccept
	verdictRefuse
)

func accept(e *runv1.Event) verdict { return verdict{outcome: verdictAccept, event: e} }

func repeat() verdict { return verdict{outcome: verdictRepeat} }

func refuse(code, message string, findings ...*planv1.Finding) verdict {
	return verdict{outcome: verdictRefuse, code: code, message: message, findings: findings}
}

func (v verdict) quietly() verdict {
	v.quiet = true
	return v
}

// refusal makes the event of a refusal, the first time and below the cap.
func (d *data) refusal(report *runv1.Report, v verdict) verdict {
	if v.quiet || len(d.refused) >= MaxRefusals {
		return v
	}
	for _, r := range d.refused {
		if r.GetDigest() == v.digest {
			return v
		}
	}
	v.event = &runv1.Event{Body: &runv1.Event_ReportRefused{ReportRefused: &runv1.ReportRefused{
		Report: reportKind(report), Code: v.code, Message: v.message, Findings: v.findings, Digest: v.digest}}}
	return v
}

func reportKind(r *runv1.Report) string {
	m := r.ProtoReflect()
	if f := m.WhichOneof(m.Descriptor().Oneofs().ByName("body")); f != nil {
		return string(f.Name())
	}
	return "unknown"
}

// weigh judges a report by the state.
func (d *data) weigh(report *runv1.Report) verdict {
	digest := reportDigest(report)
	v := d.weighBody(report, digest)
	v.digest = digest
	return v
}

func (d *data) weighBody(report *runv1.Report, digest string) verdict {
	if b, ok := report.GetBody().(*runv1.Report_SubmitRun); ok {
		return d.weighSubmit(report, b.SubmitRun)
	}
	if stranger := report.GetTenant() != "" && report.GetTenant() != d.tenant; d.revision == 0 || stranger {
		// A run belongs to its tenant; to anybody else there is none. A sender that knows no tenant is one of the services.
		return refuse(refusedUnknownRun, "there is no such run").quietly()
	}
	if b, ok := report.GetBody().(*runv1.Report_ResultReported); ok {
		return d.weighResult(b.ResultReported, digest)
	}
	if d.terminal() {
		return d.weighClosed(report, digest)
	}
	if b, ok := report.GetBody().(*runv1.Report_CancelRun); ok {
		return d.weighCancel(b.CancelRun)
	}
	if b, ok := report.GetBody().(*runv1.Report_TimerDue); ok {
		return d.weighTimer(b.TimerDue)
	}
	if d.status == runv1.RunStatus_RUN_STATUS_QUARANTINED {
		return refuse(refusedNotNow, "the run is quarantined; it can only be cancelled").quietly()
	}
	switch b := report.GetBody().(type) {
	case *runv1.Report_PlanProposed:
		return d.weighPlan(b.PlanProposed, digest)
	case *runv1.Report_PatchProposed:
		return d.weighPatch(b.PatchProposed, digest)
	case *runv1.Report_PlanningGivenUp:
		return d.weighGivenUp(b.PlanningGivenUp, digest)
	case *runv1.Report_ReplanAnswered:
		return d.weighReplanAnswer(b.ReplanAnswered, digest)
	case *runv1.Report_UserInput:
		return d.weighInput(b.UserInput)
	}
	return refuse(refusedInvalidReport, "the report has no known body").quietly()
}

// weighSubmit accepts a run once; the same body again is a repeat, another body is not.
func (d *data) weighSubmit(report *runv1.Report, b *runv1.SubmitRun) verdict {
	spec := b.GetSpec()
	if spec == nil {
		spec = &runv1.RunSpec{}
	}
	body := specDigest(spec, plan.Canonical)
	switch {
	case d.revision == 0:
		if report.GetRunId() != "" && d.runID != "" && report.GetRunId() != d.runID {
			return refuse(refusedInvalidReport, "the report is about another run").quietly()
		}
		return accept(&runv1.Event{Body: &runv1.Event_RunSubmitted{RunSubmitted: &runv1.RunSubmitted{Spec: spec, BodyDigest: body}}})
	case body == d.bodyDigest && report.GetTenant() == d.tenant:
		return repeat()
	}
	v := refuse(refusedKeyReused, "a run with this id was submitted with another body")
	v.quiet = d.terminal()
	return v
}

// weighClosed answers reports for a run that has ended: nothing of them is logged.
func (d *data) weighClosed(report *runv1.Report, digest string) verdict {
	switch b := report.GetBody().(type) {
	case *runv1.Report_CancelRun:
		if d.status == runv1.RunStatus_RUN_STATUS_CANCELLED {
			return repeat()
		}
	case *runv1.Report_TimerDue:
		return repeat()
	case *runv1.Report_UserInput:
		if u, _ := d.input(b.UserInput.GetRequestId()); u != nil && !u.GetOpen() && u.GetAnswer() != nil && u.GetAnswer().GetText() == b.UserInput.GetAnswer().GetText() {
			return repeat()
		}
	case *runv1.Report_PlanProposed:
		return d.closedRequest(b.PlanProposed.GetRequestId(), digest)
	case *runv1.Report_PatchProposed:
		return d.closedRequest(b.PatchProposed.GetRequestId(), digest)
	case *runv1.Report_PlanningGivenUp:
		return d.closedRequest(b.PlanningGivenUp.GetRequestId(), digest)
	case *runv1.Report_ReplanAnswered:
		return d.closedRequest(b.ReplanAnswered.GetRequestId(), digest)
	}
	return refuse(refusedRunClosed, "the run has ended").quietly()
}

func (d *data) closedRequest(id, digest string) verdict {
	if r, _ := d.requestOf(id); r != nil && r.GetReportDigest() == digest {
		return repeat()
	}
	return refuse(refusedRunClosed, "the run has ended").quietly()
}

func (d *data) weighCancel(b *runv1.CancelRun) verdict {
	if d.status == runv1.RunStatus_RUN_STATUS_CANCELLING {
		return repeat()
	}
	return accept(&runv1.Event{Body: &runv1.Event_CancelRequested{CancelRequested: &runv1.CancelRequested{
		Reason: cutAtRune(b.GetReason(), maxCancelReason), By: cutAtRune(b.GetBy(), maxCancelReason)}}})
}

// maxCancelReason keeps a cancel small, so that it always fits.
const maxCancelReason = 256

// weighTimer accepts a timer that the state still wants, at exactly that time; any other is out of date.
func (d *data) weighTimer(b *runv1.TimerDue) verdict {
	for _, dl := range d.deadlines() {
		t := dl.Timer
		if t.GetTimer() == b.GetTimer() && t.GetStepId() == b.GetStepId() && t.GetActionId() == b.GetActionId() &&
			timeOf(t.GetDue()).Equal(timeOf(b.GetDue())) {
			return accept(timerFired(t))
		}
	}
	if t := d.timerOf(b); t != nil && timeOf(t.GetDue()).Equal(timeOf(b.GetDue())) {
		return accept(timerFired(t))
	}
	return repeat()
}

func timerFired(t *runv1.TimerDue) *runv1.Event {
	return &runv1.Event{Body: &runv1.Event_TimerFired{TimerFired: &runv1.TimerFired{
		Timer: t.GetTimer(), StepId: t.GetStepId(), ActionId: t.GetActionId(), Due: t.GetDue()}}}
}

// weighInput accepts an answer to an open question, once, and only one that the question allows.
func (d *data) weighInput(b *runv1.UserInput) verdict {
	u, _ := d.input(b.GetRequestId())
	switch {
	case u == nil:
		return refuse(refusedUnknownRequest, "nothing was asked under "+cutAtRune(b.GetRequestId(), 64))
	case !u.GetOpen() && u.GetAnswer() != nil && u.GetAnswer().GetText() == b.GetAnswer().GetText():
		return repeat()
	case !u.GetOpen() && u.GetAnswer() != nil:
		return refuse(refusedAnswerConflict, "the question was answered otherwise before")
	case u.GetWithdrawn():
		return refuse(refusedWithdrawn, "the question was withdrawn, since the outcome that it asked about is known now")
	case !u.GetOpen() || d.status == runv1.RunStatus_RUN_STATUS_CANCELLING:
		return refuse(refusedRequestClosed, "the question is no longer open")
	case b.GetAnswer() == nil:
		return refuse(refusedInvalidAnswer, "there is no answer")
	}
	if _, err := plan.ParseValue(b.GetAnswer().GetText()); err != nil {
		return refuse(refusedInvalidAnswer, "the answer is not valid JSON")
	}
	if n := len(b.GetAnswer().GetText()); int64(n) > max(d.limits.maxInlineBytes, TightInlineBytes) {
		return refuse(refusedInvalidAnswer, "the answer is larger than max_inline_bytes")
	}
	if findings := plan.ValidateSchema(u.GetSchema(), b.GetAnswer()); plan.HasErrors(findings) {
		return refuse(refusedInvalidAnswer, "the answer does not have the shape that the question asks for", findings...)
	}
	return accept(&runv1.Event{Body: &runv1.Event_UserInputReceived{UserInputReceived: &runv1.UserInputReceived{
		RequestId: b.GetRequestId(), Answer: b.GetAnswer(), By: b.GetBy()}}})
}

// Quarantine is the event that marks a run with which the core could not go on: it is only to be cancelled or exported.
func Quarantine(s State, reason, reportID string, now time.Time) *runv1.Event {
	d := s.data()
	now = laterOf(now.UTC(), timeOf(d.updatedAt))
	return &runv1.Event{
		Id: eventID(d.runID, d.revision+1), RunId: d.runID, Tenant: d.tenant, Revision: d.revision + 1,
		Kind: runv1.EventKind_EVENT_KIND_RECORDED, Time: timestamppb.New(now), Cause: &runv1.Cause{ReportId: reportID},
		Body: &runv1.Event_RunQuarantined{RunQuarantined: &runv1.RunQuarantined{
			Reason: cutAtRune(reason, 1000), AtRevision: d.revision, ReportId: reportID}},
	}
}
