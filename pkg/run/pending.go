package run

import (
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Pending lists the work that the run owes: what its owner publishes again after a take-over. Revocations are owed after
// the run's end too.
func Pending(s State) []*runv1.Work {
	d := s.data()
	var all []*runv1.Work
	if d.revision == 0 || d.status == runv1.RunStatus_RUN_STATUS_QUARANTINED {
		return nil
	}
	if !d.terminal() {
		if open := d.openPlanning(); open != nil {
			all = append(all, d.planWork(open.st))
		}
	}
	d.actions.each(isOpen, func(_ int, a *actionElem) bool {
		if w := d.actionWork(a.st); w != nil {
			all = append(all, w)
		}
		return true
	})
	return all
}

// WorkFor is the work that an event owes, s being the state with it and perhaps with what followed; nil where it owes
// none, or none any more.
func WorkFor(s State, e *runv1.Event) *runv1.Work {
	d := s.data()
	switch b := e.GetBody().(type) {
	case *runv1.Event_PlanRequested:
		return d.openPlanWork(b.PlanRequested.GetRequestId())
	case *runv1.Event_ReplanRequested:
		return d.openPlanWork(b.ReplanRequested.GetRequestId())
	case *runv1.Event_ActionRequested:
		if a, _ := d.action(b.ActionRequested.GetActionId()); a != nil && a.st.GetStatus() == runv1.ActionStatus_ACTION_STATUS_REQUESTED {
			return d.actionWork(a.st)
		}
	case *runv1.Event_ActionRevocationRequested:
		if a, _ := d.action(b.ActionRevocationRequested.GetActionId()); a != nil && a.st.GetStatus() == runv1.ActionStatus_ACTION_STATUS_REVOKING {
			return d.actionWork(a.st)
		}
	}
	return nil
}

func (d *data) openPlanWork(id string) *runv1.Work {
	r, _ := d.requestOf(id)
	if r == nil || !r.GetOpen() || d.terminal() {
		return nil
	}
	return d.planWork(r)
}

func (d *data) work(revision int64) *runv1.Work {
	return &runv1.Work{RunId: d.runID, Tenant: d.tenant, Trace: d.trace, Revision: revision}
}

// planWork holds all that the planner needs.
func (d *data) planWork(r *runv1.PlanningRequest) *runv1.Work {
	w := d.work(r.GetRevision())
	w.ValidUntil = r.GetDue()
	if d.deadline != nil && (w.ValidUntil == nil || timeOf(d.deadline).Before(timeOf(w.GetValidUntil()))) {
		w.ValidUntil = d.deadline
	}
	if !r.GetReplan() {
		w.Body = &runv1.Work_Plan{Plan: &runv1.PlanWork{
			RequestId: r.GetRequestId(), Attempt: r.GetAttempt(), Spec: d.spec, Findings: r.GetFindings(), RejectedText: r.GetRejectedText()}}
		return w
	}
	states := make([]*runv1.StepState, 0, len(d.plan.GetSteps()))
	for i := range d.plan.GetSteps() {
		states = append(states, d.steps.at(i).st)
	}
	w.Body = &runv1.Work_Replan{Replan: &runv1.ReplanWork{
		RequestId: r.GetRequestId(), Attempt: r.GetAttempt(), Spec: d.spec, Plan: d.plan, Steps: states, Scope: r.GetScope(),
		StepId: r.GetStepId(), Error: r.GetError(), FalsifiedAssumptions: r.GetFalsifiedAssumptions(), Findings: r.GetFindings(),
		RejectedText: r.GetRejectedText(), Tools: d.tools}}
	return w
}

// actionWork is a call or a revocation; nil for an action that is neither owed nor revoked.
func (d *data) actionWork(a *runv1.ActionState) *runv1.Work {
	if a.GetStatus() == runv1.ActionStatus_ACTION_STATUS_REVOKING {
		if a.GetStarted() {
			return nil
		}
		w := d.work(a.GetRequestedRevision())
		w.Body = &runv1.Work_Revoke{Revoke: &runv1.RevokeWork{ActionId: a.GetActionId(), StepId: a.GetStepId(), Tool: a.GetTool(), Idempotent: a.GetIdempotent()}}
		return w
	}
	if d.terminal() || d.status == runv1.RunStatus_RUN_STATUS_CANCELLING {
		return nil
	}
	w := d.work(a.GetRequestedRevision())
	w.ValidUntil = a.GetNotAfter()
	call := &runv1.CallWork{
		ActionId: a.GetActionId(), StepId: a.GetStepId(), Attempt: a.GetAttempt(), Tool: a.GetTool(), ToolVersion: a.GetToolVersion(),
		Arguments: a.GetArguments(), IdempotencyKey: a.GetIdempotencyKey(), NotAfter: a.GetNotAfter(),
		Timeout: between(a.GetRequestedAt(), a.GetNotAfter()), Artifacts: a.GetArtifacts(), Idempotent: a.GetIdempotent(),
		MaxInlineBytes: d.inlineLimit(), Permissions: d.spec.GetPermissions(),
	}
	if p := d.find(a.GetStepId()); p.kind == placeStep || p.kind == placeItem {
		step := d.stepAt(p)
		call.Result, call.Expect, call.Produces = step.GetResult(), step.GetExpect(), step.GetProduces()
	}
	w.Body = &runv1.Work_Call{Call: call}
	return w
}

func between(from, to *timestamppb.Timestamp) *durationpb.Duration {
	return durationpb.New(timeOf(to).Sub(timeOf(from)))
}
