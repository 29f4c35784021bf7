package main

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

func root(t *testing.T) string {
	t.Helper()
	dir, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestEverySnippetIsFound(t *testing.T) {
	dir, names := root(t), map[string]bool{}
	for _, m := range mutants() {
		if names[m.name] || m.name == "" || m.breaks == "" || len(m.edits) == 0 {
			t.Errorf("the mutant %q stands twice or is not complete", m.name)
		}
		names[m.name] = true
		texts, err := planted(dir, m)
		if err != nil {
			t.Error(err)
		}
		for _, e := range m.edits {
			if e.old == e.new || texts[e.file] == "" && err == nil {
				t.Errorf("%s: %s does not change", m.name, e.file)
			}
		}
	}
	if len(names) < 30 {
		t.Errorf("there are %d mutants", len(names))
	}
}

func TestALostSnippetIsNamed(t *testing.T) {
	_, err := planted(root(t), mutant{name: "stale", edits: []edit{{owner, "this stands nowhere", ""}}})
	if err == nil || !strings.Contains(err.Error(), "mutant stale") || !strings.Contains(err.Error(), owner) {
		t.Errorf("it says %v", err)
	}
	if err := all(time.Second, true, []string{"nobody"}); err == nil {
		t.Error("an unknown mutant is not refused")
	}
}

// TestMutantsAreCaught plants two faults, one in the owner's loop and one in the core, and looks that the seed which shows
// one shows it again, word for word.
func TestMutantsAreCaught(t *testing.T) {
	for _, c := range []struct{ name, invariant string }{
		{"acknowledge_before_append", "no_report_lost"},
		{"key_with_attempt", "idempotency_key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, m := range mutants() {
				if m.name != c.name {
					continue
				}
				binary, err := build(root(t), t.TempDir(), m)
				if err != nil {
					t.Fatal(err)
				}
				f, err := hunt(binary, time.Minute)
				if err != nil || f.invariant != c.invariant {
					t.Fatalf("caught by %q: %v", f.invariant, err)
				}
				again := func() string {
					out, err := exec.CommandContext(t.Context(), binary, "--seed", strconv.FormatUint(f.seed, 10), "-v").CombinedOutput()
					if err == nil {
						t.Errorf("seed %d passes when it is repeated", f.seed)
					}
					return string(out)
				}
				first, second := again(), again()
				if first != second || !strings.Contains(first, "["+c.invariant+"]") || !strings.Contains(first, "repeat with: go run ./internal/sim --seed ") {
					t.Errorf("seed %d tells:\n%s\nand then:\n%s", f.seed, first, second)
				}
				return
			}
			t.Error("it is not in the list")
		})
	}
}
