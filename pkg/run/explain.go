package run

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Explain says in one sentence what an event says, and why it came to be: the rule, the values it saw, and the event it
// follows from. It is told from the event alone, so that it is as true as the log.
func Explain(e *runv1.Event) string {
	s := sentence(e)
	if e.GetKind() != runv1.EventKind_EVENT_KIND_DECIDED {
		return s
	}
	because := "rule " + e.GetRule().GetName()
	if v := e.GetRule().GetValues().GetText(); v != "" && v != "{}" {
		because += " saw " + v
	}
	if c := e.GetCause().GetRevision(); c > 0 {
		because += ", after revision " + strconv.FormatInt(c, 10)
	}
	return s + " (" + because + ")"
}

// sentence is what an event says.
func sentence(e *runv1.Event) string {
	switch b := e.GetBody().(type) {
	case *runv1.Event_RunSubmitted:
		if b.RunSubmitted.GetSpec().GetPlan() != nil {
			return "a run was submitted with a plan of its own"
		}
		return "a run was submitted: " + b.RunSubmitted.GetSpec().GetGoal()
	case *runv1.Event_PlanRequested:
		return fmt.Sprintf("the planner is asked for a plan (%s, attempt %d)", b.PlanRequested.GetRequestId(), b.PlanRequested.GetAttempt())
	case *runv1.Event_PlanCreated:
		return fmt.Sprintf("a plan of %s was accepted for %s%s", count(len(b.PlanCreated.GetPlan().GetSteps()), "step"), b.PlanCreated.GetRequestId(), from(b.PlanCreated.GetPlanner()))
	case *runv1.Event_PlanRejected:
		return fmt.Sprintf("the plan for %s was refused%s: %s", b.PlanRejected.GetRequestId(), from(b.PlanRejected.GetPlanner()), firstFinding(b.PlanRejected.GetFindings()))
	case *runv1.Event_PlanPatched:
		p := b.PlanPatched.GetPatch()
		return fmt.Sprintf("the plan was patched to version %d%s: %d added, %d updated, %d removed%s", b.PlanPatched.GetVersion(), forRequest(b.PlanPatched.GetRequestId()),
			len(p.GetAdd()), len(p.GetUpdate()), len(p.GetRemove()), because(p.GetReason()))
	case *runv1.Event_PatchRejected:
		return fmt.Sprintf("a patch%s was refused: %s", forRequest(b.PatchRejected.GetRequestId()), firstFinding(b.PatchRejected.GetFindings()))
	case *runv1.Event_PlanningFailed:
		return fmt.Sprintf("the planner gave up on %s: %s", b.PlanningFailed.GetRequestId(), errorText(b.PlanningFailed.GetError()))
	case *runv1.Event_ReplanRequested:
		r := b.ReplanRequested
		what := "what remains"
		if r.GetScope() == runv1.ReplanScope_REPLAN_SCOPE_STEP {
			what = "this step"
		}
		s := fmt.Sprintf("the replanner is asked to change %s (%s, attempt %d)", what, r.GetRequestId(), r.GetAttempt())
		if r.GetStepId() != "" {
			s += " since step " + r.GetStepId() + " failed: " + errorText(r.GetError())
		} else if r.GetError() != nil {
			s += " since " + errorText(r.GetError())
		}
		if len(r.GetFalsifiedAssumptions()) > 0 {
			s += "; falsified: " + strings.Join(r.GetFalsifiedAssumptions(), ", ")
		}
		return s
	case *runv1.Event_ReplanDeclined:
		s := fmt.Sprintf("the replanner has no patch for %s%s", b.ReplanDeclined.GetRequestId(), because(b.ReplanDeclined.GetReason()))
		if b.ReplanDeclined.GetAnswer() != nil {
			s += ", and answers"
		}
		return s
	case *runv1.Event_StepStarted:
		if b.StepStarted.GetWaitsForSlot() {
			return "step " + b.StepStarted.GetStepId() + " is ready and waits for a free slot"
		}
		return fmt.Sprintf("step %s waits until %s", b.StepStarted.GetStepId(), clock(b.StepStarted.GetDue()))
	case *runv1.Event_StepExpanded:
		return fmt.Sprintf("step %s runs for %s", b.StepExpanded.GetStepId(), count(len(b.StepExpanded.GetItems()), "item"))
	case *runv1.Event_ActionRequested:
		a := b.ActionRequested
		return fmt.Sprintf("step %s asks for %s (action %s, attempt %d)", a.GetStepId(), a.GetTool(), a.GetActionId(), a.GetAttempt())
	case *runv1.Event_ActionRevocationRequested:
		r := b.ActionRevocationRequested
		return fmt.Sprintf("action %s is not to start any more, if it has not (%s)", r.GetActionId(), r.GetReason())
	case *runv1.Event_ObservationRecorded:
		return observed(b.ObservationRecorded)
	case *runv1.Event_StepSucceeded:
		s := "step " + b.StepSucceeded.GetStepId() + " succeeded"
		if b.StepSucceeded.GetPartial() {
			s += " in part"
		}
		return s
	case *runv1.Event_StepFailed:
		return failedSentence(b.StepFailed)
	case *runv1.Event_StepSkipped:
		return skippedSentence(b.StepSkipped)
	case *runv1.Event_StepCancelled:
		return "step " + b.StepCancelled.GetStepId() + " was cancelled"
	case *runv1.Event_StepRetryScheduled:
		r := b.StepRetryScheduled
		when := "at once"
		if r.GetDue() != nil {
			when = "at " + clock(r.GetDue())
		}
		return fmt.Sprintf("step %s is tried again %s (attempt %d) after %s", r.GetStepId(), when, r.GetAttempt(), errorText(r.GetError()))
	case *runv1.Event_UserInputRequested:
		return fmt.Sprintf("step %s asks a person (%s): %s", b.UserInputRequested.GetStepId(), b.UserInputRequested.GetRequestId(), b.UserInputRequested.GetQuestion())
	case *runv1.Event_UserInputReceived:
		return fmt.Sprintf("%s answered %s", orSomebody(b.UserInputReceived.GetBy()), b.UserInputReceived.GetRequestId())
	case *runv1.Event_UserInputWithdrawn:
		return fmt.Sprintf("the question %s of step %s is withdrawn, since the outcome of its action is known now", b.UserInputWithdrawn.GetRequestId(), b.UserInputWithdrawn.GetStepId())
	case *runv1.Event_TimerFired:
		return timerSentence(b.TimerFired)
	case *runv1.Event_CancelRequested:
		return fmt.Sprintf("%s cancelled the run%s", orSomebody(b.CancelRequested.GetBy()), because(b.CancelRequested.GetReason()))
	case *runv1.Event_ReportRefused:
		return fmt.Sprintf("a report (%s) was refused: %s (%s)", b.ReportRefused.GetReport(), b.ReportRefused.GetMessage(), b.ReportRefused.GetCode())
	case *runv1.Event_LimitWarned:
		return fmt.Sprintf("the limit %s is nearly reached: %d of %d", b.LimitWarned.GetLimit(), b.LimitWarned.GetValue(), b.LimitWarned.GetMaximum())
	case *runv1.Event_RunCompleted:
		return "the run completed"
	case *runv1.Event_RunFailed:
		return "the run failed: " + errorText(b.RunFailed.GetError())
	case *runv1.Event_RunCancelled:
		return "the run is cancelled" + because(b.RunCancelled.GetReason())
	case *runv1.Event_RunQuarantined:
		return fmt.Sprintf("the run is quarantined after revision %d: %s", b.RunQuarantined.GetAtRevision(), b.RunQuarantined.GetReason())
	}
	return "an event that this version does not know"
}

func observed(o *runv1.ObservationRecorded) string {
	what := map[runv1.Outcome]string{
		runv1.Outcome_OUTCOME_SUCCESS: "succeeded",
		runv1.Outcome_OUTCOME_PARTIAL: "succeeded in part",
		runv1.Outcome_OUTCOME_REVOKED: "was never started and never will be",
		runv1.Outcome_OUTCOME_STARTED: "had started before it could be revoked",
	}[o.GetObservation().GetOutcome()]
	if what == "" {
		what = "failed: " + errorText(o.GetObservation().GetError())
	}
	s := fmt.Sprintf("action %s %s", o.GetActionId(), what)
	if o.GetLate() {
		s += " (late: kept, and without effect on the plan)"
	}
	return s
}

func failedSentence(f *runv1.StepFailed) string {
	s := "step " + f.GetStepId() + " failed: " + errorText(f.GetError()) + shownResult(f.GetError())
	if f.GetOptional() {
		return s + "; it is optional and the run goes on"
	}
	switch f.GetPolicy() {
	case planv1.FailurePolicy_FAILURE_POLICY_FAIL:
		s += "; the run fails with it"
	case planv1.FailurePolicy_FAILURE_POLICY_REPLAN_STEP, planv1.FailurePolicy_FAILURE_POLICY_REPLAN_REMAINING:
		s += "; a replan is to say what becomes of it"
	case planv1.FailurePolicy_FAILURE_POLICY_ASK_USER:
		s += "; a person is to say what becomes of it"
	case planv1.FailurePolicy_FAILURE_POLICY_COMPENSATE:
		s += "; what was done is undone"
	}
	return s
}

// maxShownResult bounds the part of a result that a sentence shows.
const maxShownResult = 200

// shownResult shows the value that was not as expected, as far as the error has it.
func shownResult(e *runv1.Error) string {
	if e.GetCode() != codeCheckFailed && e.GetCode() != codeSchemaMismatch {
		return ""
	}
	for _, name := range [...]string{"result", "output"} {
		if v, ok := plan.AtPath(e.GetDetails(), name); ok {
			if text := cutAtRune(v.GetText(), maxShownResult); text != v.GetText() {
				return ", the " + name + " was " + text + "…"
			}
			return ", the " + name + " was " + v.GetText()
		}
	}
	return ""
}

func skippedSentence(k *runv1.StepSkipped) string {
	s := "step " + k.GetStepId() + " is skipped"
	switch k.GetReason() {
	case skipConditionFalse:
		return s + ": its condition is false: " + k.GetDetail()
	case skipRefUnavailable:
		return s + ": it refers to " + k.GetDetail() + ", which has no value"
	case skipDependencyFailed:
		return s + ": it depends on " + k.GetDetail() + ", which failed"
	case skipByUser:
		return s + ": " + k.GetDetail() + " decided so"
	case skipByPolicy:
		return s + " by its failure policy: " + k.GetDetail()
	}
	return s + ": " + k.GetReason()
}

func timerSentence(t *runv1.TimerFired) string {
	switch t.GetTimer() {
	case runv1.TimerKind_TIMER_KIND_RETRY:
		return "the wait before the next attempt of step " + t.GetStepId() + " is over"
	case runv1.TimerKind_TIMER_KIND_WAIT:
		return "step " + t.GetStepId() + " has waited long enough"
	case runv1.TimerKind_TIMER_KIND_ACTION_TIMEOUT:
		return "action " + t.GetActionId() + " did not answer in time"
	case runv1.TimerKind_TIMER_KIND_ACTION_GRACE:
		return "action " + t.GetActionId() + " was started and its grace is over"
	case runv1.TimerKind_TIMER_KIND_USER_INPUT:
		return "nobody answered the question of step " + t.GetStepId() + " in time"
	case runv1.TimerKind_TIMER_KIND_PLANNING:
		return "the planner did not answer in time"
	case runv1.TimerKind_TIMER_KIND_RUN_DEADLINE:
		return "the run's time is up"
	case runv1.TimerKind_TIMER_KIND_CANCEL_GRACE:
		return "the grace of the cancel is over"
	}
	return "a timer fired"
}

func clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return "an unknown time"
	}
	return t.AsTime().Format("2006-01-02T15:04:05.999Z")
}

func errorText(e *runv1.Error) string {
	if e.GetMessage() == "" {
		return e.GetCode()
	}
	return e.GetMessage() + " (" + e.GetCode() + ")"
}

func firstFinding(list []*planv1.Finding) string {
	for _, f := range list {
		if f.GetSeverity() != planv1.Severity_SEVERITY_ERROR {
			continue
		}
		s := f.GetMessage() + " (" + f.GetCode() + ")"
		if f.GetPointer() != "" {
			s += " at " + f.GetPointer()
		}
		if len(list) > 1 {
			s += " and " + count(len(list)-1, "more finding")
		}
		return s
	}
	return "no reason was given"
}

func from(p *runv1.PlannerTrace) string {
	switch {
	case p.GetSource() == "":
		return ""
	case p.GetName() == "":
		return " from " + p.GetSource()
	}
	return " from " + p.GetSource() + " " + p.GetName()
}

func forRequest(id string) string {
	if id == "" {
		return " by a person"
	}
	return " for " + id
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
