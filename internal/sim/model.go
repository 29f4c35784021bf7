package main

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/run"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// model is what a run may do, said once more and simpler: it sees the events of the log one by one and objects to any that
// it does not allow. It shares no code with the core.
type model struct {
	w    *world
	id   string
	at   int64 // revision
	last time.Time

	ended     bool
	cancelled bool
	deadline  *time.Time
	planTime  time.Duration
	timeUp    bool
	parallel  int
	maxSteps  int64
	maxEvents int64
	replans   int32
	asked     int32 // for patches so far
	attempts  int32 // for plans, allowed

	plan     *planv1.Plan
	byID     map[string]*planv1.Step
	steps    map[string]*modelStep
	actions  map[string]*modelAction
	order    []*modelAction
	open     int // actions under way
	keys     map[string]string
	requests map[string]*modelRequest
	request  *modelRequest // the newest
	inputs   map[string]*modelInput

	// bodies are the report bodies that were dealt with, reports the ids.
	reports map[string]int64
	digests map[string]int64
}

type status int

const (
	pending status = iota
	ready
	running
	waiting
	asking
	replanning
	succeeded
	failed
	skipped
	cancelledStep
	removed
)

func (s status) terminal() bool { return s >= succeeded }

func (s status) String() string {
	return [...]string{"pending", "ready", "running", "waiting", "asking", "replanning", "succeeded", "failed", "skipped", "cancelled", "removed"}[s]
}

type modelStep struct {
	id       string
	status   status
	policy   planv1.FailurePolicy
	excused  bool // failed, and optional
	lost     bool
	attempts int32
	before   int32 // attempts of earlier rounds
	gen      int32
	newest   *modelAction
	result   *runv1.Value
	items    []*planv1.JsonText
	expanded bool
	due      time.Time
	wait     bool
	fired    bool
	input    *modelInput
	approved bool
	code     string // of its newest failure
	ended    int64  // revision
}

type modelAction struct {
	id, step, key, tool string
	attempt, gen        int32
	idempotent          bool
	notAfter            time.Time
	state               actionState
	revoked             bool // a revocation was asked for
	started             bool
	seen                *runv1.Observation
	judged, late        bool
}

type actionState int

const (
	owed actionState = iota
	revoking
	done
	broken
	timedOut
	revokedState
	unknown
	givenUp
)

func (a *modelAction) open() bool { return a.state == owed || a.state == revoking }

// settled: it is known how it ended.
func (a *modelAction) settled() bool {
	return a.state == done || a.state == broken || a.state == revokedState
}

type modelRequest struct {
	id       string
	replan   bool
	open     bool
	attempt  int32
	scope    runv1.ReplanScope
	step     string
	outcome  string
	due      time.Time
	findings []string
	answer   *planv1.JsonText
	hasMind  bool // declined with an answer
}

type modelInput struct {
	id, step string
	purpose  runv1.UserInputPurpose
	open     bool
	timedOut bool
	gone     bool // withdrawn
	due      time.Time
	answer   string
}

func newModel(w *world, id string) *model {
	return &model{w: w, id: id, steps: map[string]*modelStep{}, actions: map[string]*modelAction{}, keys: map[string]string{},
		requests: map[string]*modelRequest{}, inputs: map[string]*modelInput{}, reports: map[string]int64{}, digests: map[string]int64{}}
}

func (m *model) breaks(invariant, format string, args ...any) {
	m.w.breaks(invariant, "%s at revision %d: %s", m.id, m.at, fmt.Sprintf(format, args...))
}

// step in the model, made where there is none yet: an item or what undoes a step.
func (m *model) step(id string) *modelStep {
	s := m.steps[id]
	if s == nil {
		s = &modelStep{id: id}
		m.steps[id] = s
	}
	return s
}

// base is the plan's step of a step, item or compensation.
func base(id string) string {
	id, _, _ = strings.Cut(id, "[")
	return id
}

func isUndo(id string) bool { return strings.HasSuffix(id, "[undo]") }

func isItem(id string) bool { return strings.Contains(id, "[") && !isUndo(id) }

// actionName is an action's name by the rule of the names, said again.
func actionName(step string, attempt int32) string {
	step = strings.ReplaceAll(strings.ReplaceAll(step, "[", "="), "]", "")
	return fmt.Sprintf("%s-%d", step, attempt)
}

// stepOf reads an action's name.
func stepOf(action string) (step string, attempt int) {
	dash := strings.LastIndexByte(action, '-')
	if dash < 0 {
		return action, 0
	}
	_, _ = fmt.Sscanf(action[dash+1:], "%d", &attempt)
	return action[:dash], attempt
}

// take checks one event and applies it.
func (m *model) take(e *runv1.Event) {
	if e.GetRevision() != m.at+1 {
		m.breaks("one_writer", "revision %d follows", e.GetRevision())
		return
	}
	m.at = e.GetRevision()
	if t := e.GetTime().AsTime(); t.Before(m.last) {
		m.breaks("time", "time goes back by %s", m.last.Sub(t))
	} else {
		m.last = t
	}
	if id := e.GetCause().GetReportId(); id != "" {
		m.reports[id] = m.at
		if d := e.GetCause().GetReportDigest(); d != "" && m.digests[d] != 0 && e.GetTimerFired() == nil {
			m.breaks("no_decision_twice", "the report %s was dealt with at revision %d", id, m.digests[d])
		} else {
			m.digests[d] = m.at
		}
	}
	if m.ended && e.GetObservationRecorded() == nil {
		m.breaks("terminal_absorbs", "the run has ended and takes up %s", run.EventType(e))
		return
	}
	if e.GetKind() == runv1.EventKind_EVENT_KIND_DECIDED && (e.GetCause().GetRevision() >= m.at || e.GetCause().GetRevision() <= 0) {
		m.breaks("cause", "%s follows from revision %d", run.EventType(e), e.GetCause().GetRevision())
	}
	switch b := e.GetBody().(type) {
	case *runv1.Event_RunSubmitted:
		m.submitted(e, b.RunSubmitted)
	case *runv1.Event_StepStarted:
		m.started(e, b.StepStarted)
	case *runv1.Event_StepExpanded:
		m.expanded(b.StepExpanded)
	case *runv1.Event_ActionRequested:
		m.requested(e, b.ActionRequested)
	case *runv1.Event_ActionRevocationRequested:
		m.revocation(b.ActionRevocationRequested)
	case *runv1.Event_ObservationRecorded:
		m.observed(b.ObservationRecorded)
	case *runv1.Event_StepSucceeded:
		m.succeeded(b.StepSucceeded)
	case *runv1.Event_StepFailed:
		m.failed(e, b.StepFailed)
	case *runv1.Event_StepSkipped:
		m.skipped(b.StepSkipped)
	case *runv1.Event_StepRetryScheduled:
		m.retry(e, b.StepRetryScheduled)
	case *runv1.Event_StepCancelled:
		m.stepCancelled(b.StepCancelled)
	case *runv1.Event_UserInputRequested:
		m.inputRequested(b.UserInputRequested)
	case *runv1.Event_UserInputReceived:
		m.inputReceived(b.UserInputReceived)
	case *runv1.Event_UserInputWithdrawn:
		m.inputWithdrawn(b.UserInputWithdrawn)
	case *runv1.Event_TimerFired:
		m.timer(e, b.TimerFired)
	case *runv1.Event_CancelRequested:
		if m.cancelled {
			m.breaks("no_decision_twice", "a second cancel")
		}
		m.cancelled = true
		m.closeRequest("cancelled")
	case *runv1.Event_ReportRefused:
		m.w.stats.refused++
	case *runv1.Event_RunCompleted, *runv1.Event_RunFailed, *runv1.Event_RunCancelled:
		m.endRun(e)
	case *runv1.Event_RunQuarantined:
		m.breaks("quarantine", "%s", b.RunQuarantined.GetReason())
	default:
		m.planning(e)
	}
}

func (m *model) submitted(e *runv1.Event, b *runv1.RunSubmitted) {
	if m.at != 1 {
		m.breaks("no_decision_twice", "submitted again")
	}
	l := b.GetSpec().GetLimits()
	m.parallel, m.maxSteps, m.maxEvents, m.replans, m.attempts = 64, 100_000, 1_000_000, 5, 3
	if l.GetMaxParallel() > 0 {
		m.parallel = int(l.GetMaxParallel())
	}
	if l.GetMaxSteps() > 0 {
		m.maxSteps = int64(l.GetMaxSteps())
	}
	if l.GetMaxEvents() > 0 {
		m.maxEvents = l.GetMaxEvents()
	}
	if l.GetMaxReplans() != 0 {
		m.replans = max(0, l.GetMaxReplans())
	}
	if l.GetMaxPlanAttempts() != 0 {
		m.attempts = max(1, l.GetMaxPlanAttempts())
	}
	m.planTime = 10 * time.Minute
	if d := l.GetMaxPlanningTime(); d.AsDuration() > 0 {
		m.planTime = d.AsDuration()
	}
	if d := l.GetMaxDuration(); d.AsDuration() > 0 {
		at := e.GetTime().AsTime().Add(d.AsDuration())
		m.deadline = &at
	}
}

func (m *model) closeRequest(outcome string) {
	if m.request != nil && m.request.open {
		m.request.open, m.request.outcome = false, outcome
	}
}

// compare holds what the core says of a run against the model.
func (m *model) compare(s run.State) {
	if s.Terminal() != m.ended {
		m.breaks("terminal_absorbs", "ended is %v, and the core says %s", m.ended, s.Status())
	}
	if !m.ended && (s.Status() == runv1.RunStatus_RUN_STATUS_CANCELLING) != m.cancelled {
		m.breaks("terminal_absorbs", "cancelled is %v, and the core says %s", m.cancelled, s.Status())
	}
}

// samePlan checks the version that a patch made.
func (m *model) samePlan(p *planv1.Plan) {
	if p.GetVersion() != m.plan.GetVersion() || len(p.GetSteps()) != len(m.plan.GetSteps()) {
		m.breaks("patch", "the core has version %d with %d steps, the model %d with %d", p.GetVersion(), len(p.GetSteps()),
			m.plan.GetVersion(), len(m.plan.GetSteps()))
		return
	}
	for i, s := range p.GetSteps() {
		if !proto.Equal(s, m.plan.GetSteps()[i]) {
			m.breaks("patch", "step %d of version %d is %s in the core and %s in the model", i, p.GetVersion(), s.GetId(), m.plan.GetSteps()[i].GetId())
		}
	}
}
