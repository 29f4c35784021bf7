package main

import (
	"bytes"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// journal is the partition's log. Whatever enters it is read at once by one who knows nothing of its owners: the reader of
// each run folds it and shows it to the model.
type journal struct {
	w      *world
	groups []*stored
	runs   map[string]*reader
	// checkpoint is the newest one, nil before the first.
	checkpoint *checkpoint
}

// stored is one group of the log. An empty one is a fence.
type stored struct {
	epoch, number int64
	commits       [][]byte
	decoded       []*runv1.Commit
}

func (g *stored) equal(o *stored) bool {
	if g.epoch != o.epoch || g.number != o.number || len(g.commits) != len(o.commits) {
		return false
	}
	for i := range g.commits {
		if !bytes.Equal(g.commits[i], o.commits[i]) {
			return false
		}
	}
	return true
}

// outcome of an append, as the owner hears of it.
type outcome int

const (
	appended outcome = iota
	conflict
	// unheard: no answer came. It may be stored or not.
	unheard
)

// append stores a group where the log is as long as expected, once.
func (j *journal) append(expected int, g *stored) outcome {
	if len(j.groups) != expected {
		return conflict
	}
	j.groups = append(j.groups, g)
	j.read(g)
	return appended
}

// next is the group after the first n, nil where there is none.
func (j *journal) next(n int) *stored {
	if n < len(j.groups) {
		return j.groups[n]
	}
	return nil
}

// holds tells whether exactly this group is in the log.
func (j *journal) holds(g *stored) bool {
	for _, s := range j.groups {
		if s.equal(g) {
			return true
		}
	}
	return false
}

// reader is one run as the log alone tells it.
type reader struct {
	id      string
	state   run.State
	commits []*runv1.Commit
	model   *model
}

func (j *journal) read(g *stored) {
	w := j.w
	if n := len(j.groups); n > 1 && j.groups[n-2].epoch > g.epoch {
		w.breaks("one_writer", "owner %d writes after owner %d", g.epoch, j.groups[n-2].epoch)
	}
	for _, raw := range g.commits {
		c := &runv1.Commit{}
		if err := proto.Unmarshal(raw, c); err != nil {
			w.breaks("log", "a commit cannot be decoded: %v", err)
			return
		}
		g.decoded = append(g.decoded, c)
		r := j.runs[c.GetRunId()]
		if r == nil {
			r = &reader{id: c.GetRunId(), state: run.New(c.GetRunId()), model: newModel(w, c.GetRunId())}
			j.runs[c.GetRunId()] = r
		}
		r.take(w, c)
		if len(w.broken) > 0 {
			return
		}
	}
}

// take folds one commit and checks it.
func (r *reader) take(w *world, c *runv1.Commit) {
	w.stats.commits++
	r.commits = append(r.commits, c)
	before := r.state
	for _, e := range run.EventsOf(c) {
		w.stats.events++
		if w.verbose {
			w.say("    %s %d %s", r.id, e.GetRevision(), run.Explain(e))
		}
		if r.model.take(e); len(w.broken) > 0 {
			return
		}
		r.state = run.Evolve(r.state, e)
		if p := e.GetPlanPatched(); p != nil {
			r.model.samePlan(r.state.Plan())
		}
		w.heard(r.id, e)
	}
	h := r.state.Hash()
	if !bytes.Equal(h[:], c.GetStateHash()) {
		w.breaks("hash_equal", "%s: folding to revision %d gives another state hash than the commit's", r.id, r.state.Revision())
	}
	if before.Revision() > 0 && before.Revision() == r.state.Revision() && c.GetSnapshot() == nil {
		w.breaks("log", "%s: an empty commit at revision %d", r.id, r.state.Revision())
	}
	if c.GetStatus() != r.state.Status() || c.GetPhase() != r.state.Phase() {
		w.breaks("hash_equal", "%s at revision %d is %s, %s; its commit says %s, %s", r.id, r.state.Revision(),
			r.state.Status(), r.state.Phase(), c.GetStatus(), c.GetPhase())
	}
	r.model.compare(r.state)
	if !c.GetMore() {
		// Time decides nothing: what does not follow now does not follow later.
		if more := run.Decide(r.state, w.now.Add(1000*maxTime)); len(more) > 0 {
			w.breaks("nothing_left", "%s at revision %d: not decided: %s", r.id, r.state.Revision(), run.Explain(more[0]))
		}
	}
	if c.GetSnapshot() != nil {
		w.stats.snapshots++
		w.checkSnapshot(r.state, c.GetSnapshot())
	}
	if w.chance(0.02) {
		w.probeHash(r.state)
	}
}

// owes tells whether the log holds the event that owes work.
func (j *journal) owes(work *runv1.Work) bool {
	r := j.runs[work.GetRunId()]
	if r == nil {
		return false
	}
	switch b := work.GetBody().(type) {
	case *runv1.Work_Plan:
		return r.model.requests[b.Plan.GetRequestId()] != nil
	case *runv1.Work_Replan:
		return r.model.requests[b.Replan.GetRequestId()] != nil
	case *runv1.Work_Call:
		return r.model.actions[b.Call.GetActionId()] != nil
	case *runv1.Work_Revoke:
		a := r.model.actions[b.Revoke.GetActionId()]
		return a != nil && a.revoked
	}
	return false
}
