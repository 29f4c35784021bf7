package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// requested objects to an action that is not due.
func (m *model) requested(e *runv1.Event, b *runv1.ActionRequested) {
	id := b.GetStepId()
	if !m.mayBegin(id) {
		return
	}
	s, p := m.step(id), m.byID[base(id)]
	action := p.GetAction()
	if isUndo(id) {
		action = p.GetCompensate()
		m.undoes(strings.TrimSuffix(id, "[undo]"))
	} else {
		if m.open >= m.parallel {
			m.breaks("max_parallel", "%s is asked for with %d of %d under way", b.GetActionId(), m.open, m.parallel)
		}
		if int64(len(m.order)) >= m.maxSteps {
			m.breaks("budgets", "%s is action %d of %d", b.GetActionId(), len(m.order)+1, m.maxSteps)
		}
	}
	if b.GetAttempt() != s.attempts+1 || b.GetActionId() != actionName(id, b.GetAttempt()) {
		m.breaks("retries", "%s, attempt %d, after %d attempts of %s", b.GetActionId(), b.GetAttempt(), s.attempts, id)
	}
	if m.actions[b.GetActionId()] != nil {
		m.breaks("no_decision_twice", "%s is asked for twice", b.GetActionId())
	}
	if made := b.GetAttempt() - s.before; made > max(1, p.GetRetry().GetMaxAttempts()) {
		m.breaks("retries", "%s is attempt %d of %d", b.GetActionId(), made, p.GetRetry().GetMaxAttempts())
	}
	if before := s.newest; before != nil && (before.open() || !before.idempotent && !before.settled() && !m.w.tool.forced[effectKey(before.tool, before.key)]) {
		m.breaks("at_most_once", "%s is asked for, and it is not known how %s ended", b.GetActionId(), before.id)
	}
	if p.GetConfirm() && !isUndo(id) && !s.approved {
		m.breaks("people", "%s is asked for without approval", b.GetActionId())
	}
	m.sameCall(e, b, s, action)
	a := &modelAction{id: b.GetActionId(), step: id, key: b.GetIdempotencyKey(), tool: b.GetTool(), attempt: b.GetAttempt(), gen: s.gen,
		idempotent: b.GetIdempotent(), notAfter: b.GetNotAfter().AsTime()}
	m.actions[a.id] = a
	m.order = append(m.order, a)
	m.open++
	s.newest, s.attempts, s.status = a, b.GetAttempt(), running
}

// sameCall checks what is called with what.
func (m *model) sameCall(e *runv1.Event, b *runv1.ActionRequested, s *modelStep, action *planv1.Action) {
	def := m.w.tools.defs[action.GetName()]
	if b.GetTool() != action.GetName() || b.GetIdempotent() != def.GetIdempotent() {
		m.breaks("arguments", "%s calls %s, idempotent: %v, and should %s, %v", b.GetActionId(), b.GetTool(), b.GetIdempotent(), action.GetName(), def.GetIdempotent())
	}
	want := m.resolve(action.GetArguments().GetText(), s.id)
	if !sameJSON(want, b.GetArguments().GetText()) {
		m.breaks("arguments", "%s is called with %s and should be with %s", b.GetActionId(), b.GetArguments().GetText(), want)
	}
	timeout := def.GetTimeout().AsDuration()
	if t := action.GetTimeout().AsDuration(); t > 0 {
		timeout = t
	}
	if got := b.GetNotAfter().AsTime().Sub(e.GetTime().AsTime()); got != timeout {
		m.breaks("not_after", "%s has %s and should have %s", b.GetActionId(), got, timeout)
	}
	// The same effect has one key, and no two effects share one.
	effect := fmt.Sprintf("%s/%d/%s", s.id, s.gen, b.GetArguments().GetText())
	if was, ok := m.keys[b.GetIdempotencyKey()]; ok && was != effect {
		m.breaks("idempotency_key", "%s has the key of %s", effect, was)
	}
	if was, ok := m.keys[effect]; ok && was != b.GetIdempotencyKey() {
		m.breaks("idempotency_key", "%s gets another key for the same effect", b.GetActionId())
	}
	m.keys[b.GetIdempotencyKey()], m.keys[effect] = effect, b.GetIdempotencyKey()
}

// undoes checks that compensation undoes what is committed, the newest first, once nothing is under way.
func (m *model) undoes(id string) {
	if isUndoOpen := m.open > 0; isUndoOpen {
		m.breaks("compensation", "%s is undone with %d actions under way", id, m.open)
	}
	s := m.step(id)
	if s.status != succeeded {
		m.breaks("compensation", "%s is undone and is %s", id, s.status)
	}
	due := false
	for _, p := range m.plan.GetSteps() {
		due = due || m.toUndo(m.steps[p.GetId()])
		if p.GetCompensate() == nil || p.GetForEach() != nil {
			continue
		}
		other := m.step(p.GetId())
		if undo := m.steps[p.GetId()+"[undo]"]; other.status == succeeded && other.ended > s.ended && (undo == nil || !undo.status.terminal()) {
			m.breaks("compensation", "%s is undone before %s, which came after it", id, p.GetId())
		}
	}
	if !due {
		m.breaks("compensation", "%s is undone without a reason", id)
	}
}

func (m *model) revocation(b *runv1.ActionRevocationRequested) {
	a := m.actions[b.GetActionId()]
	if a == nil || a.idempotent || a.state != owed && a.state != timedOut {
		m.breaks("at_most_once", "%s is revoked, and need not be", b.GetActionId())
		return
	}
	if a.state == timedOut {
		m.open++
	}
	a.state, a.revoked = revoking, true
}

// observed objects to results of nothing, for the wrong attempt, or for what has one.
func (m *model) observed(b *runv1.ObservationRecorded) {
	a := m.actions[b.GetActionId()]
	if a == nil || a.step != b.GetStepId() || a.attempt != b.GetAttempt() {
		m.breaks("results", "a result of %s, which was never asked for", b.GetActionId())
		return
	}
	s, o := m.step(a.step), b.GetObservation()
	current := !m.ended && a.open() && s.status == running && s.newest == a
	clears := m.clears(a, o)
	if b.GetLate() == (current || clears) {
		m.breaks("results", "the result of %s is late: %v, and the step waits for it: %v", a.id, b.GetLate(), current)
	}
	if b.GetLate() {
		m.w.stats.late++
	}
	if o.GetOutcome() == runv1.Outcome_OUTCOME_STARTED {
		if a.started || !a.open() {
			m.breaks("results", "%s has started once more", a.id)
		}
		a.started = true
		return
	}
	if provisional := a.state == broken && a.seen.GetError().GetCode() == "timeout"; a.settled() && !provisional {
		m.breaks("no_decision_twice", "a second result of %s", a.id)
	}
	if o.GetOutcome() != runv1.Outcome_OUTCOME_REVOKED && o.GetError().GetCode() != "timeout" && m.w.tool.started[m.id+"/"+a.id] == 0 && m.w.tool.effects[effectKey(a.tool, a.key)] == 0 {
		m.breaks("results", "%s was never executed and has the result %s", a.id, o.GetOutcome())
	}
	if a.open() {
		m.open--
	}
	code := o.GetError().GetCode()
	switch o.GetOutcome() {
	case runv1.Outcome_OUTCOME_SUCCESS, runv1.Outcome_OUTCOME_PARTIAL:
		a.state = done
	case runv1.Outcome_OUTCOME_REVOKED:
		a.state = revokedState
	default:
		switch {
		case code == "unknown_outcome", !a.idempotent && ambiguous(code) && o.GetExecutedBy() != "":
			a.state = unknown
		case !a.idempotent && ambiguous(code):
			a.state = timedOut
		default:
			a.state = broken
		}
	}
	a.seen = o
	a.judged, a.late = b.GetLate(), a.late || b.GetLate()
}

// clears: a person is asked what became of the action, and this says it.
func (m *model) clears(a *modelAction, o *runv1.Observation) bool {
	s := m.step(a.step)
	if m.ended || a.state != unknown || a.late || s.newest != a || s.status != asking || s.code != "unknown_outcome" {
		return false
	}
	if in := s.input; in == nil || !in.open || in.purpose != runv1.UserInputPurpose_USER_INPUT_PURPOSE_FAILURE {
		return false
	}
	return o.GetOutcome() != runv1.Outcome_OUTCOME_ERROR || !ambiguous(o.GetError().GetCode()) && o.GetError().GetCode() != "unknown_outcome"
}

// ambiguous codes leave open whether there was an effect.
func ambiguous(code string) bool {
	return code == "timeout" || code == "transport" || code == "delivery_exhausted"
}

// unresolvable marks arguments of which a reference has no value.
const unresolvable = "\x00"

// resolve puts values where references are, at the first two levels: where the simulator writes them.
func (m *model) resolve(text, id string) string {
	var whole struct {
		Ref     string          `json:"$ref"`
		Default json.RawMessage `json:"default"`
	}
	if json.Unmarshal([]byte(text), &whole) == nil && whole.Ref != "" {
		return m.lookup(whole.Ref, whole.Default, id, text)
	}
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &object) != nil {
		return text
	}
	for k, v := range object {
		if len(v) > 0 && v[0] == '{' {
			r := m.resolve(string(v), id)
			if r == unresolvable {
				return unresolvable
			}
			object[k] = json.RawMessage(r)
		}
	}
	out, err := json.Marshal(object)
	if err != nil {
		return unresolvable
	}
	return string(out)
}

// lookup is the value of one reference. References into artifacts stay as they are.
func (m *model) lookup(ref string, fallback json.RawMessage, id, text string) string {
	none := unresolvable
	if fallback != nil {
		none = string(fallback)
	}
	if ref == "item" || ref == "index" {
		i := itemIndex(id)
		up := m.step(base(id))
		if i < 0 || i >= len(up.items) {
			return none
		}
		if ref == "index" {
			return fmt.Sprint(i)
		}
		return up.items[i].GetText()
	}
	parts := strings.Split(ref, ".")
	if len(parts) < 3 || parts[0] != "steps" {
		return unresolvable
	}
	s := m.steps[parts[1]]
	if s == nil || s.status != succeeded || s.result == nil {
		return none
	}
	if s.result.GetArtifact() != nil {
		if m.byID[id].GetAction().GetName() == "finish" {
			return valueText(s.result) // nobody after it could follow the reference
		}
		return text
	}
	value := s.result.GetInline().GetText()
	for _, name := range parts[3:] {
		if value = field(value, name); value == "" {
			return none
		}
	}
	return value
}

// field is a member of an object as text, empty where there is none.
func field(text, name string) string {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &object) != nil {
		return ""
	}
	return string(object[name])
}

func itemName(id string, i int) string { return fmt.Sprintf("%s[%d]", id, i) }

// itemIndex reads "s[3]", -1 for what is no item.
func itemIndex(id string) int {
	i := -1
	if open := strings.IndexByte(id, '['); open >= 0 {
		if n, err := fmt.Sscanf(id[open:], "[%d]", &i); n != 1 || err != nil {
			return -1
		}
	}
	return i
}

func sameJSON(a, b string) bool {
	if a == b {
		return true
	}
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}

func listText(items []*planv1.JsonText) string {
	texts := make([]string, len(items))
	for i, t := range items {
		texts[i] = t.GetText()
	}
	return "[" + strings.Join(texts, ",") + "]"
}

func valueText(v *runv1.Value) string {
	if a := v.GetArtifact(); a != nil {
		return fmt.Sprintf(`{"artifact":{"name":%q,"sha256":%q,"size":%d,"media_type":%q}}`, a.GetName(), a.GetSha256(), a.GetSize(), a.GetMediaType())
	}
	if t := v.GetInline().GetText(); t != "" {
		return t
	}
	return "null"
}

func valuesText(all []*runv1.Value) string {
	texts := make([]string, len(all))
	for i, v := range all {
		texts[i] = valueText(v)
	}
	return "[" + strings.Join(texts, ",") + "]"
}
