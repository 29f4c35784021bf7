package plan

import (
	"strings"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

func (d *decoder) steps(v Value, at *pointerPart) []*planv1.Step {
	items := d.list(v, at)
	if len(items) == 0 {
		return nil
	}
	list := make([]*planv1.Step, 0, len(items))
	for i := range items {
		at := &pointerPart{up: at, index: i}
		if items[i].kind != Object {
			d.wrongType(items[i], at, "an object")
			// The place stays taken, so that the places of later steps are those of the document.
			list = append(list, &planv1.Step{})
			continue
		}
		list = append(list, d.step(items[i], at))
	}
	return list
}

var stepFields = []string{"id", "title", "objective", "action", "depends_on", "when", "for_each", "optional", "allowed_tools",
	"result", "produces", "expect", "retry", "on_failure", "compensate", "risk", "confirm", "tool", "arguments", "timeout"}

func (d *decoder) step(v Value, at *pointerPart) *planv1.Step {
	s := &planv1.Step{}
	short := shorthand{}
	for i := range v.members {
		name, field := v.members[i].Name, v.members[i].Value
		at := &pointerPart{up: at, name: name, index: -1}
		switch name {
		case "id":
			s.Id = d.text(field, at)
		case "title":
			s.Title = d.text(field, at)
		case "objective":
			s.Objective = d.text(field, at)
		case "action":
			s.Action = d.action(field, at)
		case "depends_on":
			s.DependsOn = d.texts(field, at)
		case "when":
			s.When = d.text(field, at)
		case "for_each":
			s.ForEach = d.forEach(field, at)
		case "optional":
			s.Optional = d.bool(field, at)
		case "allowed_tools":
			s.AllowedTools = d.texts(field, at)
		case "result":
			s.Result = d.result(field, at)
		case "produces":
			s.Produces = d.texts(field, at)
		case "expect":
			s.Expect = d.expect(field, at)
		case "retry":
			s.Retry = d.retry(field, at)
		case "on_failure":
			s.OnFailure = planv1.FailurePolicy(d.enum(field, at, policyNames))
		case "compensate":
			s.Compensate = d.action(field, at)
		case "risk":
			s.Risk = planv1.Risk(d.enum(field, at, riskNames))
		case "confirm":
			s.Confirm = d.bool(field, at)
		case "tool":
			short.tool, short.toolAt = field, at
		case "arguments":
			short.arguments, short.argumentsAt = field, at
		case "timeout":
			short.timeout, short.timeoutAt = field, at
		default:
			d.unknownField(at, name, stepFields)
		}
	}
	d.shorthand(s, short, at)
	return s
}

// shorthand is a step written as tool, arguments and timeout instead of an action of kind tool.
type shorthand struct {
	tool, arguments, timeout       Value
	toolAt, argumentsAt, timeoutAt *pointerPart
}

func (v Value) given() bool { return v.kind != Invalid && v.kind != Null }

func (d *decoder) shorthand(s *planv1.Step, short shorthand, at *pointerPart) {
	if !short.tool.given() {
		for _, extra := range []struct {
			v  Value
			at *pointerPart
		}{{short.arguments, short.argumentsAt}, {short.timeout, short.timeoutAt}} {
			if extra.v.given() {
				d.fs.error(found{layer: layerSchema, code: codeConflictingFields, pointer: extra.at.String(), step: s.GetId(),
					message: quote(extra.at.name) + " of a step goes with \"tool\", which is not there",
					hint:    "put it into the action, or name the tool"})
			}
		}
		return
	}
	if s.GetAction() != nil {
		d.fs.error(found{layer: layerSchema, code: codeConflictingFields, pointer: short.toolAt.String(), step: s.GetId(),
			message: "a step has either an action or the short form tool and arguments, not both", hint: "leave one out"})
		return
	}
	s.Action = &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: d.text(short.tool, short.toolAt)}
	if short.argumentsAt == nil {
		short.argumentsAt = &pointerPart{up: at, name: "arguments", index: -1}
	}
	s.Action.Arguments = d.arguments(short.arguments, short.argumentsAt)
	if short.timeout.given() {
		s.Action.Timeout = d.duration(short.timeout, short.timeoutAt)
	}
}

var actionFields = []string{"kind", "name", "arguments", "timeout"}

func (d *decoder) action(v Value, at *pointerPart) *planv1.Action {
	if !d.object(v, at) {
		return nil
	}
	a := &planv1.Action{}
	var args Value
	for i := range v.members {
		name, field := v.members[i].Name, v.members[i].Value
		at := &pointerPart{up: at, name: name, index: -1}
		switch name {
		case "kind":
			a.Kind = planv1.ActionKind(d.enum(field, at, kindNames))
		case "name":
			a.Name = d.text(field, at)
		case "arguments":
			args = field
		case "timeout":
			a.Timeout = d.duration(field, at)
		default:
			d.unknownField(at, name, actionFields)
		}
	}
	a.Arguments = d.arguments(args, &pointerPart{up: at, name: "arguments", index: -1})
	for _, name := range []string{"kind", "name"} {
		if f, ok := v.Get(name); !ok || f.kind == Null {
			d.missing(at, name, "an action has a kind (tool, llm, control or run) and a name")
		}
	}
	return a
}

// arguments reads a step's arguments: an object, nothing, or a string that holds an object, as some models write it.
func (d *decoder) arguments(v Value, at *pointerPart) *planv1.JsonText {
	const empty = "{}"
	switch v.kind {
	case Invalid, Null:
		return &planv1.JsonText{Text: empty}
	case Object:
		return v.JSON()
	case String:
		if strings.TrimSpace(v.text) == "" {
			return &planv1.JsonText{Text: empty}
		}
		decoded, problems := parseJSON(v.text, d.limits)
		if len(problems) > 0 {
			if problems[0].code != codeInvalidJSON {
				d.problems(problems, at.String())
				return &planv1.JsonText{Text: empty}
			}
			d.argsNotObject(at, "arguments are a string that holds no JSON object ("+problems[0].Error()+")")
			return &planv1.JsonText{Text: empty}
		}
		if decoded.kind != Object {
			d.argsNotObject(at, "arguments are a string that holds "+article(decoded.kind.String())+", not an object")
			return &planv1.JsonText{Text: empty}
		}
		d.fs.note(found{layer: layerSchema, code: codeArgsStringDecoded, pointer: at.String(),
			message: "arguments came as a string that holds an object, and were read as that object"})
		return decoded.JSON()
	}
	d.argsNotObject(at, "arguments are "+article(v.kind.String())+", not an object")
	return &planv1.JsonText{Text: empty}
}

func (d *decoder) argsNotObject(at *pointerPart, message string) {
	d.fs.error(found{layer: layerSchema, code: codeArgsNotObject, pointer: at.String(), message: message,
		hint: "write an object of names and values, not encoded as a string"})
}

// forEach reads a list, a reference, or a string: the text of a reference, or a list or reference written as JSON.
func (d *decoder) forEach(v Value, at *pointerPart) *planv1.JsonText {
	if v.kind != String {
		if v.kind == Null {
			return nil
		}
		return v.JSON()
	}
	if decoded, ok := d.embedded(v, at, "[{"); ok {
		return decoded.JSON()
	}
	return Value{kind: Object, members: []Member{{Name: "$ref", Value: v}}}.JSON()
}

// result reads a path or an object of paths; the object may be written as JSON in a string.
func (d *decoder) result(v Value, at *pointerPart) *planv1.JsonText {
	switch v.kind {
	case Null:
		return nil
	case String:
		decoded, ok := d.embedded(v, at, "{")
		if !ok {
			return v.JSON()
		}
		v = decoded
	}
	if v.kind != Object {
		d.wrongType(v, at, "a path or an object of names and paths")
		return nil
	}
	for i := range v.members {
		if m := v.members[i]; m.Value.kind != String {
			d.wrongType(m.Value, under(at, m.Name), "a path")
			return nil
		}
	}
	return v.JSON()
}

// embedded reads a string as JSON where it starts like it: strict structured output knows no free-form objects.
func (d *decoder) embedded(v Value, at *pointerPart, starts string) (Value, bool) {
	text := strings.TrimSpace(v.text)
	if text == "" || strings.IndexByte(starts, text[0]) < 0 {
		return Value{}, false
	}
	decoded, problems := parseJSON(text, d.limits)
	if len(problems) > 0 {
		d.problems(problems, at.String())
		return Value{kind: Null}, true
	}
	return decoded, true
}

func (d *decoder) expect(v Value, at *pointerPart) *planv1.Expect {
	if !d.object(v, at) {
		return nil
	}
	e := &planv1.Expect{}
	for i := range v.members {
		name, field := v.members[i].Name, v.members[i].Value
		at := &pointerPart{up: at, name: name, index: -1}
		switch name {
		case "schema":
			if decoded, ok := d.embedded(field, at, "{"); field.kind == String && ok {
				field = decoded
			}
			switch field.kind {
			case Null:
			case Object, Bool, String:
				e.Schema = field.JSON()
			default:
				d.wrongType(field, at, "a JSON Schema")
			}
		case "checks":
			e.Checks = d.checks(field, at)
		default:
			d.unknownField(at, name, []string{"schema", "checks"})
		}
	}
	return e
}

var retryFields = []string{"max_attempts", "delay", "factor", "max_delay", "on"}

func (d *decoder) retry(v Value, at *pointerPart) *planv1.Retry {
	if v.kind == Number {
		return &planv1.Retry{MaxAttempts: d.int32(v, at)}
	}
	if v.kind != Object && v.kind != Null {
		d.wrongType(v, at, "a number of attempts or an object")
		return nil
	}
	if !d.object(v, at) {
		return nil
	}
	r := &planv1.Retry{}
	for i := range v.members {
		name, field := v.members[i].Name, v.members[i].Value
		at := &pointerPart{up: at, name: name, index: -1}
		switch name {
		case "max_attempts":
			r.MaxAttempts = d.int32(field, at)
		case "delay":
			r.Delay = d.duration(field, at)
		case "factor":
			r.Factor = d.float(field, at)
		case "max_delay":
			r.MaxDelay = d.duration(field, at)
		case "on":
			r.On = d.texts(field, at)
		default:
			d.unknownField(at, name, retryFields)
		}
	}
	return r
}
