package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// ValidateSchema checks a value against a JSON Schema (2020-12 where the schema names no other draft). Findings point
// into the value: code schema_mismatch, or schema_invalid where the schema itself is not usable. Absent schemas allow
// anything. Nothing is loaded from anywhere; "format" is not checked, as the standard has it.
func ValidateSchema(schema, value *planv1.JsonText) []*planv1.Finding {
	return DefaultLimits().ValidateSchema(schema, value)
}

// ValidateSchema is the function ValidateSchema within these limits.
func (l Limits) ValidateSchema(schema, value *planv1.JsonText) []*planv1.Finding {
	if schema == nil {
		return nil
	}
	l = l.withDefaults()
	fs := newFindings(l)
	cs := compileSchema(schema.GetText(), l)
	if cs.problem != "" {
		fs.error(found{layer: layerArguments, code: codeSchemaInvalid, message: cs.problem})
		return fs.done()
	}
	v, problems := valueOf(value, l)
	if len(problems) > 0 || v.kind == Invalid {
		message := "there is no value to check"
		if len(problems) > 0 {
			message = problems[0].Error()
		}
		fs.error(found{layer: layerArguments, code: codeSchemaMismatch, message: message})
		return fs.done()
	}
	for _, m := range cs.check(v, l) {
		fs.error(found{layer: layerArguments, code: codeSchemaMismatch, pointer: m.pointer(""), message: m.message, hint: m.hint})
	}
	return fs.done()
}

// CheckSchema tells what makes a JSON Schema unusable, as a finding of code schema_invalid; nil where it is usable or absent.
func CheckSchema(schema *planv1.JsonText) *planv1.Finding {
	if schema == nil {
		return nil
	}
	cs := compileSchema(schema.GetText(), DefaultLimits())
	if cs.problem == "" {
		return nil
	}
	return &planv1.Finding{Severity: planv1.Severity_SEVERITY_ERROR, Layer: layerArguments, Code: codeSchemaInvalid,
		Message: cs.problem, Hint: "write a JSON Schema (2020-12)"}
}

// compiledSchema is a schema ready for use. It never changes after it was made.
type compiledSchema struct {
	schema *jsonschema.Schema
	// What is wrong with the schema, empty where it is usable.
	problem string
	doc     Value
	// The schema refers to parts of itself, so that checking may cost more than schema times value.
	recursive bool
}

const schemaCacheSize = 1024

type schemaKey struct {
	text     string
	maxDepth int
}

var schemas = newMemo[schemaKey, *compiledSchema](schemaCacheSize)

func compileSchema(text string, l Limits) *compiledSchema {
	return schemas.get(schemaKey{text, l.MaxDepth}, func() *compiledSchema { return newCompiledSchema(text, l) })
}

// noLoader refuses every schema that is not the one given.
type noLoader struct{}

var errNotLoaded = errors.New("other documents are not loaded")

func (noLoader) Load(string) (any, error) { return nil, errNotLoaded }

func newCompiledSchema(text string, l Limits) (cs *compiledSchema) {
	cs = &compiledSchema{}
	doc, problems := parseJSON(text, l)
	if len(problems) > 0 {
		cs.problem = "the JSON Schema is not valid JSON: " + problems[0].Error()
		return cs
	}
	if doc.kind != Object && doc.kind != Bool {
		cs.problem = "a JSON Schema is an object, true or false, not a " + doc.kind.String()
		return cs
	}
	cs.doc = doc
	if cs.problem = cs.inspect(doc, ""); cs.problem != "" {
		return cs
	}
	defer func() {
		if recover() != nil {
			cs.schema, cs.problem = nil, "the JSON Schema cannot be compiled"
		}
	}()
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	const name = "cairn:schema"
	if err := c.AddResource(name, doc.native()); err != nil {
		cs.problem = "the JSON Schema cannot be compiled"
		return cs
	}
	schema, err := c.Compile(name)
	if err != nil {
		cs.problem = schemaProblem(err)
		return cs
	}
	cs.schema = schema
	return cs
}

// schemaProblem says in our words where a schema is not one.
func schemaProblem(err error) string {
	var invalid *jsonschema.SchemaValidationError
	if errors.As(err, &invalid) {
		var list []mismatch
		if verr := (*jsonschema.ValidationError)(nil); errors.As(invalid.Err, &verr) {
			list = flatten(verr)
		}
		if len(list) > 0 {
			return fmt.Sprintf("the JSON Schema is not valid at %q: %s", list[0].pointer(""), list[0].message)
		}
	}
	return "the JSON Schema is not valid: it names a draft, reference or pattern that cannot be used"
}

// inspect looks for references, and refuses those that could reach outside the document or that hide how often a part
// is used.
func (cs *compiledSchema) inspect(v Value, pointer string) string {
	for i := range v.items {
		if problem := cs.inspect(v.items[i], pointer+"/"+strconv.Itoa(i)); problem != "" {
			return problem
		}
	}
	for i := range v.members {
		m := &v.members[i]
		at := pointer + "/" + escapePointer(m.Name)
		switch m.Name {
		case "const", "enum", "default", "examples":
			continue
		case "$ref":
			if m.Value.kind == String {
				cs.recursive = true
				if m.Value.text != "#" && !strings.HasPrefix(m.Value.text, "#/") {
					return fmt.Sprintf("the JSON Schema refers to %s at %q; only references within the schema (#/…) are possible", quote(m.Value.text), at)
				}
			}
		case "$dynamicRef", "$recursiveRef":
			if m.Value.kind == String {
				return fmt.Sprintf("the JSON Schema uses %s at %q; only \"$ref\" within the schema (#/…) is possible", m.Name, at)
			}
		case "$id":
			if m.Value.kind == String && pointer != "" {
				return fmt.Sprintf("the JSON Schema has an \"$id\" at %q; it may only stand at the top", at)
			}
		}
		if problem := cs.inspect(m.Value, at); problem != "" {
			return problem
		}
	}
	return ""
}

// native is the value as the schema library wants it.
func (v Value) native() any {
	switch v.kind {
	case Bool:
		return v.text == "true"
	case Number:
		return json.Number(v.text)
	case String:
		return v.text
	case Array:
		list := make([]any, len(v.items))
		for i := range v.items {
			list[i] = v.items[i].native()
		}
		return list
	case Object:
		m := make(map[string]any, len(v.members))
		for i := range v.members {
			m[v.members[i].Name] = v.members[i].Value.native()
		}
		return m
	}
	return nil
}

// mismatch is one place where a value does not fit its schema.
type mismatch struct {
	at      []string
	message string
	hint    string
	// Names of properties that are missing or not allowed.
	missing, unknown []string
	// The verdict depends on the whole value at this place, not on its type alone.
	combined bool
	// The branch of the schema that said so was chosen by a condition.
	conditional bool
}

func (m mismatch) pointer(prefix string) string {
	var b strings.Builder
	b.WriteString(prefix)
	for _, part := range m.at {
		b.WriteByte('/')
		b.WriteString(escapePointer(part))
	}
	return b.String()
}

// check validates a value. The order of mismatches is fixed.
func (cs *compiledSchema) check(v Value, l Limits) (list []mismatch) {
	if cs.recursive && !cs.affordable(v, l.MaxSchemaSteps) {
		return []mismatch{{message: fmt.Sprintf("checking this value takes more than %d steps (max_schema_steps)", l.MaxSchemaSteps),
			hint: "make the schema less recursive"}}
	}
	defer func() {
		if recover() != nil {
			list = []mismatch{{message: "the value cannot be checked against its schema"}}
		}
	}()
	err := cs.schema.Validate(v.native())
	if err == nil {
		return nil
	}
	var verr *jsonschema.ValidationError
	if !errors.As(err, &verr) {
		return []mismatch{{message: "the value cannot be checked against its schema"}}
	}
	return flatten(verr)
}

func flatten(e *jsonschema.ValidationError) []mismatch {
	var list []mismatch
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		switch e.ErrorKind.(type) {
		case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
			for _, cause := range e.Causes {
				walk(cause)
			}
		default:
			list = append(list, newMismatch(e))
		}
	}
	walk(e)
	// The library walks objects in Go's map order.
	slices.SortFunc(list, func(a, b mismatch) int {
		return cmp.Or(slices.Compare(a.at, b.at), strings.Compare(a.message, b.message))
	})
	return list
}

func newMismatch(e *jsonschema.ValidationError) mismatch {
	m := mismatch{at: slices.Clone(e.InstanceLocation)}
	_, fragment, _ := strings.Cut(e.SchemaURL, "#")
	for _, keyword := range []string{"/then", "/else", "/dependentSchemas", "/unevaluated"} {
		m.conditional = m.conditional || strings.Contains(fragment, keyword)
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		m.message = fmt.Sprintf("is %s, should be %s", article(k.Got), articles(k.Want))
	case *kind.Required:
		m.missing = slices.Sorted(slices.Values(k.Missing))
		m.message = "lacks " + quotedList(m.missing)
	case *kind.AdditionalProperties:
		m.unknown = slices.Sorted(slices.Values(k.Properties))
		m.message = "has " + quotedList(m.unknown) + ", which the schema does not allow"
	case *kind.Enum:
		m.combined = true
		m.message = "is not one of the values allowed"
		if texts, ok := nativeTexts(k.Want); ok {
			m.message += ": " + texts
		}
	case *kind.Const:
		m.combined = true
		m.message = "is not the value required"
		if texts, ok := nativeTexts([]any{k.Want}); ok {
			m.message += ": " + texts
		}
	case *kind.Minimum:
		m.message = "is less than " + ratText(k.Want)
	case *kind.Maximum:
		m.message = "is more than " + ratText(k.Want)
	case *kind.ExclusiveMinimum:
		m.message = "is not more than " + ratText(k.Want)
	case *kind.ExclusiveMaximum:
		m.message = "is not less than " + ratText(k.Want)
	case *kind.MultipleOf:
		m.message = "is not a multiple of " + ratText(k.Want)
	case *kind.MinLength:
		m.message = fmt.Sprintf("has %d characters, fewer than %d", k.Got, k.Want)
	case *kind.MaxLength:
		m.message = fmt.Sprintf("has %d characters, more than %d", k.Got, k.Want)
	case *kind.Pattern:
		m.message = "does not match the pattern " + quote(k.Want)
	case *kind.MinItems:
		m.message = fmt.Sprintf("has %d elements, fewer than %d", k.Got, k.Want)
	case *kind.MaxItems:
		m.message = fmt.Sprintf("has %d elements, more than %d", k.Got, k.Want)
	case *kind.MinProperties:
		m.message = fmt.Sprintf("has %d properties, fewer than %d", k.Got, k.Want)
	case *kind.MaxProperties:
		m.message = fmt.Sprintf("has %d properties, more than %d", k.Got, k.Want)
	case *kind.UniqueItems:
		m.combined = true
		m.message = fmt.Sprintf("has the same element at %d and %d", k.Duplicates[0], k.Duplicates[1])
	case *kind.AnyOf:
		m.combined = true
		m.message = "fits none of the alternatives of the schema"
		m.hint = alternatives(e.Causes)
	case *kind.OneOf:
		m.combined = true
		if len(k.Subschemas) > 1 {
			m.message = "fits more than one alternative of the schema, where exactly one is wanted"
		} else {
			m.message = "fits none of the alternatives of the schema"
			m.hint = alternatives(e.Causes)
		}
	case *kind.FalseSchema:
		m.message = "is not allowed by the schema"
	default:
		m.combined = true
		m.message = "does not fit the schema"
		if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
			m.message += " (" + path[0] + ")"
		}
	}
	return m
}

// alternatives says why each alternative does not fit, shortly.
func alternatives(causes []*jsonschema.ValidationError) string {
	const most = 3
	var parts []string
	for _, c := range causes {
		list := flatten(c)
		if len(list) == 0 {
			continue
		}
		if len(parts) == most {
			parts = append(parts, "…")
			break
		}
		at := ""
		if p := list[0].pointer(""); p != "" {
			at = p + " "
		}
		parts = append(parts, at+list[0].message)
	}
	return strings.Join(parts, "; ")
}

func article(t string) string {
	switch {
	case t == "null" || t == "":
		return t
	case strings.ContainsAny(t[:1], "aeiou"):
		return "an " + t
	}
	return "a " + t
}

func articles(types []string) string {
	list := make([]string, len(types))
	for i, t := range types {
		list[i] = article(t)
	}
	return strings.Join(list, " or ")
}

func quotedList(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return listed(quoted)
}

// nativeTexts shows scalar values; a list or object among them is too much for a message.
func nativeTexts(list []any) (string, bool) {
	var texts []string
	for _, v := range list {
		switch v := v.(type) {
		case string:
			texts = append(texts, quote(v))
		case json.Number:
			texts = append(texts, v.String())
		case bool:
			texts = append(texts, strconv.FormatBool(v))
		case nil:
			texts = append(texts, "null")
		default:
			return "", false
		}
	}
	return listed(texts), true
}

func ratText(r *big.Rat) string {
	if r.IsInt() {
		if text := r.Num().String(); len(text) <= 40 {
			return text
		}
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}
