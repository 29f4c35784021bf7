package run

import (
	"time"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Defaults of a run's limits, where its spec names none.
const (
	DefaultMaxParallel = 64
	// DefaultMaxSteps bounds the actions that a run requests, each attempt counted.
	DefaultMaxSteps        = 100_000
	DefaultMaxReplans      = 5
	DefaultMaxPlanAttempts = 3
	// DefaultMaxEvents lets a plan of 20,000 steps with retries fit many times over.
	DefaultMaxEvents      = 1_000_000
	DefaultMaxInlineBytes = 64 << 10
)

// Limits of the core itself.
const (
	// MaxRunInlineBytes bounds the results that a run keeps in its log; beyond it every result of more than
	// TightInlineBytes is asked for as an artifact.
	MaxRunInlineBytes = 64 << 20
	TightInlineBytes  = 1 << 10
	// MaxObservationBytes bounds one report's inline output: what is larger becomes the error output_too_large.
	MaxObservationBytes = 4 << 20
	// MaxJoinedBytes bounds the list that a join or for_each step makes of its results, and a made-up answer.
	MaxJoinedBytes = 4 << 20
	// MaxItems bounds the items of a for_each step.
	MaxItems = 20_000
	// MaxRefusals bounds the refused reports of a run that are recorded.
	MaxRefusals = 100
	// MaxPatches bounds the patches that persons send to a run.
	MaxPatches = 1000
	// MaxResultInDetails bounds a result that an error shows, since it was not as expected; of a larger one, size and sha256
	// are told.
	MaxResultInDetails = 16 << 10
	// MaxRejectedText bounds a refused proposal's text in the log.
	MaxRejectedText = 64 << 10
	// CommitEvents and CommitBytes end a commit: what follows goes into the next one.
	CommitEvents = 256
	CommitBytes  = 1 << 20
)

// Times of the core itself.
const (
	// DefaultMaxPlanningTime is how long the planner may take for a request, where the run's limits name no time.
	DefaultMaxPlanningTime = 10 * time.Minute
	// DefaultTimeout of an attempt, where neither step nor tool names one.
	DefaultTimeout = 30 * time.Second
	// MaxActionTimeout bounds the time of an attempt, whatever a tool's definition says.
	MaxActionTimeout = 30 * 24 * time.Hour
	// ActionMargin is what an action's deadline may be late before the core says timeout itself.
	ActionMargin = 2 * time.Second
	// ActionGrace is how long a started action that must not be repeated may be late before its outcome is unknown.
	ActionGrace = 30 * time.Second
	// CancelGrace is how long a cancel waits for actions under way.
	CancelGrace = 5 * time.Second
	// DefaultBackoff is the first wait of a retry that names a factor and no delay.
	DefaultBackoff = time.Second
	// DefaultMaxBackoff bounds the wait of a retry that names no max_delay.
	DefaultMaxBackoff = time.Hour
)

// warnAt is the part of a limit, in percent, at which the run warns.
const warnAt = 80

// limits are a run's limits with defaults filled in.
type limits struct {
	maxParallel     int
	maxSteps        int64
	maxReplans      int32
	maxPlanAttempts int32
	maxDuration     time.Duration
	maxPlanningTime time.Duration
	maxEvents       int64
	maxInlineBytes  int64
}

// limitsOf fills in the defaults. A negative max_replans or max_plan_attempts means none beyond the first.
func limitsOf(l *runv1.RunLimits) limits {
	out := limits{
		maxParallel:     DefaultMaxParallel,
		maxSteps:        DefaultMaxSteps,
		maxReplans:      DefaultMaxReplans,
		maxPlanAttempts: DefaultMaxPlanAttempts,
		maxPlanningTime: DefaultMaxPlanningTime,
		maxEvents:       DefaultMaxEvents,
		maxInlineBytes:  DefaultMaxInlineBytes,
	}
	if n := l.GetMaxParallel(); n > 0 {
		out.maxParallel = int(n)
	}
	if n := l.GetMaxSteps(); n > 0 {
		out.maxSteps = int64(n)
	}
	if n := l.GetMaxReplans(); n != 0 {
		out.maxReplans = max(n, 0)
	}
	if n := l.GetMaxPlanAttempts(); n != 0 {
		out.maxPlanAttempts = max(n, 1)
	}
	if n := l.GetMaxEvents(); n > 0 {
		out.maxEvents = n
	}
	if n := l.GetMaxInlineBytes(); n > 0 {
		out.maxInlineBytes = n
	}
	if d := l.GetMaxDuration(); d != nil && d.IsValid() && d.AsDuration() > 0 {
		out.maxDuration = d.AsDuration()
	}
	if d := l.GetMaxPlanningTime(); d != nil && d.IsValid() && d.AsDuration() > 0 {
		out.maxPlanningTime = d.AsDuration()
	}
	return out
}
