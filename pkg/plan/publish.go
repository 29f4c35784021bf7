package plan

import (
	_ "embed" // the schema files
	"slices"
	"strings"
	"sync"
)

//go:embed schema.json
var planSchema string

//go:embed patch.schema.json
var patchSchema string

// Schema returns the JSON Schema (2020-12) of plan documents. What it accepts has the form of a plan; whether the plan
// makes sense is for Validate.
func Schema() []byte { return []byte(planSchema) }

// PatchSchema returns the JSON Schema of patch documents.
func PatchSchema() []byte { return []byte(patchSchema) }

// StrictSchema returns the schema of plan documents for models with strict structured output: every object is closed,
// every property is required and null stands for absent, there is one way to write each thing. Objects of free form
// (arguments, a JSON Schema) are strings that hold JSON, as strict output knows no others; Parse reads them.
func StrictSchema() []byte { return slices.Clone(strictPlan()) }

// StrictPatchSchema is StrictSchema for patch documents.
func StrictPatchSchema() []byte { return slices.Clone(strictPatch()) }

var (
	strictPlan  = sync.OnceValue(func() []byte { return strictSchema(planSchema) })
	strictPatch = sync.OnceValue(func() []byte { return strictSchema(patchSchema) })
)

// strictSchema makes a strict schema of a published one.
func strictSchema(text string) []byte {
	v, problems := parseJSON(text, DefaultLimits())
	if len(problems) > 0 {
		// The text is part of the program.
		panic(problems[0])
	}
	return strictly(v, "").Append(nil)
}

// Left out of strict schemas: what acceptance gives, and the short forms.
var notStrict = map[string][]string{
	"":     {"id", "version", "created_by", "parent_version", "set_assumptions"},
	"step": {"tool", "arguments", "timeout"},
}

// Written as strings that hold JSON, by the definition that they belong to.
var textForms = map[string]map[string]string{
	"action": {"arguments": "A JSON object as text: {\"name\": value, …}. A value may be a reference {\"$ref\": \"steps.<id>.result.<path>\"}."},
	"expect": {"schema": "JSON Schema of the step's result as text."},
	"step": {
		"for_each": "A reference to a list, steps.<id>.result.<path>, or a JSON list as text: the step runs once for each element, with the references item and index.",
		"result":   "What of the output is the result: a path such as data.items, or a JSON object of names and paths as text.",
	},
}

// strictly rewrites a schema; owner is the definition that it is, empty for the document.
func strictly(v Value, owner string) Value {
	if v.kind != Object {
		return v
	}
	if alternatives, ok := v.Get("anyOf"); ok {
		return strictAlternative(alternatives)
	}
	out := Value{kind: Object}
	for _, m := range v.members {
		switch m.Name {
		case "$schema", "title", "allOf", "pattern", "minLength", "minimum", "maximum", "required":
			continue
		case "properties":
			properties, names := strictProperties(m.Value, owner)
			out.members = append(out.members, Member{Name: "properties", Value: properties}, Member{Name: "required", Value: stringList(names)})
		case "$defs":
			defs := Value{kind: Object}
			for _, d := range m.Value.members {
				defs.members = append(defs.members, Member{Name: d.Name, Value: strictly(d.Value, d.Name)})
			}
			out.members = append(out.members, Member{Name: "$defs", Value: defs})
		case "items":
			out.members = append(out.members, Member{Name: "items", Value: strictly(m.Value, owner)})
		default:
			out.members = append(out.members, m)
		}
	}
	return out
}

func strictProperties(v Value, owner string) (Value, []string) {
	out := Value{kind: Object}
	var names []string
	for _, m := range v.members {
		if slices.Contains(notStrict[owner], m.Name) {
			continue
		}
		property := strictly(m.Value, owner)
		if description, ok := textForms[owner][m.Name]; ok {
			property = values("type", stringList([]string{"string", "null"}), "description", StringValue(description))
		}
		out.members = append(out.members, Member{Name: m.Name, Value: property})
		names = append(names, m.Name)
	}
	return out, names
}

// strictAlternative keeps the definition among alternatives, and null where that is one.
func strictAlternative(alternatives Value) Value {
	var definition Value
	nullable := false
	for _, a := range alternatives.items {
		if ref, ok := a.Get("$ref"); ok && strings.HasPrefix(ref.text, "#/$defs/") {
			definition = a
		}
		t, _ := a.Get("type")
		nullable = nullable || schemaTypes(t)&typeNull != 0
	}
	if !nullable {
		return definition
	}
	return values("anyOf", Value{kind: Array, items: []Value{definition, values("type", StringValue("null"))}})
}
