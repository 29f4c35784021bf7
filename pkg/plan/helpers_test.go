package plan

import (
	"strings"
	"testing"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

func text(s string) *planv1.JsonText { return &planv1.JsonText{Text: s} }

// echoTools is a small registry: a tool that takes and gives anything, and some that are particular.
func echoTools() map[string]*planv1.ToolDefinition {
	return map[string]*planv1.ToolDefinition{
		"echo": {Name: "echo", InputSchema: text(`{"type":"object"}`), OutputSchema: text(`{"type":"object"}`), Idempotent: true},
		"now":  {Name: "now", InputSchema: text(`{"type":"object","properties":{},"additionalProperties":false}`)},
		"search": {Name: "search", InputSchema: text(`{"type":"object","properties":{"q":{"type":"string"},"n":{"type":"integer"},
			"a":{"type":"string"},"b":{"type":["string","null"]}},"required":["q"],"additionalProperties":false}`)},
		"stock.check": {Name: "stock.check", Idempotent: true,
			InputSchema:  text(`{"type":"object","properties":{"sku":{"type":"string"},"city":{"type":"string"},"count":{"type":"integer","minimum":1}},"required":["sku"],"additionalProperties":false}`),
			OutputSchema: text(`{"type":"object","properties":{"stock":{"type":"integer"},"price":{"type":"number"},"sku":{"type":"string"},"items":{"type":"array"}},"required":["stock"],"additionalProperties":false}`)},
		"pay": {Name: "pay", Permission: "payments", Risk: planv1.Risk_RISK_HIGH,
			InputSchema: text(`{"type":"object","properties":{"amount":{"type":"number"},"order":{"type":"string"}},"required":["amount"],"additionalProperties":false}`)},
		"broken":       {Name: "broken", InputSchema: text(`{"type":"nothing"}`)},
		"llm.generate": {Name: "llm.generate", InputSchema: text(`{"type":"object","properties":{"prompt":{"type":"string"}},"required":["prompt"]}`)},
	}
}

func testEnvironment() Environment {
	return Environment{Tools: echoTools(), Permissions: []string{"payments"}}
}

// show writes findings one a line, for messages and comparisons.
func show(findings []*planv1.Finding) string {
	var b strings.Builder
	for _, f := range findings {
		b.WriteString(strings.ToLower(strings.TrimPrefix(f.GetSeverity().String(), "SEVERITY_")))
		b.WriteString(" " + f.GetCode() + " " + f.GetPointer() + ": " + f.GetMessage())
		if f.GetHint() != "" {
			b.WriteString(" (" + f.GetHint() + ")")
		}
		b.WriteString(" " + f.GetValues().GetText() + "\n")
	}
	return b.String()
}

func errorsOf(findings []*planv1.Finding) []*planv1.Finding {
	var list []*planv1.Finding
	for _, f := range findings {
		if f.GetSeverity() == planv1.Severity_SEVERITY_ERROR {
			list = append(list, f)
		}
	}
	return list
}

// with returns the findings of a code.
func with(findings []*planv1.Finding, code string) []*planv1.Finding {
	var list []*planv1.Finding
	for _, f := range findings {
		if f.GetCode() == code {
			list = append(list, f)
		}
	}
	return list
}

// wantOnly checks that one error was found, of this code at this place.
func wantOnly(t *testing.T, findings []*planv1.Finding, code, pointer string) *planv1.Finding {
	t.Helper()
	list := errorsOf(findings)
	if len(list) != 1 || list[0].GetCode() != code || list[0].GetPointer() != pointer {
		t.Fatalf("want one error %s at %q, got:\n%s", code, pointer, show(findings))
	}
	return list[0]
}

// mustRead reads a plan that must be accepted.
func mustRead(t *testing.T, doc string, env Environment) (*planv1.Plan, []*planv1.Finding) {
	t.Helper()
	p, findings := Read([]byte(doc), env)
	if HasErrors(findings) {
		t.Fatalf("refused:\n%s", show(findings))
	}
	return p, findings
}
