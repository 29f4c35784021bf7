package run

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/run/mode"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Step is what one report led to, or what still followed from a state.
type Step struct {
	// State after Events.
	State State
	// Event that Record made of the report; nil where it changes nothing.
	Event *runv1.Event
	// Events to commit, Event first.
	Events []*runv1.Event
	// More: a commit's limit was reached; commit Events and call Continue before anything else of this run.
	More bool
}

// Advance judges a report and decides until nothing follows or a commit is full.
func Advance(s State, report *runv1.Report, now time.Time) Step {
	e := Record(s, report, now)
	if e == nil {
		return Step{State: s}
	}
	x := newDecider(s, now)
	x.emit(e)
	x.mode, _ = mode.For(x.d.spec.GetMode())
	more := x.run(CommitEvents, CommitBytes)
	return Step{State: State{d: x.d}, Event: e, Events: x.out, More: more}
}

// Continue decides until nothing follows or a commit is full: after a commit with More, and after a take-over.
func Continue(s State, now time.Time) Step {
	x := newDecider(s, now)
	more := x.run(CommitEvents, CommitBytes)
	return Step{State: State{d: x.d}, Events: x.out, More: more}
}

// NewCommit makes the commit of events that led to s. Its events are copies without what follows from the commit; the
// caller fills previous_hash.
func NewCommit(s State, events []*runv1.Event, more bool, now time.Time) *runv1.Commit {
	d := s.data()
	hash := s.Hash()
	c := &runv1.Commit{
		RunId: d.runID, Tenant: d.tenant, Time: timestamppb.New(now.UTC()), RulesVersion: RulesVersion, More: more,
		StateHash: hash[:], Status: s.Status(), Phase: s.Phase(), Events: make([]*runv1.Event, len(events)),
	}
	if n := len(events); n > 0 {
		c.Time = events[n-1].GetTime()
	}
	for i, e := range events {
		c.Events[i] = &runv1.Event{Revision: e.GetRevision(), Kind: e.GetKind(), Cause: e.GetCause(), Trace: e.GetTrace(), Rule: e.GetRule(), Body: e.GetBody()}
		if !proto.Equal(e.GetTime(), c.GetTime()) {
			c.Events[i].Time = e.GetTime()
		}
	}
	return c
}

// EventsOf returns a commit's events with what follows from the commit filled in. They share their bodies with it.
func EventsOf(c *runv1.Commit) []*runv1.Event {
	events := make([]*runv1.Event, len(c.GetEvents()))
	for i, e := range c.GetEvents() {
		f := &runv1.Event{
			Id: eventID(c.GetRunId(), e.GetRevision()), RunId: c.GetRunId(), Revision: e.GetRevision(), Tenant: c.GetTenant(),
			Kind: e.GetKind(), Time: c.GetTime(), Cause: e.GetCause(), Trace: e.GetTrace(), Rule: e.GetRule(), Body: e.GetBody(),
		}
		if e.GetTime() != nil {
			f.Time = e.GetTime()
		}
		events[i] = f
	}
	return events
}
