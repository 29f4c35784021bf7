package plan

import (
	"slices"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Graph is who depends on whom in one plan. Steps are named by their place in the plan, from 0. A graph is built once
// per plan and never changes; the slices it returns must not be changed either.
type Graph struct {
	ids        []string
	index      map[string]int
	deps       [][]int32
	dependents [][]int32
	order      []int
	sinks      []int
}

// NewGraph builds the graph of a plan from depends_on. Dependencies that do not exist are left out, and of several
// steps with one id the first counts: the validator reports both.
func NewGraph(p *planv1.Plan) *Graph {
	steps := p.GetSteps()
	g := &Graph{
		ids:        make([]string, len(steps)),
		index:      make(map[string]int, len(steps)),
		deps:       make([][]int32, len(steps)),
		dependents: make([][]int32, len(steps)),
	}
	edges := 0
	for i, s := range steps {
		g.ids[i] = s.GetId()
		if _, taken := g.index[s.GetId()]; !taken {
			g.index[s.GetId()] = i
		}
		edges += len(s.GetDependsOn())
	}
	// All lists stand in two arrays, so that a plan of many steps costs few allocations.
	forward := make([]int32, 0, edges)
	degree := make([]int32, len(steps))
	for i, s := range steps {
		start := len(forward)
		for _, id := range s.GetDependsOn() {
			if d, ok := g.index[id]; ok {
				forward = append(forward, int32(d))
				degree[d]++
			}
		}
		g.deps[i] = forward[start:len(forward):len(forward)]
	}
	backward := make([]int32, len(forward))
	at := int32(0)
	for d := range steps {
		g.dependents[d] = backward[at : at : at+degree[d]]
		at += degree[d]
		if degree[d] == 0 {
			g.sinks = append(g.sinks, d)
		}
	}
	for i := range steps {
		for _, d := range g.deps[i] {
			g.dependents[d] = append(g.dependents[d], int32(i))
		}
	}
	g.sort()
	return g
}

// sort finds the topological order: steps without open dependencies first, in plan order.
func (g *Graph) sort() {
	open := make([]int32, len(g.ids))
	g.order = make([]int, 0, len(g.ids))
	for i := range g.deps {
		open[i] = int32(len(g.deps[i]))
		if open[i] == 0 {
			g.order = append(g.order, i)
		}
	}
	for next := 0; next < len(g.order); next++ {
		for _, d := range g.dependents[g.order[next]] {
			if open[d]--; open[d] == 0 {
				g.order = append(g.order, int(d))
			}
		}
	}
}

// Len returns the number of steps.
func (g *Graph) Len() int { return len(g.ids) }

// ID returns the id of a step.
func (g *Graph) ID(i int) string { return g.ids[i] }

// Index returns a step's place by its id.
func (g *Graph) Index(id string) (int, bool) {
	i, ok := g.index[id]
	return i, ok
}

// Dependencies returns the steps that step i depends on, in the order of its depends_on.
func (g *Graph) Dependencies(i int) []int32 { return g.deps[i] }

// Dependents returns the steps that depend on step i, in plan order.
func (g *Graph) Dependents(i int) []int32 { return g.dependents[i] }

// Order returns the steps in a fixed topological order. Steps on a cycle, and what depends on them, are missing.
func (g *Graph) Order() []int { return g.order }

// Sinks returns the last steps, those that nothing depends on, in plan order.
func (g *Graph) Sinks() []int { return g.sinks }

// Cycle returns the ids along one cycle, first and last the same: [a b c a], where b depends on a, c on b, a on c. It
// returns nil where there is none. Of several cycles it finds the same one each time.
func (g *Graph) Cycle() []string {
	if cycles := g.Cycles(1); len(cycles) > 0 {
		return cycles[0]
	}
	return nil
}

// Cycles returns up to so many cycles that share no step, each like Cycle.
func (g *Graph) Cycles(most int) [][]string {
	if len(g.order) == len(g.ids) {
		return nil
	}
	done := make([]bool, len(g.ids))
	for _, i := range g.order {
		done[i] = true
	}
	open := make([]int32, len(g.ids))
	for i := range g.deps {
		for _, d := range g.deps[i] {
			if !done[d] {
				open[i]++
			}
		}
	}
	var cycles [][]string
	for len(cycles) < most {
		start := slices.Index(done, false)
		if start < 0 {
			break
		}
		cycle := g.cycleFrom(int32(start), done)
		cycles = append(cycles, g.names(cycle))
		// Take the cycle out, and with it what only waits for it.
		queue := slices.Clone(cycle)
		for _, i := range cycle {
			done[i] = true
		}
		for len(queue) > 0 {
			at := queue[0]
			queue = queue[1:]
			for _, d := range g.dependents[at] {
				if open[d]--; open[d] == 0 && !done[d] {
					done[d] = true
					queue = append(queue, d)
				}
			}
		}
	}
	return cycles
}

// cycleFrom follows dependencies that are not done: each of these steps has one, so the way comes back to itself.
func (g *Graph) cycleFrom(at int32, done []bool) []int32 {
	place := map[int32]int{}
	var path []int32
	for {
		if start, seen := place[at]; seen {
			path = path[start:]
			break
		}
		place[at] = len(path)
		path = append(path, at)
		for _, d := range g.deps[at] {
			if !done[d] {
				at = d
				break
			}
		}
	}
	// Read in the direction of the work, and from its first step in plan order.
	slices.Reverse(path)
	first := slices.Index(path, slices.Min(path))
	return append(slices.Clone(path[first:]), path[:first]...)
}

func (g *Graph) names(cycle []int32) []string {
	ids := make([]string, 0, len(cycle)+1)
	for _, i := range cycle {
		ids = append(ids, g.ids[i])
	}
	return append(ids, ids[0])
}
