package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// graphOf makes a plan of edges: "b: a c" says that b depends on a and c.
func graphOf(edges ...[]string) *planv1.Plan {
	p := &planv1.Plan{Goal: "g"}
	for _, e := range edges {
		p.Steps = append(p.Steps, &planv1.Step{Id: e[0], DependsOn: e[1:], Action: &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: "now", Arguments: text("{}")}})
	}
	return p
}

func TestGraph(t *testing.T) {
	g := NewGraph(graphOf([]string{"d", "b", "c"}, []string{"a"}, []string{"b", "a"}, []string{"c", "a", "gone"}, []string{"e"}))
	if i, ok := g.Index("b"); !ok || i != 2 || g.ID(2) != "b" || g.Len() != 5 {
		t.Error("places are wrong")
	}
	if _, ok := g.Index("gone"); ok {
		t.Error("a step that is not there has a place")
	}
	check := func(name string, got, want []int) {
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	ints := func(l []int32) []int {
		out := []int{}
		for _, i := range l {
			out = append(out, int(i))
		}
		return out
	}
	check("dependencies of d", ints(g.Dependencies(0)), []int{2, 3})
	check("dependencies of c", ints(g.Dependencies(3)), []int{1})
	check("dependents of a", ints(g.Dependents(1)), []int{2, 3})
	check("order", g.Order(), []int{1, 4, 2, 3, 0})
	check("last steps", g.Sinks(), []int{0, 4})
	if g.Cycle() != nil {
		t.Errorf("a cycle: %v", g.Cycle())
	}
}

func TestCase18_Cycles(t *testing.T) {
	for _, c := range []struct {
		plan *planv1.Plan
		want string
	}{
		{graphOf([]string{"a", "a"}), `{"path":["a","a"]}`},
		{graphOf([]string{"a", "c"}, []string{"b", "a"}, []string{"c", "b"}), `{"path":["a","b","c","a"]}`},
		{graphOf([]string{"s"}, []string{"y", "s", "x"}, []string{"x", "y"}, []string{"after", "x"}), `{"path":["y","x","y"]}`},
	} {
		_, findings := Validate(c.plan, testEnvironment())
		list := errorsOf(findings)
		if len(list) != 1 || list[0].GetCode() != codeCycle || list[0].GetValues().GetText() != c.want {
			t.Errorf("want %s, got:\n%s", c.want, show(findings))
		}
	}
	// A cycle that only references make.
	_, findings := Read([]byte(`{"goal":"g","steps":[{"id":"a","tool":"echo","arguments":{"x":{"$ref":"steps.b.result"}}},{"id":"b","tool":"echo","depends_on":["a"]}]}`), testEnvironment())
	if f := wantOnly(t, findings, codeCycle, "/steps/0/depends_on"); f.GetValues().GetText() != `{"path":["a","b","a"]}` {
		t.Errorf("values are %s", f.GetValues().GetText())
	}
	// Cycles that share no step are all named.
	_, findings = Validate(graphOf([]string{"a", "b"}, []string{"b", "a"}, []string{"c", "d", "b"}, []string{"d", "c"}), testEnvironment())
	if got := with(findings, codeCycle); len(got) != 2 {
		t.Errorf("want two cycles, got:\n%s", show(findings))
	}
	// A patch that makes one among the pending steps leaves the plan as it was.
	base := graphOf([]string{"done"}, []string{"x", "done"}, []string{"y", "x"})
	base.Version = 1
	update := graphOf([]string{"x", "done", "y"}).GetSteps()
	next, findings := Apply(base, &planv1.Patch{BaseVersion: 1, Update: update}, viewOf(map[string]Progress{"done": Finished}), testEnvironment())
	if f := wantOnly(t, findings, codeCycle, "/update/0/depends_on"); f.GetValues().GetText() != `{"path":["x","y","x"]}` || next != nil {
		t.Errorf("values are %s, the plan %v", f.GetValues().GetText(), next)
	}
}

func TestCase25_JoinOverNothing(t *testing.T) {
	_, findings := Read([]byte(`{"goal":"g","steps":[{"id":"s","tool":"now"},{"id":"j","action":{"kind":"control","name":"join"},"depends_on":[]}]}`), testEnvironment())
	wantOnly(t, findings, codeJoinWithoutInputs, "/steps/1/depends_on")
	mustRead(t, `{"goal":"g","steps":[{"id":"s","tool":"now"},{"id":"j","action":{"kind":"control","name":"join"},"depends_on":["s"]}]}`, testEnvironment())
}

func wide(n int) *planv1.Plan {
	p := &planv1.Plan{Goal: "g"}
	join := &planv1.Step{Id: "join", Action: &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_CONTROL, Name: ControlJoin}}
	for i := range n - 1 {
		s := &planv1.Step{Id: fmt.Sprintf("s%d", i), Action: &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: "echo", Arguments: text(`{"i":1}`)}}
		p.Steps = append(p.Steps, s)
		join.DependsOn = append(join.DependsOn, s.Id)
	}
	p.Steps = append(p.Steps, join)
	return p
}

func TestCase26_ManySteps(t *testing.T) {
	start := time.Now()
	_, findings := Validate(wide(20_000), testEnvironment())
	if len(findings) > 0 {
		t.Errorf("20,000 steps:\n%.500s", show(findings))
	}
	_, findings = Validate(wide(20_001), testEnvironment())
	f := wantOnly(t, findings, codePlanTooLarge, "/steps")
	if f.GetValues().GetText() != `{"limit":"max_steps","maximum":20000,"value":20001}` {
		t.Errorf("values are %s", f.GetValues().GetText())
	}
	g := NewGraph(wide(2_001))
	if join, _ := g.Index("join"); len(g.Dependencies(join)) != 2_000 || g.Order()[2_000] != join {
		t.Error("the join does not come last")
	}
	// Far above what it takes, far below what quadratic work would.
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("it took %s", d)
	}
}

// Many wrong names must not cost steps times findings.
func TestManyFaultsStayCheap(t *testing.T) {
	p := wide(10_000)
	for _, s := range p.GetSteps()[:9_999] {
		s.DependsOn = []string{"s" + s.GetId() + "x"}
	}
	start := time.Now()
	_, findings := Validate(p, testEnvironment())
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("it took %s", d)
	}
	if n := len(with(findings, codeMoreFindings)); n != 1 || !HasErrors(findings) || len(findings) != DefaultLimits().MaxFindings+1 {
		t.Errorf("%d findings, %d of them about more", len(findings), n)
	}
}

func TestGraphProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "steps")
		edges := make([][]string, n)
		for i := range edges {
			edges[i] = []string{fmt.Sprintf("s%d", i)}
		}
		for range rapid.IntRange(0, 60).Draw(t, "edges") {
			i, j := rapid.IntRange(0, n-1).Draw(t, "from"), rapid.IntRange(0, n-1).Draw(t, "to")
			edges[i] = append(edges[i], fmt.Sprintf("s%d", j))
		}
		g := NewGraph(graphOf(edges...))
		place := map[int]int{}
		for k, i := range g.Order() {
			place[i] = k
		}
		for i := range n {
			for _, d := range g.Dependencies(i) {
				if at, ok := place[i]; ok {
					if before, ok := place[int(d)]; !ok || before >= at {
						t.Fatalf("s%d comes before its dependency s%d", i, d)
					}
				}
				if !slices.Contains(g.Dependents(int(d)), int32(i)) {
					t.Fatalf("s%d is not a dependent of s%d", i, d)
				}
			}
		}
		cycles := g.Cycles(100)
		if (len(cycles) > 0) != (len(g.Order()) < n) {
			t.Fatalf("%d of %d steps are ordered, cycles: %v", len(g.Order()), n, cycles)
		}
		seen := map[string]bool{}
		for _, c := range cycles {
			if len(c) < 2 || c[0] != c[len(c)-1] {
				t.Fatalf("%v is no cycle", c)
			}
			for k := 1; k < len(c); k++ {
				from, _ := g.Index(c[k-1])
				to, _ := g.Index(c[k])
				if !slices.Contains(g.Dependencies(to), int32(from)) {
					t.Fatalf("%v: %s does not depend on %s", c, c[k], c[k-1])
				}
				if seen[c[k]] {
					t.Fatalf("%s is in two cycles of %v", c[k], cycles)
				}
				seen[c[k]] = true
			}
		}
		if diff := cmp.Diff(cycles, NewGraph(graphOf(edges...)).Cycles(100)); diff != "" {
			t.Fatal("the same graph has other cycles")
		}
	})
}

// Nor must many names that are wrong in a patch.
func TestManyFaultsInPatchesStayCheap(t *testing.T) {
	base := wide(10_000)
	base.Version = 1
	patch := &planv1.Patch{BaseVersion: 1}
	for i := range 10_000 {
		patch.Remove = append(patch.Remove, fmt.Sprintf("x%d", i))
	}
	start := time.Now()
	if _, findings := Apply(base, patch, nil, testEnvironment()); !HasErrors(findings) {
		t.Error("it was accepted")
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("it took %s", d)
	}
}
