package plan

import (
	"fmt"
	"strings"
)

// Layer 3: arguments fit the tool, and references point to what there is and fits.

func (v *validator) checkReferences() {
	var input Value
	if v.env.Input != nil {
		input, _ = valueOf(v.env.Input, v.limits)
	}
	for _, s := range v.steps {
		if s.done {
			continue
		}
		v.checkActionReferences(s, &s.action, "action", input)
		v.checkActionReferences(s, &s.compensate, "compensate", input)
		v.checkListReferences(s, input)
		v.checkToolArguments(s, &s.action, "action")
		v.checkToolArguments(s, &s.compensate, "compensate")
		v.checkControl(s)
	}
}

func (v *validator) checkActionReferences(s *stepCheck, a *actionCheck, field string, input Value) {
	for i := range a.refs {
		ref := &a.refs[i]
		if v.checkReference(s, ref, field+"/arguments", field == "compensate", s.forEach.kind != Invalid, input) {
			v.checkReferenceType(s, a, ref, field+"/arguments")
		}
	}
}

func (v *validator) checkListReferences(s *stepCheck, input Value) {
	if s.forEach.kind == Invalid {
		return
	}
	refs, bad := scanReferences(s.forEach, v.limits)
	v.reportReferences(s, "for_each", bad)
	for i := range refs {
		ref := &refs[i]
		if !v.checkReference(s, ref, "for_each", false, false, input) || ref.Pointer != "" || ref.Root != RootStep {
			continue
		}
		if t := v.referredType(ref); t != 0 && t&typeArray == 0 {
			v.error(s, layerArguments, codeRefTypeMismatch, "for_each", fmt.Sprintf("%s is %s, for_each needs a list", quote(ref.Text), t.String()),
				"refer to a list", values("got", stringList(t.names()), "want", stringList(typeArray.names())))
		}
	}
}

// checkReference checks that what a reference points to exists, and makes it a dependency.
func (v *validator) checkReference(s *stepCheck, ref *Reference, field string, undo, hasItem bool, input Value) bool {
	at := field + ref.Pointer
	switch ref.Root {
	case RootStep:
		target, ok := v.index[ref.Name]
		if !ok {
			v.unknownStep(s, at, ref.Name)
			return false
		}
		if target == s.i {
			if !undo {
				v.error(s, layerArguments, codeRefToItself, at, "the step refers to its own result", "refer to an earlier step", Value{})
			}
			return undo
		}
		s.addDependency(ref.Name)
	case RootArtifact:
		target, ok := v.producers[ref.Name]
		if !ok {
			near := v.nearestArtifact(ref.Name)
			v.error(s, layerArguments, codeRefUnknownArtifact, at, "no step produces the artifact "+quote(ref.Name),
				didYouMean(near, "name it in a step's produces"), values("name", StringValue(ref.Name), "nearest", stringList(near)))
			return false
		}
		if target == s.i {
			if !undo {
				v.error(s, layerArguments, codeRefToItself, at, "the step refers to an artifact that it produces itself", "refer to an earlier step", Value{})
			}
			return undo
		}
		s.addDependency(v.steps[target].step.GetId())
	case RootItem, RootIndex:
		if !hasItem {
			v.error(s, layerArguments, codeRefOutsideForEach, at, quote(ref.Text)+" has no meaning here: only the arguments of a for_each step have an item and an index",
				"give the step a for_each", Value{})
			return false
		}
	case RootInput:
		if input.kind == Invalid || ref.HasDefault {
			return true
		}
		if _, ok := input.At(ref.Path); !ok {
			v.error(s, layerArguments, codeRefUnknownInput, at, "the run's input has nothing at "+quote(ref.Text),
				"give the run this input, or give the reference a default", Value{})
			return false
		}
	}
	return true
}

func (v *validator) unknownStep(s *stepCheck, at, id string) {
	near := v.nearestID(id)
	v.error(s, layerArguments, codeRefUnknownStep, at, "there is no step "+quote(id),
		didYouMean(near, "refer to a step of this plan"), values("name", StringValue(id), "nearest", stringList(near)))
}

// checkReferenceType compares what a referred step gives with what the argument takes, where both are known.
func (v *validator) checkReferenceType(s *stepCheck, a *actionCheck, ref *Reference, field string) {
	if ref.Root != RootStep {
		return
	}
	root, path := v.source(ref)
	var got jsonTypes
	if root.kind != Invalid {
		schema, wrong, known := schemaAt(&root, path)
		if wrong != "" && !ref.HasDefault {
			near := v.fs.nearest(wrong, known)
			v.error(s, layerArguments, codeRefUnknownPath, field+ref.Pointer,
				fmt.Sprintf("%s: the result of step %s has no %s", quote(ref.Text), quote(ref.Name), quote(wrong)),
				didYouMean(near, "it has: "+listed(known)), values("name", StringValue(wrong), "nearest", stringList(near)))
			return
		}
		if schema != nil {
			got = allowedTypes(&root, schema)
		}
	}
	if a.tool.GetInputSchema() == nil || ref.Pointer == "" || got == 0 {
		return
	}
	cs := compileSchema(a.tool.GetInputSchema().GetText(), v.limits)
	if cs.problem != "" {
		return
	}
	schema, _, _ := schemaAt(&cs.doc, pointerParts(ref.Pointer))
	if schema == nil {
		return
	}
	if want := allowedTypes(&cs.doc, schema); want != 0 && got&want == 0 {
		v.error(s, layerArguments, codeRefTypeMismatch, field+ref.Pointer,
			fmt.Sprintf("%s is %s, the argument takes %s", quote(ref.Text), got.String(), want.String()),
			"refer to something else, or convert it in a step between",
			values("got", stringList(got.names()), "want", stringList(want.names())))
	}
}

// referredType is the type of what a reference to a step gives, 0 where it is not known.
func (v *validator) referredType(ref *Reference) jsonTypes {
	root, path := v.source(ref)
	if root.kind == Invalid {
		return 0
	}
	schema, _, _ := schemaAt(&root, path)
	if schema == nil {
		return 0
	}
	return allowedTypes(&root, schema)
}

// source returns the schema that a step's output has, and the path in it that a reference means, both through the
// step's result field. The schema is Invalid where nothing is known.
func (v *validator) source(ref *Reference) (Value, []string) {
	i, ok := v.index[ref.Name]
	if !ok {
		return Value{}, nil
	}
	s := v.steps[i]
	path := ref.Path
	if s.forEach.kind != Invalid {
		// The result is the list of the items' results.
		if len(path) == 0 {
			return listSchema, nil
		}
		if _, ok := arrayIndex(path[0]); !ok {
			return Value{}, nil
		}
		path = path[1:]
	}
	if s.result.names != nil {
		if len(path) == 0 {
			return objectSchema, nil
		}
		for k, name := range s.result.names {
			if name == path[0] {
				return v.outputSchema(s), append(append([]string{}, s.result.paths[k]...), path[1:]...)
			}
		}
		return closedSchema(s.result.names), path
	}
	if !s.result.whole && len(s.result.paths) == 1 {
		path = append(append([]string{}, s.result.paths[0]...), path...)
	}
	return v.outputSchema(s), path
}

func (v *validator) outputSchema(s *stepCheck) Value {
	tool := s.action.tool
	if tool == nil && !v.env.AnyTool {
		tool = v.env.Tools[toolName(s.step.GetAction())]
	}
	if tool.GetOutputSchema() == nil {
		return Value{}
	}
	cs := compileSchema(tool.GetOutputSchema().GetText(), v.limits)
	if cs.problem != "" {
		return Value{}
	}
	return cs.doc
}

var (
	listSchema   = values("type", StringValue("array"))
	objectSchema = values("type", StringValue("object"))
)

// closedSchema is the schema of an object with exactly these names.
func closedSchema(names []string) Value {
	properties := Value{kind: Object}
	for _, n := range names {
		properties.members = append(properties.members, Member{Name: n, Value: boolValue(true)})
	}
	return values("type", StringValue("object"), "properties", properties, "additionalProperties", boolValue(false))
}

// pointerParts splits a JSON pointer.
func pointerParts(pointer string) []string {
	if pointer == "" {
		return nil
	}
	parts := strings.Split(pointer[1:], "/")
	for i, p := range parts {
		parts[i] = pointerUnescapes.Replace(p)
	}
	return parts
}

func (v *validator) checkToolArguments(s *stepCheck, a *actionCheck, field string) {
	if a.broken || a.tool == nil || a.tool.GetInputSchema() == nil {
		return
	}
	cs := compileSchema(a.tool.GetInputSchema().GetText(), v.limits)
	at := argumentsAt{pointer: v.at(s, field+"/arguments"), step: s.step.GetId(), tool: a.tool.GetName()}
	refs := a.refs
	if refs == nil {
		refs = []Reference{}
	}
	normal, changed := normaliseArguments(cs, a.args, refs, at, v.limits, v.fs, v.fs)
	if changed {
		a.args = normal
		v.setArguments(s, a, field)
	}
}
