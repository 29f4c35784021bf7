package main

import (
	"math"
	"time"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// mayBegin objects to a step that begins too early, too late, or although it must not.
func (m *model) mayBegin(id string) bool {
	s := m.step(id)
	if isUndo(id) {
		return true
	}
	p := m.byID[base(id)]
	if p == nil {
		m.breaks("dependencies", "%s begins and is not in the plan", id)
		return false
	}
	if s.status != pending && s.status != ready {
		m.breaks("no_decision_twice", "%s begins and is %s", id, s.status)
		return false
	}
	if m.cancelled {
		m.breaks("cancel", "%s begins in a cancelled run", id)
	}
	if m.at > m.maxEvents {
		m.breaks("budgets", "%s begins at revision %d of %d", id, m.at, m.maxEvents)
	}
	if r := m.request; r != nil && r.open && r.replan && r.scope == runv1.ReplanScope_REPLAN_SCOPE_REMAINING {
		m.breaks("replan_holds", "%s begins while %s is open", id, r.id)
	}
	for _, f := range m.plan.GetSteps() {
		if st := m.steps[f.GetId()]; m.fatal(st) || m.toUndo(st) {
			m.breaks("fail_fast", "%s begins after %s has failed the run", id, f.GetId())
		}
	}
	if isItem(id) {
		if up := m.step(base(id)); up.status != running || !up.expanded {
			m.breaks("dependencies", "the item %s begins and its step is %s", id, up.status)
		}
		return true
	}
	for _, d := range p.GetDependsOn() {
		switch st := m.steps[d]; {
		case st == nil || !st.status.terminal():
			m.breaks("dependencies", "%s begins before %s has ended", id, d)
		case st.status == failed && !st.excused, st.lost:
			m.breaks("dependencies", "%s begins although %s is lost", id, d)
		}
	}
	if truth, known := conditions[p.GetWhen()]; known && !truth {
		m.breaks("conditions", "%s begins although its condition is false", id)
	}
	return true
}

func (m *model) fatal(s *modelStep) bool {
	return s != nil && s.status == failed && !s.excused && s.policy == planv1.FailurePolicy_FAILURE_POLICY_FAIL
}

func (m *model) toUndo(s *modelStep) bool {
	return s != nil && s.status == failed && !s.excused && s.policy == planv1.FailurePolicy_FAILURE_POLICY_COMPENSATE
}

// active objects to what happens to a step that has ended.
func (m *model) active(id, what string) *modelStep {
	s := m.step(id)
	if s.status.terminal() {
		m.breaks("no_decision_twice", "%s %s and is %s", id, what, s.status)
	}
	return s
}

func (m *model) started(e *runv1.Event, b *runv1.StepStarted) {
	if !m.mayBegin(b.GetStepId()) {
		return
	}
	s := m.step(b.GetStepId())
	if b.GetWaitsForSlot() {
		s.status = ready
		return
	}
	s.status, s.wait, s.due, s.fired = waiting, true, b.GetDue().AsTime(), false
	s.attempts++
	if !b.GetAbsolute() && !b.GetDue().AsTime().After(e.GetTime().AsTime()) {
		m.breaks("timers", "%s waits until a time that has passed", s.id)
	}
}

func (m *model) expanded(b *runv1.StepExpanded) {
	if !m.mayBegin(b.GetStepId()) {
		return
	}
	s := m.step(b.GetStepId())
	if want := m.resolve(m.byID[s.id].GetForEach().GetText(), s.id); !sameJSON(want, listText(b.GetItems())) {
		m.breaks("for_each", "%s expands to %s and should to %s", s.id, listText(b.GetItems()), want)
	}
	for i := range max(len(s.items), len(b.GetItems())) {
		item := m.steps[itemName(s.id, i)]
		if item == nil {
			continue
		}
		kept := item.status == succeeded && i < len(s.items) && i < len(b.GetItems()) && s.items[i].GetText() == b.GetItems()[i].GetText()
		if !kept {
			m.reset(item)
		}
		if i >= len(b.GetItems()) {
			item.status = removed
		}
	}
	s.status, s.expanded, s.items = running, true, b.GetItems()
}

// succeeded objects to a success without its reason.
func (m *model) succeeded(b *runv1.StepSucceeded) {
	id := b.GetStepId()
	s := m.active(id, "succeeds")
	p := m.byID[base(id)]
	s.result = b.GetResult()
	action := p.GetAction()
	if isUndo(id) {
		action = p.GetCompensate()
	}
	switch {
	case s.expanded:
		m.succeededItems(s, b)
	case action.GetKind() == planv1.ActionKind_ACTION_KIND_TOOL:
		a := s.newest
		if s.status != running || a == nil || a.state != done || a.judged || a.seen == nil {
			m.breaks("results", "%s succeeds without a result", id)
			return
		}
		a.judged = true
		if s.result == nil {
			s.result = a.seen.GetOutput()
		}
		if b.GetPartial() != (a.seen.GetOutcome() == runv1.Outcome_OUTCOME_PARTIAL) {
			m.breaks("results", "%s is partial: %v, and came back %s", id, b.GetPartial(), a.seen.GetOutcome())
		}
		if !isUndo(id) && !m.cancelled && !m.passes(p, a.seen) {
			m.breaks("results", "%s succeeds although its check fails", id)
		}
		if isUndo(id) {
			m.w.stats.undone++
		}
	case action.GetName() == "wait":
		if s.status != waiting || !s.fired {
			m.breaks("timers", "%s ends its wait before its time", id)
		}
	case action.GetName() == "user.ask":
		if s.status != asking || s.input == nil || s.input.open || s.input.timedOut || !sameJSON(s.input.answer, b.GetResult().GetInline().GetText()) {
			m.breaks("people", "%s succeeds without its answer", id)
		}
	default:
		if m.mayBegin(id) {
			m.succeededControl(s, p, b)
		}
	}
	s.status, s.ended, s.due = succeeded, m.at, time.Time{}
}

func (m *model) succeededControl(s *modelStep, p *planv1.Step, b *runv1.StepSucceeded) {
	want := ""
	switch p.GetAction().GetName() {
	case "join":
		var all []*runv1.Value
		for _, d := range p.GetDependsOn() {
			all = append(all, m.step(d).result)
		}
		want = valuesText(all)
	case "finish":
		want = m.resolve(p.GetAction().GetArguments().GetText(), s.id)
	}
	if b.GetResult().GetInline() != nil && want != unresolvable && !sameJSON(want, b.GetResult().GetInline().GetText()) {
		m.breaks("results", "%s makes %s and should make %s", s.id, b.GetResult().GetInline().GetText(), want)
	}
}

func (m *model) succeededItems(s *modelStep, b *runv1.StepSucceeded) {
	var all []*runv1.Value
	for i := range s.items {
		item := m.steps[itemName(s.id, i)]
		if item == nil || item.status != succeeded && item.status != skipped {
			m.breaks("for_each", "%s succeeds before its item %d", s.id, i)
			return
		}
		all = append(all, item.result)
	}
	if want := valuesText(all); !sameJSON(want, b.GetResult().GetInline().GetText()) {
		m.breaks("for_each", "%s makes %s and should make %s", s.id, b.GetResult().GetInline().GetText(), want)
	}
}

// passes evaluates the one check that the simulator writes.
func (m *model) passes(p *planv1.Step, o *runv1.Observation) bool {
	if len(p.GetExpect().GetChecks()) == 0 {
		return true
	}
	if o.GetOutput().GetArtifact() != nil {
		for _, v := range o.GetVerdicts() {
			if v.GetIndex() == 0 {
				return v.GetPassed()
			}
		}
		return false
	}
	return field(o.GetOutput().GetInline().GetText(), "n") != "5"
}

func (m *model) failed(e *runv1.Event, b *runv1.StepFailed) {
	id := b.GetStepId()
	s := m.active(id, "fails")
	p := m.byID[base(id)]
	if !isUndo(id) && b.GetOptional() != p.GetOptional() {
		m.breaks("optional", "%s fails as optional: %v, and is: %v", id, b.GetOptional(), p.GetOptional())
	}
	if m.cancelled {
		m.breaks("cancel", "%s fails in a cancelled run", id)
	}
	code := b.GetError().GetCode()
	rule := e.GetRule().GetName()
	if s.newest != nil && s.newest.open() {
		m.breaks("results", "%s fails while its action is under way", id)
	}
	if (rule == "failure" || rule == "expect") && m.retryLeft(s, p, code, b.GetError()) {
		m.breaks("retries", "%s fails with %s after %d attempts, and may be tried %d times", id, code, s.attempts-s.before, p.GetRetry().GetMaxAttempts())
	}
	if rule == "unknown_outcome" && s.newest.state != unknown {
		m.breaks("results", "%s is said to have an unknown outcome", id)
	}
	if rule == "failure" && s.newest != nil && s.newest.state == done && code != "timeout" {
		m.breaks("results", "%s fails although its action succeeded", id)
	}
	if s.newest != nil {
		s.newest.judged = true
	}
	s.policy, s.excused, s.ended, s.due = b.GetPolicy(), b.GetOptional(), m.at, time.Time{}
	s.input, s.fired, s.code = nil, false, code
	s.status = failed
	if b.GetOptional() || isUndo(id) {
		return
	}
	if want := p.GetOnFailure(); rule != "user_decision" && rule != "item_failed" && code != "unknown_outcome" &&
		want != planv1.FailurePolicy_FAILURE_POLICY_UNSPECIFIED && want != b.GetPolicy() {
		m.breaks("policies", "%s fails with the policy %s and asks for %s", id, b.GetPolicy(), want)
	}
	if code == "unknown_outcome" && (b.GetPolicy() == planv1.FailurePolicy_FAILURE_POLICY_REPLAN_STEP || b.GetPolicy() == planv1.FailurePolicy_FAILURE_POLICY_REPLAN_REMAINING) {
		m.breaks("at_most_once", "%s may have had its effect and is replanned", id)
	}
	switch b.GetPolicy() {
	case planv1.FailurePolicy_FAILURE_POLICY_REPLAN_STEP, planv1.FailurePolicy_FAILURE_POLICY_REPLAN_REMAINING:
		if !isItem(id) {
			s.status = replanning
		}
	case planv1.FailurePolicy_FAILURE_POLICY_ASK_USER:
		s.status = asking
	}
}

// retryLeft says whether another attempt is due after an error.
func (m *model) retryLeft(s *modelStep, p *planv1.Step, code string, err *runv1.Error) bool {
	r := p.GetRetry()
	if s.attempts-s.before >= r.GetMaxAttempts() || code == "unknown_outcome" {
		return false
	}
	if on := r.GetOn(); len(on) > 0 {
		for _, c := range on {
			if c == code {
				return true
			}
		}
		return false
	}
	if err.GetClass() == runv1.FaultClass_FAULT_CLASS_PLAN {
		return false
	}
	switch code {
	case "timeout", "rate_limited", "unavailable", "transport":
		return true
	}
	return err.GetRetryable()
}

func (m *model) skipped(b *runv1.StepSkipped) {
	id := b.GetStepId()
	s := m.active(id, "is skipped")
	p := m.byID[base(id)]
	ended, lost := true, false
	for _, d := range p.GetDependsOn() {
		st := m.step(d)
		ended = ended && st.status.terminal()
		lost = lost || st.lost || st.status == failed && !st.excused
	}
	switch b.GetReason() {
	case "condition_false":
		if truth, known := conditions[p.GetWhen()]; !ended || !known || truth || lost {
			m.breaks("skips", "%s is skipped for its condition %q", id, p.GetWhen())
		}
	case "dependency_failed":
		if !ended || !lost {
			m.breaks("skips", "%s is skipped for a lost dependency, and none is", id)
		}
		s.lost = !p.GetOptional()
	case "ref_unavailable":
		if !ended || lost {
			m.breaks("skips", "%s is skipped for a reference although its dependencies have not ended, or one is lost", id)
		}
	case "policy":
		if p.GetOnFailure() != planv1.FailurePolicy_FAILURE_POLICY_SKIP {
			m.breaks("skips", "%s is skipped by a policy that it does not have", id)
		}
	case "user":
		if s.input == nil || s.input.purpose != runv1.UserInputPurpose_USER_INPUT_PURPOSE_FAILURE || field(s.input.answer, "decision") != `"skip"` {
			m.breaks("skips", "%s is skipped by nobody", id)
		}
	}
	if s.newest != nil {
		s.newest.judged = true
	}
	s.status, s.ended, s.due = skipped, m.at, time.Time{}
}

func (m *model) retry(e *runv1.Event, b *runv1.StepRetryScheduled) {
	id := b.GetStepId()
	s := m.active(id, "is retried")
	p := m.byID[base(id)]
	if b.GetAttempt() != s.attempts+1 {
		m.breaks("retries", "%s: attempt %d is scheduled after %d", id, b.GetAttempt(), s.attempts)
	}
	if m.cancelled {
		m.breaks("cancel", "%s is retried in a cancelled run", id)
	}
	if s.newest != nil {
		s.newest.judged = true
	}
	if e.GetRule().GetName() == "user_decision" {
		if s.status != asking || s.input == nil || s.input.open || field(s.input.answer, "decision") != `"retry"` {
			m.breaks("people", "%s is tried again, and nobody wants it", id)
		}
		approved := s.approved
		if a := s.newest; a != nil && !a.settled() {
			m.w.tool.forced[effectKey(a.tool, a.key)] = true
		}
		m.reset(s)
		s.approved = approved
	} else {
		made := s.attempts - s.before
		if !m.retryLeft(s, p, b.GetError().GetCode(), b.GetError()) {
			m.breaks("retries", "%s is tried again after %s, %d attempts of %d made", id, b.GetError().GetCode(), made, p.GetRetry().GetMaxAttempts())
		}
		want := time.Duration(float64(p.GetRetry().GetDelay().AsDuration()) * math.Pow(2, float64(made-1)))
		if got := b.GetDue().AsTime().Sub(e.GetTime().AsTime()); b.GetDue() == nil && want > 0 || b.GetDue() != nil && got != want {
			m.breaks("retries", "%s waits %s before attempt %d and should wait %s", id, got, b.GetAttempt(), want)
		}
		if s.newest != nil && s.newest.state == done {
			s.gen++
		}
	}
	s.status, s.due, s.fired, s.wait = ready, time.Time{}, false, false
	if b.GetDue() != nil {
		s.status, s.due = waiting, b.GetDue().AsTime()
	}
}

func (m *model) stepCancelled(b *runv1.StepCancelled) {
	s := m.active(b.GetStepId(), "is cancelled")
	if !m.cancelled {
		m.breaks("cancel", "%s is cancelled, and the run is not", s.id)
	}
	if a := s.newest; a != nil && a.open() {
		m.open--
		a.state = givenUp
		if !a.idempotent {
			a.state = unknown
		}
	}
	s.status, s.ended, s.due = cancelledStep, m.at, time.Time{}
}

func (m *model) timer(e *runv1.Event, b *runv1.TimerFired) {
	due := b.GetDue().AsTime()
	if e.GetTime().AsTime().Before(due) {
		m.breaks("timers", "%s of %s%s fires %s before its time", b.GetTimer(), b.GetStepId(), b.GetActionId(), due.Sub(e.GetTime().AsTime()))
	}
	wrong := func(ok bool) {
		if !ok {
			m.breaks("timers", "%s of %s%s fires, and nothing waits for it", b.GetTimer(), b.GetStepId(), b.GetActionId())
		}
	}
	switch b.GetTimer() {
	case runv1.TimerKind_TIMER_KIND_RETRY, runv1.TimerKind_TIMER_KIND_WAIT:
		s := m.step(b.GetStepId())
		wrong(s.status == waiting && !s.fired && s.due.Equal(due) && s.wait == (b.GetTimer() == runv1.TimerKind_TIMER_KIND_WAIT))
		if s.wait {
			s.fired = true
		} else {
			s.status = ready
		}
		s.due = time.Time{}
	case runv1.TimerKind_TIMER_KIND_ACTION_TIMEOUT:
		a := m.actions[b.GetActionId()]
		if a == nil || a.state != owed || due.Before(a.notAfter) {
			wrong(false)
			return
		}
		m.open--
		a.state = timedOut
	case runv1.TimerKind_TIMER_KIND_ACTION_GRACE:
		a := m.actions[b.GetActionId()]
		if a == nil || a.state != revoking || due.Before(a.notAfter) {
			wrong(false)
			return
		}
		m.open--
		a.state = unknown
		m.w.stats.unknown++
	case runv1.TimerKind_TIMER_KIND_USER_INPUT:
		in := m.step(b.GetStepId()).input
		if in == nil || !in.open || !in.due.Equal(due) {
			wrong(false)
			return
		}
		in.open, in.timedOut = false, true
	case runv1.TimerKind_TIMER_KIND_RUN_DEADLINE:
		wrong(m.deadline != nil && m.deadline.Equal(due) && !m.timeUp)
		m.timeUp = true
	case runv1.TimerKind_TIMER_KIND_CANCEL_GRACE:
		wrong(m.cancelled)
	case runv1.TimerKind_TIMER_KIND_PLANNING:
		wrong(m.request != nil && m.request.open && m.request.due.Equal(due))
		m.closeRequest("timed_out")
	default:
		wrong(false)
	}
}

func (m *model) inputRequested(b *runv1.UserInputRequested) {
	id := b.GetStepId()
	if m.inputs[b.GetRequestId()] != nil {
		m.breaks("people", "%s is asked twice", b.GetRequestId())
	}
	s := m.step(id)
	if b.GetPurpose() == runv1.UserInputPurpose_USER_INPUT_PURPOSE_FAILURE {
		if s.status != asking || s.input != nil {
			m.breaks("people", "it is asked what becomes of %s, which is %s", id, s.status)
		}
	} else {
		m.mayBegin(id)
	}
	if b.GetPurpose() == runv1.UserInputPurpose_USER_INPUT_PURPOSE_QUESTION {
		s.attempts++
	}
	in := &modelInput{id: b.GetRequestId(), step: id, purpose: b.GetPurpose(), open: true, due: b.GetDue().AsTime()}
	m.inputs[in.id], s.input, s.status = in, in, asking
}

// inputWithdrawn: nobody needs to say any more what became of an action.
func (m *model) inputWithdrawn(b *runv1.UserInputWithdrawn) {
	in, s := m.inputs[b.GetRequestId()], m.step(b.GetStepId())
	if in == nil || !in.open || s.input != in || s.code != "unknown_outcome" || s.newest == nil || !s.newest.settled() {
		m.breaks("people", "%s is withdrawn without a reason", b.GetRequestId())
		return
	}
	in.open, in.gone = false, true
	s.status, s.input, s.policy = running, nil, 0
}

func (m *model) inputReceived(b *runv1.UserInputReceived) {
	in := m.inputs[b.GetRequestId()]
	if in == nil || !in.open {
		m.breaks("people", "an answer to %s, which is not open", b.GetRequestId())
		return
	}
	in.open, in.answer = false, b.GetAnswer().GetText()
	s := m.step(in.step)
	switch in.purpose {
	case runv1.UserInputPurpose_USER_INPUT_PURPOSE_APPROVAL:
		v := field(in.answer, "approved")
		if v != "true" && v != "false" {
			m.breaks("people", "%s is taken for an approval", in.answer)
		}
		if v == "true" {
			s.approved, s.status, s.input = true, ready, nil
		}
	case runv1.UserInputPurpose_USER_INPUT_PURPOSE_FAILURE:
		switch field(in.answer, "decision") {
		case `"retry"`, `"skip"`, `"fail"`:
		default:
			m.breaks("people", "%s is taken for a decision", in.answer)
		}
	}
}
