package run

import (
	"encoding/hex"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Errors of Replay.
var (
	// ErrGap: a commit is missing.
	ErrGap = errors.New("a commit is missing")
	// ErrUnknownEvent: the log holds an event that this version does not know.
	ErrUnknownEvent = errors.New("the log holds an event that this version does not know")
)

// Replay folds a run's commits, in order, up to a revision; until 0 folds all. It begins with the newest snapshot that
// makes the commits before it unnecessary, where the first event is not there.
func Replay(commits []*runv1.Commit, until int64) (State, error) {
	s := State{}
	for _, c := range commits {
		if s.d == nil {
			s = New(c.GetRunId())
		}
		events := EventsOf(c)
		if len(events) > 0 && events[0].GetRevision() > s.Revision()+1 || len(events) == 0 && c.GetSnapshot().GetRevision() > s.Revision() {
			if c.GetSnapshot() == nil {
				return s, fmt.Errorf("replay run %s: after revision %d comes %d: %w", c.GetRunId(), s.Revision(), events[0].GetRevision(), ErrGap)
			}
			if until > 0 && c.GetSnapshot().GetRevision() > until {
				return s, fmt.Errorf("replay run %s: the log begins with a snapshot at revision %d, after %d: %w", c.GetRunId(), c.GetSnapshot().GetRevision(), until, ErrGap)
			}
			restored, err := Restore(c.GetSnapshot())
			if err != nil {
				return s, err
			}
			s = restored
			continue
		}
		for _, e := range events {
			if e.GetRevision() <= s.Revision() {
				continue
			}
			if until > 0 && e.GetRevision() > until {
				return s, nil
			}
			if e.GetRevision() != s.Revision()+1 {
				return s, fmt.Errorf("replay run %s: after revision %d comes %d: %w", c.GetRunId(), s.Revision(), e.GetRevision(), ErrGap)
			}
			if !KnownEvent(e) {
				return s, fmt.Errorf("replay run %s at revision %d: %w", c.GetRunId(), e.GetRevision(), ErrUnknownEvent)
			}
			s = Evolve(s, e)
		}
	}
	return s, nil
}

// Difference is the first place where this core and a log disagree.
type Difference struct {
	// Revision of the event, or of the commit's last event for a hash.
	Revision int64
	// What differs: event, missing_event (the log lacks it), extra_event (this core does not decide it), state_hash, gap.
	What     string
	Recorded string
	Here     string
	// RulesVersion of the commit where it is another one than ours, which is the likely reason.
	RulesVersion string
}

func (d *Difference) String() string {
	s := fmt.Sprintf("revision %d: %s: the log has %s, this version has %s", d.Revision, d.What, orNothing(d.Recorded), orNothing(d.Here))
	if d.RulesVersion != "" {
		s += fmt.Sprintf(" (the log was written by rules version %s, this is %s)", d.RulesVersion, RulesVersion)
	}
	return s
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// Verify feeds the recorded events of a whole log to this core and compares what it decides, and the state hashes; nil
// where all is the same. A log that begins with a snapshot is verified from there.
func Verify(commits []*runv1.Commit) *Difference {
	s := State{}
	for i, c := range commits {
		if s.d == nil {
			s = New(c.GetRunId())
		}
		other := ""
		if c.GetRulesVersion() != RulesVersion {
			other = c.GetRulesVersion()
		}
		events := EventsOf(c)
		if len(events) > 0 && events[0].GetRevision() != s.Revision()+1 || len(events) == 0 && c.GetSnapshot().GetRevision() > s.Revision() {
			if i == 0 && c.GetSnapshot() != nil {
				restored, err := Restore(c.GetSnapshot())
				if err != nil {
					return &Difference{Revision: c.GetSnapshot().GetRevision(), What: "snapshot", Recorded: err.Error(), RulesVersion: other}
				}
				s = restored
				continue
			}
			return &Difference{Revision: s.Revision() + 1, What: "gap", Recorded: fmt.Sprintf("revision %d", firstRevision(c)), RulesVersion: other}
		}
		var diff *Difference
		if s, diff = verifyCommit(s, c, events); diff != nil {
			diff.RulesVersion = other
			return diff
		}
		if hash := s.Hash(); len(c.GetStateHash()) > 0 && string(hash[:]) != string(c.GetStateHash()) {
			return &Difference{Revision: s.Revision(), What: "state_hash", Recorded: hex.EncodeToString(c.GetStateHash()), Here: hex.EncodeToString(hash[:]), RulesVersion: other}
		}
	}
	return nil
}

func firstRevision(c *runv1.Commit) int64 {
	if len(c.GetEvents()) > 0 {
		return c.GetEvents()[0].GetRevision()
	}
	return c.GetSnapshot().GetRevision()
}

// verifyCommit decides again what a commit's recorded events led to.
func verifyCommit(s State, c *runv1.Commit, events []*runv1.Event) (State, *Difference) {
	for _, e := range events {
		x := newDecider(s, e.GetTime().AsTime())
		here := x.next()
		if e.GetKind() == runv1.EventKind_EVENT_KIND_RECORDED {
			if here != nil && !isOutside(e) {
				return s, &Difference{Revision: e.GetRevision(), What: "missing_event", Recorded: describe(e), Here: describe(here)}
			}
			s = Evolve(s, e)
			continue
		}
		if here == nil {
			return s, &Difference{Revision: e.GetRevision(), What: "extra_event", Recorded: describe(e)}
		}
		if !sameDecision(e, here) {
			return s, &Difference{Revision: e.GetRevision(), What: "event", Recorded: describe(e), Here: describe(here)}
		}
		s = Evolve(s, e)
	}
	if !c.GetMore() && len(events) > 0 {
		if here := newDecider(s, c.GetTime().AsTime()).next(); here != nil {
			return s, &Difference{Revision: s.Revision() + 1, What: "missing_event", Here: describe(here)}
		}
	}
	return s, nil
}

// isOutside says whether an event may come between decisions: what stops the core itself.
func isOutside(e *runv1.Event) bool { return e.GetRunQuarantined() != nil }

func sameDecision(a, b *runv1.Event) bool {
	strip := func(e *runv1.Event) *runv1.Event {
		return &runv1.Event{Revision: e.GetRevision(), Kind: e.GetKind(), Cause: e.GetCause(), Rule: e.GetRule(), Body: e.GetBody()}
	}
	return proto.Equal(strip(a), strip(b))
}

// describe names an event for a difference: its type, rule and body.
func describe(e *runv1.Event) string {
	return EventType(e) + " " + cutAtRune(Explain(e), 300)
}

// EventType is an event's name, as in PlanCreated; empty for one that is not known.
func EventType(e *runv1.Event) string {
	m := e.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().ByName("body"))
	if f == nil {
		return ""
	}
	return string(f.Message().Name())
}
