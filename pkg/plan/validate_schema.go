package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Layer 1: the plan's form, for plans that did not come through Parse as well.

func (v *validator) checkDocument() {
	p := v.plan
	if p.GetId() != "" && !validID(p.GetId()) {
		v.fs.error(found{layer: layerSchema, code: codeInvalidID, pointer: "/id", message: invalidIDMessage(p.GetId()), hint: idHint})
	}
	v.checkText("/goal", "", p.GetGoal())
	for i, c := range p.GetConstraints() {
		v.checkText("/constraints/"+strconv.Itoa(i), "", c)
	}
	seen := map[string]bool{}
	for i, a := range p.GetAssumptions() {
		at := "/assumptions/" + strconv.Itoa(i)
		v.checkText(at+"/text", "", a.GetText())
		switch {
		case !validID(a.GetId()):
			v.fs.error(found{layer: layerSchema, code: codeInvalidID, pointer: at + "/id", message: invalidIDMessage(a.GetId()), hint: idHint})
		case seen[a.GetId()]:
			v.fs.error(found{layer: layerSemantics, code: codeDuplicateID, pointer: at + "/id",
				message: "the assumption id " + quote(a.GetId()) + " stands twice", hint: "give each assumption an id of its own"})
		}
		seen[a.GetId()] = true
	}
	for i, c := range p.GetAcceptance() {
		v.checkText("/acceptance/"+strconv.Itoa(i)+"/message", "", c.GetMessage())
	}
}

const idHint = "use 1 to 64 of A-Z, a-z, 0-9, - and _"

func invalidIDMessage(id string) string {
	if id == "" {
		return "an id is missing"
	}
	return quote(id) + " is not an id"
}

// checkText bounds a text for people, and keeps it valid UTF-8.
func (v *validator) checkText(pointer, step, text string) {
	if len(text) > v.limits.MaxTextBytes {
		v.fs.error(found{layer: layerSchema, code: codeTextTooLong, pointer: pointer, step: step,
			message: fmt.Sprintf("the text has %d bytes, more than the %d allowed (max_text_bytes)", len(text), v.limits.MaxTextBytes),
			hint:    "shorten it; data belongs into arguments or the run's input",
			values:  limitValues("max_text_bytes", v.limits.MaxTextBytes, len(text))})
	}
	if !utf8.ValidString(text) {
		v.fs.error(found{layer: layerSchema, code: codeInvalidValue, pointer: pointer, step: step,
			message: "the text is not valid UTF-8"})
	}
}

func (v *validator) checkForm(s *stepCheck) {
	step := s.step
	if !validID(step.GetId()) {
		v.error(s, layerSchema, codeInvalidID, "id", invalidIDMessage(step.GetId()), idHint, Value{})
	}
	for _, t := range [...]struct{ field, text string }{{"title", step.GetTitle()}, {"objective", step.GetObjective()}} {
		if len(t.text) > v.limits.MaxTextBytes || !utf8.ValidString(t.text) {
			v.checkText(v.at(s, t.field), step.GetId(), t.text)
		}
	}
	v.readArguments(s, &s.action, "action")
	v.readArguments(s, &s.compensate, "compensate")
	v.checkForEach(s)
	v.checkResult(s)
	for i, name := range step.GetProduces() {
		if !validID(name) {
			v.error(s, layerSchema, codeInvalidID, "produces/"+strconv.Itoa(i), quote(name)+" is not an artifact name", idHint, Value{})
		}
	}
	if schema := step.GetExpect().GetSchema(); schema != nil {
		if cs := compileSchema(schema.GetText(), v.limits); cs.problem != "" {
			v.error(s, layerSchema, codeSchemaInvalid, "expect/schema", cs.problem, "write a JSON Schema (2020-12)", Value{})
		}
	}
	for i, c := range step.GetExpect().GetChecks() {
		at := "expect/checks/" + strconv.Itoa(i)
		if strings.TrimSpace(c.GetExpression()) == "" {
			v.error(s, layerSchema, codeMissingField, at+"/expression", "the check has no expression", "write the condition that must hold", Value{})
		}
		v.checkText(v.at(s, at+"/message"), step.GetId(), c.GetMessage())
	}
}

// readArguments reads an action's arguments and the references in them.
func (v *validator) readArguments(s *stepCheck, a *actionCheck, field string) {
	if a.action == nil {
		return
	}
	if kindNames.name(int32(a.action.GetKind())) == "" {
		v.error(s, layerSchema, codeMissingField, field+"/kind", "the action has no kind", "write one of "+strings.Join(kindNames, ", "), Value{})
	}
	if a.action.GetName() == "" {
		v.error(s, layerSchema, codeMissingField, field+"/name", "the action has no name", "name a tool or a control", Value{})
	}
	text := a.action.GetArguments().GetText()
	if text == "" || text == "null" {
		a.args = Value{kind: Object}
		if a.action.GetArguments() == nil || text == "null" {
			v.setArguments(s, a, field)
		}
		return
	}
	value, problems := parseJSON(text, v.limits)
	at := field + "/arguments"
	if len(problems) > 0 {
		a.broken = true
		for _, p := range problems {
			v.fs.error(found{layer: layerSchema, code: p.code, pointer: v.at(s, at) + p.pointer, step: s.step.GetId(), message: "the arguments are not usable: " + p.message})
		}
		return
	}
	if value.kind != Object {
		a.broken = true
		v.error(s, layerSchema, codeArgsNotObject, at, "arguments are "+article(value.kind.String())+", not an object",
			"write an object of names and values, not encoded as a string", Value{})
		return
	}
	a.args = value
	refs, bad := scanReferences(value, v.limits)
	a.refs = refs
	v.reportReferences(s, at, bad)
}

// setArguments puts the arguments as they are now into the step.
func (v *validator) setArguments(s *stepCheck, a *actionCheck, field string) {
	a.action = withArguments(a.action, a.args.JSON())
	if field == "compensate" {
		s.own().Compensate = a.action
	} else {
		s.own().Action = a.action
	}
}

func (v *validator) reportReferences(s *stepCheck, at string, bad []*ReferenceError) {
	for _, e := range bad {
		vals := Value{}
		if e.nearest != nil {
			vals = values("nearest", stringList(e.nearest))
		}
		v.fs.error(found{layer: layerArguments, code: e.Code, pointer: v.at(s, at) + e.Pointer, step: s.step.GetId(),
			message: e.Message, hint: e.Hint, values: vals})
	}
}

func (v *validator) checkForEach(s *stepCheck) {
	text := s.step.GetForEach()
	if text == nil {
		return
	}
	value, problems := valueOf(text, v.limits)
	if len(problems) > 0 {
		v.error(s, layerSchema, problems[0].code, "for_each", "for_each is not usable: "+problems[0].message, "", Value{})
		return
	}
	_, isRef := value.Get("$ref")
	if value.kind != Array && !isRef {
		v.error(s, layerSchema, codeForEachNotList, "for_each", "for_each is "+article(value.kind.String())+", not a list or a reference to one",
			"write [..] or {\"$ref\": \"steps.<id>.result.<path>\"}", Value{})
		return
	}
	s.forEach = value
}

func (v *validator) checkResult(s *stepCheck) {
	if s.step.GetResult() == nil {
		s.result.whole = true
		return
	}
	value, problems := valueOf(s.step.GetResult(), v.limits)
	if len(problems) > 0 {
		v.error(s, layerSchema, problems[0].code, "result", "result is not usable: "+problems[0].message, "", Value{})
		return
	}
	spec, err := readResultSpec(value)
	if err != nil {
		v.error(s, layerSchema, codeInvalidResult, "result", err.Error(), "write a path like \"data.items\" or an object of names and paths", Value{})
		spec.whole = true
	}
	s.result = spec
}

// hasDependency tells whether a step names another in depends_on.
func (s *stepCheck) hasDependency(id string) bool {
	list := s.step.GetDependsOn()
	const few = 8
	if len(list) <= few {
		return slices.Contains(list, id)
	}
	if s.deps == nil {
		s.deps = make(map[string]bool, len(list))
		for _, d := range list {
			s.deps[d] = true
		}
	}
	return s.deps[id]
}

// addDependency makes a step depend on another that it refers to.
func (s *stepCheck) addDependency(id string) {
	if s.hasDependency(id) {
		return
	}
	step := s.own()
	step.DependsOn = append(step.DependsOn, id)
	s.added = append(s.added, id)
	if s.deps != nil {
		s.deps[id] = true
	}
}
