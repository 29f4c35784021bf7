package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cairnrun/cairn/proto/exactjson"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Arguments that came as a string holding an object are read once; encoded twice they are refused.
func TestCase6_ArgumentsEncodedAsString(t *testing.T) {
	p, findings := mustRead(t, `{"goal":"g","steps":[{"id":"a","action":{"kind":"tool","name":"search","arguments":"{\"q\":\"a\",\"n\":3}"}}]}`, testEnvironment())
	if got := p.GetSteps()[0].GetAction().GetArguments().GetText(); got != `{"q":"a","n":3}` {
		t.Errorf("arguments are %s", got)
	}
	if notes := with(findings, codeArgsStringDecoded); len(notes) != 1 || notes[0].GetPointer() != "/steps/0/action/arguments" {
		t.Errorf("the note is missing:\n%s", show(findings))
	}
	// What was decoded is checked like anything else.
	_, findings = Read([]byte(step(`"action":{"kind":"tool","name":"search","arguments":"{\"q\":1}"}`)), testEnvironment())
	wantOnly(t, findings, codeSchemaMismatch, "/steps/0/action/arguments/q")
	// Twice.
	_, findings = Read([]byte(step(`"action":{"kind":"tool","name":"search","arguments":"\"{\\\"q\\\":\\\"a\\\"}\""}`)), testEnvironment())
	wantOnly(t, findings, codeArgsNotObject, "/steps/0/action/arguments")
}

func TestCase7_ArgumentsThatAreNoObject(t *testing.T) {
	for _, args := range []string{`["x"]`, `3`, `"s"`, `true`, `"[1]"`, `"3"`, `"null"`} {
		_, findings := Read([]byte(step(`"action":{"kind":"tool","name":"echo","arguments":`+args+`}`)), testEnvironment())
		wantOnly(t, findings, codeArgsNotObject, "/steps/0/action/arguments")
	}
}

func TestCase9_EmptyArguments(t *testing.T) {
	for _, args := range []string{`,"arguments":""`, ``, `,"arguments":null`, `,"arguments":"  "`} {
		for _, form := range []string{`"tool":"TOOL"` + args, `"action":{"kind":"tool","name":"TOOL"` + args + `}`} {
			p, _ := mustRead(t, step(strings.Replace(form, "TOOL", "now", 1)), testEnvironment())
			if got := p.GetSteps()[0].GetAction().GetArguments().GetText(); got != "{}" {
				t.Errorf("%s became %q", form, got)
			}
			_, findings := Read([]byte(step(strings.Replace(form, "TOOL", "search", 1))), testEnvironment())
			f := wantOnly(t, findings, codeMissingArgument, "/steps/0/action/arguments/q")
			if f.GetValues().GetText() != `{"name":"q"}` {
				t.Errorf("values are %s", f.GetValues())
			}
		}
	}
}

func TestShortForms(t *testing.T) {
	long := `{"goal":"g","assumptions":[{"id":"a1","text":"first"},{"id":"x","text":"second"},{"id":"a3","text":"third"}],
	 "acceptance":[{"expression":"answer.ok"}],
	 "steps":[{"id":"a","action":{"kind":"tool","name":"echo","arguments":{"n":1},"timeout":"90s"},"retry":{"max_attempts":3},
	  "expect":{"checks":[{"expression":"result.stock > 0"}]},"for_each":{"$ref":"steps.z.result.list"},"on_failure":"replan_remaining"},
	  {"id":"z","action":{"kind":"tool","name":"echo","arguments":{}}}]}`
	short := `{"goal":"g","assumptions":["first",{"id":"x","text":"second"},"third"],"acceptance":["answer.ok"],"constraints":null,
	 "steps":[{"id":"a","tool":"echo","arguments":{"n":1},"timeout":"1m30s","retry":3,"title":null,"action":null,
	  "expect":{"schema":null,"checks":["result.stock > 0"]},"for_each":"steps.z.result.list","on_failure":"replan_remaining","optional":null},
	  {"id":"z","tool":"echo"}]}`
	p, findings := Parse([]byte(long))
	q, more := Parse([]byte(short))
	if len(findings)+len(more) > 0 {
		t.Fatalf("findings:\n%s%s", show(findings), show(more))
	}
	if diff := cmp.Diff(p, q, protocmp.Transform()); diff != "" {
		t.Errorf("short and long form differ:\n%s", diff)
	}
	if Digest(p) != Digest(q) {
		t.Error("their digests differ")
	}
}

// A document with everything in it, read and written again.
const fullDocument = `{"id":"p2","version":2,"goal":"下单 1 台 iPhone 15 Pro 256G 黑色，寄到上海浦东","assumptions":[{"id":"a1","text":"in stock"}],"constraints":["cheap"],` +
	`"acceptance":[{"expression":"answer.ok","message":"not ok","assumption":"a1"}],"steps":[{"id":"a","title":"t","objective":"o",` +
	`"action":{"kind":"tool","name":"echo","arguments":{"id":9007199254740993,"max":9223372036854775807,"p":9011.00,"e":1e2,"n":null},"timeout":"90s"},` +
	`"when":"run.input.x > 1","for_each":[1,{"a":2.50}],"optional":true,"allowed_tools":["echo"],"result":{"x":"data.items.0"},"produces":["r"],` +
	`"expect":{"schema":{"type":"object"},"checks":[{"expression":"result.x > 0"}]},"retry":{"max_attempts":3,"delay":"0.25s","factor":1.5,"max_delay":"3600s","on":["timeout"]},` +
	`"on_failure":"skip","compensate":{"kind":"llm","name":"generate","arguments":{"prompt":"x"}},"risk":"high","confirm":true},` +
	`{"id":"b","action":{"kind":"control","name":"join","arguments":{}},"depends_on":["a"]}],"created_by":"human","parent_version":1}`

func TestDocumentReadsBack(t *testing.T) {
	p, findings := Parse([]byte(fullDocument))
	if len(findings) > 0 {
		t.Fatal(show(findings))
	}
	if got := Document(p).GetText(); got != fullDocument {
		t.Errorf("got  %s\nwant %s", got, fullDocument)
	}
	// It is the message's JSON as it is shown everywhere.
	exact, err := exactjson.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if v, w := canonicalText(t, string(exact)), canonicalText(t, fullDocument); v != w {
		t.Errorf("exactjson writes %s\nthe document is %s", v, w)
	}
	var q planv1.Plan
	if err := exactjson.Unmarshal([]byte(fullDocument), &q); err != nil || !proto.Equal(p, &q) {
		t.Errorf("exactjson reads another plan (%v):\n%s", err, cmp.Diff(p, &q, protocmp.Transform()))
	}
}

func canonicalText(t *testing.T, s string) string {
	t.Helper()
	v, err := ParseValue(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(v.AppendCanonical(nil))
}

func TestAllFindingsAtOnce(t *testing.T) {
	doc := `{"goal":7,"colour":"red","steps":[
	 {"id":"x *","tool":"serch","arguments":{"q":1},"on_failure":"replan"},
	 {"id":"b","tool":"search","arguments":{"m":1},"depends_on":["c","nowhere"]},
	 {"id":"c","tool":"now","depends_on":["b"],"risk":"high","when":"1 +"},
	 {"id":"d","action":{"kind":"control","name":"join"}}]}`
	_, findings := Read([]byte(doc), testEnvironment())
	want := []string{
		"wrong_type /goal", "unknown_field /colour", "invalid_value /steps/0/on_failure", "invalid_id /steps/0/id",
		"unknown_tool /steps/0/action/name", "unknown_argument /steps/1/action/arguments/m", "missing_argument /steps/1/action/arguments/q",
		"dangling_dependency /steps/1/depends_on/1", "expression_invalid /steps/2/when", "risk_without_confirmation /steps/2/confirm",
		"join_without_inputs /steps/3/depends_on", "cycle /steps/1/depends_on",
	}
	var got []string
	for _, f := range errorsOf(findings) {
		got = append(got, f.GetCode()+" "+f.GetPointer())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// What is wrong with a document's form names its step, in plans and patches.
func TestFindingsOfTheFormNameTheirStep(t *testing.T) {
	_, findings := Parse([]byte(`{"goal":"g","colour":1,"steps":[{"id":"a","tool":"now"},{"tol":"x","id":"b"},{"retry":{"max":1}},7]}`))
	_, more := ParsePatch([]byte(`{"base_version":1,"update":[{"id":"c","tool":7}],"add":[{"id":"d","tools":1}],"remove":[3]}`))
	var got []string
	for _, f := range append(findings, more...) {
		got = append(got, f.GetPointer()+" "+f.GetStepId())
	}
	want := []string{"/colour ", "/steps/1/tol b", "/steps/2/retry/max ", "/steps/3 ", "/update/0/tool c", "/add/0/tools d", "/remove/0 "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestUnknownFieldsNameTheNearest(t *testing.T) {
	for wrong, right := range map[string]string{"args": "arguments", "depend_on": "depends_on", "dependsOn": "depends_on", "onFailure": "on_failure", "Title": "title", "for_eech": "for_each"} {
		_, findings := Parse([]byte(step(`"tool":"now","` + wrong + `":null`)))
		f := wantOnly(t, findings, codeUnknownField, "/steps/0/"+wrong)
		if !strings.Contains(f.GetHint(), right) {
			t.Errorf("%s: the hint is %q", wrong, f.GetHint())
		}
	}
}

// Ids become subject tokens, so nothing that means something there may get into one.
func TestCase64_IDs(t *testing.T) {
	for _, id := range []string{"a.>", "x *", "t1.evil", strings.Repeat("a", 65), strings.Repeat("a", 300), "", "选择", "a[0]", "a/b", "a\nb", "a~", "é", "a b"} {
		v := StringValue(id)
		doc := `{"goal":"g","steps":[{"id":` + string(v.Append(nil)) + `,"tool":"now"}]}`
		_, findings := Read([]byte(doc), testEnvironment())
		wantOnly(t, findings, codeInvalidID, "/steps/0/id")
		p := &planv1.Plan{Goal: "g", Steps: []*planv1.Step{{Id: id, Action: &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: "now"}}}}
		_, findings = Validate(p, testEnvironment())
		wantOnly(t, findings, codeInvalidID, "/steps/0/id")
		_, findings = Read([]byte(`{"id":`+string(v.Append(nil))+`,"goal":"g","steps":[{"id":"a","tool":"now"}]}`), testEnvironment())
		if id != "" {
			wantOnly(t, findings, codeInvalidID, "/id")
		}
	}
	for _, id := range []string{"a", "A-z_0", strings.Repeat("a", 64), "-", "0"} {
		mustRead(t, `{"goal":"g","steps":[{"id":"`+id+`","tool":"now"}]}`, testEnvironment())
	}
}

func TestCase68_Unicode(t *testing.T) {
	nfc, nfd := "caf\u00e9", "cafe\u0301"
	p, findings := mustRead(t, step(`"tool":"echo","arguments":{"`+nfc+`":1,"`+nfd+`":2,"lone":"a\ud800b","low":"\udc00","pair":"\ud83d\ude00","sep":"a\u2028b\u0085c\u0000d"}`), testEnvironment())
	if len(findings) > 0 {
		t.Errorf("findings:\n%s", show(findings))
	}
	args := p.GetSteps()[0].GetAction().GetArguments()
	want := `{"` + nfc + `":1,"` + nfd + `":2,"lone":"a` + "\uFFFD" + `b","low":"` + "\uFFFD" + `","pair":"😀","sep":"a\u2028b\u0085c\u0000d"}`
	if args.GetText() != want {
		t.Errorf("got  %s\nwant %s", args.GetText(), want)
	}
	if strings.ContainsAny(args.GetText(), "\u2028\u0085\u0000\n") {
		t.Error("a value is more than one line")
	}
	// NFC and NFD keys are two keys, in references too.
	v, _ := ParseValue(args.GetText())
	for key, want := range map[string]string{nfc: "1", nfd: "2"} {
		if got, ok := v.At([]string{key}); !ok || got.Text() != want {
			t.Errorf("%+q holds %v", key, got)
		}
		if got, ok := AtPath(args, key); !ok || got.GetText() != want {
			t.Errorf("%+q holds %v in the text", key, got)
		}
	}
	// The digest does not depend on how a character was escaped.
	q, _ := mustRead(t, step(`"tool":"echo","arguments":{"caf\u00e9":1,"`+nfd+`":2,"lone":"a\uDFFFb","low":"\ud800","pair":"😀","sep":"a\u2028b\u0085c\u0000d"}`), testEnvironment())
	if Digest(p) != Digest(q) {
		t.Error("the same content has two digests")
	}
}

func TestDuplicateKeysAreRefusedAtAnyDepth(t *testing.T) {
	many := make([]string, 40)
	for i := range many {
		many[i] = `"k` + string(rune('a'+i%26)) + strings.Repeat("x", i/26) + `":1`
	}
	for pointer, doc := range map[string]string{
		"/steps/0/id":                   `{"goal":"g","steps":[{"id":"a","id":"b","tool":"now"}]}`,
		"/steps/0/arguments/x/y":        step(`"tool":"echo","arguments":{"x":{"y":1,"y":1}}`),
		"/steps/0/arguments/l/1/a~1b~0": step(`"tool":"echo","arguments":{"l":[0,{"a/b~":1,"a\/b~":2}]}`),
		"/steps/0/arguments/ka":         step(`"tool":"echo","arguments":{` + strings.Join(many, ",") + `,"ka":2}`),
	} {
		_, findings := Parse([]byte(doc))
		wantOnly(t, findings, codeDuplicateKey, pointer)
	}
}

func TestParseNamesTheLine(t *testing.T) {
	_, findings := Parse([]byte("{\n  \"goal\": \"g\",\n  \"steps\": [,]\n}"))
	f := wantOnly(t, findings, codeInvalidJSON, "/steps/0")
	if got := f.GetValues().GetText(); got != `{"line":3,"column":13,"at_end":false}` {
		t.Errorf("values are %s", got)
	}
	// A text that was cut off is told apart.
	for cut := 1; cut < len(fiveSteps); cut += 7 {
		_, findings := Parse([]byte(fiveSteps[:cut]))
		if len(findings) != 1 || !strings.Contains(findings[0].GetValues().GetText(), `"at_end":true`) {
			t.Fatalf("cut at %d:\n%s", cut, show(findings))
		}
	}
}

func TestJSONIsStrict(t *testing.T) {
	for _, bad := range []string{``, ` `, `{`, `}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `[1,]`, `[1 2]`, `{a:1}`, `{'a':1}`, `"a`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\n\"",
		`01`, `-`, `+1`, `.5`, `5.`, `1e`, `1e+`, `0x1`, `1_000`, `NaN`, `Infinity`, `tru`, `truex`, `nul`, `nullx`, `// c`, `{"a":1}//`, `1 2`, `{"a":1}{}`, "\ufeff{}", `-01`, `1.2.3`, `1a`} {
		if v, err := ParseValue(bad); err == nil {
			t.Errorf("%q was read as %s", bad, v.JSON())
		}
	}
	for _, good := range []string{`0`, `-0`, `1.0`, `1e2`, `1E+2`, `-1.5e-7`, `""`, `"\"\\\/\b\f\n\r\t"`, `[]`, `{}`, `[[],{}]`, ` { "a" : [ 1 , 2 ] } `, `true`, `false`, `null`} {
		if _, err := ParseValue(good); err != nil {
			t.Errorf("%q was refused: %v", good, err)
		}
	}
}

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":1,"a":2}`:                 `{"a":2,"b":1}`,
		`{"z":{"y":[3,{"b":1,"a":1}]}}`: `{"z":{"y":[3,{"a":1,"b":1}]}}`,
		`[9011.00, 1e2, -0.10]`:         `[9011.00,1e2,-0.10]`,
		`"<a>&\u0041\/"`:                `"<a>&A/"`,
		`{"é":1,"e":2,"Z":3}`:           `{"Z":3,"e":2,"é":1}`,
		`"\ud800"`:                      "\"\uFFFD\"",
		`null`:                          `null`,
		`not json`:                      `"not json"`,
		`1e99999`:                       `1e99999`,
	} {
		if got := Canonical(text(in)); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
	if got := Canonical(nil); got != "" {
		t.Errorf("an absent value became %q", got)
	}
}

func TestNumbersAreBounded(t *testing.T) {
	for _, good := range []string{"1e400", "1e-400", "1E+0400", strings.Repeat("9", 1000), "0." + strings.Repeat("1", 999)} {
		if _, err := ParseValue(good); err != nil {
			t.Errorf("%.20s… was refused: %v", good, err)
		}
	}
	for _, bad := range []string{"1e401", "1e-401", "1e999999999999999999999", "1e-999999999", strings.Repeat("9", 1001), "0." + strings.Repeat("1", 1000)} {
		_, findings := Read([]byte(step(`"tool":"echo","arguments":{"n":`+bad+`}`)), testEnvironment())
		wantOnly(t, findings, codeNumberOutOfRange, "/steps/0/arguments/n")
		if _, findings := Validate(&planv1.Plan{Goal: "g", Steps: []*planv1.Step{{Id: "a", Action: &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL,
			Name: "echo", Arguments: text(`{"n":` + bad + `}`)}}}}, testEnvironment()); len(with(findings, codeNumberOutOfRange)) != 1 {
			t.Errorf("%.20s… was accepted in a message", bad)
		}
		if findings := ValidateSchema(text(`{"multipleOf":0.1}`), text(bad)); !HasErrors(findings) {
			t.Errorf("%.20s… reached the schema library", bad)
		}
		if findings := ValidateSchema(text(`{"multipleOf":`+bad+`}`), text("1")); !HasErrors(findings) {
			t.Errorf("%.20s… reached the schema library in a schema", bad)
		}
	}
}

func TestPatchDocumentReadsBack(t *testing.T) {
	doc := `{"base_version":3,"add":[{"id":"c","action":{"kind":"tool","name":"echo","arguments":{"p":9011.00}}}],"update":[{"id":"b","action":{"kind":"tool","name":"now","arguments":{}}}],` +
		`"remove":["x"],"assumptions":[{"id":"a1","text":"t"}],"set_assumptions":true,"reason":"out of stock","goal":"h"}`
	p, findings := ParsePatch([]byte(doc))
	if len(findings) > 0 {
		t.Fatal(show(findings))
	}
	if got := PatchDocument(p).GetText(); got != doc {
		t.Errorf("got  %s\nwant %s", got, doc)
	}
	q, _ := ParsePatch([]byte(strings.NewReplacer(`"set_assumptions":true,`, ``, `"base_version":3`, `"base_version":4`, `out of stock`, `again`).Replace(doc)))
	if PatchDigest(p) != PatchDigest(q) {
		t.Error("the same change has two digests")
	}
	if !q.GetSetAssumptions() {
		t.Error("assumptions that are there must replace the old ones")
	}
	for code, doc := range map[string]string{codeMissingField: `{"add":[]}`, codeUnknownField: `{"base_version":1,"change":[]}`, codeWrongType: `{"base_version":"1"}`} {
		if _, findings := ParsePatch([]byte(doc)); len(with(findings, code)) != 1 {
			t.Errorf("%s: %s", doc, show(findings))
		}
	}
}

func TestDurations(t *testing.T) {
	for in, want := range map[string]time.Duration{"90s": 90 * time.Second, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond, "2h": 2 * time.Hour, "1.5h": 90 * time.Minute} {
		p, findings := Parse([]byte(step(`"tool":"now","timeout":"` + in + `"`)))
		if got := p.GetSteps()[0].GetAction().GetTimeout().AsDuration(); got != want || len(findings) > 0 {
			t.Errorf("%s is %s\n%s", in, got, show(findings))
		}
	}
	for _, bad := range []string{"", "5", "-5s", "+5s", "s", "5 s", "1d", "0", "P1D"} {
		_, findings := Parse([]byte(step(`"tool":"now","timeout":"` + bad + `"`)))
		wantOnly(t, findings, codeInvalidDuration, "/steps/0/timeout")
	}
	for d, want := range map[time.Duration]string{90 * time.Second: "90s", time.Millisecond: "0.001s", 1: "0.000000001s", 2400*time.Hour + 1: "8640000.000000001s", 0: "0s"} {
		if got := formatDuration(durationpb.New(d).AsDuration()); got != want {
			t.Errorf("%s is written %s", d, got)
		}
	}
}
