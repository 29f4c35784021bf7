package plan

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"

	"github.com/cairnrun/cairn/pkg/yamldoc"
)

func readDocs(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var block = regexp.MustCompile("(?ms)^```([a-z]+) ([^\n]+)\n(.*?)^```$")

// docsTools are the tools that the examples name.
func docsTools() map[string]*planv1.ToolDefinition {
	open := text(`{"type":"object"}`)
	return map[string]*planv1.ToolDefinition{
		"stock.check":    {Name: "stock.check", InputSchema: text(`{"type":"object","properties":{"sku":{"type":"string"},"city":{"type":"string"}},"required":["sku"],"additionalProperties":false}`)},
		"price.compute":  {Name: "price.compute", InputSchema: open},
		"payment.charge": {Name: "payment.charge", InputSchema: open, Risk: planv1.Risk_RISK_HIGH},
		"search":         {Name: "search", InputSchema: text(`{"type":"object","required":["query"]}`)},
		"render":         {Name: "render", InputSchema: open},
	}
}

func TestExamplesOfTheDocs(t *testing.T) {
	env := Environment{Tools: docsTools(), Input: text(`{"city":"上海","budget":10000,"query":"q"}`)}
	var first *planv1.Plan
	seen := map[string]int{}
	for _, m := range block.FindAllStringSubmatch(readDocs(t), -1) {
		language, what, body := m[1], m[2], m[3]
		doc := []byte(body)
		if language == "yaml" {
			var err error
			if doc, err = yamldoc.ToJSON(doc); err != nil {
				t.Fatalf("%v in\n%s", err, body)
			}
		}
		kind, wanted, _ := strings.Cut(what, ": ")
		seen[kind]++
		switch kind {
		case "plan":
			p, findings := Read(doc, env)
			if HasErrors(findings) || len(ValidateSchema(text(string(Schema())), text(string(doc)))) > 0 {
				t.Errorf("refused:\n%s\n%s", show(findings), body)
			}
			if first == nil {
				first = p
				first.Version = 1
			}
		case "patch":
			patch, findings := ParsePatch(doc)
			if HasErrors(findings) {
				t.Fatalf("refused:\n%s\n%s", show(findings), body)
			}
			if _, findings = Apply(first, patch, nil, env); HasErrors(findings) {
				t.Errorf("refused:\n%s\n%s", show(findings), body)
			}
		case "refused":
			_, findings := Read(doc, env)
			var got []string
			for _, f := range errorsOf(findings) {
				got = append(got, f.GetCode())
			}
			if strings.Join(got, " ") != wanted {
				t.Errorf("want %s, got:\n%s", wanted, show(findings))
			}
		case "true":
			for _, expr := range strings.Split(strings.TrimSpace(body), "\n") {
				ok, err := EvalCheck(expr, Scope{Result: text(`{"stock": 3, "price": 9011.00, "tags": ["new", "black"]}`)})
				if !ok || err != nil {
					t.Errorf("%s is %v, %v", expr, ok, err)
				}
			}
		default:
			t.Errorf("nobody runs the block %q", what)
		}
	}
	for _, kind := range []string{"plan", "patch", "refused", "true"} {
		if seen[kind] == 0 {
			t.Errorf("no block of kind %s was found", kind)
		}
	}
}

// rows returns the rows of the table under a header, split into cells.
func rows(t *testing.T, docs, header string) [][]string {
	t.Helper()
	_, after, ok := strings.Cut(docs, header+"\n")
	if !ok {
		t.Fatalf("the table %s is missing", header)
	}
	var list [][]string
	for _, line := range strings.Split(after, "\n")[1:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		list = append(list, cells)
	}
	return list
}

func TestCodesOfTheDocs(t *testing.T) {
	documented := map[string]string{}
	for _, row := range rows(t, readDocs(t), "| code | layer | meaning |") {
		if _, twice := documented[row[0]]; twice {
			t.Errorf("%s stands twice", row[0])
		}
		documented[row[0]] = row[1]
	}
	source := codesOfSource(t)
	for _, code := range source {
		if documented[code] == "" {
			t.Errorf("the docs do not list %s", code)
		}
	}
	for code := range documented {
		if !slices.Contains(source, code) {
			t.Errorf("the docs list %s, which is not in the source", code)
		}
	}
	// The layers are those that the findings have.
	for _, c := range findingCases {
		env := testEnvironment()
		env.Limits, env.AllowedTools = c.limits, c.allowed
		_, findings := Read([]byte(c.doc), env)
		for _, f := range findings {
			if !slices.Contains(strings.Split(documented[f.GetCode()], ", "), f.GetLayer()) {
				t.Errorf("%s was found by the layer %s, the docs say %s", f.GetCode(), f.GetLayer(), documented[f.GetCode()])
			}
		}
	}
}

func TestLimitsOfTheDocs(t *testing.T) {
	documented := map[string]string{}
	for _, row := range rows(t, readDocs(t), "| limit | default | what it bounds |") {
		documented[row[0]] = row[1]
	}
	limits := reflect.ValueOf(DefaultLimits())
	for i := range limits.NumField() {
		name := snake(limits.Type().Field(i).Name)
		if want := fmt.Sprint(limits.Field(i).Interface()); documented[name] != want {
			t.Errorf("%s is %s, the docs say %q", name, want, documented[name])
		}
		delete(documented, name)
	}
	if len(documented) > 0 {
		t.Errorf("the docs list limits that are not there: %v", documented)
	}
}

func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// The fields that the docs describe are those of the schema.
func TestFieldsOfTheDocs(t *testing.T) {
	schema, _ := ParseValue(string(Schema()))
	patch, _ := ParseValue(string(PatchSchema()))
	fieldsAt := func(v Value, path ...string) []string {
		at, ok := v.At(append(path, "properties"))
		if !ok {
			t.Fatalf("no properties at %v", path)
		}
		var names []string
		for _, m := range at.Members() {
			names = append(names, m.Name)
		}
		return names
	}
	docs := readDocs(t)
	for section, fields := range map[string][]string{
		"## The plan\n":              fieldsAt(schema),
		"## A step\n":                fieldsAt(schema, "$defs", "step"),
		"### Actions\n":              fieldsAt(schema, "$defs", "action"),
		"### Retries and failures\n": fieldsAt(schema, "$defs", "retry"),
		"## Conditions and checks\n": fieldsAt(schema, "$defs", "check"),
		"## Patches\n":               fieldsAt(patch),
	} {
		_, body, ok := strings.Cut(docs, section)
		if !ok {
			t.Errorf("the section %q is missing", section)
		}
		body, _, _ = strings.Cut(body, "\n## ")
		for _, f := range fields {
			if f != "set_assumptions" && !regexp.MustCompile("[`{ ]"+f+"[`,:} ]").MatchString(body) {
				t.Errorf("%sdoes not describe %s", section, f)
			}
		}
	}
	for _, p := range policyNames {
		if !strings.Contains(docs, "| `"+p+"` |") {
			t.Errorf("the policy %s is not described", p)
		}
	}
}
