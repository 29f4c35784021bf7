package gateway

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// page is docs/api.md.
func page(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestEveryReasonIsDocumented(t *testing.T) {
	text := page(t)
	file, err := parser.ParseFile(token.NewFileSet(), "problem.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "reason") {
			return true
		}
		found++
		if value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value); err != nil || !strings.Contains(text, "`"+value+"`") {
			t.Errorf("%s %s is not on the page", spec.Names[0].Name, value)
		}
		return true
	})
	if found < 20 {
		t.Errorf("only %d reasons were found", found)
	}
}

func TestLimitsAreDocumentedAsTheyAre(t *testing.T) {
	text := page(t)
	l := Config{}.withDefaults().Limits
	size := func(n int) string {
		if n%(1<<20) == 0 {
			return fmt.Sprintf("%d MiB", n>>20)
		}
		return fmt.Sprintf("%d KiB", n>>10)
	}
	count := func(n int) string {
		if n < 1000 {
			return strconv.Itoa(n)
		}
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	for _, row := range []string{
		"| `max_request_bytes` | " + size(l.MaxRequestBytes), "| `max_plan_bytes` | " + size(l.MaxPlanBytes),
		"| `max_patch_bytes` | " + size(l.MaxPatchBytes), "| `max_input_bytes` | " + size(l.MaxInputBytes),
		"| `max_goal_bytes` | " + size(l.MaxGoalBytes), "| `max_tool_bytes` | " + size(l.MaxToolBytes),
		"| `max_labels`, `max_label_bytes` | " + count(l.MaxLabels) + ", " + count(l.MaxLabelBytes),
		"| `max_names` | " + count(l.MaxNames), "| `max_watchers` | " + count(l.MaxWatchers), "| `max_streams` | " + count(l.MaxStreams),
	} {
		if !strings.Contains(text, row+" |") {
			t.Errorf("the page has no row %q", row)
		}
	}
}
