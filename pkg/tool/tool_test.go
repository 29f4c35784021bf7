package tool

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

type address struct {
	Street string `json:"street"`
	Number *int   `json:"number"`
}

type meta struct {
	Note string `json:"note,omitempty" jsonschema:"For people"`
}

type order struct {
	meta
	SKU      string             `json:"sku" enum:"128G,256G"`
	Count    uint               `json:"count"`
	Price    json.Number        `json:"price"`
	Paid     bool               `json:"paid,omitzero"`
	Extra    json.RawMessage    `json:"extra,omitempty"`
	To       address            `json:"to"`
	Tags     []string           `json:"tags,omitempty"`
	Weights  map[string]float64 `json:"weights,omitempty"`
	At       time.Time          `json:"at"`
	Pair     [2]int             `json:"pair"`
	Blob     []byte             `json:"blob,omitempty"`
	Anything any                `json:"anything,omitempty"`
	Skipped  string             `json:"-"`
	hidden   string
}

type node struct {
	Next *node `json:"next"`
}

func TestSchema(t *testing.T) {
	_ = order{}.hidden
	const want = `{"type":"object","properties":{` +
		`"note":{"type":"string","description":"For people"},` +
		`"sku":{"type":"string","enum":["128G","256G"]},` +
		`"count":{"type":"integer","minimum":0},` +
		`"price":{"type":"number"},` +
		`"paid":{"type":"boolean"},` +
		`"extra":{},` +
		`"to":{"type":"object","properties":{"street":{"type":"string"},"number":{"type":["integer","null"]}},"required":["street"],"additionalProperties":false},` +
		`"tags":{"type":"array","items":{"type":"string"}},` +
		`"weights":{"type":"object","additionalProperties":{"type":"number"}},` +
		`"at":{"type":"string","format":"date-time"},` +
		`"pair":{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2},` +
		`"blob":{"type":"string","contentEncoding":"base64"},` +
		`"anything":{}},` +
		`"required":["sku","count","price","to","at","pair"],"additionalProperties":false}`
	got, err := Schema[order]()
	if err != nil || string(got) != want {
		t.Errorf("schema\n%s, %v; want\n%s", got, err, want)
	}
	for name, c := range map[string]func() (json.RawMessage, error){
		"contains itself":         Schema[node],
		"has no JSON Schema":      Schema[struct{ C chan int }],
		"keys must be strings":    Schema[map[int]string],
		"is not an object":        Schema[[]string],
		"string is not an object": Schema[string],
	} {
		if s, err := c(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %s, %v", name, s, err)
		}
	}
	if s, err := Schema[json.RawMessage](); err != nil || string(s) != `{"type":"object"}` {
		t.Errorf("raw: %s, %v", s, err)
	}
}

// encoding/json writes a nil slice as null: the schema of an output allows what the function returns.
func TestOutputSchemasAllowNilSlices(t *testing.T) {
	d := New("list", func(context.Context, struct{}) (struct {
		Items []string `json:"items"`
	}, error) {
		panic("not called")
	}).Definition()
	if want := `{"type":"object","properties":{"items":{"type":["array","null"],"items":{"type":"string"}}},"required":["items"],"additionalProperties":false}`; string(d.OutputSchema) != want {
		t.Errorf("schema %s", d.OutputSchema)
	}
	if d := New("any", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil }).Definition(); d.OutputSchema != nil || string(d.InputSchema) != `{"type":"object"}` {
		t.Errorf("definition %+v", d)
	}
}

func TestCallKeepsExactJSON(t *testing.T) {
	raw := New("echo", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil })
	typed := New("typed", func(_ context.Context, in map[string]any) (map[string]any, error) { return in, nil })
	for _, c := range []struct {
		tool     *Tool
		in, want string
	}{
		{raw, `{"b":9011.00, "a":9223372036854775807, "t":"<a&b>"}`, `{"b":9011.00,"a":9223372036854775807,"t":"<a&b>"}`},
		{raw, ``, `{}`},
		{typed, `{"big":9007199254740993,"e":1e2,"t":"<a&b>"}`, `{"big":9007199254740993,"e":1e2,"t":"<a&b>"}`},
	} {
		if got, err := c.tool.Call(t.Context(), json.RawMessage(c.in)); err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v", c.in, got, err)
		}
	}
	broken := New("broken", func(context.Context, struct{}) (json.RawMessage, error) { return json.RawMessage(`{`), nil })
	for code, call := range map[string]func() (json.RawMessage, error){
		CodeInvalidOutput:    func() (json.RawMessage, error) { return broken.Call(t.Context(), nil) },
		CodeInvalidArguments: func() (json.RawMessage, error) { return typed.Call(t.Context(), json.RawMessage(`[1]`)) },
	} {
		var e *Error
		if _, err := call(); !errors.As(err, &e) || e.Code != code {
			t.Errorf("%s: %v", code, err)
		}
	}
}

func TestCase64_NamesAndDurables(t *testing.T) {
	good := []string{"a", "file.read", "stock_2.check", strings.Repeat("a", 64)}
	durables := map[string]string{}
	for _, name := range good {
		if !ValidName(name) {
			t.Errorf("%q is refused", name)
		}
		durable := DurableName(name)
		if strings.ContainsAny(durable, ".*> ") || ToolOfDurable(durable) != name || durables[durable] != "" {
			t.Errorf("%q has the consumer %q", name, durable)
		}
		durables[durable] = name
	}
	for _, name := range []string{"", ".", "a.", ".a", "a..b", "File.read", "file-read", "a.>", "*", "a b", "选择", "1a", "a.1", "a\n", strings.Repeat("a", 65)} {
		if ValidName(name) {
			t.Errorf("%q is taken for a tool's name", name)
		}
	}
	for token, want := range map[string]bool{"r7k2": true, "step=0-1": true, "A_b": true, "": false, "a.b": false, "*": false, ">": false, "x *": false, "选择": false,
		strings.Repeat("a", 128): true, strings.Repeat("a", 129): false} {
		if ValidToken(token) != want {
			t.Errorf("token %q: %v", token, !want)
		}
	}
	for subject, want := range map[string][3]string{
		"cairn.action.r1.s-1.file.read": {"r1", "s-1", "file.read"},
		"cairn.result.r1.s-1.echo":      {"r1", "s-1", "echo"},
		"cairn.action.r1.s-1":           {},
		"cairn.action..s-1.echo":        {},
		"cairn.log.1":                   {},
	} {
		run, action, name, ok := ParseSubject(subject)
		if [3]string{run, action, name} != want || ok != (want[0] != "") {
			t.Errorf("%s: %s %s %s %v", subject, run, action, name, ok)
		}
	}
	if DurableName("other") == "" || ToolOfDurable("toolrouter") != "" {
		t.Error("another consumer's name is taken for a tool's")
	}
}

func TestDefinitionDigestIgnoresFormAndKeepsContent(t *testing.T) {
	digest := func(s string) string {
		t.Helper()
		d, err := DefinitionDigest([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	one := digest(`{"name":"a","version":"1","input_schema":{"type":"object","maximum":1.0}}`)
	for _, same := range []string{
		`{ "version": "1", "name": "\u0061", "input_schema": {"maximum":1.0, "type":"object"} }`,
		`{"name":"a","version":"1","input_schema":{"type":"object","maximum":1.0},"idempotent":false,"permission":"","retryable_errors":[],"output_schema":null,"digest":"x"}`,
	} {
		if digest(same) != one {
			t.Errorf("%s has another digest", same)
		}
	}
	for _, other := range []string{
		`{"name":"a","version":"2","input_schema":{"type":"object","maximum":1.0}}`,
		`{"name":"a","version":"1","input_schema":{"type":"object","maximum":1}}`,
		`{"name":"a","version":"1","input_schema":{"type":"object","maximum":1.0},"idempotent":true}`,
	} {
		if digest(other) == one {
			t.Errorf("%s has the same digest", other)
		}
	}
	if _, err := DefinitionDigest([]byte(`[]`)); err == nil {
		t.Error("a list is taken for a definition")
	}
}

func TestVersionsAreComparedByTheirNumbers(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		older bool
	}{{"1.9.0", "1.10.0", true}, {"1.10.0", "1.9.0", false}, {"1", "1.0", false}, {"1.0", "1.0.1", true}, {"2.0.0", "2.0.0", false}, {"a", "b", true}} {
		if olderVersion(c.a, c.b) != c.older {
			t.Errorf("%s older than %s: %v", c.a, c.b, !c.older)
		}
	}
}

func TestDurations(t *testing.T) {
	for text, d := range map[string]time.Duration{"30s": 30 * time.Second, "0s": 0, "1.5s": 1500 * time.Millisecond, "0.000001s": time.Microsecond, "-2s": -2 * time.Second, "100s": 100 * time.Second} {
		if got := Duration(d).String(); got != text {
			t.Errorf("%s is written %s, want %s", d, got, text)
		}
		var back Duration
		if err := json.Unmarshal([]byte(`"`+text+`"`), &back); err != nil || time.Duration(back) != d {
			t.Errorf("%s is read as %v, %v", text, back, err)
		}
	}
	for _, bad := range []string{`30`, `"30"`, `"soon"`} {
		var d Duration
		if err := json.Unmarshal([]byte(bad), &d); err == nil {
			t.Errorf("%s is read as %v", bad, d)
		}
	}
}

// Cut texts are valid and end at a rune's border.
func TestCase68_CutAtRunes(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{{"读✅", 6, "读✅"}, {"读✅", 5, "读"}, {"读✅", 2, ""}, {"a\xffb", 10, "a\uFFFDb"}, {"", 3, ""}} {
		if got := cut(c.in, c.n); got != c.want {
			t.Errorf("cut(%q, %d) is %q", c.in, c.n, got)
		}
	}
}

func TestRecentIsBounded(t *testing.T) {
	r := newRecent()
	for i := range recentMax + 10 {
		key := strings.Repeat("k", i%7) + time.Duration(i).String()
		if body, joined := r.begin(key, &delivery{}); body != nil || joined {
			t.Fatalf("%s is known", key)
		}
		r.end(key, []byte("x"))
		if body, _ := r.begin(key, &delivery{}); string(body) != "x" {
			t.Fatalf("%s is forgotten at once", key)
		}
	}
	if len(r.bodies) != recentMax || len(r.order) != recentMax || r.bytes != recentMax {
		t.Errorf("%d results, %d keys, %d bytes", len(r.bodies), len(r.order), r.bytes)
	}
	for i := range 8 {
		key := "big" + time.Duration(i).String()
		r.begin(key, &delivery{})
		r.end(key, make([]byte, recentBytes/4))
		if r.bytes > recentBytes {
			t.Errorf("%d bytes are kept", r.bytes)
		}
	}
	r.begin("huge", &delivery{})
	r.end("huge", make([]byte, recentBytes/4+1))
	if body, joined := r.begin("huge", &delivery{}); body != nil || joined {
		t.Error("a huge result is kept")
	}
}
