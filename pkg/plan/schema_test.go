package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCheckSchema(t *testing.T) {
	for schema, usable := range map[string]bool{`{}`: true, `true`: true, `{"type":["string","null"]}`: true, `{"type":"objekt"}`: false,
		`{"properties":{"a":{"minimum":"1"}}}`: false, `[1]`: false, `{`: false, `{"$ref":"https://example.com/s"}`: false} {
		if f := CheckSchema(text(schema)); (f == nil) != usable || f != nil && f.GetCode() != codeSchemaInvalid {
			t.Errorf("%s: %v", schema, f)
		}
	}
	if f := CheckSchema(nil); f != nil {
		t.Errorf("an absent schema is refused: %v", f)
	}
}

func TestValidateSchema(t *testing.T) {
	for _, c := range []struct{ schema, value, want string }{
		{`{"type":"object","required":["b","a"]}`, `{}`, `error schema_mismatch : lacks "a", "b"`},
		{`{"type":["string","null"]}`, `1`, `error schema_mismatch : is a number, should be null or a string`},
		{`{"properties":{"n":{"type":"integer"}}}`, `{"n":1.5}`, `error schema_mismatch /n: is a number, should be an integer`},
		{`{"additionalProperties":false}`, `{"z":1,"y":2}`, `error schema_mismatch : has "y", "z", which the schema does not allow`},
		{`{"enum":["a",1,null,true]}`, `"b"`, `error schema_mismatch : is not one of the values allowed: "a", 1, null, true`},
		{`{"const":{"a":1}}`, `1`, `error schema_mismatch : is not the value required`},
		{`{"items":{"minimum":0.5,"exclusiveMaximum":9007199254740993}}`, `[0.25,9007199254740993]`,
			"error schema_mismatch /0: is less than 0.5 \nerror schema_mismatch /1: is not less than 9007199254740993"},
		{`{"minLength":2,"pattern":"^a"}`, `"b"`, "error schema_mismatch : does not match the pattern \"^a\""},
		{`{"minItems":2,"uniqueItems":true}`, `[1]`, `error schema_mismatch : has 1 elements, fewer than 2`},
		{`{"uniqueItems":true}`, `[1,2,1.0]`, `error schema_mismatch : has the same element at 0 and 2`},
		{`{"maxProperties":1}`, `{"a":1,"b":2}`, `error schema_mismatch : has 2 properties, more than 1`},
		{`{"multipleOf":0.1}`, `0.25`, `error schema_mismatch : is not a multiple of 0.1`},
		{`{"anyOf":[{"type":"string"},{"required":["a"],"type":"object"}]}`, `{}`, `error schema_mismatch : fits none of the alternatives of the schema (is an object, should be a string; lacks "a")`},
		{`{"oneOf":[{"minimum":1},{"minimum":2}]}`, `3`, `error schema_mismatch : fits more than one alternative of the schema, where exactly one is wanted`},
		{`{"not":{"type":"string"}}`, `"a"`, `error schema_mismatch : does not fit the schema`},
		{`false`, `1`, `error schema_mismatch : is not allowed by the schema`},
		{`{"$ref":"#/$defs/x","$defs":{"x":{"type":"string"}}}`, `1`, `error schema_mismatch : is a number, should be a string`},
		{`{"allOf":[{"type":"object"},{"required":["a/b"]}],"properties":{"c~":{"type":"null"}}}`, `{"c~":1}`,
			"error schema_mismatch : lacks \"a/b\" \nerror schema_mismatch /c~0: is a number, should be null"},
		{`{"format":"email"}`, `"no address"`, ``},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}]}`, `[1]`, `error schema_mismatch /0: is a number, should be a string`},
		{`true`, `{"a":[1,null]}`, ``},
		{`{"type":"nothing"}`, `1`, `error schema_invalid : the JSON Schema is not valid at "/type"`},
		{`{"pattern":"("}`, `1`, `error schema_invalid : the JSON Schema is not valid`},
		{`{"$ref":"https://example.com/schema.json"}`, `1`, `only references within the schema`},
		{`{"$ref":"file:///etc/passwd"}`, `1`, `only references within the schema`},
		{`{"$ref":"#/$defs/gone"}`, `1`, `error schema_invalid`},
		{`{"$schema":"https://example.com/draft"}`, `1`, `error schema_invalid`},
		{`{"$dynamicRef":"#x"}`, `1`, `error schema_invalid`},
		{`{"properties":{"a":{"$id":"other"}}}`, `1`, `error schema_invalid`},
		{`7`, `1`, `error schema_invalid`},
		{`{`, `1`, `error schema_invalid`},
		{`{"minimum":1e999999999}`, `1`, `error schema_invalid`},
		{`{}`, `{`, `error schema_mismatch`},
	} {
		for range 3 {
			got := show(ValidateSchema(text(c.schema), text(c.value)))
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%s against %s:\ngot  %swant %s", c.value, c.schema, got, c.want)
			}
		}
	}
	if got := ValidateSchema(nil, text("1")); got != nil {
		t.Errorf("no schema: %s", show(got))
	}
	if got := ValidateSchema(text("{}"), nil); len(got) != 1 {
		t.Errorf("no value: %s", show(got))
	}
}

// One fixed rule: null for an optional property that does not take null is left out; null is kept where it is allowed.
func TestCase14_NullAgainstMissing(t *testing.T) {
	schema := text(`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":["string","null"]},"c":{"type":"string"},
	 "e":{"enum":["x","y"]},"o":{"type":"object","properties":{"in":{"type":"integer"},"must":{"type":"string"}},"required":["must"]},
	 "l":{"type":"array","items":{"type":"string"}},"u":{"anyOf":[{"type":"string"},{"type":"integer"}]}},"required":["c"],"additionalProperties":false}`)
	for _, c := range []struct {
		args, want    string
		dropped, errs []string
	}{
		{`{"a":null,"c":"v"}`, `{"c":"v"}`, []string{"/a"}, nil},
		{`{"b":null,"c":"v"}`, `{"b":null,"c":"v"}`, nil, nil},
		{`{"c":"v"}`, `{"c":"v"}`, nil, nil},
		{`{"c":"v","e":null,"u":null}`, `{"c":"v"}`, []string{"/e", "/u"}, nil},
		{`{"c":"v","o":{"in":null,"must":"x"}}`, `{"c":"v","o":{"must":"x"}}`, []string{"/o/in"}, nil},
		{`{"c":null}`, `{"c":null}`, nil, []string{"schema_mismatch /c"}},
		{`{"c":null,"a":null}`, `{"c":null}`, []string{"/a"}, []string{"schema_mismatch /c"}},
		{`{"c":"v","o":{"must":null}}`, `{"c":"v","o":{"must":null}}`, nil, []string{"schema_mismatch /o/must"}},
		{`{"c":"v","l":[null]}`, `{"c":"v","l":[null]}`, nil, []string{"schema_mismatch /l/0"}},
		{`{"c":"v","l":[]}`, `{"c":"v","l":[]}`, nil, nil},
		{`{"c":"v","z":null}`, `{"c":"v","z":null}`, nil, []string{"unknown_argument /z"}},
		{`{}`, `{}`, nil, []string{"missing_argument /c"}},
		{`null`, `{}`, nil, []string{"missing_argument /c"}},
		{`[]`, `[]`, nil, []string{"args_not_object "}},
		{`{"c":{"$ref":"steps.a.result.x"},"a":{"$ref":"steps.a.result.y"}}`, `{"c":{"$ref":"steps.a.result.x"},"a":{"$ref":"steps.a.result.y"}}`, nil, nil},
		{`{"c":{"$ref":"steps.a.result.x"},"a":1,"b":null,"e":null}`, `{"c":{"$ref":"steps.a.result.x"},"a":1,"b":null}`, []string{"/e"}, []string{"schema_mismatch /a"}},
		{`{"$ref":"steps.a.result"}`, `{"$ref":"steps.a.result"}`, nil, nil},
	} {
		args, notes, errs := NormaliseArguments(schema, text(c.args))
		if args.GetText() != c.want {
			t.Errorf("%s became %s, want %s", c.args, args.GetText(), c.want)
		}
		var dropped, failed []string
		for _, n := range notes {
			dropped = append(dropped, n.GetPointer())
			if n.GetCode() != codeNullDropped {
				t.Errorf("%s: note %s", c.args, n.GetCode())
			}
		}
		for _, e := range errs {
			failed = append(failed, e.GetCode()+" "+e.GetPointer())
		}
		if diff := cmp.Diff(c.dropped, dropped); diff != "" {
			t.Errorf("%s, dropped:\n%s", c.args, diff)
		}
		if diff := cmp.Diff(c.errs, failed); diff != "" {
			t.Errorf("%s, refused:\n%s", c.args, diff)
		}
	}
	if args, notes, errs := NormaliseArguments(schema, nil); args.GetText() != "{}" || len(notes) != 0 || len(errs) != 1 {
		t.Errorf("absent arguments: %v %s %s", args, show(notes), show(errs))
	}
	if args, _, errs := NormaliseArguments(nil, text(`{"any":null}`)); args.GetText() != `{"any":null}` || len(errs) != 0 {
		t.Errorf("no schema: %v %s", args, show(errs))
	}
	// A tool may answer with null, and a null result is a value.
	if got, err := Resolve(text(`{"x":{"$ref":"steps.a.result","default":1}}`), lookupIn(map[string]string{"steps.a": "null"})); err != nil || got.Arguments.GetText() != `{"x":null}` {
		t.Errorf("null result: %v, %v", got.Arguments, err)
	}
	if got, err := Extract(nil, text("null")); err != nil || got.GetText() != "null" {
		t.Errorf("null output: %v, %v", got, err)
	}
}

// Findings that a reference's value may yet cure are not made; those that it cannot are.
func TestReferencesInArgumentsAreTakenToFit(t *testing.T) {
	for _, c := range []struct {
		schema, args string
		refused      bool
	}{
		{`{"properties":{"x":{"anyOf":[{"type":"string"},{"type":"integer"}]}}}`, `{"x":{"$ref":"item"}}`, false},
		{`{"oneOf":[{"required":["x"],"properties":{"x":{"type":"integer"}}},{"required":["y"]}]}`, `{"x":{"$ref":"item"}}`, false},
		{`{"properties":{"x":{"items":{"type":"integer"},"uniqueItems":true}}}`, `{"x":[{"$ref":"item"},{"$ref":"item"}]}`, false},
		{`{"if":{"properties":{"k":{"const":"a"}}},"then":{"required":["x"]}}`, `{"k":{"$ref":"item"}}`, false},
		{`{"if":{"properties":{"k":{"const":"a"}}},"then":{},"else":{"required":["x"]}}`, `{"k":{"$ref":"item"}}`, false},
		{`{"properties":{"x":{"enum":["a"]},"y":{"enum":["b"]}}}`, `{"x":{"$ref":"item"},"y":"c"}`, true},
		{`{"properties":{"x":{"items":{"type":"integer"}}}}`, `{"x":[{"$ref":"item"},"no"]}`, true},
		{`{"required":["x","y"]}`, `{"x":{"$ref":"item"}}`, true},
		{`{"properties":{"x":{"maxItems":1}}}`, `{"x":[{"$ref":"item"},2]}`, true},
	} {
		_, _, errs := NormaliseArguments(text(c.schema), text(c.args))
		if HasErrors(errs) != c.refused {
			t.Errorf("%s with %s:\n%s", c.args, c.schema, show(errs))
		}
	}
}

// A short schema and a short value can ask for more work than there is time: that is refused, not done.
func TestPathologicalSchemas(t *testing.T) {
	nest := func(n int, inner string) string { return strings.Repeat(`{"a":`, n) + inner + strings.Repeat("}", n) }
	list := func(n int, inner string) string { return strings.Repeat("[", n) + inner + strings.Repeat("]", n) }
	for name, c := range map[string]struct{ schema, value string }{
		"two alternatives a level": {`{"$defs":{"n":{"type":["object","string"],"properties":{"a":{"anyOf":[{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"}]}}}},"$ref":"#/$defs/n"}`, nest(90, "1")},
		"exactly one of two":       {`{"type":["object","string"],"properties":{"a":{"oneOf":[{"$ref":"#"},{"$ref":"#"}]}}}`, nest(90, `"x"`)},
		"not of not":               {`{"$defs":{"n":{"properties":{"a":{"allOf":[{"not":{"$ref":"#/$defs/n"}},{"not":{"$ref":"#/$defs/n"}}]}}}},"not":{"$ref":"#/$defs/n"}}`, nest(90, "1")},
		"pattern beside property":  {`{"not":{"$ref":"#/$defs/n"},"$defs":{"n":{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"patternProperties":{"a":{"$ref":"#/$defs/n"}}}}}`, nest(90, "1")},
		"items and contains":       {`{"not":{"$ref":"#/$defs/n"},"$defs":{"n":{"type":"array","items":{"$ref":"#/$defs/n"},"contains":{"$ref":"#/$defs/n"}}}}`, list(90, "1")},
		"laughs": {`{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"},{"$ref":"#/$defs/b"},{"$ref":"#/$defs/b"},{"$ref":"#/$defs/b"}]},"b":{"allOf":[{"$ref":"#/$defs/c"},{"$ref":"#/$defs/c"},{"$ref":"#/$defs/c"},{"$ref":"#/$defs/c"}]},
		 "c":{"allOf":[{"$ref":"#/$defs/d"},{"$ref":"#/$defs/d"},{"$ref":"#/$defs/d"},{"$ref":"#/$defs/d"}]},"d":{"items":{"$ref":"#/$defs/a"}}},"$ref":"#/$defs/a"}`, list(50, "1")},
	} {
		start := time.Now()
		got := show(ValidateSchema(text(c.schema), text(c.value)))
		if !strings.Contains(got, "max_schema_steps") {
			t.Errorf("%s: %s", name, got)
		}
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("%s took %s", name, d)
		}
	}
	// Ordinary recursion is affordable.
	tree := `{"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/n"}}},"required":["v"],"additionalProperties":false}},"$ref":"#/$defs/n"}`
	value := strings.TrimSuffix(strings.Repeat(`{"v":1,"kids":[]},`, 5000), ",")
	if findings := ValidateSchema(text(tree), text(`{"v":0,"kids":[`+value+`]}`)); len(findings) != 0 {
		t.Errorf("a tree of 5,000: %s", show(findings))
	}
	// A schema that only refers to itself ends.
	for _, schema := range []string{`{"$ref":"#"}`, `{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`, `{"allOf":[{"$ref":"#"}]}`} {
		ValidateSchema(text(schema), text(nest(50, "1")))
	}
}
