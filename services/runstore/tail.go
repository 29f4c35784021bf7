package runstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// tail is what is read from the log and not in the database yet, and who watches it. A commit is here before it is in
// the database and leaves only after, so that "tail first, database second" sees every commit.
type tail struct {
	mu         sync.Mutex
	partitions []partitionTail
	runs       map[string]*liveRun
	// bytes that wait for the database.
	bytes int
	// writersWanted counts those who wait for the database.
	writersWanted int
	// changed is closed and replaced when anything moves, if somebody waits.
	changed chan struct{}
	waiting bool
}

type partitionTail struct {
	// seen and stored are sequences of the last group read and of the last one in the database.
	seen, stored uint64
	// stopped says why the projection of the partition has ended for good.
	stopped error
}

// liveRun is a run with commits on the way or with watchers.
type liveRun struct {
	pending  []storedEntry
	ended    int64
	watchers map[*watcher]struct{}
}

// liveCommit is one commit with its events, complete.
type liveCommit struct {
	storedEntry
	commit *runv1.Commit
	events []*runv1.Event
}

// liveGroup is one log message, decoded.
type liveGroup struct {
	partition int
	at        position
	commits   []liveCommit
	bytes     int
	// written is when the log got it.
	written time.Time
}

func newTail(partitions int) *tail {
	return &tail{partitions: make([]partitionTail, partitions), runs: map[string]*liveRun{}, changed: make(chan struct{})}
}

func (t *tail) broadcast() {
	if t.waiting {
		close(t.changed)
		t.changed = make(chan struct{})
		t.waiting = false
	}
}

// wait returns when done says so, or with ctx's error. done is called with the tail locked.
func (t *tail) wait(ctx context.Context, done func() (bool, error)) error {
	for {
		t.mu.Lock()
		ok, err := done()
		if ok || err != nil {
			t.mu.Unlock()
			return err
		}
		t.waiting = true
		ch := t.changed
		t.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin sets where a partition is in the database at the start.
func (t *tail) begin(partition int, sequence uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partitions[partition].seen, t.partitions[partition].stored = sequence, sequence
	t.broadcast()
}

// add takes a group in and hands it to the watchers of its runs. It waits while more than limit bytes are on the way.
func (t *tail) add(ctx context.Context, g *liveGroup, limit int) error {
	if err := t.wait(ctx, func() (bool, error) { return t.bytes == 0 || t.bytes+g.bytes <= limit, nil }); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes += g.bytes
	for _, c := range g.commits {
		id := c.Entry.GetRunId()
		r := t.run(id)
		r.pending = append(r.pending, c.storedEntry)
		for _, e := range c.events {
			if terminal(e) && r.ended == 0 {
				r.ended = e.GetRevision()
			}
		}
		for w := range r.watchers {
			w.offer(c)
		}
	}
	t.partitions[g.partition].seen = g.at.Sequence
	t.broadcast()
	return nil
}

// saved forgets commits that are in the database now.
func (t *tail) saved(b *batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes -= b.bytes
	for p, at := range b.positions {
		t.partitions[p].stored = at.Sequence
	}
	for id, br := range b.runs {
		r, stored := t.runs[id], b.positions[br.sum.Partition].Sequence
		if r == nil {
			continue
		}
		n := 0
		for n < len(r.pending) && r.pending[n].Sequence <= stored {
			n++
		}
		// A new slice: history may hold the old one.
		r.pending = append([]storedEntry(nil), r.pending[n:]...)
		t.forget(id, r)
	}
	t.broadcast()
}

// stop ends a partition for good.
func (t *tail) stop(partition int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partitions[partition].stopped = err
	for _, r := range t.runs {
		for w := range r.watchers {
			if w.partition == partition {
				w.fail(err)
			}
		}
	}
	t.broadcast()
}

// pending returns a run's commits that are on the way, oldest first, and the revision that ended it, if among them.
func (t *tail) pending(runID string) ([]storedEntry, int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.runs[runID]
	if r == nil {
		return nil, 0
	}
	return r.pending[:len(r.pending):len(r.pending)], r.ended
}

// waitSeen returns when the partition is read up to sequence: what is asked about one run sees it then.
func (t *tail) waitSeen(ctx context.Context, partition int, sequence uint64) error {
	return t.wait(ctx, func() (bool, error) {
		p := t.partitions[partition]
		return p.seen >= sequence, stoppedBefore(p, p.seen >= sequence, partition)
	})
}

// waitStored returns when the database holds the partition up to sequence: lists see it then.
func (t *tail) waitStored(ctx context.Context, partition int, sequence uint64) error {
	return t.wait(ctx, func() (bool, error) {
		p := t.partitions[partition]
		return p.stored >= sequence, stoppedBefore(p, p.stored >= sequence || p.seen >= sequence, partition)
	})
}

// unstored returns, by partition, up to where it is read, of those that the database does not hold up to there.
func (t *tail) unstored() map[int]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	ahead := map[int]uint64{}
	for i, p := range t.partitions {
		if p.seen > p.stored {
			ahead[i] = p.seen
		}
	}
	return ahead
}

// want counts somebody who waits for the database in or out.
func (t *tail) want(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writersWanted += n
}

// wanted says whether somebody waits for the database.
func (t *tail) wanted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.writersWanted > 0
}

func stoppedBefore(p partitionTail, reached bool, partition int) error {
	if reached || p.stopped == nil {
		return nil
	}
	return &stoppedError{partition: partition, err: p.stopped}
}

// stoppedError says that a partition's projection has ended for good.
type stoppedError struct {
	partition int
	err       error
}

func (e *stoppedError) Error() string {
	return fmt.Sprintf("the projection of partition %d has stopped: %v", e.partition, e.err)
}
func (e *stoppedError) Unwrap() error { return e.err }

// run returns the live run, made where there is none. The tail is locked.
func (t *tail) run(id string) *liveRun {
	r := t.runs[id]
	if r == nil {
		r = &liveRun{}
		t.runs[id] = r
	}
	return r
}

// forget drops a run that nothing is on the way for and nobody watches. The tail is locked.
func (t *tail) forget(id string, r *liveRun) {
	if len(r.pending) == 0 && len(r.watchers) == 0 {
		delete(t.runs, id)
	}
}

// watcher is one reader of a run's new commits: a bounded queue, filled by the tail, emptied by the reader.
type watcher struct {
	tail      *tail
	runID     string
	partition int
	limit     int
	// ready has a token when there is something to take.
	ready chan struct{}

	// Below: under the tail's lock.
	queue []liveCommit
	// missed: the queue was full; the reader must go back to history.
	missed bool
	err    error
}

// watch registers a watcher; what is added from now on reaches it.
func (t *tail) watch(runID string, partition, limit int) *watcher {
	w := &watcher{tail: t, runID: runID, partition: partition, limit: limit, ready: make(chan struct{}, 1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.run(runID)
	if r.watchers == nil {
		r.watchers = map[*watcher]struct{}{}
	}
	r.watchers[w] = struct{}{}
	if err := t.partitions[partition].stopped; err != nil {
		w.fail(err)
	}
	return w
}

// close unregisters.
func (w *watcher) close() {
	w.tail.mu.Lock()
	defer w.tail.mu.Unlock()
	if r := w.tail.runs[w.runID]; r != nil {
		delete(r.watchers, w)
		w.tail.forget(w.runID, r)
	}
}

// offer queues a commit, or gives the queue up when it is full. The tail is locked.
func (w *watcher) offer(c liveCommit) {
	switch {
	case w.missed:
	case len(w.queue) >= w.limit:
		w.queue, w.missed = nil, true
	default:
		w.queue = append(w.queue, c)
	}
	w.wake()
}

func (w *watcher) fail(err error) {
	w.err = &stoppedError{partition: w.partition, err: err}
	w.wake()
}

func (w *watcher) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// take waits for commits. missed says that some were dropped: everything must be read from history again, and what
// comes after this call is queued again.
func (w *watcher) take(ctx context.Context) (commits []liveCommit, missed bool, err error) {
	for {
		w.tail.mu.Lock()
		commits, missed, err = w.queue, w.missed, w.err
		w.queue, w.missed = nil, false
		w.tail.mu.Unlock()
		if len(commits) > 0 || missed {
			return commits, missed, nil
		}
		if err != nil {
			return nil, false, err
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}
