package plan

import (
	"fmt"
	"strings"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Parse reads a plan document (JSON) within the default limits. It reports everything that is wrong with the
// document's form at once, and what it mended as notes. The plan is returned as far as it could be read even where
// findings refuse it, so that the validator can add what else is wrong; it is nil where the text is no JSON object.
func Parse(doc []byte) (*planv1.Plan, []*planv1.Finding) { return DefaultLimits().Parse(doc) }

// ParsePatch reads a patch document, like Parse.
func ParsePatch(doc []byte) (*planv1.Patch, []*planv1.Finding) {
	return DefaultLimits().ParsePatch(doc)
}

// Read parses and validates a plan document: all findings of all layers at once.
func Read(doc []byte, env Environment) (*planv1.Plan, []*planv1.Finding) {
	limits := env.Limits.withDefaults()
	p, found := limits.Parse(doc)
	if p == nil {
		return nil, found
	}
	normal, more := Validate(p, env)
	all := newFindings(limits)
	refused := map[string]bool{}
	for _, f := range found {
		all.addMessage(f)
		if f.GetSeverity() == planv1.Severity_SEVERITY_ERROR {
			refused[normalPointer(f.GetPointer())] = true
		}
	}
	for _, f := range more {
		// What could not be read is not also invalid.
		if f.GetSeverity() == planv1.Severity_SEVERITY_ERROR && within(f.GetPointer(), refused) {
			continue
		}
		all.addMessage(f)
	}
	return normal, all.done()
}

// normalPointer is where a part of a step's short form stands in the step as it was read.
func normalPointer(pointer string) string {
	parts := strings.Split(pointer, "/")
	if len(parts) < 4 || parts[1] != "steps" {
		return pointer
	}
	switch parts[3] {
	case "tool":
		parts[3] = "action/name"
	case "arguments", "timeout":
		parts[3] = "action/" + parts[3]
	}
	return strings.Join(parts, "/")
}

// within tells whether a pointer is at or below one of these places.
func within(pointer string, places map[string]bool) bool {
	for pointer != "" {
		if places[pointer] {
			return true
		}
		pointer = pointer[:strings.LastIndexByte(pointer, '/')]
	}
	return false
}

// Parse is the function Parse within these limits.
func (l Limits) Parse(doc []byte) (*planv1.Plan, []*planv1.Finding) {
	d, v := l.decoder(doc)
	if v.kind != Object {
		return nil, d.fs.done()
	}
	p := d.plan(v)
	list := d.fs.done()
	nameSteps(list, func(field string) []*planv1.Step {
		if field == "steps" {
			return p.GetSteps()
		}
		return nil
	})
	return p, list
}

// nameSteps puts ids of steps into the findings that point into them.
func nameSteps(list []*planv1.Finding, steps func(field string) []*planv1.Step) {
	for _, f := range list {
		parts := strings.SplitN(f.GetPointer(), "/", 4)
		if f.GetStepId() != "" || len(parts) < 3 {
			continue
		}
		if i, ok := arrayIndex(parts[2]); ok && i < len(steps(parts[1])) {
			f.StepId = steps(parts[1])[i].GetId()
		}
	}
}

// ParsePatch is the function ParsePatch within these limits.
func (l Limits) ParsePatch(doc []byte) (*planv1.Patch, []*planv1.Finding) {
	d, v := l.decoder(doc)
	if v.kind != Object {
		return nil, d.fs.done()
	}
	p := d.patch(v)
	list := d.fs.done()
	nameSteps(list, func(field string) []*planv1.Step {
		return map[string][]*planv1.Step{"add": p.GetAdd(), "update": p.GetUpdate()}[field]
	})
	return p, list
}

// decoder reads the text into a value and reports what is wrong with it as JSON.
func (l Limits) decoder(doc []byte) (*decoder, Value) {
	l = l.withDefaults()
	d := &decoder{fs: newFindings(l), limits: l}
	if len(doc) > l.MaxPlanBytes {
		d.fs.error(found{layer: layerSchema, code: codePlanTooLarge,
			message: fmt.Sprintf("the document has %d bytes, more than the %d allowed (max_plan_bytes)", len(doc), l.MaxPlanBytes),
			hint:    "split the work into several runs, or pass large values as the run's input",
			values:  limitValues("max_plan_bytes", l.MaxPlanBytes, len(doc))})
		return d, Value{}
	}
	v, problems := parseJSON(string(doc), l)
	d.problems(problems, "")
	if len(problems) == 0 && v.kind != Object {
		d.wrongType(v, nil, "an object")
	}
	return d, v
}

var planFields = []string{"id", "version", "goal", "assumptions", "constraints", "acceptance", "steps", "created_by", "parent_version"}

func (d *decoder) plan(v Value) *planv1.Plan {
	p := &planv1.Plan{}
	for i := range v.members {
		name, field := v.members[i].Name, v.members[i].Value
		at := &pointerPart{name: name, index: -1}
		switch name {
		case "id":
			p.Id = d.text(field, at)
		case "version":
			p.Version = d.int32(field, at)
		case "goal":
			p.Goal = d.text(field, at)
		case "assumptions":
			p.Assumptions = d.assumptions(field, at)
		case "constraints":
			p.Constraints = d.texts(field, at)
		case "acceptance":
			p.Acceptance = d.checks(field, at)
		case "steps":
			p.Steps = d.steps(field, at)
		case "created_by":
			p.CreatedBy = planv1.CreatedBy(d.enum(field, at, createdByNames))
		case "parent_version":
			p.ParentVersion = d.int32(field, at)
		default:
			d.unknownField(at, name, planFields)
		}
	}
	return p
}

var patchFields = []string{"base_version", "add", "update", "remove", "assumptions", "set_assumptions", "reason", "goal"}

func (d *decoder) patch(v Value) *planv1.Patch {
	p := &planv1.Patch{}
	based := false
	for i := range v.members {
		name, field := v.members[i].Name, v.members[i].Value
		at := &pointerPart{name: name, index: -1}
		switch name {
		case "base_version":
			based = field.kind != Null
			p.BaseVersion = d.int32(field, at)
		case "add":
			p.Add = d.steps(field, at)
		case "update":
			p.Update = d.steps(field, at)
		case "remove":
			p.Remove = d.texts(field, at)
		case "assumptions":
			p.Assumptions = d.assumptions(field, at)
			p.SetAssumptions = p.SetAssumptions || field.kind == Array
		case "set_assumptions":
			p.SetAssumptions = d.bool(field, at) || p.SetAssumptions
		case "reason":
			p.Reason = d.text(field, at)
		case "goal":
			p.Goal = d.text(field, at)
		default:
			d.unknownField(at, name, patchFields)
		}
	}
	if !based {
		d.fs.error(found{layer: layerSchema, code: codeMissingField, pointer: "/base_version",
			message: "the patch does not say which version of the plan it changes", hint: "set base_version to the plan's version"})
	}
	return p
}

func (d *decoder) assumptions(v Value, at *pointerPart) []*planv1.Assumption {
	items := d.list(v, at)
	if len(items) == 0 {
		return nil
	}
	list := make([]*planv1.Assumption, 0, len(items))
	for i, item := range items {
		at := &pointerPart{up: at, index: i}
		a := &planv1.Assumption{}
		switch item.kind {
		case String:
			a.Text = item.text
		case Object:
			for _, m := range item.members {
				at := &pointerPart{up: at, name: m.Name, index: -1}
				switch m.Name {
				case "id":
					a.Id = d.text(m.Value, at)
				case "text":
					a.Text = d.text(m.Value, at)
				default:
					d.unknownField(at, m.Name, []string{"id", "text"})
				}
			}
		default:
			d.wrongType(item, at, "a string or an object of id and text")
			continue
		}
		list = append(list, a)
	}
	nameAssumptions(list)
	return list
}

// nameAssumptions gives those without an id the first free one of a1, a2, …, by their place.
func nameAssumptions(list []*planv1.Assumption) {
	taken := make(map[string]bool, len(list))
	for _, a := range list {
		taken[a.GetId()] = true
	}
	for i, a := range list {
		if a.GetId() != "" {
			continue
		}
		for n := i + 1; ; n++ {
			if id := fmt.Sprintf("a%d", n); !taken[id] {
				a.Id, taken[id] = id, true
				break
			}
		}
	}
}

func (d *decoder) checks(v Value, at *pointerPart) []*planv1.Check {
	items := d.list(v, at)
	if len(items) == 0 {
		return nil
	}
	list := make([]*planv1.Check, 0, len(items))
	for i, item := range items {
		at := &pointerPart{up: at, index: i}
		c := &planv1.Check{}
		switch item.kind {
		case String:
			c.Expression = item.text
		case Object:
			for _, m := range item.members {
				at := &pointerPart{up: at, name: m.Name, index: -1}
				switch m.Name {
				case "expression":
					c.Expression = d.text(m.Value, at)
				case "message":
					c.Message = d.text(m.Value, at)
				case "assumption":
					c.Assumption = d.text(m.Value, at)
				default:
					d.unknownField(at, m.Name, []string{"expression", "message", "assumption"})
				}
			}
			if e, ok := item.Get("expression"); !ok || e.kind == Null {
				d.missing(at, "expression", "write the condition that must hold")
			}
		default:
			d.wrongType(item, at, "a string (the expression) or an object of expression, message and assumption")
			continue
		}
		list = append(list, c)
	}
	return list
}
