package run

import runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

// AnswerFor tells the sender of a report what became of it. event is what Record made of the report, nil where it changes
// nothing, and s the state with it. The owner adds where the log holds it.
func AnswerFor(s State, report *runv1.Report, event *runv1.Event) *runv1.Answer {
	d := s.data()
	a := &runv1.Answer{RunId: d.runID, Revision: d.revision, Status: s.Status()}
	if a.GetRunId() == "" {
		a.RunId = report.GetRunId()
	}
	if event == nil {
		v := d.weigh(report)
		if v.outcome != verdictRefuse {
			a.Outcome = runv1.AnswerOutcome_ANSWER_OUTCOME_REPEATED
			return a
		}
		a.Outcome = runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED
		a.Code, a.Message, a.Findings = v.code, v.message, v.findings
		return a
	}
	a.Revision = max(event.GetRevision(), a.GetRevision())
	a.Outcome = runv1.AnswerOutcome_ANSWER_OUTCOME_ACCEPTED
	switch b := event.GetBody().(type) {
	case *runv1.Event_ReportRefused:
		a.Outcome = runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED
		a.Code, a.Message, a.Findings = b.ReportRefused.GetCode(), b.ReportRefused.GetMessage(), b.ReportRefused.GetFindings()
	case *runv1.Event_PlanRejected:
		a.Outcome = runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED
		a.Code, a.Message, a.Findings = codePlanRejected, "the plan was refused", b.PlanRejected.GetFindings()
	case *runv1.Event_PatchRejected:
		a.Outcome = runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED
		a.Code, a.Message, a.Findings = codePatchRejected, "the patch was refused", b.PatchRejected.GetFindings()
	}
	return a
}
