package main

import (
	"context"
	"sync"
)

// virtualClock is one run's time. It moves only when every requested action is in the tool's hands, every result given
// is in the log, and nothing more follows.
type virtualClock struct {
	observer *observer
	runID    string

	mu    sync.Mutex
	now   float64
	hands map[string]*hand
	// peak is the most actions in hand at once.
	peak int
}

type hand struct {
	finish float64
	done   chan struct{}
}

func newVirtualClock(o *observer, runID string) *virtualClock {
	return &virtualClock{observer: o, runID: runID, hands: map[string]*hand{}}
}

// work takes an action for so many virtual seconds.
func (v *virtualClock) work(ctx context.Context, actionID string, seconds float64) error {
	v.mu.Lock()
	h := v.hands[actionID]
	if h == nil { // a redelivered action is still the same one
		h = &hand{finish: v.now + seconds, done: make(chan struct{})}
		v.hands[actionID] = h
		v.peak = max(v.peak, len(v.hands))
	}
	v.mu.Unlock()
	v.move()
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// move advances to the earliest finish if nothing else can happen before.
func (v *virtualClock) move() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.hands) == 0 {
		return
	}
	still := false
	v.observer.look(v.runID, func(r *observed) {
		still = !r.more && len(r.open) == len(v.hands)
		for id := range r.open {
			still = still && v.hands[id] != nil
		}
	})
	if !still {
		return
	}
	first := true
	for _, h := range v.hands {
		if first || h.finish < v.now {
			v.now, first = h.finish, false
		}
	}
	for id, h := range v.hands {
		if h.finish == v.now {
			close(h.done)
			delete(v.hands, id)
		}
	}
}

// end is the time and the peak of parallelism.
func (v *virtualClock) end() (float64, int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now, v.peak
}
