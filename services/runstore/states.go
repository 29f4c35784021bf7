package runstore

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/run"
)

// states folds runs and keeps those asked for last, each to be folded on from where it is.
type states struct {
	history *history
	limit   int
	// maxBytes bounds the commits that the kept states were folded from.
	maxBytes int

	mu    sync.Mutex
	byRun map[string]*list.Element
	order *list.List // of *folded, newest use first
	bytes int
}

// folded is a state with the size of what it was folded from, which is about its own.
type folded struct {
	state run.State
	bytes int
}

func newStates(h *history, limit, maxBytes int) *states {
	return &states{history: h, limit: limit, maxBytes: maxBytes, byRun: map[string]*list.Element{}, order: list.New()}
}

func (c *states) cached(runID string) (folded, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.byRun[runID]
	if !ok {
		return folded{}, false
	}
	c.order.MoveToFront(el)
	return *el.Value.(*folded), true
}

func (c *states) keep(f folded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.byRun[f.state.RunID()]; ok {
		old := el.Value.(*folded)
		if f.state.Revision() <= old.state.Revision() {
			return
		}
		c.bytes += f.bytes - old.bytes
		*old = f
	} else {
		c.byRun[f.state.RunID()] = c.order.PushFront(&f)
		c.bytes += f.bytes
	}
	for c.order.Len() > c.limit || c.bytes > c.maxBytes {
		el := c.order.Back()
		old := c.order.Remove(el).(*folded)
		c.bytes -= old.bytes
		delete(c.byRun, old.state.RunID())
	}
}

// at folds a run up to a revision, or to its newest for 0.
func (c *states) at(ctx context.Context, runID string, revision int64) (run.State, error) {
	h, err := c.history.head(ctx, runID)
	if err != nil {
		return run.State{}, err
	}
	if revision > h.revision {
		return run.State{}, failure(codes.OutOfRange, reasonRevisionAhead, fmt.Sprintf("revision %d of run %s is not there, its newest is %d", revision, runID, h.revision),
			map[string]string{"run_id": runID, "newest": fmt.Sprint(h.revision)})
	}
	f, ok := c.cached(runID)
	switch {
	case ok && (revision == 0 || f.state.Revision() <= revision):
	case h.snapshotRevision > 0 && (revision == 0 || h.snapshotRevision <= revision):
		f = folded{state: run.New(runID)}
		if err := c.restore(ctx, runID, &f, h.snapshotRevision); err != nil {
			return run.State{}, err
		}
	default:
		f = folded{state: run.New(runID)}
	}
	if err := c.fold(ctx, runID, &f, revision); err != nil {
		return run.State{}, err
	}
	if revision == 0 {
		c.keep(f)
	}
	return f.state, nil
}

// restore takes in the snapshot at a revision.
func (c *states) restore(ctx context.Context, runID string, f *folded, revision int64) error {
	return c.history.read(ctx, runID, revision-1, func(e storedEntry) (bool, error) {
		commit, err := eventlog.DecodeCommit(e.Entry)
		if err != nil || commit.GetSnapshot().GetRevision() != revision {
			return err == nil, err
		}
		f.bytes += len(e.Entry.GetCommit())
		f.state, err = run.Restore(commit.GetSnapshot())
		return false, err
	})
}

// fold takes in the commits after the state, up to a revision or to the newest for 0. A log whose head is gone begins
// with a snapshot.
func (c *states) fold(ctx context.Context, runID string, f *folded, until int64) error {
	return c.history.read(ctx, runID, f.state.Revision(), func(e storedEntry) (bool, error) {
		commit, err := eventlog.DecodeCommit(e.Entry)
		if err != nil {
			return false, err
		}
		f.bytes += len(e.Entry.GetCommit())
		for _, ev := range commit.GetEvents() {
			switch rev := ev.GetRevision(); {
			case until > 0 && rev > until:
				return false, nil
			case rev <= f.state.Revision():
				continue
			case rev != f.state.Revision()+1:
				if f.state.Revision() == 0 && commit.GetSnapshot() != nil {
					continue
				}
				return false, fmt.Errorf("revision %d comes where %d must", rev, f.state.Revision()+1)
			}
			if !run.KnownEvent(ev) {
				return false, fmt.Errorf("revision %d: %w", ev.GetRevision(), run.ErrUnknownEvent)
			}
			f.state = run.Evolve(f.state, ev)
		}
		if snap := commit.GetSnapshot(); snap != nil && f.state.Revision() == 0 && (until == 0 || snap.GetRevision() <= until) {
			f.state, err = run.Restore(snap)
		}
		return err == nil, err
	})
}
