package yamldoc

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestToJSON(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"numbers keep their digits", "a: 9007199254740993\nb: 9011.00\nc: 1e2\nd: -0.10\n", `{"a":9007199254740993,"b":9011.00,"c":1e2,"d":-0.10}`},
		{"numbers that JSON writes otherwise", "a: 0x1F\nb: 1_000\nc: 0o17\nd: 0b101\ne: +5\nf: .5\ng: 5.\nh: -0x10\ni: 5.e3\n", `{"a":31,"b":1000,"c":15,"d":5,"e":5,"f":0.5,"g":5,"h":-16,"i":5e3}`},
		{"beyond 64 bits", "a: 0xFFFFFFFFFFFFFFFFFF\nb: 123456789012345678901234567890\n", `{"a":4722366482869645213695,"b":123456789012345678901234567890}`},
		{"words of 1.1 are strings", "a: yes\nb: no\nc: on\nd: off\ne: y\n", `{"a":"yes","b":"no","c":"on","d":"off","e":"y"}`},
		{"booleans and nulls", "a: true\nb: False\nc: ~\nd:\ne: null\n", `{"a":true,"b":false,"c":null,"d":null,"e":null}`},
		{"times are strings", "a: 2030-01-31\nb: 2030-01-31T08:00:00Z\nc: 12:30\n", `{"a":"2030-01-31","b":"2030-01-31T08:00:00Z","c":"12:30"}`},
		{"quotes make strings", "a: '1'\nb: \"true\"\nc: |\n  two\n  lines\nd: >-\n  one\n  line\n", `{"a":"1","b":"true","c":"two\nlines\n","d":"one line"}`},
		{"tags of the core schema", "a: !!str 1\nb: !!int 7\nc: !!float 7\n", `{"a":"1","b":7,"c":7}`},
		{"anchors", "base: &b {x: 1}\na: *b\nl: [*b, *b]\n", `{"base":{"x":1},"a":{"x":1},"l":[{"x":1},{"x":1}]}`},
		{"keys are texts", "1: a\ntrue: b\n", `{"1":"a","true":"b"}`},
		{"markup stays readable", "a: a<b && c>d\n", `{"a":"a<b && c>d"}`},
		{"Chinese", "目标: 下单 1 台 iPhone\n", `{"目标":"下单 1 台 iPhone"}`},
		{"JSON", "{\n\t\"a\": 9011.00, \"e\": \"\\ud83d\\ude00\"}", `{"a":9011.00,"e":"\ud83d\ude00"}`},
		{"empty collections", "a: []\nb: {}\n", `{"a":[],"b":{}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ToJSON([]byte(c.yaml))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	for _, c := range []struct {
		name, yaml string
		line       int
		part       string
	}{
		{"duplicate key", "a: 1\nb: 2\na: 3\n", 3, "first in line 1"},
		{"syntax", "a: 1\nb: [1, 2\nc: 3\n", 0, "not valid YAML"},
		{"infinite", "a: 1\nb: .inf\n", 2, "infinite"},
		{"not a number", "b: .nan\n", 1, "infinite"},
		{"leading zeros", "a:\n  zip: 01067\n", 2, "leading zeros"},
		{"own tag", "a: !secret x\n", 1, "tag"},
		{"tagged mapping", "a: !secret {x: 1}\n", 1, "tag"},
		{"wrong tag", "a: !!int x\n", 1, "not of the type"},
		{"binary", "a: !!binary aGk=\n", 1, "tag"},
		{"two documents", "a: 1\n---\nb: 2\n", 2, "second document"},
		{"key that is a list", "? [a]\n: 1\n", 1, "key must be a text"},
		{"merge key", "b: &b {x: 1}\na:\n  <<: *b\n", 3, "merge keys"},
		{"empty", "\n  \n", 0, "empty"},
		{"only a comment", "# nothing\n", 0, "empty"},
		{"missing key", "a: 1\n? \n: 2\n", 2, "key is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ToJSON([]byte(c.yaml))
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %s, %v; want an *Error", got, err)
			}
			if c.line != 0 && e.Line != c.line || !strings.Contains(e.Error(), c.part) {
				t.Errorf("got %v (line %d); want line %d and %q", err, e.Line, c.line, c.part)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	aliases := func(n int) string {
		return "a: &a 1\nl: [" + strings.TrimSuffix(strings.Repeat("*a, ", n), ", ") + "]\n"
	}
	text := func(n int) string { return "a: " + strings.Repeat("x", n-len("a: ")) }
	for _, c := range []struct {
		limits Limits
		at     int
		make   func(int) string
		name   string
	}{
		{Limits{MaxDepth: 7}, 7, func(n int) string { return "a: 1\nb: " + nested(n-1) }, "max_depth"},
		{Limits{MaxAliases: 5}, 5, aliases, "max_aliases"},
		{Limits{MaxBytes: 64}, 64, text, "max_bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := c.limits.Parse([]byte(c.make(c.at))); err != nil {
				t.Errorf("at the limit: %v", err)
			}
			if _, err := c.limits.Parse([]byte(c.make(c.at + 1))); err == nil || !strings.Contains(err.Error(), c.name) {
				t.Errorf("beyond the limit: %v", err)
			}
		})
	}
}

// A few lines of aliases of aliases must not become gigabytes.
func TestAliasBombs(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 [xxxxxxxxxxxxxxxx]\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [*a%d, *a%d]\n", i, i, i-1, i-1)
	}
	if _, err := ToJSON([]byte(b.String())); err == nil {
		t.Error("2^40 elements were accepted")
	}
	if got, err := ToJSON([]byte("a: &a [*a]\n")); err == nil {
		t.Errorf("a list that holds itself became %s", got)
	}
	if _, err := (Limits{MaxBytes: 1000}).Parse([]byte("a: &a " + strings.Repeat("x", 300) + "\nl: [*a, *a, *a, *a, *a]\n")); err == nil || !strings.Contains(err.Error(), "expands") {
		t.Errorf("expansion over the limit: %v", err)
	}
}

func TestLineOfPointer(t *testing.T) {
	d, err := Parse([]byte("goal: g\nsteps:\n  - id: a\n    action:\n      name: x\n  - id: b\n    a/b: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	for pointer, want := range map[string]int{"": 1, "/goal": 1, "/steps": 2, "/steps/0": 3, "/steps/0/action/name": 5,
		"/steps/1/id": 6, "/steps/1/a~1b": 7, "/steps/1/missing": 6, "/steps/9": 2, "/steps/0/action/name/deeper": 5} {
		if got := d.Line(pointer); got != want {
			t.Errorf("%q is in line %d, want %d", pointer, got, want)
		}
	}
}

func FuzzToJSON(f *testing.F) {
	for _, s := range []string{"a: 1\n", "- [a, {b: .5}]\n", "a: &x [1]\nb: *x\n", "? a\n: !!str 1\n", "0x_", "a: |\n  x\n", "{\"a\": 1e5}", "-_1", "1_", "+.5e3"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		got, err := ToJSON(doc)
		if err == nil && !json.Valid(got) {
			t.Errorf("%q became %q, which is no JSON", doc, got)
		}
	})
}
