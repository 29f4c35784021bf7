package plan

import "sync"

// memo keeps what was computed from a text. It holds at most two generations of size entries: when the young one is
// full it becomes the old one, and what is not used again is forgotten with it. Forgetting only costs time.
type memo[K comparable, V any] struct {
	mu    sync.RWMutex
	size  int
	young map[K]V
	old   map[K]V
}

func newMemo[K comparable, V any](size int) *memo[K, V] {
	return &memo[K, V]{size: size, young: map[K]V{}}
}

// get returns the value for a key, computing it where it is not there. Two callers may compute the same at once.
func (m *memo[K, V]) get(key K, compute func() V) V {
	m.mu.RLock()
	v, young := m.young[key]
	ok := young
	if !ok {
		v, ok = m.old[key]
	}
	m.mu.RUnlock()
	if young {
		return v
	}
	if !ok {
		v = compute()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.young) >= m.size {
		m.old, m.young = m.young, make(map[K]V, m.size/4)
	}
	m.young[key] = v
	return v
}
