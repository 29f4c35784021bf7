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

	mu    sync.Mutex
	byRun map[string]*list.Element
	order *list.List // of run.State, newest use first
}

func newStates(h *history, limit int) *states {
	return &states{history: h, limit: limit, byRun: map[string]*list.Element{}, order: list.New()}
}

func (c *states) cached(runID string) (run.State, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.byRun[runID]
	if !ok {
		return run.State{}, false
	}
	c.order.MoveToFront(el)
	return el.Value.(run.State), true
}

func (c *states) keep(s run.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.byRun[s.RunID()]; ok {
		if s.Revision() > el.Value.(run.State).Revision() {
			el.Value = s
		}
		return
	}
	c.byRun[s.RunID()] = c.order.PushFront(s)
	for c.order.Len() > c.limit {
		el := c.order.Back()
		c.order.Remove(el)
		delete(c.byRun, el.Value.(run.State).RunID())
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
	s, ok := c.cached(runID)
	switch {
	case ok && (revision == 0 || s.Revision() <= revision):
	case h.snapshotRevision > 0 && (revision == 0 || h.snapshotRevision <= revision):
		s, err = c.fold(ctx, runID, run.New(runID), h.snapshotRevision-1, h.snapshotRevision, revision)
		if err != nil {
			return run.State{}, err
		}
	default:
		s = run.New(runID)
	}
	if s, err = c.fold(ctx, runID, s, s.Revision(), 0, revision); err != nil {
		return run.State{}, err
	}
	if revision == 0 {
		c.keep(s)
	}
	return s, nil
}

// fold takes in the commits after a revision. With snapshot set it only looks for that snapshot. A log without its head
// begins with one too.
func (c *states) fold(ctx context.Context, runID string, s run.State, after, snapshot, until int64) (run.State, error) {
	err := c.history.read(ctx, runID, after, func(e storedEntry) (bool, error) {
		commit, err := eventlog.DecodeCommit(e.Entry)
		if err != nil {
			return false, err
		}
		if snapshot > 0 {
			if commit.GetSnapshot().GetRevision() != snapshot {
				return true, nil
			}
			s, err = run.Restore(commit.GetSnapshot())
			return false, err
		}
		for _, ev := range commit.GetEvents() {
			switch rev := ev.GetRevision(); {
			case until > 0 && rev > until:
				return false, nil
			case rev <= s.Revision():
				continue
			case rev != s.Revision()+1:
				if s.Revision() == 0 && commit.GetSnapshot() != nil {
					continue
				}
				return false, fmt.Errorf("revision %d comes where %d must", rev, s.Revision()+1)
			}
			s = run.Evolve(s, ev)
		}
		if snap := commit.GetSnapshot(); snap != nil && s.Revision() == 0 && (until == 0 || snap.GetRevision() <= until) {
			s, err = run.Restore(snap)
		}
		return err == nil, err
	})
	return s, err
}
