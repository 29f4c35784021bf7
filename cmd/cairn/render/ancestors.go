package render

// tree answers questions about ancestors in logarithmic time while it grows: each node has its parent and one jump far
// up, so that plans of 20,000 steps in one chain are laid out at once. The parent of a root is -1.
type tree struct{ parent, jump, depth []int }

func newTree(n int) *tree {
	return &tree{parent: make([]int, n), jump: make([]int, n), depth: make([]int, n)}
}

func (t *tree) add(n, parent int) {
	t.parent[n] = parent
	if parent < 0 {
		t.jump[n], t.depth[n] = -1, 0
		return
	}
	t.depth[n], t.jump[n] = t.depth[parent]+1, parent
	if j := t.jump[parent]; j >= 0 && t.jump[j] >= 0 && t.depth[parent]-t.depth[j] == t.depth[j]-t.depth[t.jump[j]] {
		t.jump[n] = t.jump[j]
	}
}

// lift goes up from n to the given depth.
func (t *tree) lift(n, depth int) int {
	for t.depth[n] > depth {
		if j := t.jump[n]; j >= 0 && t.depth[j] >= depth {
			n = j
		} else {
			n = t.parent[n]
		}
	}
	return n
}

// above says whether a is an ancestor of b.
func (t *tree) above(a, b int) bool { return t.depth[b] > t.depth[a] && t.lift(b, t.depth[a]) == a }

// common is the nearest ancestor of both, -1 where there is none.
func (t *tree) common(a, b int) int {
	if a < 0 || b < 0 {
		return -1
	}
	depth := min(t.depth[a], t.depth[b])
	a, b = t.lift(a, depth), t.lift(b, depth)
	for a != b {
		if t.jump[a] != t.jump[b] {
			a, b = t.jump[a], t.jump[b]
		} else {
			a, b = t.parent[a], t.parent[b]
		}
		if a < 0 || b < 0 {
			return -1
		}
	}
	return a
}
