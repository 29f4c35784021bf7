package plan

import (
	"fmt"
	"slices"
	"strings"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// NormaliseArguments checks a tool's arguments against its input schema and mends what can be mended without guessing:
// absent or null arguments become {}, and a null for an optional property whose schema does not allow null is dropped
// (note null_dropped). It returns the arguments to use, the notes, and the findings that refuse them:
// missing_argument, unknown_argument, schema_mismatch, args_not_object, schema_invalid. Pointers are into the
// arguments. References are taken to fit; they are checked again when they are resolved.
func NormaliseArguments(schema, args *planv1.JsonText) (*planv1.JsonText, []*planv1.Finding, []*planv1.Finding) {
	return DefaultLimits().NormaliseArguments(schema, args)
}

// NormaliseArguments is the function NormaliseArguments within these limits.
func (l Limits) NormaliseArguments(schema, args *planv1.JsonText) (*planv1.JsonText, []*planv1.Finding, []*planv1.Finding) {
	l = l.withDefaults()
	notes, errs := newFindings(l), newFindings(l)
	at := argumentsAt{}
	v, problems := valueOf(args, l)
	if len(problems) > 0 {
		errs.error(found{layer: layerArguments, code: problems[0].code, pointer: problems[0].pointer, message: problems[0].Error()})
		return args, nil, errs.done()
	}
	var cs *compiledSchema
	if schema != nil {
		cs = compileSchema(schema.GetText(), l)
	}
	normal, changed := normaliseArguments(cs, v, nil, at, l, notes, errs)
	if changed {
		args = normal.JSON()
	}
	return args, notes.done(), errs.done()
}

// argumentsAt says where arguments stand, for findings.
type argumentsAt struct {
	pointer string
	step    string
	tool    string
}

// normaliseArguments is the core of NormaliseArguments; refs are the references known to be in the value, nil to find
// them. It tells whether the value was changed.
func normaliseArguments(cs *compiledSchema, v Value, refs []Reference, at argumentsAt, l Limits, notes, errs *findings) (Value, bool) {
	changed := false
	switch v.kind {
	case Invalid, Null:
		v, changed = Value{kind: Object}, true
	case Object:
	default:
		errs.error(found{layer: layerArguments, code: codeArgsNotObject, pointer: at.pointer, step: at.step,
			message: "arguments are a " + v.kind.String() + ", not an object", hint: "write an object of names and values"})
		return v, false
	}
	if cs == nil {
		return v, changed
	}
	if cs.problem != "" {
		errs.error(found{layer: layerArguments, code: codeSchemaInvalid, pointer: at.pointer, step: at.step,
			message: "the tool's input schema cannot be used: " + cs.problem, hint: "mend the tool's definition"})
		return v, changed
	}
	if refs == nil {
		refs, _ = scanReferences(v, l)
	}
	if len(refs) == 1 && refs[0].Pointer == "" {
		return v, changed
	}
	list := undecided(cs.check(v, l), refs)
	if dropped := nullsToDrop(list, v); len(dropped) > 0 {
		mended, kept := dropNulls(cs, v, dropped, refs, l)
		if len(kept) > 0 {
			v, changed = mended, true
			list = undecided(cs.check(v, l), refs)
			for _, path := range kept {
				m := mismatch{at: path}
				notes.note(found{layer: layerArguments, code: codeNullDropped, pointer: m.pointer(at.pointer), step: at.step,
					message: fmt.Sprintf("%s was null, which its schema does not allow; as it is optional it was left out", quote(path[len(path)-1]))})
			}
		}
	}
	for _, m := range list {
		reportMismatch(cs, m, at, errs)
	}
	return v, changed
}

// reportMismatch turns a mismatch of arguments into findings.
func reportMismatch(cs *compiledSchema, m mismatch, at argumentsAt, errs *findings) {
	pointer := m.pointer(at.pointer)
	for _, name := range m.missing {
		errs.error(found{layer: layerArguments, code: codeMissingArgument, pointer: pointer + "/" + escapePointer(name), step: at.step,
			message: fmt.Sprintf("the argument %s is missing%s", quote(name), ofTool(at)),
			hint:    "give it a value or a reference", values: values("name", StringValue(name))})
	}
	for _, name := range m.unknown {
		var known []string
		if errs.full() {
			errs.error(found{code: codeUnknownArgument})
			continue
		}
		if sub, _, _ := schemaAt(&cs.doc, m.at); sub != nil {
			if sub = plainSchema(&cs.doc, sub); sub != nil {
				known = closedNames(sub)
			}
		}
		near := errs.nearest(name, known)
		errs.error(found{layer: layerArguments, code: codeUnknownArgument, pointer: pointer + "/" + escapePointer(name), step: at.step,
			message: fmt.Sprintf("there is no argument %s%s", quote(name), ofTool(at)),
			hint:    didYouMean(near, "leave it out; there are: "+listed(known)),
			values:  values("name", StringValue(name), "nearest", stringList(near))})
	}
	if m.missing != nil || m.unknown != nil {
		return
	}
	what := "the value"
	if len(m.at) > 0 {
		what = quote(m.at[len(m.at)-1])
	}
	errs.error(found{layer: layerArguments, code: codeSchemaMismatch, pointer: pointer, step: at.step,
		message: what + " " + m.message, hint: m.hint})
}

func ofTool(at argumentsAt) string {
	if at.tool == "" {
		return ""
	}
	return " of " + quote(at.tool)
}

// undecided leaves out the mismatches that a reference's value may yet cure.
func undecided(list []mismatch, refs []Reference) []mismatch {
	if len(refs) == 0 || len(list) == 0 {
		return list
	}
	return slices.DeleteFunc(list, func(m mismatch) bool {
		if m.conditional {
			return true
		}
		at := m.pointer("")
		for _, r := range refs {
			if at == r.Pointer || strings.HasPrefix(at, r.Pointer+"/") || m.combined && strings.HasPrefix(r.Pointer, at+"/") {
				return true
			}
		}
		return false
	})
}

// nullsToDrop returns the members that are null where the schema complains.
func nullsToDrop(list []mismatch, v Value) [][]string {
	var paths [][]string
	for _, m := range list {
		if len(m.at) == 0 {
			continue
		}
		holder, ok := v.At(m.at[:len(m.at)-1])
		if !ok || holder.kind != Object {
			continue
		}
		if member, ok := holder.Get(m.at[len(m.at)-1]); ok && member.kind == Null && !slices.ContainsFunc(paths, func(p []string) bool { return slices.Equal(p, m.at) }) {
			paths = append(paths, m.at)
		}
	}
	return paths
}

// dropNulls takes members out, except those that the schema then misses. It returns the paths taken out.
func dropNulls(cs *compiledSchema, v Value, paths [][]string, refs []Reference, l Limits) (Value, [][]string) {
	mended := v
	for _, p := range paths {
		mended = mended.without(p)
	}
	required := map[string]bool{}
	for _, m := range cs.check(mended, l) {
		for _, name := range m.missing {
			required[m.pointer("")+"/"+escapePointer(name)] = true
		}
	}
	kept := slices.DeleteFunc(slices.Clone(paths), func(p []string) bool { return required[mismatch{at: p}.pointer("")] })
	if len(kept) == len(paths) {
		return mended, kept
	}
	mended = v
	for _, p := range kept {
		mended = mended.without(p)
	}
	return mended, kept
}

// without returns the value without the member at a path.
func (v Value) without(path []string) Value {
	switch v.kind {
	case Object:
		members := make([]Member, 0, len(v.members))
		for _, m := range v.members {
			if m.Name == path[0] {
				if len(path) == 1 {
					continue
				}
				m.Value = m.Value.without(path[1:])
			}
			members = append(members, m)
		}
		v.members = members
	case Array:
		if i, ok := arrayIndex(path[0]); ok && i < len(v.items) && len(path) > 1 {
			v.items = slices.Clone(v.items)
			v.items[i] = v.items[i].without(path[1:])
		}
	}
	return v
}
