package main

import (
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// checkEnd looks at what is left: the log alone must tell the whole story.
func (w *world) checkEnd() {
	if len(w.broken) > 0 {
		return
	}
	runs := w.fold()
	commits := map[string][]*runv1.Commit{}
	var epoch int64
	for i, g := range w.log {
		if g.epoch < epoch {
			w.breaks("group %d was written by owner %d after owner %d", i, g.epoch, epoch)
		}
		epoch = g.epoch
		for _, raw := range g.commits {
			c := &runv1.Commit{}
			if err := proto.Unmarshal(raw, c); err == nil {
				commits[c.GetRunId()] = append(commits[c.GetRunId()], c)
			}
		}
	}
	for _, id := range w.runs {
		r := runs[id]
		if r == nil {
			w.breaks("%s was submitted and is not in the log", id)
			continue
		}
		w.checkRun(id, r.state, commits[id])
	}
}

func (w *world) checkRun(id string, s run.State, commits []*runv1.Commit) {
	switch s.Status() {
	case runv1.RunStatus_RUN_STATUS_COMPLETED:
		w.stats.completed++
	case runv1.RunStatus_RUN_STATUS_FAILED:
		w.stats.failed++
	case runv1.RunStatus_RUN_STATUS_CANCELLED:
		w.stats.cancelled++
	default:
		w.breaks("%s is stuck in %s, %s with %d happenings left, %d pieces of work owed", id, s.Status(), s.Phase(), len(w.agenda), len(run.Pending(s)))
		return
	}
	if d := run.Verify(commits); d != nil {
		w.breaks("%s: replay differs at revision %d in %s: log %s, here %s", id, d.Revision, d.What, d.Recorded, d.Here)
	}
	again, err := run.Restore(s.Snapshot())
	if err != nil {
		w.breaks("%s: its snapshot is not restored: %v", id, err)
	} else if again.Hash() != s.Hash() {
		w.breaks("%s: the restored snapshot has another hash", id)
	}
	if more := run.Decide(s, w.now); len(more) > 0 {
		w.breaks("%s has ended and something is still decided: %s", id, run.Explain(more[0]))
	}
	requested := map[string]bool{}
	for _, a := range s.Snapshot().GetActions() {
		if requested[a.GetActionId()] {
			w.breaks("%s: action %s stands twice in the ledger", id, a.GetActionId())
		}
		requested[a.GetActionId()] = true
		if a.GetStatus() == runv1.ActionStatus_ACTION_STATUS_SUCCEEDED && w.starts[id+"/"+a.GetActionId()] == 0 && w.effects[a.GetIdempotencyKey()] == 0 {
			w.breaks("%s: action %s succeeded and was never executed", id, a.GetActionId())
		}
	}
	ended := 0
	for _, c := range commits {
		for _, e := range run.EventsOf(c) {
			switch e.GetBody().(type) {
			case *runv1.Event_RunCompleted, *runv1.Event_RunFailed, *runv1.Event_RunCancelled:
				ended++
			}
		}
	}
	if ended != 1 {
		w.breaks("%s ended %d times", id, ended)
	}
}
