package executor

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// commit is one being built: what reports of one run led to, with one time.
type commit struct {
	run    *openRun
	events []*runv1.Event
	// writer holds the same events, encoded.
	writer eventlog.Writer
	state  run.State
	time   time.Time
	more   bool
	// traces of the reports in it.
	traces []*runv1.TraceContext
	began  time.Time
	// counted is how many bytes of it the group knows of.
	counted int
	// hash over its stored bytes, known once it is sealed.
	hash []byte
}

// judged is a report whose outcome waits for its group.
type judged struct {
	report  *report
	answer  *runv1.Answer
	outcome runv1.AnswerOutcome
}

// outcomeOf says what an event makes of its report; nil is for a repeat.
func outcomeOf(e *runv1.Event) runv1.AnswerOutcome {
	switch e.GetBody().(type) {
	case nil:
		return runv1.AnswerOutcome_ANSWER_OUTCOME_REPEATED
	case *runv1.Event_ReportRefused, *runv1.Event_PlanRejected, *runv1.Event_PatchRejected, *runv1.Event_RunQuarantined:
		return runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED
	}
	return runv1.AnswerOutcome_ANSWER_OUTCOME_ACCEPTED
}

// group gathers commits and what is to happen once they are in the log.
type group struct {
	number  int64
	commits []*commit
	bytes   int
	reports []judged
	works   []*work
	cancels []cancelled
	// parts are the entries, split so that each part fits into one message; all but the last are stored before.
	parts  [][]*runv1.Entry
	chain  eventlog.Chain // after the parts that are stored
	data   []byte
	sealed *runv1.Group
}

// cancelled runs, and runs that ended while something was under way, need their queue emptied before what they still owe is
// published.
type cancelled struct {
	runID string
	works []*work
}

func (g *group) empty() bool { return len(g.commits) == 0 && len(g.reports) == 0 }

// seal makes the entries of a group. Nothing is added to it after that.
func (o *owner) seal(g *group) error {
	entries := make([]*runv1.Entry, 0, len(g.commits))
	for _, c := range g.commits {
		e, err := o.encode(c)
		if err != nil {
			return err
		}
		entries = append(entries, e)
		c.run.building = nil
	}
	g.parts = split(entries, o.maxMessage)
	g.chain = o.chain
	return nil
}

func (o *owner) encode(c *commit) (*runv1.Entry, error) {
	ru := c.run
	msg := run.NewCommit(c.state, nil, c.more, c.time)
	msg.PreviousHash = ru.head.hash
	revision := c.state.Revision()
	if revision-ru.snapshotAt >= o.cfg.SnapshotEvery {
		msg.Snapshot = c.state.Snapshot()
		if size := proto.Size(msg.Snapshot); size < o.maxMessage/2 {
			o.metrics.stateBytes(size)
		} else {
			// It would not fit beside the events; the run is folded from its events.
			msg.Snapshot = nil
		}
		ru.snapshotAt = revision
	}
	e, err := c.writer.Finish(msg)
	if err != nil {
		return nil, err
	}
	c.hash = eventlog.Hash(e.GetCommit())
	ru.head.hash = c.hash
	return e, nil
}

// split keeps each part below max bytes; an entry alone may be over it.
func split(entries []*runv1.Entry, limit int) [][]*runv1.Entry {
	var parts [][]*runv1.Entry
	start, size := 0, 0
	for i, e := range entries {
		n := len(e.GetCommit()) + len(e.GetRunId()) + 64
		if i > start && size+n > limit {
			parts = append(parts, entries[start:i])
			start, size = i, 0
		}
		size += n
	}
	return append(parts, entries[start:])
}

// message makes the next part's message.
func (o *owner) message(g *group) error {
	g.sealed = &runv1.Group{
		Partition: int32(o.partition), Epoch: o.epoch, Number: g.chain.Number + 1, PreviousHash: g.chain.Hash,
		Entries: g.parts[0], Time: timestamppb.New(o.cfg.Clock.Now()), Owner: o.cfg.Name,
	}
	data, err := eventlog.EncodeGroup(g.sealed)
	g.data = data
	return err
}

// prepare finds what a sealed group is to cause. The group is under way meanwhile.
func (o *owner) prepare(g *group) {
	for _, c := range g.commits {
		var works []*work
		cancel := false
		for _, e := range c.events {
			if e.GetKind() == runv1.EventKind_EVENT_KIND_DECIDED {
				if w := run.WorkFor(c.state, e); w != nil {
					works = append(works, newWork(w, c.state.Revision()))
				}
			}
			cancel = cancel || e.GetCancelRequested() != nil || run.Ends(e) && c.state.LeftUnderWay()
		}
		if cancel {
			if c.state.Terminal() {
				// Revocations of an earlier commit may still wait in the queue.
				works = works[:0]
				for _, w := range run.Pending(c.state) {
					works = append(works, newWork(w, c.state.Revision()))
				}
			}
			g.cancels = append(g.cancels, cancelled{c.run.id, works})
		} else {
			g.works = append(g.works, works...)
		}
	}
}

func newWork(w *runv1.Work, revision int64) *work {
	return &work{subject: subjectOf(w), msg: w, revision: revision}
}

// subjectOf is where work goes; it panics on work that this binary does not know, which its own core cannot make.
func subjectOf(w *runv1.Work) string {
	switch b := w.GetBody().(type) {
	case *runv1.Work_Plan:
		return bus.PlanSubject(w.GetRunId(), b.Plan.GetRequestId())
	case *runv1.Work_Replan:
		return bus.PlanSubject(w.GetRunId(), b.Replan.GetRequestId())
	case *runv1.Work_Call:
		return bus.CallSubject(w.GetRunId(), b.Call.GetActionId())
	case *runv1.Work_Revoke:
		return bus.CallSubject(w.GetRunId(), b.Revoke.GetActionId())
	}
	panic(fmt.Sprintf("work without a known body for run %s", w.GetRunId()))
}
