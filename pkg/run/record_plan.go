package run

import (
	"slices"
	"strconv"

	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// openRequest finds the request that a proposal answers. The same answer to a closed request is a repeat.
func (d *data) openRequest(id, digest string, replan bool) (*runv1.PlanningRequest, verdict, bool) {
	r, _ := d.requestOf(id)
	switch {
	case r == nil || r.GetReplan() != replan:
		return nil, refuse(refusedUnknownRequest, "nothing was asked of the planner under "+cutAtRune(id, 64)), false
	case r.GetOpen():
		return r, verdict{}, true
	case r.GetReportDigest() == digest:
		return nil, repeat(), false
	}
	return nil, refuse(refusedRequestClosed, "the request "+id+" has its answer"), false
}

// environment is what a proposal is validated against: the tools that it came with.
func (d *data) environment(tools []*planv1.ToolDefinition) plan.Environment {
	env := plan.Environment{
		Tools:        map[string]*planv1.ToolDefinition{},
		AllowedTools: d.spec.GetAllowedTools(),
		Permissions:  d.spec.GetPermissions(),
		Input:        plan.RunInput(d.spec.GetInput()),
		Goal:         d.spec.GetGoal(),
	}
	for _, list := range [...][]*planv1.ToolDefinition{d.tools, tools} {
		for _, t := range list {
			if t != nil {
				env.Tools[t.GetName()] = t
			}
		}
	}
	return env
}

// usedTools are the definitions of the tools that a plan uses, by name.
func usedTools(p *planv1.Plan, env plan.Environment) []*planv1.ToolDefinition {
	var used []*planv1.ToolDefinition
	seen := map[string]bool{}
	for _, s := range p.GetSteps() {
		for _, a := range [...]*planv1.Action{s.GetAction(), s.GetCompensate()} {
			name := plan.ToolName(a)
			if t := env.Tools[name]; t != nil && !seen[name] {
				seen[name] = true
				used = append(used, t)
			}
		}
	}
	return toolsByName(nil, used)
}

// shortened cuts a refused text at a rune border.
func shortened(text string) string { return cutAtRune(text, MaxRejectedText) }

func (d *data) weighPlan(b *runv1.PlanProposed, digest string) verdict {
	r, v, open := d.openRequest(b.GetRequestId(), digest, false)
	if !open {
		return v
	}
	rejected := func(findings []*planv1.Finding) verdict {
		return accept(&runv1.Event{Body: &runv1.Event_PlanRejected{PlanRejected: &runv1.PlanRejected{
			RequestId: r.GetRequestId(), Findings: findings, Text: shortened(b.GetText()), Planner: b.GetPlanner()}}})
	}
	if plan.HasErrors(b.GetFindings()) {
		return rejected(b.GetFindings())
	}
	if b.GetPlan() == nil {
		return rejected(append(b.GetFindings()[:len(b.GetFindings()):len(b.GetFindings())], errorFinding(findingUnparseable, "the proposal holds no plan")))
	}
	env := d.environment(b.GetTools())
	normal, findings := plan.Validate(b.GetPlan(), env)
	all := mergeFindings(b.GetFindings(), findings)
	if plan.HasErrors(findings) || normal == nil {
		return rejected(all)
	}
	accepted := &planv1.Plan{
		Id: "p1", Version: 1, Goal: normal.GetGoal(), Assumptions: normal.GetAssumptions(), Constraints: normal.GetConstraints(),
		Acceptance: normal.GetAcceptance(), Steps: normal.GetSteps(), CreatedBy: normal.GetCreatedBy(),
	}
	if accepted.GetGoal() == "" {
		accepted.Goal = d.spec.GetGoal()
	}
	if accepted.GetCreatedBy() == planv1.CreatedBy_CREATED_BY_UNSPECIFIED {
		accepted.CreatedBy = planv1.CreatedBy_CREATED_BY_PLANNER
		if d.spec.GetPlan() != nil {
			accepted.CreatedBy = planv1.CreatedBy_CREATED_BY_HUMAN
		}
	}
	return accept(&runv1.Event{Body: &runv1.Event_PlanCreated{PlanCreated: &runv1.PlanCreated{
		RequestId: r.GetRequestId(), Plan: accepted, Tools: usedTools(accepted, env), PlanDigest: plan.Digest(accepted),
		Findings: all, Planner: b.GetPlanner()}}})
}

func errorFinding(code, message string) *planv1.Finding {
	return &planv1.Finding{Severity: planv1.Severity_SEVERITY_ERROR, Code: code, Message: message, Layer: "schema"}
}

// mergeFindings keeps what the proposer found and this judge did not, such as how a text was read.
func mergeFindings(theirs, ours []*planv1.Finding) []*planv1.Finding {
	all := append([]*planv1.Finding(nil), ours...)
	for _, f := range theirs {
		known := false
		for _, o := range ours {
			known = known || o.GetCode() == f.GetCode() && o.GetPointer() == f.GetPointer()
		}
		if !known {
			all = append(all, f)
		}
	}
	return all
}

// progress tells the validator how far a step has come.
func (d *data) progress(id string) plan.Progress {
	i, ok := d.layout.graph.Index(id)
	if !ok {
		return plan.Open
	}
	st := d.steps.at(i).st
	switch st.GetStatus() {
	case runv1.StepStatus_STEP_STATUS_PENDING, runv1.StepStatus_STEP_STATUS_REPLANNING:
		return plan.Open
	case runv1.StepStatus_STEP_STATUS_READY:
		if st.GetAttempts() == st.GetAttemptsBefore() && !st.GetApproved() {
			return plan.Open
		}
		return plan.UnderWay
	}
	if stepTerminal(st.GetStatus()) {
		return plan.Finished
	}
	return plan.UnderWay
}

// weighPatch judges a patch: by the replanner for a request, or by a person while the plan is executed. A refused one
// leaves the plan as it is.
func (d *data) weighPatch(b *runv1.PatchProposed, digest string) verdict {
	id := b.GetRequestId()
	if id != "" {
		if _, v, open := d.openRequest(id, digest, true); !open {
			return v
		}
	} else if d.sentBefore(digest) {
		return repeat()
	} else if len(d.patches) >= MaxPatches {
		return refuse(refusedTooMany, "persons have sent as many patches as a run takes").quietly()
	} else if d.plan == nil || d.status == runv1.RunStatus_RUN_STATUS_CANCELLING {
		return refuse(refusedNotNow, "the run has no plan to patch now")
	}
	rejected := func(findings []*planv1.Finding) verdict {
		return accept(&runv1.Event{Body: &runv1.Event_PatchRejected{PatchRejected: &runv1.PatchRejected{
			RequestId: id, Findings: findings, Text: shortened(b.GetText()), Planner: b.GetPlanner()}}})
	}
	if plan.HasErrors(b.GetFindings()) {
		return rejected(b.GetFindings())
	}
	if b.GetPatch() == nil {
		return rejected(append(b.GetFindings()[:len(b.GetFindings()):len(b.GetFindings())], errorFinding(findingUnparseable, "the proposal holds no patch")))
	}
	env := d.environment(b.GetTools())
	next, findings := plan.Apply(d.plan, b.GetPatch(), d.progress, env)
	all := slices.DeleteFunc(mergeFindings(b.GetFindings(), findings), func(f *planv1.Finding) bool {
		// Whether it is empty is judged below, by what it touches: the same step again is a second try.
		return f.GetCode() == findingEmptyPatch && f.GetSeverity() != planv1.Severity_SEVERITY_ERROR
	})
	if plan.HasErrors(findings) || next == nil {
		return rejected(all)
	}
	patch := d.normalPatch(b.GetPatch(), next)
	if emptyPatch(patch) {
		return rejected(append(all[:len(all):len(all)], errorFinding(findingEmptyPatch, "the patch changes nothing")))
	}
	by := b.GetCreatedBy()
	if by == planv1.CreatedBy_CREATED_BY_UNSPECIFIED {
		by = planv1.CreatedBy_CREATED_BY_HUMAN
		if id != "" {
			by = planv1.CreatedBy_CREATED_BY_REPLANNER
		}
	}
	patched := &runv1.PlanPatched{
		RequestId: id, Patch: patch, Version: next.GetVersion(), Tools: usedTools(next, env), PlanDigest: plan.Digest(next),
		Findings: all, Planner: b.GetPlanner(), CreatedBy: by,
	}
	if id != "" {
		if f := d.oscillates(patched); f != nil {
			return rejected(append(all[:len(all):len(all)], f))
		}
	}
	return accept(&runv1.Event{Body: &runv1.Event_PlanPatched{PlanPatched: patched}})
}

// normalPatch is the patch that makes the validated plan: its steps in normal form, and without steps that are named and
// not touched.
func (d *data) normalPatch(raw *planv1.Patch, next *planv1.Plan) *planv1.Patch {
	made := make(map[string]*planv1.Step, len(next.GetSteps()))
	for _, s := range next.GetSteps() {
		made[s.GetId()] = s
	}
	p := &planv1.Patch{BaseVersion: raw.GetBaseVersion(), Remove: raw.GetRemove(), Reason: raw.GetReason()}
	if raw.GetGoal() != d.plan.GetGoal() {
		p.Goal = raw.GetGoal()
	}
	if raw.GetSetAssumptions() || len(raw.GetAssumptions()) > 0 {
		p.SetAssumptions, p.Assumptions = true, next.GetAssumptions()
	}
	for _, s := range raw.GetUpdate() {
		if n := made[s.GetId()]; n != nil && d.progress(s.GetId()) == plan.Open {
			p.Update = append(p.Update, n)
		}
	}
	for _, s := range raw.GetAdd() {
		if _, exists := d.layout.graph.Index(s.GetId()); !exists && made[s.GetId()] != nil {
			p.Add = append(p.Add, made[s.GetId()])
		}
	}
	return p
}

// sentBefore says whether a person has sent exactly this patch.
func (d *data) sentBefore(digest string) bool {
	return slices.ContainsFunc(d.patches, func(r *runv1.RefusedReport) bool { return r.GetDigest() == digest })
}

func emptyPatch(p *planv1.Patch) bool {
	return len(p.GetAdd()) == 0 && len(p.GetUpdate()) == 0 && len(p.GetRemove()) == 0 && !p.GetSetAssumptions() && p.GetGoal() == ""
}

// oscillates says whether a patch comes back to a strategy that failed before with nothing learnt since. The very same
// strategy may be repeated once, as a deliberate second try; going back to an earlier one may not.
func (d *data) oscillates(b *runv1.PlanPatched) *planv1.Finding {
	c := *d
	c.revision++
	c.applyPatched(&runv1.Event{Revision: c.revision}, b)
	n := len(c.fingerprints)
	if n < 2 {
		return nil
	}
	after := c.fingerprints[n-1].GetDigest()
	seen, last := 0, int32(0)
	for _, f := range c.fingerprints[:n-1] {
		if f.GetDigest() == after {
			seen++
			last = f.GetVersion()
		}
	}
	again := c.fingerprints[n-2].GetDigest() == after
	if seen == 0 || again && seen == 1 {
		return nil
	}
	f := errorFinding(findingOscillation, "the patch comes back to what version "+strconv.Itoa(int(last))+" did, and nothing has been learnt since")
	f.Layer = "semantics"
	f.Hint = "try something else, or answer instead"
	f.Values = values().int("version", int64(last)).int("seen", int64(seen)).json()
	return f
}

func (d *data) weighGivenUp(b *runv1.PlanningGivenUp, digest string) verdict {
	r, _ := d.requestOf(b.GetRequestId())
	if _, v, open := d.openRequest(b.GetRequestId(), digest, r.GetReplan()); !open {
		return v
	}
	return accept(&runv1.Event{Body: &runv1.Event_PlanningFailed{PlanningFailed: &runv1.PlanningFailed{
		RequestId: b.GetRequestId(), Error: b.GetError(), Planner: b.GetPlanner()}}})
}

func (d *data) weighReplanAnswer(b *runv1.ReplanAnswered, digest string) verdict {
	if _, v, open := d.openRequest(b.GetRequestId(), digest, true); !open {
		return v
	}
	if b.GetAnswer() != nil {
		if _, err := plan.ParseValue(b.GetAnswer().GetText()); err != nil {
			return refuse(refusedInvalidAnswer, "the answer is not valid JSON")
		}
	}
	return accept(&runv1.Event{Body: &runv1.Event_ReplanDeclined{ReplanDeclined: &runv1.ReplanDeclined{
		RequestId: b.GetRequestId(), Reason: b.GetReason(), Answer: b.GetAnswer(), Planner: b.GetPlanner()}}})
}
