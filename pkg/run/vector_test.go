package run

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// leafElem is an element for tests of the vector alone.
type leafElem struct {
	n    int
	hash [32]byte
	sum  summary
}

func (e *leafElem) digest() *[32]byte { return &e.hash }
func (e *leafElem) summary() summary  { return e.sum }

func newLeafElem(n int) *leafElem {
	e := &leafElem{n: n, hash: sha256.Sum256([]byte(fmt.Sprint(n))), sum: summary{due: never, open: int32(n & 1)}}
	e.sum.flags = flagIf(n%7 == 0, wantsSlot) | flagIf(n%11 == 0, wantsJudging)
	if n%5 == 0 {
		e.sum.due = int64(n)
	}
	return e
}

// checkVector compares a vector with the slice that it stands for.
func checkVector(t rapid.TB, v vector[*leafElem], want []int) {
	t.Helper()
	if v.len() != len(want) {
		t.Fatalf("it has %d elements, not %d", v.len(), len(want))
	}
	sum := summary{due: never}
	var flagged []int
	first, earliest := -1, -1
	for i, n := range want {
		e := newLeafElem(n)
		sum.add(e.sum)
		if v.at(i).n != n {
			t.Fatalf("element %d is %d, not %d", i, v.at(i).n, n)
		}
		if e.sum.flags&wantsSlot != 0 {
			flagged = append(flagged, i)
			if first < 0 {
				first = i
			}
		}
		if e.sum.due != never && (earliest < 0 || e.sum.due < newLeafElem(want[earliest]).sum.due) {
			earliest = i
		}
	}
	if v.sum() != sum {
		t.Fatalf("its summary is %+v, not %+v", v.sum(), sum)
	}
	if v.first(wantsSlot) != first {
		t.Fatalf("the first flagged is %d, not %d", v.first(wantsSlot), first)
	}
	if v.earliest() != earliest {
		t.Fatalf("the earliest is %d, not %d", v.earliest(), earliest)
	}
	var seen []int
	v.each(wantsSlot, func(i int, _ *leafElem) bool {
		seen = append(seen, i)
		return true
	})
	if fmt.Sprint(seen) != fmt.Sprint(flagged) {
		t.Fatalf("each finds %v, not %v", seen, flagged)
	}
	elems := make([]*leafElem, len(want))
	for i, n := range want {
		elems[i] = newLeafElem(n)
	}
	if built := vectorOf(elems); built.hash() != v.hash() || built.depth != v.depth {
		t.Fatalf("built at once it hashes otherwise")
	}
}

func TestVectorIsASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var v vector[*leafElem]
		var want []int
		type version struct {
			v    vector[*leafElem]
			want []int
		}
		var old []version
		size := rapid.SampledFrom([]int{0, 1, 31, 32, 33, 100, 1023, 1024, 1025, 1100}).Draw(t, "size")
		for i := range size {
			v, want = v.add(newLeafElem(i)), append(want, i)
		}
		for range rapid.IntRange(0, 20).Draw(t, "changes") {
			old = append(old, version{v, append([]int(nil), want...)})
			if len(want) > 0 && rapid.Bool().Draw(t, "set") {
				i, n := rapid.IntRange(0, len(want)-1).Draw(t, "at"), rapid.IntRange(0, 10_000).Draw(t, "value")
				v = v.set(i, newLeafElem(n))
				want[i] = n
			} else {
				n := rapid.IntRange(0, 10_000).Draw(t, "value")
				v, want = v.add(newLeafElem(n)), append(want, n)
			}
		}
		checkVector(t, v, want)
		for _, o := range old {
			checkVector(t, o.v, o.want)
		}
	})
}

// TestVectorGrowsBeyondEachDepth reaches the sizes at which the tree becomes deeper.
func TestVectorGrowsBeyondEachDepth(t *testing.T) {
	for _, size := range []int{32, 33, 1024, 1025, 32*32*32 + 1} {
		var v vector[*leafElem]
		var want []int
		for i := range size {
			v, want = v.add(newLeafElem(i)), append(want, i)
		}
		checkVector(t, v, want)
		v = v.set(size-1, newLeafElem(7))
		want[size-1] = 7
		checkVector(t, v, want)
	}
}
