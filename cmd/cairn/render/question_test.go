package render

import (
	"strings"
	"testing"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

func TestAQuestionShowsAnAnswerThatItTakes(t *testing.T) {
	for _, c := range []struct{ schema, value, note string }{
		{"", "TEXT", "any text, or JSON"},
		{`{}`, "TEXT", "any text, or JSON"},
		{`{"type":"string"}`, "TEXT", ""},
		{`{"type":"integer"}`, "NUMBER", ""},
		{`{"type":"boolean"}`, "true", "true or false"},
		{`{"enum":["red","dark blue"]}`, "red", "red or dark blue"},
		{`{"enum":["1","2","3"]}`, `"1"`, "1, 2 or 3"},
		{`{"type":"object","properties":{"approved":{"type":"boolean"}},"required":["approved"]}`, `{"approved": true}`, "approved: true or false"},
		{`{"type":"object","properties":{"decision":{"enum":["retry","skip","fail"]}},"required":["decision"]}`, `{"decision": "retry"}`, "decision: retry, skip or fail"},
		{`{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name"]}`, `{"name": "TEXT"}`,
			`its schema is {"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name"]}`},
		{`{"type":"array"}`, "JSON", `its schema is {"type":"array"}`},
	} {
		value, note := AnswerForm(&planv1.JsonText{Text: c.schema})
		if value != c.value || note != c.note {
			t.Errorf("%s: %q, %q; want %q, %q", c.schema, value, note, c.value, c.note)
		}
	}
	command := func(words ...string) string { return "cairn " + strings.Join(words, " ") + " --dir d" }
	if got, want := AnswerLine(command, "r1", "input-1", &planv1.JsonText{Text: `{"type":"boolean"}`}), "cairn answer r1 input-1 true --dir d   (true or false)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
