package render

import (
	"encoding/json"
	"fmt"
	"strings"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// EventName is the event's type, as in docs/events.md: PlanCreated.
func EventName(e *runv1.Event) string {
	m := e.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().ByName("body"))
	if f == nil {
		return "(unknown event)"
	}
	return string(f.Message().Name())
}

// EventText says in one line what an event holds.
func EventText(e *runv1.Event) string { return Line(eventText(e)) }

func eventText(e *runv1.Event) string {
	switch b := e.GetBody().(type) {
	case *runv1.Event_RunSubmitted:
		return goalOf(b.RunSubmitted.GetSpec())
	case *runv1.Event_PlanRequested:
		return again(b.PlanRequested.GetRequestId(), b.PlanRequested.GetAttempt())
	case *runv1.Event_PlanCreated:
		return fmt.Sprintf("version %d, %s%s", b.PlanCreated.GetPlan().GetVersion(), count(len(b.PlanCreated.GetPlan().GetSteps()), "step"), from(b.PlanCreated.GetPlanner()))
	case *runv1.Event_PlanRejected:
		return findingsText(b.PlanRejected.GetFindings())
	case *runv1.Event_PlanPatched:
		p := b.PlanPatched
		return fmt.Sprintf("version %d%s: %s", p.GetVersion(), from(p.GetPlanner()), patchText(p.GetPatch()))
	case *runv1.Event_PatchRejected:
		return findingsText(b.PatchRejected.GetFindings())
	case *runv1.Event_PlanningFailed:
		return ErrorText(b.PlanningFailed.GetError())
	case *runv1.Event_ReplanRequested:
		r := b.ReplanRequested
		return join(again(r.GetRequestId(), r.GetAttempt()), r.GetStepId(), ErrorText(r.GetError()))
	case *runv1.Event_ReplanDeclined:
		return b.ReplanDeclined.GetReason()
	case *runv1.Event_StepStarted:
		if b.StepStarted.GetDue() != nil {
			return b.StepStarted.GetStepId() + " until " + b.StepStarted.GetDue().AsTime().Format("15:04:05.000 MST")
		}
		return b.StepStarted.GetStepId()
	case *runv1.Event_StepExpanded:
		return join(b.StepExpanded.GetStepId(), count(len(b.StepExpanded.GetItems()), "item"))
	case *runv1.Event_ActionRequested:
		a := b.ActionRequested
		return fmt.Sprintf("%s %s %s", again(a.GetStepId(), a.GetAttempt()), a.GetTool(), a.GetArguments().GetText())
	case *runv1.Event_ActionRevocationRequested:
		return join(b.ActionRevocationRequested.GetActionId(), b.ActionRevocationRequested.GetReason())
	case *runv1.Event_ObservationRecorded:
		return observationText(b.ObservationRecorded)
	case *runv1.Event_StepSucceeded:
		return join(b.StepSucceeded.GetStepId(), Result(b.StepSucceeded.GetResult()))
	case *runv1.Event_StepFailed:
		return join(b.StepFailed.GetStepId(), ErrorText(b.StepFailed.GetError()))
	case *runv1.Event_StepSkipped:
		return join(b.StepSkipped.GetStepId(), b.StepSkipped.GetReason(), b.StepSkipped.GetDetail())
	case *runv1.Event_StepCancelled:
		return b.StepCancelled.GetStepId()
	case *runv1.Event_StepRetryScheduled:
		r := b.StepRetryScheduled
		when := "at once"
		if r.GetDue() != nil {
			when = "at " + r.GetDue().AsTime().Format("15:04:05.000 MST")
		}
		return join(fmt.Sprintf("%s attempt %d %s", r.GetStepId(), r.GetAttempt(), when), ErrorText(r.GetError()))
	}
	return lifecycleText(e)
}

// goalOf is what a run is for: its goal, or that of the plan it was given.
func goalOf(spec *runv1.RunSpec) string {
	if spec.GetGoal() != "" {
		return spec.GetGoal()
	}
	var p struct{ Goal string }
	if json.Unmarshal([]byte(spec.GetPlan().GetText()), &p) != nil || p.Goal == "" {
		return "a plan without a goal"
	}
	return p.Goal
}

func lifecycleText(e *runv1.Event) string {
	switch b := e.GetBody().(type) {
	case *runv1.Event_UserInputRequested:
		return join(b.UserInputRequested.GetRequestId(), b.UserInputRequested.GetQuestion())
	case *runv1.Event_UserInputReceived:
		return join(b.UserInputReceived.GetRequestId(), b.UserInputReceived.GetAnswer().GetText())
	case *runv1.Event_UserInputWithdrawn:
		return join(b.UserInputWithdrawn.GetRequestId(), b.UserInputWithdrawn.GetStepId(), b.UserInputWithdrawn.GetReason())
	case *runv1.Event_TimerFired:
		return join(strings.ToLower(strings.TrimPrefix(b.TimerFired.GetTimer().String(), "TIMER_KIND_")), b.TimerFired.GetStepId())
	case *runv1.Event_CancelRequested:
		return join(b.CancelRequested.GetBy(), b.CancelRequested.GetReason())
	case *runv1.Event_ReportRefused:
		return join(b.ReportRefused.GetReport(), b.ReportRefused.GetCode(), b.ReportRefused.GetMessage())
	case *runv1.Event_LimitWarned:
		return fmt.Sprintf("%s: %d of %d", b.LimitWarned.GetLimit(), b.LimitWarned.GetValue(), b.LimitWarned.GetMaximum())
	case *runv1.Event_RunCompleted:
		if a := b.RunCompleted.GetAnswerArtifact(); a != nil {
			return artifact(a)
		}
		return Value(b.RunCompleted.GetAnswer())
	case *runv1.Event_RunFailed:
		return ErrorText(b.RunFailed.GetError())
	case *runv1.Event_RunCancelled:
		return b.RunCancelled.GetReason()
	case *runv1.Event_RunQuarantined:
		return b.RunQuarantined.GetReason()
	}
	return ""
}

func observationText(o *runv1.ObservationRecorded) string {
	ob := o.GetObservation()
	late := ""
	if o.GetLate() {
		late = " (late)"
	}
	what := Result(ob.GetOutput())
	if ob.GetError() != nil {
		what = ErrorText(ob.GetError())
	} else if ob.GetOutcome() == runv1.Outcome_OUTCOME_REVOKED {
		what = "revoked before it started"
	} else if ob.GetOutcome() == runv1.Outcome_OUTCOME_STARTED {
		what = "has started"
	}
	return join(o.GetActionId()+late, what)
}

func again(id string, attempt int32) string {
	if attempt > 1 {
		return fmt.Sprintf("%s attempt %d", id, attempt)
	}
	return id
}

func from(p *runv1.PlannerTrace) string {
	if p.GetSource() == "" {
		return ""
	}
	if p.GetName() == "" {
		return ", " + p.GetSource()
	}
	return fmt.Sprintf(", %s %q", p.GetSource(), p.GetName())
}

func patchText(p *planv1.Patch) string {
	var parts []string
	list := func(word string, ids []string) {
		if len(ids) > 6 {
			parts = append(parts, fmt.Sprintf("%s %d steps", word, len(ids)))
		} else if len(ids) > 0 {
			parts = append(parts, word+" "+strings.Join(ids, ", "))
		}
	}
	list("add", stepIDs(p.GetAdd()))
	list("update", stepIDs(p.GetUpdate()))
	list("remove", p.GetRemove())
	text := strings.Join(parts, "; ")
	if p.GetReason() != "" {
		text = join(text, p.GetReason())
	}
	return text
}

func stepIDs(steps []*planv1.Step) []string {
	out := make([]string, len(steps))
	for i, s := range steps {
		out[i] = s.GetId()
	}
	return out
}

// count is a number of things: 1 step, 2 steps.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func findingsText(fs []*planv1.Finding) string {
	for _, f := range fs {
		if f.GetSeverity() == planv1.Severity_SEVERITY_ERROR {
			if n := len(fs) - 1; n > 0 {
				return fmt.Sprintf("%s (and %d more)", Finding(f), n)
			}
			return Finding(f)
		}
	}
	return "no reason given"
}

// Finding is one line about a plan document: place, code, sentence, what to do next.
func Finding(f *planv1.Finding) string {
	text := f.GetMessage()
	if f.GetHint() != "" {
		text = strings.TrimRight(text, ".") + "; " + f.GetHint()
	}
	place := f.GetPointer()
	if place == "" && f.GetStepId() != "" {
		place = "step " + f.GetStepId()
	}
	return Line(join(place, f.GetCode(), text))
}

// join puts the parts that are there in one sentence.
func join(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, ": ")
}
