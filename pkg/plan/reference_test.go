package plan

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// lookupIn answers references from a table of roots: "steps.a", "run.input", "artifacts.x", "item", "index".
func lookupIn(table map[string]string) Lookup {
	return func(ref Reference) Target {
		key := map[Root]string{RootStep: "steps." + ref.Name, RootInput: "run.input", RootArtifact: "artifacts." + ref.Name, RootItem: "item", RootIndex: "index"}[ref.Root]
		v, ok := table[key]
		switch {
		case !ok:
			return Target{}
		case v == "artifact":
			return Target{Found: true, Artifact: true}
		}
		return Target{Found: true, Value: text(v)}
	}
}

func TestResolve(t *testing.T) {
	table := map[string]string{
		"steps.a":     `{"id":9007199254740993,"p":9011.00,"e":1e2,"nil":null,"l":[10,{"x":"y"}],"0":"zero","a.b":{"c":true},"":"empty","ü":1}`,
		"steps.list":  `[[1,2],["x"]]`,
		"steps.big":   "artifact",
		"run.input":   `{"city":"上海","n":null}`,
		"artifacts.r": `{"z":1,"a":2}`,
		"item":        `{"sku":"p"}`,
		"index":       `3`,
	}
	for _, c := range []struct{ args, want string }{
		{`{}`, `{}`},
		{`{"b":1,"a":[{"d":1,"c":2}]}`, `{"a":[{"c":2,"d":1}],"b":1}`},
		{`{"x":{"$ref":"steps.a.result.id"}}`, `{"x":9007199254740993}`},
		{`{"x":{"$ref":"steps.a.result.p"},"y":{"$ref":"steps.a.result.e"}}`, `{"x":9011.00,"y":1e2}`},
		{`{"x":{"$ref":"steps.a.result.nil","default":1}}`, `{"x":null}`},
		{`{"x":{"$ref":"steps.a.result.l.1.x"},"y":{"$ref":"steps.a.result.l[0]"}}`, `{"x":"y","y":10}`},
		{`{"x":{"$ref":"steps.a.result.0"}}`, `{"x":"zero"}`},
		{`{"x":{"$ref":"steps.a.result[\"a.b\"].c"},"y":{"$ref":"steps.a.result[\"\"]"},"z":{"$ref":"steps.a.result.ü"}}`, `{"x":true,"y":"empty","z":1}`},
		{`{"x":{"$ref":"steps.list.result.1.0"}}`, `{"x":"x"}`},
		{`{"x":{"$ref":"run.input.city"},"y":{"$ref":"run.input"}}`, `{"x":"上海","y":{"city":"上海","n":null}}`},
		{`{"x":{"$ref":"artifacts.r"}}`, `{"x":{"a":2,"z":1}}`},
		{`{"x":{"$ref":"item.sku"},"i":{"$ref":"index"}}`, `{"i":3,"x":"p"}`},
		{`{"x":{"$ref":"steps.gone.result.x","default":null}}`, `{"x":null}`},
		{`{"x":{"$ref":"steps.a.result.gone","default":{"b":1,"a":[]}}}`, `{"x":{"a":[],"b":1}}`},
		{`{"x":{"$ref":"steps.big.result.data","default":0}}`, `{"x":{"$ref":"steps.big.result.data","default":0}}`},
		{`{"$ref":"item"}`, `{"sku":"p"}`},
		{`{"x":{"default":1}}`, `{"x":{"default":1}}`},
	} {
		got, err := Resolve(text(c.args), lookupIn(table))
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
		} else if got.Arguments.GetText() != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.args, got.Arguments.GetText(), c.want)
		}
	}
	for _, none := range []*planv1.JsonText{nil, text(""), text("null")} {
		if got, err := Resolve(none, nil); err != nil || got.Arguments.GetText() != "{}" {
			t.Errorf("absent arguments: %v, %v", got, err)
		}
	}
	// References to artifacts stay, and are listed.
	got, err := Resolve(text(`{"b":{"$ref":"steps.big.result.x"},"a":[{"$ref":"steps.big.result"}]}`), lookupIn(table))
	if err != nil || len(got.Artifacts) != 2 || got.Artifacts[0].Pointer != "/a/0" || got.Artifacts[1].Pointer != "/b" || got.Artifacts[1].Path[0] != "x" {
		t.Errorf("artifacts: %+v, %v", got.Artifacts, err)
	}
}

func TestUnresolved(t *testing.T) {
	table := map[string]string{"steps.a": `{"x":[1]}`, "steps.n": `7`}
	for args, want := range map[string]struct{ pointer, reason, reference string }{
		`{"q":{"$ref":"steps.gone.result.x"}}`:   {"/q", ReasonNoValue, "steps.gone.result.x"},
		`{"q":[0,{"$ref":"steps.a.result.y"}]}`:  {"/q/1", ReasonNoPath, "steps.a.result.y"},
		`{"q/r":{"$ref":"steps.a.result.x.1"}}`:  {"/q~1r", ReasonNoPath, "steps.a.result.x.1"},
		`{"q":{"$ref":"steps.a.result.x.00"}}`:   {"/q", ReasonNoPath, "steps.a.result.x.00"},
		`{"q":{"$ref":"steps.a.result.x.0.no"}}`: {"/q", ReasonNoPath, "steps.a.result.x.0.no"},
		`{"q":{"$ref":"item"}}`:                  {"/q", ReasonNoValue, "item"},
		`{"$ref":"steps.n.result"}`:              {"", ReasonNotObject, "steps.n.result"},
		`["x"]`:                                  {"", ReasonNotObject, ""},
		`"x"`:                                    {"", ReasonNotObject, ""},
	} {
		_, err := Resolve(text(args), lookupIn(table))
		var u *UnresolvedError
		if !errors.As(err, &u) {
			t.Errorf("%s: %v", args, err)
			continue
		}
		if u.Reference.Pointer != want.pointer || u.Reason != want.reason || u.Reference.Text != want.reference {
			t.Errorf("%s: %q %s %s", args, u.Reference.Pointer, u.Reason, u.Reference.Text)
		}
	}
}

// Only an object whose keys are $ref and default is a reference: text is never searched, and values keep their types.
func TestCase16_ReferencesAreNotText(t *testing.T) {
	table := map[string]string{"steps.a": `{"n":7,"l":[1,2]}`}
	literal := `costs $1 or ${1} or {\"$ref\":\"x\"}`
	got, err := Resolve(text(`{"t":"`+literal+`","n":{"$ref":"steps.a.result.n"},"l":{"$ref":"steps.a.result.l"}}`), lookupIn(table))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"l":[1,2],"n":7,"t":"` + literal + `"}`; got.Arguments.GetText() != want {
		t.Errorf("got  %s\nwant %s", got.Arguments.GetText(), want)
	}
	with := `{"m":{"$ref":"steps.a.result.n","x":1}}`
	var bad *ReferenceError
	if _, err := Resolve(text(with), lookupIn(table)); !errors.As(err, &bad) || bad.Code != codeRefWithSiblings || bad.Pointer != "/m" {
		t.Errorf("a reference with another key: %v", err)
	}
	_, findings := Read([]byte(two(`"tool":"echo","arguments":`+with)), testEnvironment())
	wantOnly(t, findings, codeRefWithSiblings, "/steps/1/action/arguments/m")
	// A value that looks like a reference is data once it came out of one.
	got, err = Resolve(text(`{"x":{"$ref":"steps.a.result"}}`), lookupIn(map[string]string{"steps.a": `{"$ref":"steps.b.result"}`}))
	if err != nil || got.Arguments.GetText() != `{"x":{"$ref":"steps.b.result"}}` || len(got.Artifacts) != 0 {
		t.Errorf("a result with the key $ref: %v, %v", got, err)
	}
}

func TestParseReference(t *testing.T) {
	for in, want := range map[string]Reference{
		"steps.a.result":             {Root: RootStep, Name: "a"},
		"steps.a-b_C9.result.x.0.y":  {Root: RootStep, Name: "a-b_C9", Path: []string{"x", "0", "y"}},
		"steps.a.result[2][\"a.b\"]": {Root: RootStep, Name: "a", Path: []string{"2", "a.b"}},
		"steps.a.result.项目.价格":       {Root: RootStep, Name: "a", Path: []string{"项目", "价格"}},
		"run.input":                  {Root: RootInput},
		"run.input.a":                {Root: RootInput, Path: []string{"a"}},
		"artifacts.r.x":              {Root: RootArtifact, Name: "r", Path: []string{"x"}},
		"item":                       {Root: RootItem},
		"item.0":                     {Root: RootItem, Path: []string{"0"}},
		"index":                      {Root: RootIndex},
	} {
		want.Text = in
		got, err := ParseReference(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if len(got.Path) == 0 {
			got.Path = nil
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Value{})); diff != "" {
			t.Errorf("%s:\n%s", in, diff)
		}
	}
	for in, want := range map[string]struct{ code, hint string }{
		"":                        {codeRefSyntax, ""},
		"steps":                   {codeRefSyntax, "steps.<id>"},
		"steps.a":                 {codeRefSyntax, "write steps.a.result"},
		"steps.a.output.x":        {codeRefSyntax, "write steps.a.result.x"},
		"steps.a.results.x":       {codeRefSyntax, "write steps.a.result.x"},
		"steps.a.x":               {codeRefSyntax, "write steps.a.result.x"},
		"steps.a[3].result":       {codeRefSyntax, "write steps.a.result.3"},
		"steps.a.result..x":       {codeRefSyntax, ""},
		"steps.a.result.":         {codeRefSyntax, ""},
		"steps.a.result[":         {codeRefSyntax, ""},
		"steps.a.result[x]":       {codeRefSyntax, ""},
		"steps.a.result[\"x]":     {codeRefSyntax, ""},
		"steps.a.result[\"x\"":    {codeRefSyntax, ""},
		"steps.a.result[0]x":      {codeRefSyntax, ""},
		"steps.a.result]":         {codeRefSyntax, ""},
		"steps.a b.result":        {codeRefSyntax, ""},
		"run":                     {codeRefSyntax, "run.input"},
		"run.goal":                {codeRefSyntax, "run.input"},
		"artifacts":               {codeRefSyntax, "artifacts.<name>"},
		"index.x":                 {codeRefSyntax, ""},
		"step.a.result":           {codeRefUnknownRoot, `"steps"`},
		"$.steps.a":               {codeRefUnknownRoot, ""},
		".steps.a.result":         {codeRefSyntax, ""},
		"${steps.a.result}":       {codeRefUnknownRoot, ""},
		"input.x":                 {codeRefUnknownRoot, ""},
		strings.Repeat("x", 9000): {codeRefUnknownRoot, ""},
	} {
		_, err := ParseReference(in)
		var e *ReferenceError
		if !errors.As(err, &e) || e.Code != want.code || !strings.Contains(e.Hint, want.hint) || len(e.Message) > 300 {
			t.Errorf("%.40q: %v, hint %q", in, err, e.Hint)
		}
	}
}

func TestReferencesListsAll(t *testing.T) {
	refs, err := References(text(`{"a":{"$ref":"steps.x.result"},"b":[1,{"c":{"$ref":"run.input.y","default":2}}]}`))
	if err != nil || len(refs) != 2 || refs[0].Pointer != "/a" || refs[1].Pointer != "/b/1/c" || !refs[1].HasDefault || refs[1].Default.Text() != "2" {
		t.Errorf("%+v, %v", refs, err)
	}
	if refs, err := References(nil); err != nil || refs != nil {
		t.Errorf("absent arguments: %v, %v", refs, err)
	}
	if _, err := References(text(`{`)); !errors.Is(err, ErrInvalidJSON) {
		t.Errorf("no JSON: %v", err)
	}
}

// The exact text at a path is the same whether the value is read or only looked at.
func TestTextAtPath(t *testing.T) {
	doc := ` { "a" : [ 1.00 , { "b\"c" : "x\\\"]}" , "d" : [ ] } , "s,:{" ] , "e" : { } , "f" : null } `
	for path, want := range map[string]string{"a.0": "1.00", `a.1["b\"c"]`: `"x\\\"]}"`, "a.1.d": "[ ]", "a.2": `"s,:{"`, "e": "{ }", "f": "null", "": strings.TrimSpace(doc)} {
		got, ok := AtPath(text(doc), path)
		if !ok || got.GetText() != want {
			t.Errorf("%s: %q, want %q", path, got.GetText(), want)
		}
	}
	for _, path := range []string{"a.3", "a.x", "g", "e.x", "f.x", "a.0.0", "a.-1", "a..0"} {
		if got, ok := AtPath(text(doc), path); ok {
			t.Errorf("%s: %q", path, got.GetText())
		}
	}
	for _, broken := range []string{"", "{", `{"a"`, `{"a":`, `{"a":1`, "[", "[1", `["`, `"\`, `{"a":[`, `{a:1}`} {
		for _, path := range []string{"", "a", "0", "a.0", "1"} {
			AtPath(text(broken), path) // must not panic
		}
	}
}

func TestCase15_NumbersKeepTheirText(t *testing.T) {
	p, _ := mustRead(t, `{"goal":"g","steps":[
	 {"id":"a","tool":"echo","arguments":{"id":9007199254740993,"max":9223372036854775807,"p":9011.00,"e":1e2}},
	 {"id":"b","tool":"echo","arguments":{"id":{"$ref":"steps.a.result.id"}}}]}`, testEnvironment())
	a := p.GetSteps()[0].GetAction().GetArguments()
	if want := `{"id":9007199254740993,"max":9223372036854775807,"p":9011.00,"e":1e2}`; a.GetText() != want {
		t.Errorf("arguments are %s", a.GetText())
	}
	got, err := Resolve(p.GetSteps()[1].GetAction().GetArguments(), lookupIn(map[string]string{"steps.a": Canonical(a)}))
	if err != nil || got.Arguments.GetText() != `{"id":9007199254740993}` {
		t.Errorf("b gets %s, %v", got.Arguments.GetText(), err)
	}
	if got, err := Extract(text(`{"price":"p","hundred":"e"}`), a); err != nil || got.GetText() != `{"hundred":1e2,"price":9011.00}` {
		t.Errorf("extracted %s, %v", got.GetText(), err)
	}
	for expr, want := range map[string]bool{"result.id == 9007199254740993": true, "result.id == 9007199254740992": false, "result.max == 9223372036854775807": true, "result.p == 9011.0": true} {
		if got, err := EvalCheck(expr, Scope{Result: a}); err != nil || got != want {
			t.Errorf("%s is %v, %v", expr, got, err)
		}
	}
	if findings := ValidateSchema(text(`{"properties":{"id":{"maximum":9007199254740992}}}`), a); len(findings) != 1 {
		t.Error("the schema check rounds")
	}
	if findings := ValidateSchema(text(`{"properties":{"id":{"const":9007199254740993}}}`), a); len(findings) != 0 {
		t.Error("the schema check rounds")
	}
}

func TestExtract(t *testing.T) {
	out := text(`{"data":{"items":[{"id":1.0},{"id":2}],"n":null},"x":"y"}`)
	for spec, want := range map[string]string{`"data.items"`: `[{"id":1.0},{"id":2}]`, `"data.items.1.id"`: `2`, `"data.n"`: `null`, `""`: out.GetText(),
		`{"b":"data.items.0.id","a":"x"}`: `{"a":"y","b":1.0}`, `null`: out.GetText()} {
		if got, err := Extract(text(spec), out); err != nil || got.GetText() != want {
			t.Errorf("%s: %s, %v", spec, got.GetText(), err)
		}
	}
	if got, err := Extract(nil, out); err != nil || got != out {
		t.Errorf("absent: %v, %v", got, err)
	}
	for spec, name := range map[string]string{`"data.gone"`: "", `{"a":"x","b":"gone"}`: "b"} {
		_, err := Extract(text(spec), out)
		var e *ExtractError
		if !errors.As(err, &e) || e.Name != name {
			t.Errorf("%s: %v", spec, err)
		}
	}
	for _, spec := range []string{`7`, `[]`, `{}`, `{"a":1}`, `"a..b"`, `{`} {
		if got, err := Extract(text(spec), out); err == nil {
			t.Errorf("%s: %s", spec, got.GetText())
		}
	}
}

// A reference makes a dependency, once, wherever it stands.
func TestReferencesBecomeDependencies(t *testing.T) {
	p, findings := mustRead(t, `{"goal":"g","steps":[
	 {"id":"a","tool":"echo"},{"id":"b","tool":"echo","produces":["rep"]},{"id":"c","tool":"echo"},{"id":"d","tool":"echo"},{"id":"e","tool":"echo"},
	 {"id":"z","tool":"echo","arguments":{"x":{"$ref":"steps.a.result"},"y":[{"$ref":"steps.a.result"}],"r":{"$ref":"artifacts.rep"}},"depends_on":["e"],
	  "when":"steps['c'].status == 'succeeded'","for_each":"steps.d.result.l","expect":{"checks":["result.n > steps.e.result.n"]}}]}`, testEnvironment())
	if diff := cmp.Diff([]string{"e", "a", "b", "d", "c"}, p.GetSteps()[5].GetDependsOn()); diff != "" {
		t.Error(diff)
	}
	if notes := with(findings, codeDependencyAdded); len(notes) != 1 || notes[0].GetValues().GetText() != `{"added":["a","b","d","c"]}` {
		t.Errorf("notes:\n%s", show(findings))
	}
	// The plan in normal form has nothing left to mend.
	again, findings := Validate(p, testEnvironment())
	if len(findings) > 0 || Digest(again) != Digest(p) {
		t.Errorf("a second validation changes the plan:\n%s", show(findings))
	}
}

// A step over a list gives a list: references into it name the element first.
func TestReferencesToForEachSteps(t *testing.T) {
	doc := func(ref string) []byte {
		return []byte(`{"goal":"g","steps":[{"id":"a","tool":"stock.check","arguments":{"sku":{"$ref":"item"}},"for_each":["x","y"]},
		 {"id":"b","tool":"search","arguments":{"q":"x","n":{"$ref":"` + ref + `"}}}]}`)
	}
	for ref, code := range map[string]string{"steps.a.result.1.stock": "", "steps.a.result": codeRefTypeMismatch, "steps.a.result.0.gone": codeRefUnknownPath, "steps.a.result.0.sku": codeRefTypeMismatch} {
		_, findings := Read(doc(ref), testEnvironment())
		if code == "" && HasErrors(findings) || code != "" && len(with(findings, code)) != 1 {
			t.Errorf("%s: want %q, got:\n%s", ref, code, show(findings))
		}
	}
}

func TestResultFieldsAndTypes(t *testing.T) {
	doc := func(result, ref string) []byte {
		return []byte(`{"goal":"g","steps":[{"id":"a","tool":"stock.check","arguments":{"sku":"x"},"result":` + result + `},
		 {"id":"b","tool":"search","arguments":{"q":{"$ref":"` + ref + `"}}}]}`)
	}
	for _, c := range []struct{ result, ref, code string }{
		{`"sku"`, "steps.a.result", ""},
		{`"stock"`, "steps.a.result", codeRefTypeMismatch},
		{`{"s":"sku","n":"stock"}`, "steps.a.result.s", ""},
		{`{"s":"sku","n":"stock"}`, "steps.a.result.n", codeRefTypeMismatch},
		{`{"s":"sku","n":"stock"}`, "steps.a.result.sku", codeRefUnknownPath},
		{`{"s":"sku","n":"stock"}`, "steps.a.result", codeRefTypeMismatch},
		{`"gone"`, "steps.a.result", codeRefUnknownPath},
	} {
		_, findings := Read(doc(c.result, c.ref), testEnvironment())
		if c.code == "" && HasErrors(findings) || c.code != "" && len(with(findings, c.code)) != 1 {
			t.Errorf("%+v:\n%s", c, show(findings))
		}
	}
}

// A wide join resolves in order.
func TestResolveWideJoin(t *testing.T) {
	const n = 1500
	var args, want strings.Builder
	for i := range n {
		fmt.Fprintf(&args, `,{"$ref":"steps.s%d.result.v"}`, i)
		fmt.Fprintf(&want, `,%d`, i)
	}
	got, err := Resolve(text(`{"all":[`+args.String()[1:]+`]}`), func(ref Reference) Target {
		return Target{Found: true, Value: text(`{"v":` + ref.Name[1:] + `}`)}
	})
	if err != nil || got.Arguments.GetText() != `{"all":[`+want.String()[1:]+`]}` {
		t.Errorf("%.200s, %v", got.Arguments.GetText(), err)
	}
}

func FuzzResolve(f *testing.F) {
	f.Add(`{"x":{"$ref":"steps.a.result.id"}}`, `{"id":1.0}`)
	f.Add(`{"x":{"$ref":"steps.a.result[0][\"k\"]","default":{"a":[]}}}`, `[{"k":"\u2028"}]`)
	f.Add(`{"$ref":"item"}`, `{"a":1e5}`)
	f.Add(`{"x":"$ref"}`, `not json`)
	f.Fuzz(func(t *testing.T, args, value string) {
		got, err := Resolve(text(args), func(ref Reference) Target {
			return Target{Found: ref.Root != RootArtifact, Artifact: ref.Root == RootInput, Value: text(value)}
		})
		if err != nil {
			return
		}
		v, err := ParseValue(got.Arguments.GetText())
		if err != nil {
			t.Fatalf("%q with %q became %q: %v", args, value, got.Arguments.GetText(), err)
		}
		if v.Kind() != Object {
			t.Fatalf("arguments became %s", got.Arguments.GetText())
		}
		if c := Canonical(got.Arguments); c != got.Arguments.GetText() {
			t.Fatalf("arguments are not canonical:\n%s\n%s", got.Arguments.GetText(), c)
		}
		for _, ref := range got.Artifacts {
			if at, ok := v.At(pointerParts(ref.Pointer)); !ok || at.Kind() != Object {
				t.Fatalf("no reference at %q of %s", ref.Pointer, got.Arguments.GetText())
			}
		}
	})
}
