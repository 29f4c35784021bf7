// Package mode holds the strategies of a run. A mode is pure: it looks at a small view and says what is to be done. It
// never touches tools, providers or state; what it wants is expressed as plans and patches.
package mode

import (
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Kind of a decision.
type Kind uint8

// The kinds of decisions.
const (
	// Execute: go on with the plan.
	Execute Kind = iota + 1
	// Wait: nothing to do until something comes from outside.
	Wait
	// Plan: ask the planner for the first plan.
	Plan
	// Replan: ask the replanner for a patch.
	Replan
	// AskUser: a person decides what becomes of the failure.
	AskUser
	// Skip the failed step.
	Skip
	// Compensate: undo what is committed, then fail.
	Compensate
	// Complete the run.
	Complete
	// Fail the run.
	Fail
)

func (k Kind) String() string {
	names := [...]string{"nothing", "execute", "wait", "plan", "replan", "ask_user", "skip", "compensate", "complete", "fail"}
	if int(k) < len(names) {
		return names[k]
	}
	return "nothing"
}

// Decision is what a mode wants.
type Decision struct {
	Kind Kind
	// Scope of a replan.
	Scope runv1.ReplanScope
	// Error of a replan or failure that has no failed step behind it.
	Error *runv1.Error
}

// View is what a mode sees of a run.
type View interface {
	// HasPlan: a plan was accepted.
	HasPlan() bool
	// Steps of the plan, and how many of them are not terminal.
	Steps() (all, open int)
	// MaxReplans of this run.
	MaxReplans() int32
	// Lost is a required step that was skipped since what it depends on failed, empty where there is none.
	Lost() string
	// Unmet is the first acceptance check that does not hold, nil where all do. Asked when the steps are done.
	Unmet() *runv1.Error
}

// Failure is a step that failed for good.
type Failure struct {
	StepID   string
	Error    *runv1.Error
	Policy   planv1.FailurePolicy
	Optional bool
	// NotApproved: a person was asked whether the action may be done, and said no.
	NotApproved bool
	// UnknownOutcome: the action may have had its effect, so that nothing may repeat or replace it.
	UnknownOutcome bool
}

// Mode is a strategy.
type Mode interface {
	Name() string
	// Initialize says how a run begins.
	Initialize(View) Decision
	// Next says whether the plan's ready steps are started.
	Next(View) Decision
	// OnObservation says what follows a step's success.
	OnObservation(v View, stepID string) Decision
	// OnError says what follows a step's failure for good.
	OnError(View, Failure) Decision
	// CanResume says whether the run can go on after its plan was changed.
	CanResume(View) bool
	// Finalize says how a run ends whose steps are all terminal.
	Finalize(View) Decision
}

// Default is the mode of a run that names none.
const Default = "plan-and-solve"

// For returns a mode by name, false where there is none of it.
func For(name string) (Mode, bool) {
	switch name {
	case "", Default:
		return planAndSolve{}, true
	}
	return nil, false
}

// Names lists the modes.
func Names() []string { return []string{Default} }
