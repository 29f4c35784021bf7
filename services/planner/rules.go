package planner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// rule makes a patch, or an answer, for failures that it fits.
type rule struct {
	Name   string          `json:"name"`
	When   ruleWhen        `json:"when"`
	Reason json.RawMessage `json:"reason"`
	Patch  json.RawMessage `json:"patch"`
	Answer json.RawMessage `json:"answer"`

	reason, patch, answer plan.Value
	template              *template
}

// ruleWhen is what a failure must be like; what is not said fits everything. Names may hold * for any text.
type ruleWhen struct {
	// Template: the run's goal fits this template, whose slots the rule can use.
	Template string `json:"template"`
	// Goal patterns with slots of the rule's own.
	Goal  patterns        `json:"goal"`
	Slots map[string]slot `json:"slots"`
	// Step, Tool, Code: of the step that failed, its tool, the error's code.
	Step texts `json:"step"`
	Tool texts `json:"tool"`
	Code texts `json:"code"`
	// Assumption that was falsified.
	Assumption texts `json:"assumption"`
	// Facts are conditions in CEL over steps and run; all must hold.
	Facts texts `json:"facts"`
}

// patchParts are the members of a rule's patch.
var patchParts = []string{"change", "add", "update", "remove", "assumptions", "goal"}

func (r *rule) compile(book *templateBook) error {
	if r.Name == "" {
		return errors.New("name is missing")
	}
	if (len(r.Patch) == 0) == (len(r.Answer) == 0) {
		return errors.New("give either patch or answer")
	}
	known := map[string]bool{}
	if r.When.Template != "" {
		if r.template = book.template(r.When.Template); r.template == nil {
			return fmt.Errorf("when: there is no template %q", r.When.Template)
		}
		known = r.template.Goal.known(r.template.Slots)
	}
	if err := r.When.Goal.compile(r.When.Slots); err != nil {
		return fmt.Errorf("when: %w", err)
	}
	for n := range r.When.Goal.known(r.When.Slots) {
		known[n] = true
	}
	for _, f := range r.When.Facts {
		var e *plan.ExpressionError
		if _, err := plan.EvalCondition(f, plan.Scope{}); errors.As(err, &e) && e.Code != plan.CodeExpressionFailed {
			return fmt.Errorf("when: facts: %s: %w", f, err)
		}
	}
	for _, part := range []struct {
		name string
		raw  json.RawMessage
		into *plan.Value
	}{{"reason", r.Reason, &r.reason}, {"patch", r.Patch, &r.patch}, {"answer", r.Answer, &r.answer}} {
		if len(part.raw) == 0 {
			continue
		}
		v, err := plan.ParseValue(string(part.raw))
		if err == nil {
			err = checkForms(v, known, true)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		*part.into = v
	}
	return r.checkPatch()
}

func (r *rule) checkPatch() error {
	if len(r.Patch) == 0 {
		return nil
	}
	if r.patch.Kind() != plan.Object {
		return errors.New("patch: want an object")
	}
	for _, m := range r.patch.Members() {
		if !slices.Contains(patchParts, m.Name) {
			return fmt.Errorf("patch: unknown field %q; there are %s", m.Name, strings.Join(patchParts, ", "))
		}
	}
	changes, _ := r.patch.Get("change")
	for i, c := range changes.Items() {
		if id, ok := c.Get("id"); !ok || id.Kind() != plan.String {
			return fmt.Errorf("patch: change %d: id is missing", i+1)
		}
	}
	return nil
}

// matches returns the rule's slots where the failure fits.
func (r *rule) matches(req replanRequest, f *facts) (slotValues, bool) {
	w, e := r.When, req.GetError()
	if !w.Step.fit(req.GetStepId()) || !w.Tool.fit(toolOfStep(req)) || !w.Code.fit(e.GetCode()) {
		return nil, false
	}
	if len(w.Assumption) > 0 && !slices.ContainsFunc(req.GetFalsifiedAssumptions(), w.Assumption.fit) {
		return nil, false
	}
	slots := slotValues{}
	for _, source := range []struct {
		goal  patterns
		slots map[string]slot
	}{{templateGoal(r.template), templateSlots(r.template)}, {w.Goal, w.Slots}} {
		if len(source.goal) == 0 {
			continue
		}
		values, ok := source.goal.match(req.GetSpec().GetGoal(), source.slots)
		if !ok {
			return nil, false
		}
		for n, v := range values {
			slots[n] = v
		}
	}
	for _, fact := range w.Facts {
		// A condition that cannot be evaluated does not hold.
		if ok, err := plan.EvalCondition(fact, f.scope()); err != nil || !ok {
			return nil, false
		}
	}
	return slots, true
}

func templateGoal(t *template) patterns {
	if t == nil {
		return nil
	}
	return t.Goal
}

func templateSlots(t *template) map[string]slot {
	if t == nil {
		return nil
	}
	return t.Slots
}

// fit tells whether s is one of the names; no names fit everything.
func (t texts) fit(s string) bool {
	return len(t) == 0 || slices.ContainsFunc(t, func(p string) bool { return wildcard(p, s) })
}

// wildcard matches * with any text.
func wildcard(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	if !strings.HasPrefix(s, parts[0]) {
		return false
	}
	s = s[len(parts[0]):]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(s, p)
		if i < 0 {
			return false
		}
		s = s[i+len(p):]
	}
	return strings.HasSuffix(s, parts[len(parts)-1])
}

// toolOfStep is the tool of the step that failed; an item of a for_each step has its step's.
func toolOfStep(r replanRequest) string {
	id, _, _ := strings.Cut(r.GetStepId(), "[")
	for _, s := range r.GetPlan().GetSteps() {
		if s.GetId() == id {
			return plan.ToolName(s.GetAction())
		}
	}
	return ""
}

// propose returns nil where the rule does not fit.
func (r *rule) propose(req replanRequest) (*proposal, error) {
	f := newFacts(req)
	slots, ok := r.matches(req, f)
	if !ok {
		return nil, nil
	}
	p := &proposal{trace: &runv1.PlannerTrace{Source: sourceRules, Name: r.Name}, fixed: true, createdBy: planv1.CreatedBy_CREATED_BY_TEMPLATE}
	reason, err := fill(r.reason, slots, f.get)
	if err != nil {
		return noFact(err)
	}
	if p.reason = shown(string(reason)); len(r.Reason) == 0 {
		p.reason = "rule " + r.Name
	}
	if len(r.Answer) > 0 {
		answer, err := fill(r.answer, slots, f.get)
		if err != nil {
			return noFact(err)
		}
		p.decline, p.answer = true, &planv1.JsonText{Text: string(answer)}
		return p, nil
	}
	filled, err := fill(r.patch, slots, f.get)
	if err != nil {
		return noFact(err)
	}
	doc, err := patchDocument(filled, req.GetPlan(), p.reason)
	if err != nil {
		return nil, err
	}
	p.doc, p.text = doc, string(doc)
	return p, nil
}

// noFact: a rule whose facts are missing does not fit; another may.
func noFact(err error) (*proposal, error) {
	if errors.Is(err, errNoFact) {
		return nil, nil
	}
	return nil, err
}

// patchDocument makes a patch of a rule's filled one: with base version and reason, and with each change merged into the
// step that it names.
func patchDocument(filled []byte, base *planv1.Plan, reason string) ([]byte, error) {
	v, err := plan.ParseValue(string(filled))
	if err != nil {
		return nil, err
	}
	steps, err := plan.ParseValue(plan.Document(base).GetText())
	if err != nil {
		return nil, err
	}
	list, _ := steps.Get("steps")
	var b bytes.Buffer
	b.WriteString(`{"base_version":` + strconv.Itoa(int(base.GetVersion())) + `,"reason":`)
	b.Write(plan.StringValue(reason).Append(nil))
	update, _ := v.Get("update")
	updates := update.Items()
	for _, m := range v.Members() {
		if m.Name == "update" || m.Name == "change" {
			continue
		}
		b.WriteString("," + strconv.Quote(m.Name) + ":")
		b.Write(m.Value.Append(nil))
	}
	changes, _ := v.Get("change")
	if len(updates)+len(changes.Items()) > 0 {
		b.WriteString(`,"update":[`)
		for i, u := range updates {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(u.Append(nil))
		}
		for i, c := range changes.Items() {
			if i+len(updates) > 0 {
				b.WriteByte(',')
			}
			b.Write(merge(nil, stepNamed(list, c), c))
		}
		b.WriteByte(']')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// stepNamed is the step that a change names; none for a name that is not there, which the patch's own rules refuse.
func stepNamed(steps, change plan.Value) plan.Value {
	id, _ := change.Get("id")
	for _, s := range steps.Items() {
		if have, _ := s.Get("id"); have.Text() == id.Text() {
			return s
		}
	}
	return plan.Value{}
}

// merge is JSON Merge Patch (RFC 7396): objects are merged, null removes, anything else replaces. References and other
// values of the step stay as they are written.
func merge(dst []byte, target, patch plan.Value) []byte {
	if patch.Kind() != plan.Object {
		return patch.Append(dst)
	}
	// A reference is one value: merging into it would make a reference with siblings.
	if _, isRef := patch.Get("$ref"); isRef {
		return patch.Append(dst)
	}
	if _, isRef := target.Get("$ref"); isRef || target.Kind() != plan.Object {
		target = plan.Value{}
	}
	dst = append(dst, '{')
	first := true
	member := func(name string, value func([]byte) []byte) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = plan.StringValue(name).Append(dst)
		dst = value(append(dst, ':'))
	}
	for _, m := range target.Members() {
		p, changed := patch.Get(m.Name)
		switch {
		case !changed:
			member(m.Name, m.Value.Append)
		case p.Kind() != plan.Null:
			member(m.Name, func(b []byte) []byte { return merge(b, m.Value, p) })
		}
	}
	for _, m := range patch.Members() {
		if _, had := target.Get(m.Name); !had && m.Value.Kind() != plan.Null {
			member(m.Name, func(b []byte) []byte { return merge(b, plan.Value{}, m.Value) })
		}
	}
	return append(dst, '}')
}
