package main

import (
	"time"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// endRun objects to an end without its reason.
func (m *model) endRun(e *runv1.Event) {
	m.ended = true
	var unfinished, lost []string
	finish := false
	for _, p := range m.plan.GetSteps() {
		s := m.step(p.GetId())
		if !s.status.terminal() {
			unfinished = append(unfinished, s.id)
		}
		if s.lost {
			lost = append(lost, s.id)
		}
		finish = finish || p.GetAction().GetName() == "finish" && s.status == succeeded
	}
	switch b := e.GetBody().(type) {
	case *runv1.Event_RunCancelled:
		if !m.cancelled {
			m.breaks("cancel", "the run is cancelled by nobody")
		}
		if len(unfinished) > 0 {
			m.breaks("cancel", "the run ends and %v are still open", unfinished)
		}
	case *runv1.Event_RunCompleted:
		m.completed(b.RunCompleted, unfinished, lost, finish)
	case *runv1.Event_RunFailed:
		m.runFailed(e, lost)
	}
}

func (m *model) completed(b *runv1.RunCompleted, unfinished, lost []string, finish bool) {
	if m.cancelled {
		m.breaks("cancel", "a cancelled run completes")
	}
	if m.open > 0 {
		m.breaks("completion", "the run completes with %d actions under way", m.open)
	}
	if r := m.request; r != nil && r.hasMind && r.outcome == "declined" && sameJSON(r.answer.GetText(), b.GetAnswer().GetText()) {
		return
	}
	if len(lost) > 0 {
		m.breaks("completion", "the run completes although %v are lost", lost)
	}
	for _, id := range unfinished {
		if !finish || !m.byID[id].GetOptional() {
			m.breaks("completion", "the run completes and %s is %s", id, m.step(id).status)
		}
	}
	for _, c := range m.plan.GetAcceptance() {
		if c.GetExpression() == "false" {
			m.breaks("completion", "the run completes although its acceptance check fails")
		}
	}
	needed := map[string]bool{}
	for _, p := range m.plan.GetSteps() {
		for _, d := range p.GetDependsOn() {
			needed[d] = true
		}
		if s := m.step(p.GetId()); m.fatal(s) || m.toUndo(s) {
			m.breaks("completion", "the run completes although %s has failed", s.id)
		}
	}
	if finish || b.GetAnswerArtifact() != nil {
		return
	}
	var last []*modelStep
	for _, p := range m.plan.GetSteps() {
		if s := m.step(p.GetId()); !needed[p.GetId()] && s.status != failed {
			last = append(last, s)
		}
	}
	if len(last) == 1 && last[0].status == succeeded && !sameJSON(valueText(last[0].result), b.GetAnswer().GetText()) {
		m.breaks("completion", "the answer is %s and should be %s", b.GetAnswer().GetText(), valueText(last[0].result))
	}
}

func (m *model) runFailed(e *runv1.Event, lost []string) {
	because := false
	any := func(is func(*modelStep) bool) bool {
		for _, p := range m.plan.GetSteps() {
			if is(m.step(p.GetId())) {
				return true
			}
		}
		return false
	}
	rule, r := e.GetRule().GetName(), m.request
	switch rule {
	case "step_failed":
		because = any(m.fatal)
	case "compensated":
		because = any(m.toUndo) && m.open == 0
		for _, p := range m.plan.GetSteps() {
			if p.GetCompensate() != nil && p.GetForEach() == nil && m.step(p.GetId()).status == succeeded {
				if u := m.steps[p.GetId()+"[undo]"]; u == nil || !u.status.terminal() {
					m.breaks("compensation", "the run fails and %s is not undone", p.GetId())
				}
			}
		}
	case "max_duration":
		because = m.timeUp
	case "max_events":
		because = m.at > m.maxEvents && m.open == 0
	case "max_steps":
		because = int64(len(m.order)) >= m.maxSteps && m.open == 0
	case "planning_failed":
		because = r != nil && r.outcome == "given_up"
	case "planning_timeout":
		because = r != nil && r.outcome == "timed_out"
		if m.planTime >= 10*time.Minute {
			m.breaks("progress", "%s was never answered, and nobody who was asked takes so long", r.id)
		}
	case "plan_rejected":
		because = r != nil && r.outcome == "rejected" && r.attempt >= m.attempts
	case "patch_rejected":
		because = r != nil && r.outcome == "rejected" && r.attempt >= min(2, m.attempts)
	case "no_progress", "replan_oscillation":
		because = r != nil && r.outcome == "rejected"
	case "replan_declined":
		because = r != nil && r.outcome == "declined" && !r.hasMind
	case "replan_limit":
		because = m.asked >= m.replans
	case "finalize":
		because = len(lost) > 0 || len(m.plan.GetAcceptance()) > 0
	case "stuck", "mode", "resume", "initialize":
	default:
		because = true // a rule that is newer than the model
	}
	if !because {
		m.breaks("failure", "the run fails by the rule %s without its reason: %s", rule, run.Explain(e))
	}
	for _, a := range m.order {
		if a.state == owed && !a.idempotent {
			m.breaks("at_most_once", "the run fails and %s may still begin", a.id)
		}
	}
}
