package run

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/plan"
	"github.com/cairnrun/cairn/pkg/run/mode"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// judge decides what a step makes of what came back.
func (x *decider) judge(d *data, p place) *runv1.Event {
	st, step := d.at(p).st, d.stepAt(p)
	switch st.GetStatus() {
	case runv1.StepStatus_STEP_STATUS_WAITING:
		return x.succeedControl(st.GetRevision(), st, inline(&planv1.JsonText{Text: "null"}))
	case runv1.StepStatus_STEP_STATUS_WAITING_FOR_USER:
		return x.judgeInput(d, p, st, step)
	}
	if st.GetExpanded() {
		return x.judgeItems(d, p, st, step)
	}
	a := d.newest(st)
	if a == nil {
		return x.failStep(d, p, step, st.GetRevision(), "judge", fault("internal", "the step runs without an action"), nil)
	}
	cause := max(a.GetObservedRevision(), a.GetRequestedRevision())
	switch a.GetStatus() {
	case runv1.ActionStatus_ACTION_STATUS_SUCCEEDED:
		return x.judgeResult(d, p, st, step, a, cause)
	case runv1.ActionStatus_ACTION_STATUS_TIMED_OUT:
		if !a.GetIdempotent() {
			code := a.GetError().GetCode()
			if code == "" {
				code = codeTimeout
			}
			return x.revoke(a, cause, code)
		}
		return x.retryOrFail(d, p, st, step, cause, fault(codeTimeout, "no answer before the deadline"))
	case runv1.ActionStatus_ACTION_STATUS_REVOKED:
		return x.retryOrFail(d, p, st, step, cause, fault(codeTimeout, "the action was not started before its deadline, and never will be"))
	case runv1.ActionStatus_ACTION_STATUS_UNKNOWN:
		e := fault(codeUnknownOutcome, "the action %s was started and its outcome is unknown; find out before it is repeated", a.GetActionId())
		return x.failStep(d, p, step, cause, "unknown_outcome", e, nil)
	case runv1.ActionStatus_ACTION_STATUS_CANCELLED:
		return x.failStep(d, p, step, cause, "judge", fault("cancelled", "the action was cancelled"), nil)
	}
	return x.retryOrFail(d, p, st, step, cause, classed(a.GetError()))
}

// judgeResult decides whether what came back is what the plan expects.
func (x *decider) judgeResult(d *data, p place, st *runv1.StepState, step *planv1.Step, a *runv1.ActionState, cause int64) *runv1.Event {
	o := a.GetObservation()
	b := &runv1.StepSucceeded{StepId: st.GetStepId(), Partial: o.GetOutcome() == runv1.Outcome_OUTCOME_PARTIAL}
	result := resultOf(o)
	if o.GetResult() == nil && step.GetResult() != nil && o.GetOutput() != nil && p.kind != placeUndo {
		// The router extracts; one that did not is helped, where the output can be seen here.
		extracted, err := extract(step.GetResult(), o.GetOutput())
		if err != nil {
			if e := x.retry(d, st, step, cause, err); e != nil {
				return e
			}
			return x.failStep(d, p, step, cause, "failure", withResult(err, "output", o.GetOutput()), nil)
		}
		result = extracted
		b.Result = result
	}
	if p.kind != placeUndo {
		if err, falsified := x.unexpected(d, p, step.GetExpect(), result, o.GetVerdicts()); err != nil {
			if e := x.retry(d, st, step, cause, err); e != nil {
				return e
			}
			return x.failStep(d, p, step, cause, "expect", withResult(err, "result", result), falsified)
		}
	}
	vals := values().int("checks", int64(len(step.GetExpect().GetChecks())))
	if b.GetPartial() {
		vals.bool("partial", true)
	}
	return x.event(cause, "observed", vals, &runv1.Event{Body: &runv1.Event_StepSucceeded{StepSucceeded: b}})
}

// extract takes a step's result out of an output.
func extract(spec *planv1.JsonText, output *runv1.Value) (*runv1.Value, *runv1.Error) {
	if output.GetArtifact() != nil {
		return nil, fault(codeSchemaMismatch, "the output is an artifact and came without the result that the step takes of it")
	}
	extracted, err := plan.Extract(spec, output.GetInline())
	if err != nil {
		return nil, fault(codeSchemaMismatch, "%s", err.Error())
	}
	return inline(extracted), nil
}

// unexpected is the first thing in which a result differs from what the plan expects, with the assumption that this
// falsifies; nil where there is none. Results that are artifacts come with the router's verdicts.
func (x *decider) unexpected(d *data, p place, expect *planv1.Expect, result *runv1.Value, verdicts []*runv1.CheckVerdict) (*runv1.Error, []string) {
	text := result.GetInline()
	artifact := result.GetArtifact() != nil
	if expect.GetSchema() != nil && !artifact {
		for _, f := range plan.ValidateSchema(expect.GetSchema(), text) {
			if f.GetSeverity() == planv1.Severity_SEVERITY_ERROR {
				where := ""
				if f.GetPointer() != "" {
					where = " at " + f.GetPointer()
				}
				e := fault(codeSchemaMismatch, "the result does not fit%s: it %s", where, f.GetMessage())
				return withDetails(e, values().str("pointer", f.GetPointer()).str("problem", f.GetMessage()).json()), nil
			}
		}
	}
	for i, c := range expect.GetChecks() {
		detail := ""
		passed := false
		switch {
		case artifact:
			detail = "the result is an artifact and came without a verdict"
			if k := slices.IndexFunc(verdicts, func(v *runv1.CheckVerdict) bool { return int(v.GetIndex()) == i }); k >= 0 {
				passed, detail = verdicts[k].GetPassed(), verdicts[k].GetDetail()
			}
		default:
			ok, err := plan.EvalCheck(c.GetExpression(), d.scopeOf(p).expressions(text))
			passed = ok && err == nil
			if err != nil {
				detail = err.Error()
			}
		}
		if passed {
			continue
		}
		message := c.GetMessage()
		if message == "" {
			message = "the check " + c.GetExpression() + " is not true"
		}
		vals := values().str("check", c.GetExpression()).int("index", int64(i))
		if detail != "" {
			vals.str("detail", detail)
		}
		var falsified []string
		if c.GetAssumption() != "" {
			vals.str("assumption", c.GetAssumption())
			falsified = []string{c.GetAssumption()}
		}
		return withDetails(fault(codeCheckFailed, "%s", message), vals.json()), falsified
	}
	return nil, nil
}

// retryOrFail makes another attempt where the rules allow one, and fails the step where they do not.
func (x *decider) retryOrFail(d *data, p place, st *runv1.StepState, step *planv1.Step, cause int64, err *runv1.Error) *runv1.Event {
	if e := x.retry(d, st, step, cause, err); e != nil {
		return e
	}
	return x.failStep(d, p, step, cause, "failure", err, nil)
}

// retry is another attempt, nil where none is due: where a retry is left and the code is among retry.on, or, without
// such a list, where error, code table or tool call it retryable. Plan faults are only retried where retry.on names them.
func (x *decider) retry(d *data, st *runv1.StepState, step *planv1.Step, cause int64, err *runv1.Error) *runv1.Event {
	r := step.GetRetry()
	made := st.GetAttempts() - st.GetAttemptsBefore()
	if made >= r.GetMaxAttempts() || err.GetCode() == codeUnknownOutcome {
		return nil
	}
	if on := r.GetOn(); len(on) > 0 {
		if !slices.Contains(on, err.GetCode()) {
			return nil
		}
	} else if err.GetClass() == planFault || !d.retryable(st, err) {
		return nil
	}
	wait := backoff(r, made)
	if after := err.GetRetryAfter(); after != nil && after.IsValid() {
		wait = max(wait, min(after.AsDuration(), DefaultMaxBackoff))
	}
	b := &runv1.StepRetryScheduled{StepId: st.GetStepId(), Attempt: st.GetAttempts() + 1, Error: err}
	if wait > 0 {
		b.Due = timestamppb.New(x.now.Add(wait))
	}
	return x.event(cause, "retry", values().int("made", int64(made)).int("max_attempts", int64(r.GetMaxAttempts())).
		str("code", err.GetCode()).str("wait", wait.String()), &runv1.Event{Body: &runv1.Event_StepRetryScheduled{StepRetryScheduled: b}})
}

func (d *data) retryable(st *runv1.StepState, err *runv1.Error) bool {
	if _, table := Classify(err.GetCode()); err.GetRetryable() || table {
		return true
	}
	a := d.newest(st)
	return a != nil && slices.Contains(d.layout.tools[a.GetTool()].GetRetryableErrors(), err.GetCode())
}

// backoff is the wait after a number of attempts.
func backoff(r *planv1.Retry, made int32) time.Duration {
	delay := r.GetDelay().AsDuration()
	if r.GetDelay() == nil && r.GetFactor() > 0 {
		delay = DefaultBackoff
	}
	bound := DefaultMaxBackoff
	if m := r.GetMaxDelay().AsDuration(); m > 0 {
		bound = m
	}
	if delay <= 0 {
		return 0
	}
	factor := r.GetFactor()
	if !(factor > 1) {
		return min(delay, bound)
	}
	wait := float64(delay)
	for range made - 1 {
		if wait *= factor; wait >= float64(bound) || math.IsInf(wait, 1) {
			return bound
		}
	}
	return min(time.Duration(wait), bound)
}

// failStep decides what a step's failure for good leads to.
func (x *decider) failStep(d *data, p place, step *planv1.Step, cause int64, rule string, err *runv1.Error, falsified []string) *runv1.Event {
	id := x.idAt(d, p, step)
	err = classed(err)
	b := &runv1.StepFailed{StepId: id, Error: err, FalsifiedAssumptions: falsified}
	vals := values().str("code", err.GetCode()).str("class", shortClass(err.GetClass()))
	if p.kind == placeUndo {
		return x.event(cause, rule, vals, &runv1.Event{Body: &runv1.Event_StepFailed{StepFailed: b}})
	}
	f := mode.Failure{StepID: id, Error: err, Policy: step.GetOnFailure(), Optional: step.GetOptional(),
		NotApproved: rule == ruleNotApproved, UnknownOutcome: err.GetCode() == codeUnknownOutcome}
	dec := x.mode.OnError(view{d: d}, f)
	policy := policyOf(dec)
	vals.str("on_failure", shortPolicy(step.GetOnFailure())).bool("optional", step.GetOptional()).str("decision", dec.Kind.String())
	switch {
	case policy == planv1.FailurePolicy_FAILURE_POLICY_SKIP:
		st := &runv1.StepState{StepId: id}
		return x.skip(cause, st, "on_failure", vals, skipByPolicy, err.GetCode()+": "+err.GetMessage())
	case step.GetOptional():
		b.Optional, b.Policy = true, step.GetOnFailure()
	default:
		b.Policy = policy
	}
	return x.event(cause, rule, vals, &runv1.Event{Body: &runv1.Event_StepFailed{StepFailed: b}})
}

// judgeItems decides on a for_each step whose items have all ended, or one of whose items has failed.
func (x *decider) judgeItems(d *data, p place, st *runv1.StepState, step *planv1.Step) *runv1.Event {
	items := d.at(p).items
	k := items.first(isFatal) // it is judged by before the others have ended, and none of them counts more
	if k < 0 {
		k = items.first(isFailedItem)
	}
	if k >= 0 {
		item := items.at(k).st
		err := item.GetError()
		err = &runv1.Error{Code: err.GetCode(), Message: item.GetStepId() + ": " + err.GetMessage(), Class: err.GetClass(), Retryable: err.GetRetryable(), Details: err.GetDetails()}
		if item.GetPolicy() == planv1.FailurePolicy_FAILURE_POLICY_FAIL && !step.GetOptional() {
			return x.event(item.GetRevision(), "item_failed", values().str("item", item.GetStepId()), &runv1.Event{Body: &runv1.Event_StepFailed{
				StepFailed: &runv1.StepFailed{StepId: st.GetStepId(), Error: err, Policy: planv1.FailurePolicy_FAILURE_POLICY_FAIL,
					FalsifiedAssumptions: item.GetFalsifiedAssumptions()}}})
		}
		return x.failStep(d, p, step, item.GetRevision(), "item_failed", err, item.GetFalsifiedAssumptions())
	}
	results := make([]*runv1.Value, len(st.GetItems()))
	cause := st.GetRevision()
	items.each(0, func(i int, el *stepElem) bool {
		if i < len(results) {
			results[i] = el.st.GetResult()
			cause = max(cause, el.st.GetRevision())
		}
		return true
	})
	return x.event(cause, "items_done", values().int("items", int64(len(results))), &runv1.Event{Body: &runv1.Event_StepSucceeded{
		StepSucceeded: &runv1.StepSucceeded{StepId: st.GetStepId(), Result: listOf(results)}}})
}

// ruleNotApproved names the failure of a step whose approval was refused.
const ruleNotApproved = "not_approved"

// judgeInput decides on a step whose question was answered, or has to be asked.
func (x *decider) judgeInput(d *data, p place, st *runv1.StepState, step *planv1.Step) *runv1.Event {
	in, _ := d.input(st.GetInputRequest())
	if in == nil {
		return x.askFailure(d, st)
	}
	if a := d.newest(st); outcomeArrived(st, in, a) {
		return x.event(a.GetObservedRevision(), "outcome_known", values().str("action", a.GetActionId()).str("request", in.GetRequestId()),
			&runv1.Event{Body: &runv1.Event_UserInputWithdrawn{UserInputWithdrawn: &runv1.UserInputWithdrawn{
				RequestId: in.GetRequestId(), StepId: st.GetStepId(), Reason: "outcome_known"}}})
	}
	cause := in.GetClosedRevision()
	if in.GetTimedOut() {
		return x.retryOrFail(d, p, st, step, cause, fault(codeTimeout, "nobody answered %s in time", in.GetRequestId()))
	}
	switch in.GetPurpose() {
	case runv1.UserInputPurpose_USER_INPUT_PURPOSE_QUESTION:
		return x.event(cause, "answered", values().str("by", in.GetBy()), &runv1.Event{Body: &runv1.Event_StepSucceeded{
			StepSucceeded: &runv1.StepSucceeded{StepId: st.GetStepId(), Result: inline(in.GetAnswer())}}})
	case runv1.UserInputPurpose_USER_INPUT_PURPOSE_APPROVAL:
		return x.failStep(d, p, step, cause, ruleNotApproved, fault(codeNotPermitted, "%s did not approve it", orSomebody(in.GetBy())), nil)
	}
	vals := values().str("decision", decisionOf(in.GetAnswer())).str("by", in.GetBy())
	switch decisionOf(in.GetAnswer()) {
	case "retry":
		return x.event(cause, "user_decision", vals, &runv1.Event{Body: &runv1.Event_StepRetryScheduled{StepRetryScheduled: &runv1.StepRetryScheduled{
			StepId: st.GetStepId(), Attempt: st.GetAttempts() + 1, Error: st.GetError()}}})
	case "skip":
		return x.skip(cause, st, "user_decision", vals, skipByUser, orSomebody(in.GetBy()))
	}
	return x.event(cause, "user_decision", vals, &runv1.Event{Body: &runv1.Event_StepFailed{StepFailed: &runv1.StepFailed{
		StepId: st.GetStepId(), Error: st.GetError(), Policy: planv1.FailurePolicy_FAILURE_POLICY_FAIL}}})
}

func orSomebody(by string) string {
	if by == "" {
		return "somebody"
	}
	return by
}

func shortClass(c runv1.FaultClass) string {
	if c == planFault {
		return "plan"
	}
	return "execution"
}

func shortPolicy(p planv1.FailurePolicy) string {
	names := [...]string{"unspecified", "fail", "replan_step", "replan_remaining", "ask_user", "skip", "compensate"}
	if int(p) >= 0 && int(p) < len(names) {
		return names[p]
	}
	return strconv.Itoa(int(p))
}

// unmet is the first acceptance check that the answer does not meet.
func (d *data) unmet(answer *runv1.Value) *runv1.Error {
	for i, c := range d.plan.GetAcceptance() {
		s := scope{d: d}.expressions(nil)
		s.Answer = answer.GetInline()
		ok, err := plan.EvalCheck(c.GetExpression(), s)
		if ok && err == nil {
			continue
		}
		message := c.GetMessage()
		if message == "" {
			message = "the acceptance check " + c.GetExpression() + " is not true"
		}
		vals := values().str("check", c.GetExpression()).int("index", int64(i))
		var failed *plan.ExpressionError
		if errors.As(err, &failed) {
			vals.str("detail", failed.Error())
		}
		return withDetails(fault(codeAcceptanceFailed, "%s", message), vals.json())
	}
	return nil
}
