package run

import (
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// held says why no new step may begin, empty where one may.
func (d *data) held() string {
	if last := d.lastPlanning(); last != nil && last.st.GetReplan() {
		switch {
		case last.st.GetOpen() && last.st.GetScope() == runv1.ReplanScope_REPLAN_SCOPE_REMAINING:
			return "replan"
		case last.st.GetOutcome() == runv1.PlanningOutcome_PLANNING_OUTCOME_DECLINED && !d.moot(last.st):
			return "answer"
		}
	}
	switch {
	case d.steps.sum().flags&(wantsUndo|isFatal) != 0:
		return "failing"
	case d.revision >= d.limits.maxEvents:
		return "max_events"
	}
	return ""
}

// start begins the next step in plan order: with a free slot the first that can begin, without one the first that
// needs none, or of which it is not known yet whether it runs at all.
func (x *decider) start(d *data) *runv1.Event {
	look, slot := d.steps.first(wantsLook), -1
	if d.freeSlots() > 0 {
		slot = d.steps.first(wantsSlot)
	}
	switch {
	case look >= 0 && (slot < 0 || look < slot):
		return x.look(d, look)
	case slot >= 0:
		return x.slot(d, slot)
	}
	return nil
}

// look decides on a step whose dependencies are terminal and that is not a plain action: conditions first, then
// references, then what it is.
func (x *decider) look(d *data, i int) *runv1.Event {
	p := place{kind: placeStep, step: i}
	step, st := d.plan.GetSteps()[i], d.steps.at(i).st
	cause := d.causeOf(i)
	if lost := d.lostDependency(i); lost != "" {
		return x.skip(cause, st, "dependency", values().str("dependency", lost), skipDependencyFailed, lost)
	}
	sc := d.scopeOf(p)
	if when := step.GetWhen(); when != "" {
		ok, err := plan.EvalCondition(when, sc.expressions(nil))
		switch {
		case err != nil:
			return x.conditionFailed(d, p, cause, when, err)
		case !ok:
			return x.skip(cause, st, "condition", values().str("when", when).bool("value", false), skipConditionFalse, when)
		}
	}
	if step.GetForEach() != nil {
		return x.expand(d, p, step, cause, sc)
	}
	return x.begin(d, p, step, cause)
}

// slot starts a step that waited for a free slot, or its next item.
func (x *decider) slot(d *data, i int) *runv1.Event {
	el := d.steps.at(i)
	p := place{kind: placeStep, step: i}
	var cause int64
	switch {
	case el.st.GetExpanded() && el.st.GetStatus() == runv1.StepStatus_STEP_STATUS_RUNNING:
		p.kind, p.item = placeItem, el.items.first(wantsSlot)
		if p.item < 0 {
			p.item = el.items.len()
		}
		cause = el.st.GetRevision()
		if item := d.at(p); item != nil && item.st.GetRevision() > cause {
			cause = item.st.GetRevision()
		}
	case el.st.GetStatus() == runv1.StepStatus_STEP_STATUS_READY:
		cause = el.st.GetRevision()
	default:
		cause = d.causeOf(i)
	}
	return x.begin(d, p, d.plan.GetSteps()[i], cause)
}

// begin starts what a step or item does, its condition being true.
func (x *decider) begin(d *data, p place, step *planv1.Step, cause int64) *runv1.Event {
	action := actionOf(p, step)
	st := &runv1.StepState{StepId: x.idAt(d, p, step), Status: runv1.StepStatus_STEP_STATUS_PENDING}
	if el := d.at(p); el != nil {
		st = el.st
	}
	control := action.GetKind() == planv1.ActionKind_ACTION_KIND_CONTROL
	switch {
	case action == nil || action.GetKind() == planv1.ActionKind_ACTION_KIND_RUN || action.GetKind() == planv1.ActionKind_ACTION_KIND_UNSPECIFIED:
		return x.failStep(d, p, step, cause, "start", fault(codeUnsupported, "a step without an action of kind tool, llm or control cannot be run"), nil)
	case control && action.GetName() == plan.ControlJoin:
		return x.succeedControl(cause, st, d.joined(p.step))
	}
	sc := d.scopeOf(p)
	resolved, err := plan.Resolve(action.GetArguments(), sc.lookup)
	if err != nil {
		return x.unresolved(d, p, step, cause, err)
	}
	if control {
		return x.beginControl(d, p, step, st, cause, resolved)
	}
	if step.GetConfirm() && !st.GetApproved() && p.kind != placeUndo {
		return x.askApproval(d, st, step, cause, resolved)
	}
	if d.freeSlots() <= 0 && p.kind != placeUndo {
		return x.event(cause, "condition", values().str("when", step.GetWhen()).bool("value", true).int("max_parallel", int64(d.limits.maxParallel)),
			&runv1.Event{Body: &runv1.Event_StepStarted{StepStarted: &runv1.StepStarted{StepId: st.GetStepId(), WaitsForSlot: true}}})
	}
	return x.request(d, p, step, st, cause, sc, resolved)
}

func (x *decider) idAt(d *data, p place, step *planv1.Step) string {
	switch p.kind {
	case placeItem:
		return itemID(step.GetId(), p.item)
	case placeUndo:
		return d.undo.at(p.step).st.GetStepId()
	}
	return step.GetId()
}

// request asks for one attempt of an action.
func (x *decider) request(d *data, p place, step *planv1.Step, st *runv1.StepState, cause int64, sc scope, resolved plan.Resolved) *runv1.Event {
	action := actionOf(p, step)
	tool := plan.ToolName(action)
	def := d.layout.tools[tool]
	if def == nil {
		return x.failStep(d, p, step, cause, "start", fault("unknown_tool", "the plan came without a definition of the tool %s", tool), nil)
	}
	timeout := DefaultTimeout
	for _, t := range []time.Duration{def.GetTimeout().AsDuration(), action.GetTimeout().AsDuration()} {
		if t > 0 {
			timeout = min(t, MaxActionTimeout)
		}
	}
	attempt := st.GetAttempts() + 1
	b := &runv1.ActionRequested{
		ActionId:       actionID(st.GetStepId(), attempt),
		StepId:         st.GetStepId(),
		Attempt:        attempt,
		Tool:           tool,
		ToolVersion:    def.GetVersion(),
		Arguments:      resolved.Arguments,
		IdempotencyKey: idempotencyKey(d.runID, st.GetStepId(), resolved.Arguments, st.GetGeneration()),
		NotAfter:       timestamppb.New(x.now.Add(timeout)),
		Artifacts:      sc.artifacts(resolved.Artifacts),
		Idempotent:     def.GetIdempotent(),
		Generation:     st.GetGeneration(),
	}
	vals := values().int("under_way", int64(d.actions.sum().open)).int("max_parallel", int64(d.limits.maxParallel))
	rule := "ready"
	switch {
	case p.kind == placeUndo:
		rule = "compensate"
	case attempt > st.GetAttemptsBefore()+1:
		rule = "retry"
	case step.GetWhen() != "":
		vals.str("when", step.GetWhen())
	}
	return x.event(cause, rule, vals, &runv1.Event{Body: &runv1.Event_ActionRequested{ActionRequested: b}})
}

// idempotencyKey is the same for every attempt of one intended effect.
func idempotencyKey(runID, stepID string, args *planv1.JsonText, generation int32) string {
	var w writer
	w = w.str(runID)
	w = w.str(stepID)
	w = w.json(args)
	w = w.int(int64(generation))
	return w.hex()[:32]
}

// expand makes a for_each step its items.
func (x *decider) expand(d *data, p place, step *planv1.Step, cause int64, sc scope) *runv1.Event {
	resolved, err := plan.DefaultLimits().ResolveValue(step.GetForEach(), sc.lookup)
	if err != nil {
		return x.unresolved(d, p, step, cause, err)
	}
	if len(resolved.Artifacts) > 0 {
		return x.failStep(d, p, step, cause, "for_each", fault(codeOutputTooLarge,
			"the list of for_each is larger than max_inline_bytes; let the step before it return less"), nil)
	}
	list, err := plan.ParseValue(resolved.Arguments.GetText())
	if err != nil || list.Kind() != plan.Array {
		return x.failStep(d, p, step, cause, "for_each", fault(codeSchemaMismatch, "for_each needs a list; what is there is: %s", list.Kind()), nil)
	}
	if len(list.Items()) > MaxItems {
		return x.failStep(d, p, step, cause, "for_each", budgetFault("max_items", int64(len(list.Items())), MaxItems), nil)
	}
	b := &runv1.StepExpanded{StepId: step.GetId()}
	for _, item := range list.Items() {
		b.Items = append(b.Items, item.JSON())
	}
	return x.event(cause, "for_each", values().int("items", int64(len(b.GetItems()))), &runv1.Event{Body: &runv1.Event_StepExpanded{StepExpanded: b}})
}

// unresolved decides on a step whose references have no value: it is skipped where it is optional, or where what it
// refers to was skipped by a condition or is optional and failed; else it fails.
func (x *decider) unresolved(d *data, p place, step *planv1.Step, cause int64, err error) *runv1.Event {
	var missing *plan.UnresolvedError
	if !errors.As(err, &missing) {
		return x.failStep(d, p, step, cause, "references", fault(codeInvalidArguments, "the arguments cannot be made: %s", err.Error()), nil)
	}
	vals := values().str("reference", missing.Reference.Text).str("reason", missing.Reason)
	if missing.Reason == plan.ReasonNoValue && p.kind == placeStep {
		if on := d.behind(missing.Reference); on != nil && d.skipsWith(p.step, on) {
			vals.str("step", on.GetStepId()).str("status", shortStatus(on.GetStatus()))
			return x.skip(cause, d.steps.at(p.step).st, "references", vals, skipRefUnavailable, missing.Reference.Text)
		}
	}
	e := withDetails(fault(codeRefUnavailable, "the reference %s has no value", missing.Reference.Text), vals.json())
	return x.failStep(d, p, step, cause, "references", e, nil)
}

// behind is the step that a reference points to.
func (d *data) behind(r plan.Reference) *runv1.StepState {
	i, ok := -1, false
	switch r.Root {
	case plan.RootStep:
		i, ok = d.indexOf(r.Name)
	case plan.RootArtifact:
		i = d.producer(r.Name)
		ok = i >= 0
	}
	if !ok {
		return nil
	}
	return d.steps.at(i).st
}

// skipsWith says whether a step that needs the result of another, which has none, is skipped rather than failed.
func (d *data) skipsWith(i int, on *runv1.StepState) bool {
	switch on.GetStatus() {
	case runv1.StepStatus_STEP_STATUS_SKIPPED:
		return d.layout.steps[i].optional || on.GetSkipReason() == skipConditionFalse || on.GetSkipReason() == skipRefUnavailable
	case runv1.StepStatus_STEP_STATUS_FAILED:
		return on.GetFailedOptional()
	}
	return false
}

// conditionFailed decides on a condition that cannot be evaluated: where it asks for the result of a step that has none,
// the same rule holds as for references.
func (x *decider) conditionFailed(d *data, p place, cause int64, when string, err error) *runv1.Event {
	vals := values().str("when", when)
	var failed *plan.ExpressionError
	if errors.As(err, &failed) {
		vals.strs("missing", failed.Missing)
		for _, dep := range d.layout.graph.Dependencies(p.step) {
			on := d.steps.at(int(dep)).st
			for _, m := range failed.Missing {
				if m == "steps."+on.GetStepId()+".result" && d.skipsWith(p.step, on) {
					return x.skip(cause, d.steps.at(p.step).st, "condition", vals, skipRefUnavailable, m)
				}
			}
		}
	}
	e := withDetails(fault(codeConditionFailed, "%s", strings.Replace(err.Error(), "the expression", "the condition", 1)), vals.json())
	return x.failStep(d, p, d.plan.GetSteps()[p.step], cause, "condition", e, nil)
}

func (x *decider) skip(cause int64, st *runv1.StepState, rule string, vals *object, reason, detail string) *runv1.Event {
	return x.event(cause, rule, vals, &runv1.Event{Body: &runv1.Event_StepSkipped{StepSkipped: &runv1.StepSkipped{
		StepId: st.GetStepId(), Reason: reason, Detail: detail}}})
}

// lostDependency is a dependency that must have succeeded and failed, or was lost itself.
func (d *data) lostDependency(i int) string {
	if d.steps.at(i).unsuccessful == 0 {
		return ""
	}
	for _, dep := range d.layout.graph.Dependencies(i) {
		el := d.steps.at(int(dep))
		if el.st.GetStatus() == runv1.StepStatus_STEP_STATUS_FAILED && !el.st.GetFailedOptional() || el.sum.flags&isLost != 0 {
			return el.st.GetStepId()
		}
	}
	return ""
}

// causeOf is the newest event that made a step ready: that of its last dependency, or of the plan.
func (d *data) causeOf(i int) int64 {
	cause := max(d.planRevision, d.steps.at(i).st.GetRevision())
	for _, dep := range d.layout.graph.Dependencies(i) {
		cause = max(cause, d.steps.at(int(dep)).st.GetRevision())
	}
	return cause
}
