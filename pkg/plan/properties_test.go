package plan

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/cairnrun/cairn/proto/exactjson"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// anyJSON draws JSON text of any kind.
func anyJSON(t *rapid.T, depth int) string {
	kinds := 5
	if depth > 0 {
		kinds = 7
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return "null"
	case 1:
		return rapid.SampledFrom([]string{"true", "false"}).Draw(t, "bool")
	case 2, 3:
		return rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,6})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
	case 4:
		return string(appendString(nil, rapid.String().Draw(t, "text")))
	case 5:
		var items []string
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			items = append(items, anyJSON(t, depth-1))
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	var members []string
	for i := range rapid.IntRange(0, 3).Draw(t, "members") {
		members = append(members, string(appendString(nil, fmt.Sprintf("%d%s", i, rapid.StringMatching(`[a-z~/. é"]{0,3}`).Draw(t, "key"))))+":"+anyJSON(t, depth-1))
	}
	return "{" + strings.Join(members, ",") + "}"
}

func TestValueProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyJSON(t, 4)
		v, err := ParseValue(in)
		if err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		if out := string(v.Append(nil)); out != in {
			t.Fatalf("%s became %s", in, out)
		}
		c := Canonical(text(in))
		if again := Canonical(text(c)); again != c {
			t.Fatalf("canonical text is not stable: %s, %s", c, again)
		}
		var walk func(v Value, path []string)
		walk = func(v Value, path []string) {
			raw, ok := textAt(in, path)
			if !ok || raw != string(v.Append(nil)) {
				t.Fatalf("at %q of %s: %q, want %s", path, in, raw, v.Append(nil))
			}
			for i, item := range v.Items() {
				walk(item, append(path[:len(path):len(path)], fmt.Sprint(i)))
			}
			for _, m := range v.Members() {
				walk(m.Value, append(path[:len(path):len(path)], m.Name))
			}
			if parsed, err := parsePath(formatPath(path), false); err != nil || strings.Join(parsed, "\x00") != strings.Join(path, "\x00") {
				t.Fatalf("path %q is written %s and read %q, %v", path, formatPath(path), parsed, err)
			}
		}
		walk(v, nil)
	})
}

// field draws a value for a document's field: right, null, or wrong.
func field(t *rapid.T, name string, right ...string) string {
	values := append([]string{"null", "7", `"x"`, `["x"]`, `[7]`, `{}`, `{"x":1}`, "true", "1.5"}, right...)
	if rapid.IntRange(0, 3).Draw(t, name+" right") > 0 {
		values = append([]string{"null"}, right...)
	}
	return `"` + name + `":` + rapid.SampledFrom(values).Draw(t, name)
}

var fieldValues = map[string][]string{
	"id": {`"a"`, `"b-1"`, `"x *"`, `""`}, "title": {`"t"`}, "objective": {`"o"`}, "depends_on": {`["a"]`, `[]`}, "when": {`"true"`, `""`},
	"for_each": {`[1]`, `"run.input.l"`, `{"$ref":"run.input"}`, `[]`}, "optional": {`true`}, "allowed_tools": {`["x"]`},
	"result": {`"a.b"`, `{"x":"y"}`}, "produces": {`["r"]`, `["a b"]`}, "retry": {`3`, `3.0`, `{"max_attempts":2,"delay":"1s","factor":2,"max_delay":"1m","on":["timeout"]}`, `{"delay":null,"on":null}`, `{"tries":1}`},
	"on_failure": {`"fail"`, `"skip"`, `"retry"`}, "risk": {`"low"`, `"huge"`}, "confirm": {`true`, `false`}, "tool": {`"echo"`, `""`},
	"arguments": {`{"x":1}`, `{}`}, "timeout": {`"5s"`, `"1h30m"`, `".5s"`, `"5"`, `""`},
	"action":     {`{"kind":"tool","name":"echo","arguments":{"x":1},"timeout":"5s"}`, `{"kind":"control","name":"join"}`, `{"kind":"tool"}`, `{"kind":"x","name":"y"}`, `{"kind":"tool","name":null}`, `{"kind":"run","name":"c","more":1}`},
	"compensate": {`{"kind":"tool","name":"echo"}`},
	"expect":     {`{"schema":{"type":"object"},"checks":["true",{"expression":"true","message":"m","assumption":null}]}`, `{"schema":true}`, `{"checks":[7]}`, `{"checks":[{"message":"m"}]}`, `{"checks":[" "]}`, `{}`},
	"unknown":    {`1`},
}

func anyStep(t *rapid.T) string {
	names := sortedKeys(fieldValues)
	parts := []string{}
	if rapid.IntRange(0, 9).Draw(t, "has id") > 0 {
		parts = append(parts, field(t, "id", fieldValues["id"]...))
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 5, rapid.ID[string]).Draw(t, "fields") {
		if name != "id" && (name != "unknown" || rapid.IntRange(0, 4).Draw(t, "unknown") == 0) {
			parts = append(parts, field(t, name, fieldValues[name]...))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func anyDocument(t *rapid.T, patch bool) string {
	steps := func() string {
		var list []string
		for range rapid.IntRange(0, 3).Draw(t, "steps") {
			list = append(list, anyStep(t))
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	top := map[string][]string{"goal": {`"g"`}, "assumptions": {`["t"]`, `[{"id":"a1","text":"t"}]`, `[{"id":"a 1"}]`, `[7]`, `[{"text":"x","why":1}]`}, "steps": {steps(), `[7]`},
		"constraints": {`["c"]`}, "acceptance": {`["true"]`, `[{"expression":"true"}]`, `[{}]`, `[" "]`}, "id": {`"p1"`, `"p 1"`}, "version": {`1`, `2147483648`}, "created_by": {`"human"`, `"me"`},
		"parent_version": {`0`, `1e2`}}
	if patch {
		top = map[string][]string{"base_version": {`1`, `2.0`}, "add": {steps()}, "update": {steps()}, "remove": {`["x"]`}, "assumptions": top["assumptions"], "reason": {`"r"`}, "goal": {`"g"`}, "set_assumptions": {`true`}}
	}
	var parts []string
	for _, name := range sortedKeys(top) {
		if rapid.IntRange(0, 2).Draw(t, "has "+name) > 0 {
			parts = append(parts, field(t, name, top[name]...))
		}
	}
	if rapid.IntRange(0, 19).Draw(t, "more") == 0 {
		parts = append(parts, `"more":1`)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// formErrors are the findings of the first layer that a JSON Schema of the document can say: it cannot look into
// strings and schemas.
func formErrors(lists ...[]*planv1.Finding) []*planv1.Finding {
	var out []*planv1.Finding
	for _, list := range lists {
		for _, f := range errorsOf(list) {
			inString := f.GetCode() == codeArgsNotObject && strings.Contains(f.GetMessage(), "a string that holds")
			if f.GetLayer() == layerSchema && !inString && f.GetCode() != codeInvalidResult && f.GetCode() != codeSchemaInvalid {
				out = append(out, f)
			}
		}
	}
	return out
}

// The published schema and the parser accept the same documents.
func TestSchemaIsInStepWithTheParser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := anyDocument(t, false)
		p, findings := Parse([]byte(doc))
		_, more := Validate(p, Environment{AnyTool: true})
		mine := formErrors(findings, more)
		theirs := ValidateSchema(text(string(Schema())), text(doc))
		if (len(mine) == 0) != (len(theirs) == 0) {
			t.Fatalf("%s\nparser:\n%s\nschema:\n%s", doc, show(mine), show(theirs))
		}
	})
}

func TestPatchSchemaIsInStepWithTheParser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := anyDocument(t, true)
		p, findings := ParsePatch([]byte(doc))
		_, more := Validate(&planv1.Plan{Assumptions: p.GetAssumptions(), Steps: append(p.GetAdd(), p.GetUpdate()...)}, Environment{AnyTool: true})
		mine := formErrors(findings, more)
		theirs := ValidateSchema(text(string(PatchSchema())), text(doc))
		if (len(mine) == 0) != (len(theirs) == 0) {
			t.Fatalf("%s\nparser:\n%s\nschema:\n%s", doc, show(mine), show(theirs))
		}
	})
}

// A plan that was read is written and read again as the same plan; validated again it does not change.
func TestDocumentProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := anyDocument(t, false)
		p, findings := Read([]byte(doc), Environment{AnyTool: true, Goal: "g"})
		if HasErrors(findings) {
			return
		}
		before := proto.Clone(p)
		written := Document(p)
		q, findings := Parse([]byte(written.GetText()))
		if len(findings) > 0 || !proto.Equal(p, q) || Digest(p) != Digest(q) {
			t.Fatalf("%s\nbecame %s\n%s", doc, written.GetText(), show(findings))
		}
		if exact, err := exactjson.Marshal(p); err != nil || Canonical(text(string(exact))) != Canonical(written) {
			t.Fatalf("as a message it is %s, %v\nas a document %s", exact, err, written.GetText())
		}
		again, findings := Validate(p, Environment{AnyTool: true, Goal: "g"})
		if len(findings) > 0 || !proto.Equal(again, p) {
			t.Fatalf("%s is not in normal form:\n%s", written.GetText(), show(findings))
		}
		if !proto.Equal(p, before) {
			t.Fatal("a plan was changed by reading it")
		}
		if findings := ValidateSchema(text(string(Schema())), written); len(findings) > 0 {
			t.Fatalf("%s does not fit the schema:\n%s", written.GetText(), show(findings))
		}
	})
}

// The patch between two plans makes the second of the first, but for the order of steps.
func TestDiffProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan := func(name string) *planv1.Plan {
			p := &planv1.Plan{Goal: rapid.SampledFrom([]string{"g", "h"}).Draw(t, name+" goal"), Version: 4}
			n := rapid.IntRange(1, 5).Draw(t, name+" steps")
			for i := range n {
				args := rapid.SampledFrom([]string{`{}`, `{"x":1}`, `{"x":1.0}`}).Draw(t, name+" arguments")
				s := graphOf([]string{fmt.Sprintf("s%d", (i*rapid.SampledFrom([]int{1, 3}).Draw(t, "stride"))%7)}).GetSteps()[0]
				s.Action = &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: "echo", Arguments: text(args)}
				if !hasStep(p, s.GetId()) {
					p.Steps = append(p.Steps, s)
				}
			}
			return p
		}
		old, new := plan("old"), plan("new")
		got, findings := Apply(old, Diff(old, new), nil, testEnvironment())
		if HasErrors(findings) {
			t.Fatal(show(findings))
		}
		if PatchDigest(Diff(got, new)) != PatchDigest(&planv1.Patch{}) || got.GetVersion() != 5 || got.GetParentVersion() != 4 {
			t.Fatalf("got %s\nwant %s", Document(got).GetText(), Document(new).GetText())
		}
	})
}

func hasStep(p *planv1.Plan, id string) bool {
	for _, s := range p.GetSteps() {
		if s.GetId() == id {
			return true
		}
	}
	return false
}

func seeds(f *testing.F) {
	for _, c := range findingCases {
		f.Add([]byte(c.doc))
	}
	f.Add([]byte(fullDocument))
	f.Add([]byte(fiveSteps))
}

func FuzzParse(f *testing.F) {
	seeds(f)
	env := testEnvironment()
	f.Fuzz(func(t *testing.T, doc []byte) {
		p, findings := Read(doc, env)
		if p == nil && !HasErrors(findings) {
			t.Fatalf("%q: neither a plan nor an error", doc)
		}
		for _, x := range findings {
			if x.GetCode() == "" || x.GetMessage() == "" || x.GetLayer() == "" || x.GetPointer() != "" && x.GetPointer()[0] != '/' {
				t.Fatalf("%q: finding %v", doc, x)
			}
			if _, err := proto.Marshal(x); err != nil {
				t.Fatalf("%q: %v", doc, err)
			}
		}
		if HasErrors(findings) {
			return
		}
		q, findings := Read([]byte(Document(p).GetText()), env)
		if HasErrors(findings) || Digest(p) != Digest(q) {
			t.Fatalf("%q became %s\n%s", doc, Document(p).GetText(), show(findings))
		}
	})
}

func FuzzParsePatch(f *testing.F) {
	for _, s := range []string{`{"base_version":1}`, `{"base_version":1,"add":[{"id":"n","tool":"echo"}],"remove":["b"]}`, `{"base_version":1,"update":[{"id":"b","tool":"now"}],"assumptions":["x"]}`, `{"base_version":1,"update":[{"id":"a"}]}`} {
		f.Add([]byte(s))
	}
	base := graphOf([]string{"a"}, []string{"b", "a"}, []string{"c", "b"})
	base.Version = 1
	env := testEnvironment()
	f.Fuzz(func(t *testing.T, doc []byte) {
		patch, findings := ParsePatch(doc)
		if patch == nil {
			if !HasErrors(findings) {
				t.Fatalf("%q: neither a patch nor an error", doc)
			}
			return
		}
		next, findings := Apply(base, patch, viewOf(map[string]Progress{"a": Finished}), env)
		if (next == nil) != HasErrors(findings) {
			t.Fatalf("%q: plan %v with\n%s", doc, next, show(findings))
		}
		if next != nil && (next.GetVersion() != 2 || !hasStep(next, "a")) {
			t.Fatalf("%q: the finished step is gone", doc)
		}
	})
}
