package planner

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

func codes(findings []*planv1.Finding) []string {
	var out []string
	for _, f := range findings {
		out = append(out, f.GetCode())
	}
	return out
}

const small = `{"goal":"g","steps":[{"id":"a","tool":"echo","arguments":{"x":1}}]}`

func TestCase1_FenceAndProseAreTakenOff(t *testing.T) {
	fenced := func(s string) string { return "```json\n" + s + "\n```" }
	withFence := `{"goal":"print ` + "```" + ` and } and '","steps":[]}`
	for name, tc := range map[string]struct {
		text, want string
		notes      []string
	}{
		"bare":                         {small, small, nil},
		"white space and a mark":       {"\ufeff \n" + small + "\n", small, nil},
		"fence":                        {fenced(small), small, []string{noteFence}},
		"fence and prose":              {"Sure, here it is:\n" + fenced(small) + "\nDone.", small, []string{noteFence, noteProse}},
		"fence without a language":     {"```\n" + small + "\n```", small, []string{noteFence}},
		"fence that is not closed":     {"```json\n" + small, small, []string{noteFence}},
		"fence on one line":            {"```json" + small + "```", small, []string{noteFence}},
		"another fence first":          {"Run ```ls``` and\n```sh\nls -l\n```\n" + fenced(small), small, []string{noteFence, noteProse}},
		"fence inside a value":         {fenced(withFence), withFence, []string{noteFence}},
		"valid JSON that holds fences": {withFence, withFence, nil},
		"prose":                        {"Here: " + small + " I hope it helps {you}.", small, []string{noteProse}},
		"prose with another object":    {`Inputs were {"x":1}. ` + small, small, []string{noteProse}},
		"prose in a fence":             {"```\nThe plan:\n" + small + "\n```", "", []string{codePlanUnparseable}},
	} {
		got := read(tc.text, false)
		if name == "prose in a fence" {
			// A fence that does not open an object is not the document's: what is in it still is found.
			tc.want, tc.notes = small, []string{noteProse}
		}
		if string(got.doc) != tc.want || !cmp.Equal(codes(got.findings), tc.notes) {
			t.Errorf("%s: %s with %v, want %s with %v", name, got.doc, codes(got.findings), tc.want, tc.notes)
		}
	}
	bare, _ := plan.Parse([]byte(small))
	found, _ := plan.Parse(read("Sure, here it is:\n"+fenced(small)+"\nDone.", false).doc)
	if plan.Digest(bare) != plan.Digest(found) {
		t.Error("the digest differs from that of the bare document")
	}
}

func TestCase4_WhatWasCutOffIsNeverCompleted(t *testing.T) {
	cut := `{"goal":"g","steps":[{"id":"a","tool":"add","args":{"n":1}},{"id":"b","tool":"add","args":{"n":2`
	for name, tc := range map[string]struct {
		text      string
		truncated bool
	}{
		"told by the provider":          {cut, true},
		"seen":                          {cut, false},
		"in a fence":                    {"```json\n" + cut, false},
		"after prose":                   {"Here it is: " + cut, false},
		"inside a text":                 {cut[:len(`{"goal":"g","steps":[{"id":"a","to`)], false},
		"whole, and told by a provider": {small, true},
		"one brace":                     {"{", false},
	} {
		got := read(tc.text, tc.truncated)
		if got.doc != nil || !cmp.Equal(codes(got.findings), []string{codePlanTruncated}) || !plan.HasErrors(got.findings) {
			t.Errorf("%s: %s with %v", name, got.doc, codes(got.findings))
		}
	}
	// Every proper beginning of a document is refused.
	for i := 1; i < len(small); i++ {
		if got := read(small[:i], false); got.doc != nil {
			t.Fatalf("cut at %d: read as %s", i, got.doc)
		}
	}
}

func TestCase10_RepairOutsideTextsOnly(t *testing.T) {
	for text, want := range map[string]string{
		`{"q":"what's the user's None/True file"}`:    `{"q":"what's the user's None/True file"}`,
		`{'q': 'x', 'on': True, 'z': None}`:           `{"q": "x", "on": true, "z": null}`,
		`{'q': 'it\'s "so"', 'off': False}`:           `{"q": "it's \"so\"", "off": false}`,
		`{"q": "it's None", 'r': ['True', True]}`:     `{"q": "it's None", "r": ["True", true]}`,
		`{'q': 'back\\slash and \u00e9', 'n': 1e400}`: `{"q": "back\\slash and \u00e9", "n": 1e400}`,
		`{'选择': '读✅', 'TrueX': 1}`:                    `{"选择": "读✅", "TrueX": 1}`,
	} {
		got := read(text, false)
		wantNotes := []string{noteRepaired}
		if json.Valid([]byte(text)) {
			wantNotes = nil
		}
		if string(got.doc) != want || !cmp.Equal(codes(got.findings), wantNotes) {
			t.Errorf("%s\n got %s with %v\nwant %s", text, got.doc, codes(got.findings), want)
		}
	}
	for _, text := range []string{
		`{'q': 'it's'}`, // which quote ends the text is a guess
		`{"q": 1,}`,     // not a literal of another language
		`{q: 1}`, `{"q" = 1}`, `{'q': TRUE}`,
	} {
		if got := read(text, false); got.doc != nil {
			t.Errorf("%s was read as %s", text, got.doc)
		}
	}
}

func TestUnreadableAnswers(t *testing.T) {
	for _, text := range []string{"", "not json", "[1,2]", `"text"`, "null", "I cannot do {that}.", "```json\n[1]\n```"} {
		if got := read(text, false); got.doc != nil || !cmp.Equal(codes(got.findings), []string{codePlanUnparseable}) {
			t.Errorf("%q: %s with %v", text, got.doc, codes(got.findings))
		}
	}
}

func FuzzReadNeverChangesWhatIsValid(f *testing.F) {
	f.Add(`{"a":"it's True"}`, "x")
	f.Add(`{"a":"`+"```"+`"}`, "```json\n")
	f.Fuzz(func(t *testing.T, doc, around string) {
		got := read(around+doc+around, false)
		if got.doc != nil && !json.Valid(got.doc) {
			t.Fatalf("read %q", got.doc)
		}
		if !json.Valid([]byte(doc)) || !strings.HasPrefix(doc, "{") {
			return
		}
		if strings.ToValidUTF8(doc, "\uFFFD") != doc {
			return
		}
		if got := read(doc, false); string(got.doc) != strings.TrimSpace(doc) || len(got.findings) > 0 {
			t.Fatalf("valid %q was read as %q with %v", doc, got.doc, codes(got.findings))
		}
	})
}

func BenchmarkRead(b *testing.B) {
	var steps []string
	for i := range 200 {
		steps = append(steps, fmt.Sprintf(`{"id":"s%d","tool":"echo","arguments":{"text":"it's %d"}}`, i, i))
	}
	text := "Here:\n```json\n{\"goal\":\"g\",\"steps\":[" + strings.Join(steps, ",") + "]}\n```"
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if read(text, false).doc == nil {
			b.Fatal("not read")
		}
	}
}
