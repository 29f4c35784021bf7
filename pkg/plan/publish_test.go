package plan

import (
	"slices"
	"testing"
)

// strictProblems lists what a provider with strict structured output would refuse in a schema.
func strictProblems(v Value, at string) []string {
	var problems []string
	for i, item := range v.Items() {
		problems = append(problems, strictProblems(item, at+"/"+string(rune('0'+i)))...)
	}
	for _, m := range v.Members() {
		problems = append(problems, strictProblems(m.Value, at+"/"+m.Name)...)
		if slices.Contains([]string{"oneOf", "allOf", "not", "if", "then", "dependentRequired", "patternProperties", "minProperties", "default"}, m.Name) && m.Value.Kind() != String {
			problems = append(problems, at+": "+m.Name)
		}
	}
	t, ok := v.Get("type")
	isObject := ok && schemaTypes(t)&typeObject != 0
	properties, hasProperties := v.Get("properties")
	if !isObject {
		return problems
	}
	if more, ok := v.Get("additionalProperties"); !ok || more.Kind() != Bool || more.Text() != "false" {
		problems = append(problems, at+": an open object")
	}
	required, _ := v.Get("required")
	if !hasProperties || len(required.Items()) != len(properties.Members()) {
		problems = append(problems, at+": a property that is not required")
	}
	for i, p := range properties.Members() {
		if i >= len(required.Items()) || required.Items()[i].Text() != p.Name {
			problems = append(problems, at+": "+p.Name+" is not required")
		}
	}
	return problems
}

// A provider that wants every property required and every object closed takes the schemas that models are given.
func TestCase17_StrictSchemas(t *testing.T) {
	for name, schema := range map[string][]byte{"plan": StrictSchema(), "patch": StrictPatchSchema()} {
		v, err := ParseValue(string(schema))
		if err != nil {
			t.Fatal(err)
		}
		if problems := strictProblems(v, ""); len(problems) > 0 {
			t.Errorf("%s: %q", name, problems)
		}
		if cs := compileSchema(string(schema), DefaultLimits()); cs.problem != "" {
			t.Errorf("%s: %s", name, cs.problem)
		}
	}
	// The check can fail: the open schema is not strict.
	open, _ := ParseValue(string(Schema()))
	if len(strictProblems(open, "")) == 0 {
		t.Error("the check finds nothing in a schema that is not strict")
	}
}

// What a model writes by the strict schema is a plan.
func TestStrictDocumentsAreRead(t *testing.T) {
	none := `"title":null,"objective":null,"depends_on":null,"when":null,"optional":null,"allowed_tools":null,"produces":null,"on_failure":null,"compensate":null,"risk":null,"confirm":null`
	doc := `{"goal":"g","assumptions":[{"id":null,"text":"in stock"}],"constraints":null,"acceptance":null,"steps":[
	 {"id":"a",` + none + `,"for_each":null,"result":"{\"n\":\"stock\"}","expect":{"schema":"{\"type\":\"object\"}","checks":[{"expression":"result.n > 0","message":null,"assumption":"a1"}]},
	  "retry":{"max_attempts":2,"delay":null,"factor":null,"max_delay":null,"on":null},"action":{"kind":"tool","name":"stock.check","arguments":"{\"sku\":\"x\"}","timeout":null}},
	 {"id":"b",` + none + `,"for_each":"[1,2]","result":"","expect":null,"retry":null,"action":{"kind":"tool","name":"echo","arguments":"{\"n\":{\"$ref\":\"steps.a.result.n\"}}","timeout":"5s"}},
	 {"id":"c",` + none + `,"for_each":"steps.b.result","result":null,"expect":null,"retry":null,"action":{"kind":"tool","name":"now","arguments":null,"timeout":null}}]}`
	if findings := ValidateSchema(text(string(StrictSchema())), text(doc)); len(findings) > 0 {
		t.Fatalf("the document is not strict:\n%s", show(findings))
	}
	p, _ := mustRead(t, doc, testEnvironment())
	want := `{"goal":"g","assumptions":[{"id":"a1","text":"in stock"}],"steps":[` +
		`{"id":"a","action":{"kind":"tool","name":"stock.check","arguments":{"sku":"x"}},"result":{"n":"stock"},"expect":{"schema":{"type":"object"},"checks":[{"expression":"result.n > 0","assumption":"a1"}]},"retry":{"max_attempts":2}},` +
		`{"id":"b","action":{"kind":"tool","name":"echo","arguments":{"n":{"$ref":"steps.a.result.n"}},"timeout":"5s"},"depends_on":["a"],"for_each":[1,2],"result":""},` +
		`{"id":"c","action":{"kind":"tool","name":"now","arguments":{}},"depends_on":["b"],"for_each":{"$ref":"steps.b.result"}}]}`
	if got := Document(p).GetText(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	patch := `{"base_version":1,"add":[],"update":null,"remove":["b"],"assumptions":null,"reason":"r","goal":null}`
	if findings := ValidateSchema(text(string(StrictPatchSchema())), text(patch)); len(findings) > 0 {
		t.Fatalf("the patch is not strict:\n%s", show(findings))
	}
	if got, findings := ParsePatch([]byte(patch)); len(findings) > 0 || got.GetSetAssumptions() || PatchDocument(got).GetText() != `{"base_version":1,"remove":["b"],"reason":"r"}` {
		t.Errorf("read as %s\n%s", PatchDocument(got).GetText(), show(findings))
	}
}

// The patch's schema has the plan's definitions.
func TestSchemasShareTheirDefinitions(t *testing.T) {
	plan, _ := ParseValue(planSchema)
	patch, _ := ParseValue(patchSchema)
	a, _ := plan.Get("$defs")
	b, _ := patch.Get("$defs")
	if string(a.Append(nil)) != string(b.Append(nil)) || a.Kind() != Object {
		t.Error("$defs differ")
	}
}
