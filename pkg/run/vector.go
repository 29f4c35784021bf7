package run

import (
	"crypto/sha256"
	"math"
)

// fanout is the number of children of a node. It is part of the state hash: changing it changes every hash.
const fanout = 32

// never is the due time of something that has none.
const never = math.MaxInt64

// summary is what a node of a vector knows of everything below it, so that Decide and NextDeadline find what is to do
// without looking at every step.
type summary struct {
	// due is the earliest time at which something below wants to be woken, in Unix nanoseconds.
	due int64
	// flags are the union of the flags below.
	flags flags
	// open counts what is not settled yet.
	open int32
}

func (s *summary) add(o summary) {
	s.due = min(s.due, o.due)
	s.flags |= o.flags
	s.open += o.open
}

// element is what a vector holds: immutable, with its digest and summary computed once.
type element interface {
	digest() *[32]byte
	summary() summary
}

// vector is a persistent sequence: set and add copy the path to the root and share the rest. Its digest covers the
// elements and is kept per subtree, so that only what changed is hashed again.
type vector[E element] struct {
	root  *node[E]
	depth int
	size  int
}

type node[E element] struct {
	kids  []*node[E]
	elems []E
	hash  [32]byte
	sum   summary
}

func (v vector[E]) len() int { return v.size }

// sum is the summary of all elements.
func (v vector[E]) sum() summary {
	if v.root == nil {
		return summary{due: never}
	}
	return v.root.sum
}

// hash covers the elements in their order; zero for an empty vector.
func (v vector[E]) hash() [32]byte {
	if v.root == nil {
		return [32]byte{}
	}
	return v.root.hash
}

func (v vector[E]) at(i int) E {
	n := v.root
	for d := v.depth; d > 0; d-- {
		n = n.kids[i>>(5*d)&(fanout-1)]
	}
	return n.elems[i&(fanout-1)]
}

// set returns the vector with another element at i.
func (v vector[E]) set(i int, e E) vector[E] {
	v.root = v.root.set(v.depth, i, e)
	return v
}

func (n *node[E]) set(depth, i int, e E) *node[E] {
	c := &node[E]{}
	rehash := false
	if depth == 0 {
		k := i & (fanout - 1)
		c.elems = append(make([]E, 0, len(n.elems)), n.elems...)
		rehash = *c.elems[k].digest() != *e.digest()
		c.elems[k] = e
	} else {
		k := i >> (5 * depth) & (fanout - 1)
		c.kids = append(make([]*node[E], 0, len(n.kids)), n.kids...)
		kid := n.kids[k].set(depth-1, i, e)
		rehash = kid.hash != n.kids[k].hash
		c.kids[k] = kid
	}
	c.finish(n, rehash)
	return c
}

// add returns the vector with one more element at its end.
func (v vector[E]) add(e E) vector[E] {
	switch {
	case v.root == nil:
		v.root = leaf([]E{e})
	case v.size == 1<<(5*(v.depth+1)):
		v.root = parent([]*node[E]{v.root, spine(v.depth, e)})
		v.depth++
	default:
		v.root = v.root.add(v.depth, v.size, e)
	}
	v.size++
	return v
}

func (n *node[E]) add(depth, i int, e E) *node[E] {
	if depth == 0 {
		return leaf(append(append(make([]E, 0, len(n.elems)+1), n.elems...), e))
	}
	k := i >> (5 * depth) & (fanout - 1)
	kids := append(make([]*node[E], 0, len(n.kids)+1), n.kids...)
	if k == len(kids) {
		kids = append(kids, spine(depth-1, e))
	} else {
		kids[k] = kids[k].add(depth-1, i, e)
	}
	return parent(kids)
}

// spine is a subtree of one element.
func spine[E element](depth int, e E) *node[E] {
	if depth == 0 {
		return leaf([]E{e})
	}
	return parent([]*node[E]{spine(depth-1, e)})
}

func leaf[E element](elems []E) *node[E] {
	n := &node[E]{elems: elems}
	n.finish(nil, true)
	return n
}

func parent[E element](kids []*node[E]) *node[E] {
	n := &node[E]{kids: kids}
	n.finish(nil, true)
	return n
}

// finish computes what a node knows of what is below it.
func (n *node[E]) finish(old *node[E], rehash bool) {
	n.sum = summary{due: never}
	for _, e := range n.elems {
		n.sum.add(e.summary())
	}
	for _, k := range n.kids {
		n.sum.add(k.sum)
	}
	if !rehash && old != nil {
		n.hash = old.hash
		return
	}
	var buf [1 + fanout*32]byte
	b := buf[:1]
	for _, e := range n.elems {
		b = append(b, e.digest()[:]...)
	}
	if n.kids != nil {
		b[0] = 1
		for _, k := range n.kids {
			b = append(b, k.hash[:]...)
		}
	}
	n.hash = sha256.Sum256(b)
}

// vectorOf builds a vector of all elements at once. It is the same as adding them one by one.
func vectorOf[E element](elems []E) vector[E] {
	if len(elems) == 0 {
		return vector[E]{}
	}
	var level []*node[E]
	for i := 0; i < len(elems); i += fanout {
		level = append(level, leaf(elems[i:min(i+fanout, len(elems)):min(i+fanout, len(elems))]))
	}
	depth := 0
	for ; len(level) > 1; depth++ {
		var up []*node[E]
		for i := 0; i < len(level); i += fanout {
			up = append(up, parent(level[i:min(i+fanout, len(level)):min(i+fanout, len(level))]))
		}
		level = up
	}
	return vector[E]{root: level[0], depth: depth, size: len(elems)}
}

// first returns the place of the first element that has a flag, -1 where none has.
func (v vector[E]) first(f flags) int {
	if v.root == nil || v.root.sum.flags&f == 0 {
		return -1
	}
	return v.root.first(func(s summary) bool { return s.flags&f != 0 })
}

// earliest returns the place of the first element that is due first, -1 where none is due at all.
func (v vector[E]) earliest() int {
	if v.root == nil || v.root.sum.due == never {
		return -1
	}
	due := v.root.sum.due
	return v.root.first(func(s summary) bool { return s.due == due })
}

func (n *node[E]) first(is func(summary) bool) int {
	place := 0
	for {
		if n.kids == nil {
			for i, e := range n.elems {
				if is(e.summary()) {
					return place*fanout + i
				}
			}
			return -1
		}
		next := -1
		for i, k := range n.kids {
			if is(k.sum) {
				next = i
				break
			}
		}
		if next < 0 {
			return -1
		}
		place, n = place*fanout+next, n.kids[next]
	}
}

// each calls fn for the elements that have a flag (0: all), in order, until it returns false.
func (v vector[E]) each(f flags, fn func(int, E) bool) {
	if v.root != nil {
		v.root.each(f, 0, fn)
	}
}

func (n *node[E]) each(f flags, place int, fn func(int, E) bool) bool {
	if f != 0 && n.sum.flags&f == 0 {
		return true
	}
	for i, e := range n.elems {
		if (f == 0 || e.summary().flags&f != 0) && !fn(place*fanout+i, e) {
			return false
		}
	}
	for i, k := range n.kids {
		if !k.each(f, place*fanout+i, fn) {
			return false
		}
	}
	return true
}
