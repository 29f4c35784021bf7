package main

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// checkAnswer holds what a sender is told against the log, at the moment of telling.
func (w *world) checkAnswer(report *runv1.Report, answer *runv1.Answer) {
	id := report.GetRunId()
	r := w.log.runs[id]
	switch answer.GetOutcome() {
	case runv1.AnswerOutcome_ANSWER_OUTCOME_ACCEPTED:
		if r == nil || r.model.reports[report.GetId()] == 0 {
			w.breaks("no_report_lost", "%s: the report %s is acknowledged as accepted and not in the log", id, report.GetId())
		}
		if r != nil && answer.GetRevision() > r.state.Revision() {
			w.breaks("durable_first", "%s: a sender is told of revision %d, and the log ends at %d", id, answer.GetRevision(), r.state.Revision())
		}
		if report.GetTenant() != tenant {
			w.breaks("tenants", "%s: a stranger's report is accepted", id)
		}
	case runv1.AnswerOutcome_ANSWER_OUTCOME_REPEATED:
		if r == nil || !r.knows(report) {
			w.breaks("no_report_lost", "%s: the report %s is acknowledged as a repeat, and the log does not know it", id, report.GetId())
		}
		if report.GetTenant() != tenant {
			w.breaks("tenants", "%s: a stranger's report is called a repeat", id)
		}
	case runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED:
		if answer.GetCode() == "" {
			w.breaks("no_report_lost", "%s: the report %s is refused without a code", id, report.GetId())
		}
		if b := report.GetResultReported(); b != nil && r != nil && report.GetTenant() == tenant {
			if a := r.model.actions[b.GetActionId()]; a != nil && a.open() && b.GetObservation().GetOutcome() != 0 {
				w.breaks("no_report_lost", "%s: the result of %s is owed, and refused: %s", id, a.id, answer.GetCode())
			}
		}
	default:
		w.breaks("no_report_lost", "%s: the report %s has no outcome", id, report.GetId())
	}
}

// knows says whether the log makes a report a repeat: what it says is recorded, or its subject is closed.
func (r *reader) knows(report *runv1.Report) bool {
	m := r.model
	switch b := report.GetBody().(type) {
	case *runv1.Report_SubmitRun:
		return m.at > 0
	case *runv1.Report_CancelRun:
		return m.cancelled
	case *runv1.Report_ResultReported:
		a := m.actions[b.ResultReported.GetActionId()]
		if a == nil {
			return false
		}
		if b.ResultReported.GetObservation().GetOutcome() == runv1.Outcome_OUTCOME_STARTED {
			return a.started || !a.open()
		}
		return !a.open() || a.revoked
	case *runv1.Report_UserInput:
		in := m.inputs[b.UserInput.GetRequestId()]
		return in != nil && !in.open && in.answer == b.UserInput.GetAnswer().GetText()
	case *runv1.Report_PlanProposed:
		return m.closed(b.PlanProposed.GetRequestId())
	case *runv1.Report_PatchProposed:
		return b.PatchProposed.GetRequestId() == "" || m.closed(b.PatchProposed.GetRequestId())
	case *runv1.Report_PlanningGivenUp:
		return m.closed(b.PlanningGivenUp.GetRequestId())
	case *runv1.Report_ReplanAnswered:
		return m.closed(b.ReplanAnswered.GetRequestId())
	}
	return false
}

func (m *model) closed(request string) bool {
	r := m.requests[request]
	return r != nil && !r.open
}

// restored gives a state up and reads it back from its bytes.
func (w *world) restored(s run.State) run.State {
	raw, err := proto.Marshal(s.Snapshot())
	if err != nil {
		w.breaks("snapshot", "%s cannot be encoded: %v", s.RunID(), err)
		return s
	}
	m := &runv1.RunState{}
	if err := proto.Unmarshal(raw, m); err != nil {
		w.breaks("snapshot", "%s cannot be decoded: %v", s.RunID(), err)
		return s
	}
	w.checkSnapshot(s, m)
	again, err := run.Restore(m)
	if err != nil {
		return s
	}
	return again
}

// checkSnapshot: a state read back from its snapshot m is the same one, and wants and owes the same.
func (w *world) checkSnapshot(s run.State, m *runv1.RunState) {
	at := fmt.Sprintf("%s at revision %d", s.RunID(), s.Revision())
	again, err := run.Restore(m)
	switch {
	case err != nil:
		w.breaks("snapshot", "%s: %v", at, err)
		return
	case again.Hash() != s.Hash():
		w.breaks("snapshot", "%s: the restored snapshot has another hash", at)
	case again.Revision() != s.Revision() || again.Status() != s.Status() || again.Phase() != s.Phase():
		w.breaks("snapshot", "%s: restored it is %s, %s at revision %d", at, again.Status(), again.Phase(), again.Revision())
	case !proto.Equal(again.Snapshot(), m):
		w.breaks("snapshot", "%s: the snapshot of the restored state is another one", at)
	}
	a, okA := run.NextDeadline(s)
	b, okB := run.NextDeadline(again)
	if okA != okB || okA && (!a.At.Equal(b.At) || a.Absolute != b.Absolute || !proto.Equal(a.Timer, b.Timer)) {
		w.breaks("snapshot", "%s: restored it wants to be woken at %s for %s, and not at %s for %s", at, b.At, b.Timer, a.At, a.Timer)
	}
	if x, y := run.Pending(s), run.Pending(again); len(x) != len(y) {
		w.breaks("snapshot", "%s: restored it owes %d pieces of work, and not %d", at, len(y), len(x))
	}
	if x, y := run.Decide(s, w.now), run.Decide(again, w.now); len(x) != len(y) {
		w.breaks("snapshot", "%s: restored it decides %d events, and not %d", at, len(y), len(x))
	}
}

// unhashed are the fields that a state hash leaves out: times, log positions, and what follows from the rest.
var unhashed = map[protoreflect.Name]bool{
	"started_at": true, "ended_at": true, "revision": true, "items_open": true, "ready_by_dependencies": true, "requested_at": true,
	"not_after": true, "grace_due": true, "due": true, "requested_revision": true, "observed_revision": true, "outcome_revision": true,
	"closed_revision": true, "phase": true, "submitted_at": true, "updated_at": true, "deadline": true, "cancel_due": true,
	"plan_revision": true, "base_revision": true, "trace": true, "spec": true, "plan": true, "refused_uncounted": true,
	"tools": true, "cancel_revision": true, "deadline_revision": true, "status": true,
	"patch_reports": true, "refused": true, "fingerprints": true,
}

// probeHash changes one field of a state, and looks whether its hash does.
func (w *world) probeHash(s run.State) {
	m := proto.Clone(s.Snapshot()).(*runv1.RunState)
	target := m.ProtoReflect()
	var lists []protoreflect.List
	for _, name := range []protoreflect.Name{"steps", "actions", "planning", "inputs"} {
		if l := target.Get(target.Descriptor().Fields().ByName(name)).List(); l.Len() > 0 {
			lists = append(lists, l)
		}
	}
	if len(lists) > 0 && w.chance(0.85) {
		l := lists[w.rng.IntN(len(lists))]
		target = l.Get(w.rng.IntN(l.Len())).Message()
	}
	fields := target.Descriptor().Fields()
	f := fields.Get(w.rng.IntN(fields.Len()))
	if unhashed[f.Name()] || f.IsList() || f.Message() != nil {
		return
	}
	switch f.Kind() {
	case protoreflect.BoolKind:
		target.Set(f, protoreflect.ValueOfBool(!target.Get(f).Bool()))
	case protoreflect.StringKind:
		target.Set(f, protoreflect.ValueOfString(target.Get(f).String()+"x"))
	case protoreflect.Int32Kind:
		target.Set(f, protoreflect.ValueOfInt32(int32(target.Get(f).Int())+1))
	case protoreflect.Int64Kind:
		target.Set(f, protoreflect.ValueOfInt64(target.Get(f).Int()+1))
	case protoreflect.EnumKind:
		target.Set(f, protoreflect.ValueOfEnum(target.Get(f).Enum()+1))
	default:
		return
	}
	again, err := run.Restore(m)
	if err == nil && again.Hash() == s.Hash() {
		w.breaks("hash_covers", "%s at revision %d: another %s has the same hash", s.RunID(), s.Revision(), f.FullName())
	}
}

// checkEnd looks at what is left: the log alone must tell the whole story.
func (w *world) checkEnd() {
	if w.unacked > 0 {
		w.breaks("progress", "%d reports are never acknowledged", w.unacked)
	}
	for _, id := range w.runs {
		r := w.log.runs[id]
		if r == nil {
			w.breaks("no_report_lost", "%s was submitted and is not in the log", id)
			continue
		}
		w.checkRun(r)
	}
	if len(w.log.runs) > len(w.runs) {
		w.breaks("tenants", "the log holds runs that nobody submitted")
	}
}

func (w *world) checkRun(r *reader) {
	s := r.state
	switch s.Status() {
	case runv1.RunStatus_RUN_STATUS_COMPLETED:
		w.stats.completed++
	case runv1.RunStatus_RUN_STATUS_FAILED:
		w.stats.failed++
	case runv1.RunStatus_RUN_STATUS_CANCELLED:
		w.stats.cancelled++
	default:
		w.breaks("progress", "%s is stuck in %s, %s with %d happenings left, %d pieces of work owed", r.id, s.Status(), s.Phase(), len(w.agenda), len(run.Pending(s)))
		return
	}
	if d := run.Verify(r.commits); d != nil {
		w.breaks("replay_equal", "%s: %s", r.id, d)
	}
	w.checkSnapshot(s, s.Snapshot())
	var from []int
	for i, c := range r.commits {
		if c.GetSnapshot() != nil {
			from = append(from, i)
		}
	}
	if len(from) > 0 {
		// What came before a snapshot may be gone.
		again, err := run.Replay(r.commits[from[w.rng.IntN(len(from))]:], 0)
		if err != nil || again.Hash() != s.Hash() {
			w.breaks("replay_equal", "%s: replayed from a snapshot it is another state: %v", r.id, err)
		}
	}
}
