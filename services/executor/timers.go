package executor

import (
	"container/heap"
	"time"

	"github.com/cairnrun/cairn/pkg/run"
)

// timerHeap orders runs by when their next deadline is due on the owner's clock.
type timerHeap []*openRun

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timer, h[j].timer = i, j
}

// Push implements heap.Interface.
func (h *timerHeap) Push(x any) {
	r := x.(*openRun)
	r.timer = len(*h)
	*h = append(*h, r)
}

// Pop implements heap.Interface.
func (h *timerHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	r.timer = -1
	return r
}

// set puts a run where its due time belongs; the zero time takes it out.
func (h *timerHeap) set(r *openRun, due time.Time) {
	if due.IsZero() {
		if r.timer >= 0 {
			heap.Remove(h, r.timer)
		}
		return
	}
	if r.timer >= 0 && r.due.Equal(due) {
		return
	}
	r.due = due
	if r.timer >= 0 {
		heap.Fix(h, r.timer)
		return
	}
	heap.Push(h, r)
}

// next is the earliest due time.
func (h timerHeap) next() (time.Time, bool) {
	if len(h) == 0 {
		return time.Time{}, false
	}
	return h[0].due, true
}

// lead is by how much the run's last commit is ahead of the owner's clock: relative deadlines count from that commit.
func lead(last, own time.Time) time.Duration {
	return max(0, last.Sub(own))
}

// dueOn says when a deadline is due on the owner's clock.
func dueOn(d run.Deadline, lead time.Duration) time.Time {
	if d.Absolute {
		return d.At
	}
	return d.At.Add(-lead)
}
