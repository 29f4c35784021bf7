package main

import (
	"github.com/cairnrun/cairn/pkg/run"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// planning takes the events of plans and patches.
func (m *model) planning(e *runv1.Event) {
	switch b := e.GetBody().(type) {
	case *runv1.Event_PlanRequested:
		r := b.PlanRequested
		m.ask(e, &modelRequest{id: r.GetRequestId(), attempt: r.GetAttempt()})
		if m.plan != nil {
			m.breaks("planning", "a plan is asked for, and there is one")
		}
		if r.GetAttempt() > m.attempts {
			m.breaks("budgets", "plan attempt %d of %d", r.GetAttempt(), m.attempts)
		}
	case *runv1.Event_ReplanRequested:
		m.replanRequested(e, b.ReplanRequested)
	case *runv1.Event_PlanCreated:
		if m.answered(b.PlanCreated.GetRequestId(), false, "accepted") {
			m.created(b.PlanCreated.GetPlan())
		}
	case *runv1.Event_PlanRejected:
		m.answered(b.PlanRejected.GetRequestId(), false, "rejected")
	case *runv1.Event_PlanningFailed:
		if r := m.requests[b.PlanningFailed.GetRequestId()]; r != nil {
			m.answered(r.id, r.replan, "given_up")
		} else {
			m.breaks("planning", "%s was never asked", b.PlanningFailed.GetRequestId())
		}
	case *runv1.Event_ReplanDeclined:
		if m.answered(b.ReplanDeclined.GetRequestId(), true, "declined") {
			m.request.answer, m.request.hasMind = b.ReplanDeclined.GetAnswer(), b.ReplanDeclined.GetAnswer() != nil
		}
	case *runv1.Event_PatchRejected:
		if id := b.PatchRejected.GetRequestId(); id != "" && m.answered(id, true, "rejected") {
			for _, f := range b.PatchRejected.GetFindings() {
				m.request.findings = append(m.request.findings, f.GetCode())
			}
		}
	case *runv1.Event_PlanPatched:
		m.patched(b.PlanPatched)
	case *runv1.Event_LimitWarned:
		if l := b.LimitWarned; l.GetValue()*100 < l.GetMaximum()*80 {
			m.breaks("budgets", "%s is warned of at %d of %d", l.GetLimit(), l.GetValue(), l.GetMaximum())
		}
	default:
		m.breaks("log", "an event that the model does not know: %s", run.EventType(e))
	}
}

// ask notes a request for a plan or a patch.
func (m *model) ask(e *runv1.Event, r *modelRequest) {
	if m.request != nil && m.request.open {
		m.breaks("planning", "%s is asked while %s is open", r.id, m.request.id)
	}
	if m.requests[r.id] != nil {
		m.breaks("planning", "%s is asked twice", r.id)
	}
	if m.cancelled {
		m.breaks("planning", "%s is asked of a cancelled run", r.id)
	}
	r.open, r.due = true, e.GetTime().AsTime().Add(m.planTime)
	m.requests[r.id], m.request = r, r
}

func (m *model) replanRequested(e *runv1.Event, r *runv1.ReplanRequested) {
	m.ask(e, &modelRequest{id: r.GetRequestId(), replan: true, attempt: r.GetAttempt(), scope: r.GetScope(), step: r.GetStepId()})
	if m.asked++; m.asked > m.replans {
		m.breaks("budgets", "replan %d of %d", m.asked, m.replans)
	}
	if r.GetAttempt() > min(2, m.attempts) {
		m.breaks("budgets", "a patch is asked for the %d. time", r.GetAttempt())
	}
	m.w.stats.replans++
	if r.GetBaseVersion() != m.plan.GetVersion() {
		m.breaks("patch", "a patch of version %d is asked for, and %d is there", r.GetBaseVersion(), m.plan.GetVersion())
	}
	if id := r.GetStepId(); id != "" && m.step(id).status != replanning {
		m.breaks("planning", "a patch is asked for because of %s, which is %s", id, m.step(id).status)
	}
}

// answered closes a request.
func (m *model) answered(id string, replan bool, outcome string) bool {
	r := m.requests[id]
	if r == nil || r.replan != replan || !r.open {
		m.breaks("planning", "an answer to %s, which is not open", id)
		return false
	}
	r.open, r.outcome = false, outcome
	return true
}

func (m *model) created(p *planv1.Plan) {
	if m.plan != nil {
		m.breaks("no_decision_twice", "a second plan")
	}
	m.setPlan(p)
	for _, s := range p.GetSteps() {
		m.steps[s.GetId()] = &modelStep{id: s.GetId()}
	}
	// A plan is a plan only if it can be walked from its beginning to its end.
	done := map[string]bool{}
	for moved := true; moved; {
		moved = false
		for _, s := range p.GetSteps() {
			ok := !done[s.GetId()]
			for _, d := range s.GetDependsOn() {
				ok = ok && done[d]
			}
			if ok {
				done[s.GetId()], moved = true, true
			}
		}
	}
	if len(done) != len(p.GetSteps()) {
		m.breaks("planning", "the plan has %d steps, of which %d can be reached", len(p.GetSteps()), len(done))
	}
	for _, s := range p.GetSteps() {
		if a := s.GetAction(); a.GetKind() == planv1.ActionKind_ACTION_KIND_TOOL && m.w.tools.defs[a.GetName()] == nil {
			m.breaks("planning", "the plan uses the tool %s, which is not there", a.GetName())
		}
	}
}

func (m *model) setPlan(p *planv1.Plan) {
	m.plan, m.byID = p, map[string]*planv1.Step{}
	for _, s := range p.GetSteps() {
		m.byID[s.GetId()] = s
	}
}

// patched makes the next version: updates in place, without what is removed, and what is added at its end.
func (m *model) patched(b *runv1.PlanPatched) {
	p := b.GetPatch()
	asked := ""
	if id := b.GetRequestId(); id != "" {
		if !m.answered(id, true, "accepted") {
			return
		}
		asked = m.requests[id].step
	}
	if m.cancelled {
		m.breaks("patch", "a cancelled run is patched")
	}
	if m.plan == nil || p.GetBaseVersion() != m.plan.GetVersion() || b.GetVersion() != m.plan.GetVersion()+1 {
		m.breaks("patch", "a patch of version %d makes %d, and %d is there", p.GetBaseVersion(), b.GetVersion(), m.plan.GetVersion())
		return
	}
	update, gone := map[string]*planv1.Step{}, map[string]bool{}
	for _, s := range p.GetUpdate() {
		update[s.GetId()] = s
		m.untouched(s.GetId(), "updates")
		m.reset(m.step(s.GetId()))
	}
	for _, id := range p.GetRemove() {
		gone[id] = true
		m.untouched(id, "removes")
		st := m.step(id)
		st.status, st.due = removed, st.due.Truncate(0)
	}
	next := &planv1.Plan{Version: b.GetVersion(), Acceptance: m.plan.GetAcceptance()}
	for _, s := range m.plan.GetSteps() {
		if gone[s.GetId()] {
			continue
		}
		if u := update[s.GetId()]; u != nil {
			s = u
		}
		next.Steps = append(next.Steps, s)
	}
	for _, s := range p.GetAdd() {
		if m.byID[s.GetId()] != nil {
			m.breaks("patch", "it adds %s, which is there", s.GetId())
		}
		if st := m.steps[s.GetId()]; st != nil {
			m.reset(st)
		} else {
			m.steps[s.GetId()] = &modelStep{id: s.GetId()}
		}
		next.Steps = append(next.Steps, s)
	}
	if asked != "" && update[asked] == nil && !gone[asked] {
		if st := m.step(asked); st.status == replanning {
			st.status, st.ended = failed, m.at
		}
	}
	m.setPlan(next)
}

// untouched: only what has not begun may be changed.
func (m *model) untouched(id, how string) {
	s := m.steps[id]
	if s == nil || m.byID[id] == nil {
		m.breaks("patch", "it %s %s, which is not there", how, id)
		return
	}
	fresh := s.status == ready && s.attempts == s.before && !s.approved
	if s.status != pending && s.status != replanning && !fresh {
		m.breaks("patch", "it %s %s, which is %s", how, id, s.status)
	}
}

// reset makes a step as new. A known outcome before makes the next one another effect.
func (m *model) reset(s *modelStep) {
	if s.newest != nil && s.newest.settled() {
		s.gen++
	}
	s.status, s.before = pending, s.attempts
	s.policy, s.excused, s.lost, s.result, s.expanded, s.fired, s.wait, s.input, s.approved = 0, false, false, nil, false, false, false, nil, false
}
