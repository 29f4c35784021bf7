// Package run is the pure core: it judges reports, decides what follows, and folds events into a run's state. It has no
// clock, no randomness, no goroutine, no I/O, no logging, and depends on no map order.
package run

import (
	"time"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// RulesVersion names this core in every commit. Raise it whenever Decide or Evolve changes for the same input.
const RulesVersion = "1"

// State is a run after its newest event. It is a value: Evolve makes a new one and changes none.
type State struct {
	runID    string
	tenant   string
	revision int64
	status   runv1.RunStatus
	phase    runv1.RunPhase
}

// New is the state before the first event.
func New(runID string) State { return State{runID: runID} }

// Restore makes a state from a snapshot.
func Restore(snapshot *runv1.RunState) (State, error) { return State{}, nil }

// Snapshot is the whole state as a message; Restore of it decides and hashes the same.
func (s State) Snapshot() *runv1.RunState { return &runv1.RunState{} }

// Hash covers everything that decides, without times and log positions.
func (s State) Hash() [32]byte { return [32]byte{} }

// RunID of the run.
func (s State) RunID() string { return s.runID }

// Tenant of the run, empty before RunSubmitted.
func (s State) Tenant() string { return s.tenant }

// Revision of the newest event, 0 before the first.
func (s State) Revision() int64 { return s.revision }

// Status of the run.
func (s State) Status() runv1.RunStatus { return s.status }

// Phase of the run.
func (s State) Phase() runv1.RunPhase { return s.phase }

// Terminal says whether the run has ended.
func (s State) Terminal() bool { return false }

// Record judges one report at the commit's time: the event that accepts or refuses it, nil for an exact repeat.
func Record(s State, report *runv1.Report, now time.Time) *runv1.Event { return nil }

// Evolve applies an event. It never judges.
func Evolve(s State, e *runv1.Event) State { return s }

// Decide returns what follows from s, at most one commit's worth; empty when nothing does.
func Decide(s State, now time.Time) []*runv1.Event { return nil }

// Pending lists the work that the run owes.
func Pending(s State) []*runv1.Work { return nil }

// WorkFor is the work that event e, already folded into s, owes; nil where it owes none.
func WorkFor(s State, e *runv1.Event) *runv1.Work { return nil }

// Deadline is the next time at which the run wants to be woken.
type Deadline struct {
	At time.Time
	// Absolute deadlines go by the owner's own clock, others by the run's commit times.
	Absolute bool
	// Timer is the report to make when it is due.
	Timer *runv1.TimerDue
}

// NextDeadline is the earliest deadline; false where there is none.
func NextDeadline(s State) (Deadline, bool) { return Deadline{}, false }

// AnswerFor tells the sender of a report what became of it: event is what Record made of it, nil for a repeat, and s the
// state with it.
func AnswerFor(s State, report *runv1.Report, event *runv1.Event) *runv1.Answer { return nil }

// Step of the driving loop: what one report led to.
type Step struct {
	// State after Events.
	State State
	// Event that Record made of the report; nil for a repeat.
	Event *runv1.Event
	// Events to commit, Event first.
	Events []*runv1.Event
	// More: the commit's limit was reached; call Continue and commit again before anything else of this run.
	More bool
}

// Advance judges a report and decides until nothing follows or the commit is full.
func Advance(s State, report *runv1.Report, now time.Time) Step { return Step{State: s} }

// Continue decides until nothing follows or the commit is full.
func Continue(s State, now time.Time) Step { return Step{State: s} }

// NewCommit makes the commit of events that led to s. The caller fills previous_hash.
func NewCommit(s State, events []*runv1.Event, more bool, now time.Time) *runv1.Commit { return nil }

// EventsOf returns a commit's events with id, run, tenant and time filled in.
func EventsOf(c *runv1.Commit) []*runv1.Event { return nil }

// Replay folds commits up to a revision; until 0 folds all. A snapshot in the first commits is taken where the events
// before it are missing.
func Replay(commits []*runv1.Commit, until int64) (State, error) { return State{}, nil }

// Difference is the first place where this core and a log disagree.
type Difference struct {
	// Revision of the event, or of the commit's last event for a hash.
	Revision int64
	// What differs: event, missing_event, extra_event, state_hash, order.
	What     string
	Recorded string
	Here     string
	// RulesVersion of the commit where it is another one than ours.
	RulesVersion string
}

// Verify feeds the recorded events of a whole log to this core and compares what it decides; nil: the same.
func Verify(commits []*runv1.Commit) *Difference { return nil }

// Explain says in one sentence per event what happened and why.
func Explain(e *runv1.Event) string { return "" }

// Classify is the code table: the class of an error code, and whether a repeat may cure it.
func Classify(code string) (class runv1.FaultClass, retryable bool) {
	return runv1.FaultClass_FAULT_CLASS_EXECUTION, false
}

// Quarantine is the event that marks a run which the core could not go on with.
func Quarantine(s State, reason, reportID string, now time.Time) *runv1.Event { return nil }
