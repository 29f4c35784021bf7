package render

import (
	"math/big"
	"slices"
	"strings"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// row is one step's place in the drawn tree.
type row struct {
	step   *planv1.Step
	prefix string
	// after are the dependencies that the drawing itself does not show.
	after []string
}

// layout draws a DAG as a tree: what runs side by side after a step is a branch below it, what joins branches stands
// again where the branches began, and a chain goes straight down. A step's branch is that of its immediate dominator,
// the last step that every way to it passes.
func layout(plan *planv1.Plan) []row {
	g := newGraph(plan.GetSteps())
	rows := make([]row, 0, len(g.order))
	g.draw(-1, "", &rows)
	return rows
}

type graph struct {
	steps    []*planv1.Step
	index    map[string]int
	deps     [][]int
	order    []int
	children map[int][]int
	// before holds, in plans that are not too large, the steps that come before each step.
	before []*big.Int
}

func newGraph(steps []*planv1.Step) *graph {
	g := &graph{steps: steps, index: map[string]int{}, deps: make([][]int, len(steps)), children: map[int][]int{}}
	for i, s := range steps {
		g.index[s.GetId()] = i
	}
	for i, s := range steps {
		for _, d := range s.GetDependsOn() {
			if j, ok := g.index[d]; ok && j != i && !slices.Contains(g.deps[i], j) {
				g.deps[i] = append(g.deps[i], j)
			}
		}
	}
	g.sort()
	if len(steps) <= maxReduced {
		g.before = make([]*big.Int, len(steps))
	}
	g.dominate()
	return g
}

// sort orders the steps so that dependencies come first, in the document's order where that is free. Steps on a cycle,
// which only a plan that was refused has, come last.
func (g *graph) sort() {
	waits := make([]int, len(g.steps))
	next := make([][]int, len(g.steps))
	for i, deps := range g.deps {
		waits[i] = len(deps)
		for _, d := range deps {
			next[d] = append(next[d], i)
		}
	}
	done := make([]bool, len(g.steps))
	visit := func(i int) {
		// Depth first by an explicit stack: plans are as deep as they are long.
		stack := []int{i}
		for len(stack) > 0 {
			n := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if done[n] {
				continue
			}
			done[n] = true
			g.order = append(g.order, n)
			for k := len(next[n]) - 1; k >= 0; k-- {
				m := next[n][k]
				if waits[m]--; waits[m] == 0 {
					stack = append(stack, m)
				}
			}
		}
	}
	for i := range g.steps {
		if len(g.deps[i]) == 0 {
			visit(i)
		}
	}
	for i := range g.steps {
		if !done[i] {
			g.deps[i] = nil
			g.order = append(g.order, i)
		}
	}
}

func (g *graph) dominate() {
	t := newTree(len(g.steps))
	for _, i := range g.order {
		g.reduce(i, t)
		p := -1
		for k, d := range g.deps[i] {
			if k == 0 {
				p = d
			} else {
				p = t.common(p, d)
			}
		}
		t.add(i, p)
		g.children[p] = append(g.children[p], i)
	}
}

// maxReduced bounds the steps of a plan whose dependencies are compared exactly; beyond it, and beyond maxCompared
// dependencies of one step, only what dominates is left out.
const (
	maxReduced  = 2000
	maxCompared = 64
)

// reduce drops the dependencies of step i that another one of them implies: the drawing shows them anyhow.
func (g *graph) reduce(i int, t *tree) {
	deps := g.deps[i]
	implied := t.above
	if g.before != nil {
		implied = func(d, other int) bool { return g.before[other].Bit(d) == 1 }
		g.before[i] = new(big.Int)
		for _, d := range deps {
			g.before[i].Or(g.before[i], g.before[d])
			g.before[i].SetBit(g.before[i], d, 1)
		}
	}
	if len(deps) < 2 || len(deps) > maxCompared {
		return
	}
	g.deps[i] = slices.DeleteFunc(slices.Clone(deps), func(d int) bool {
		return slices.ContainsFunc(deps, func(other int) bool { return other != d && implied(d, other) })
	})
}

// draw adds what follows after step n (-1: the plan's beginning), whose own line stands at prefix.
func (g *graph) draw(n int, prefix string, rows *[]row) {
	// Each level of the loop is one step further down a chain; only branches recurse.
	for {
		var branches, joins []int
		for _, c := range g.children[n] {
			if len(g.deps[c]) > 1 {
				joins = append(joins, c)
			} else {
				branches = append(branches, c)
			}
		}
		if len(branches) == 1 && len(joins) == 0 {
			n = branches[0]
			*rows = append(*rows, row{step: g.steps[n], prefix: prefix})
			continue
		}
		for i, b := range branches {
			first, rest := "├─ ", "│  "
			if i == len(branches)-1 {
				first, rest = "└─ ", "   "
			}
			*rows = append(*rows, row{step: g.steps[b], prefix: prefix + first})
			g.draw(b, prefix+rest, rows)
		}
		for i, j := range joins {
			*rows = append(*rows, row{step: g.steps[j], prefix: prefix, after: g.names(g.deps[j])})
			if i < len(joins)-1 {
				g.draw(j, prefix, rows)
			}
		}
		if len(joins) == 0 {
			return
		}
		n = joins[len(joins)-1]
	}
}

func (g *graph) names(steps []int) []string {
	out := make([]string, len(steps))
	for i, s := range steps {
		out[i] = g.steps[s].GetId()
	}
	return out
}

func afterText(after []string) string {
	const shown = 4
	if len(after) > shown {
		return "after " + strings.Join(after[:shown], ", ") + " and more"
	}
	return "after " + strings.Join(after, ", ")
}
