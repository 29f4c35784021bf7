package render

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// plan makes a plan from lines "id: dep dep".
func planOf(t testing.TB, text string) *planv1.Plan {
	t.Helper()
	p := &planv1.Plan{Version: 1}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		id, deps, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			t.Fatalf("line %q has no colon", line)
		}
		p.Steps = append(p.Steps, &planv1.Step{Id: id, DependsOn: strings.Fields(deps)})
	}
	return p
}

func TestLayoutDrawsAPlanAsATree(t *testing.T) {
	for name, c := range map[string]struct{ plan, want string }{
		"a chain goes straight down": {"a:\nb: a\nc: b", "a\nb\nc"},
		"branches and the step that joins them": {
			"parse:\nstock: parse\ndelivery: parse\nprice: stock delivery\npay: price",
			"parse\n├─ stock\n└─ delivery\nprice (after stock, delivery)\npay"},
		"a dependency that another one implies is not drawn": {"a:\nb: a\nc: a b\nd: a c", "a\nb\nc\nd"},
		"a dependency on one branch's begin is drawn once": {
			"parse:\nstock: parse\ndelivery: parse\nprice: parse stock delivery\norder: parse stock price\nconfirm: order stock delivery",
			"parse\n├─ stock\n└─ delivery\nprice (after stock, delivery)\norder\nconfirm"},
		"several beginnings":          {"a:\nb:\nc: a b", "├─ a\n└─ b\nc (after a, b)"},
		"a chain in a branch":         {"a:\nb: a\nc: b\nd: a\ne: c d", "a\n├─ b\n│  c\n└─ d\ne (after c, d)"},
		"branches within branches":    {"a:\nb: a\nc: b\nd: b\ne: a", "a\n├─ b\n│  ├─ c\n│  └─ d\n└─ e"},
		"a step before what it needs": {"b: a\na:", "a\nb"},
		"a cycle is shown, not followed": {
			"a: b\nb: a\nc:", "├─ c\n├─ a\n└─ b"},
		"an unknown dependency is left out": {"a: ghost", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range layout(planOf(t, c.plan)) {
				line := r.prefix + r.step.GetId()
				if len(r.after) > 0 {
					line += " (" + afterText(r.after) + ")"
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(c.want, strings.Join(got, "\n")); diff != "" {
				t.Fatalf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestLayoutShowsEveryStepOfALargePlanOnce(t *testing.T) {
	const n = 20_000
	deep, wide := &planv1.Plan{}, &planv1.Plan{}
	join := &planv1.Step{Id: "join"}
	for i := range n {
		s := &planv1.Step{Id: fmt.Sprintf("s%d", i)}
		if i > 0 {
			s.DependsOn = []string{fmt.Sprintf("s%d", i-1), "s0"}
		}
		deep.Steps = append(deep.Steps, s)
		b := &planv1.Step{Id: fmt.Sprintf("w%d", i)}
		wide.Steps = append(wide.Steps, b)
		join.DependsOn = append(join.DependsOn, b.GetId())
	}
	wide.Steps = append(wide.Steps, join)
	for _, p := range []*planv1.Plan{deep, wide} {
		begun := time.Now()
		seen := map[string]bool{}
		rows := layout(p)
		for _, r := range rows {
			seen[r.step.GetId()] = true
		}
		if len(rows) != len(p.GetSteps()) || len(seen) != len(rows) {
			t.Fatalf("%d rows of %d different steps, want %d", len(rows), len(seen), len(p.GetSteps()))
		}
		t.Logf("%d steps laid out in %s", len(rows), time.Since(begun))
	}
}
