package run

import (
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// approvalSchema and decisionSchema are the answers that the core itself asks for.
const (
	approvalSchema = `{"type":"object","properties":{"approved":{"type":"boolean"}},"required":["approved"]}`
	decisionSchema = `{"type":"object","properties":{"decision":{"enum":["retry","skip","fail"]}},"required":["decision"]}`
)

// beginControl does the steps that the core does itself.
func (x *decider) beginControl(d *data, p place, step *planv1.Step, st *runv1.StepState, cause int64, resolved plan.Resolved) *runv1.Event {
	action := actionOf(p, step)
	if len(resolved.Artifacts) > 0 && action.GetName() != plan.ControlFinish {
		return x.failStep(d, p, step, cause, "start", fault(codeOutputTooLarge,
			"%s points into a result that is larger than max_inline_bytes", resolved.Artifacts[0].Text), nil)
	}
	switch action.GetName() {
	case plan.ControlFinish:
		value, err := d.scopeOf(p).whole(action, resolved)
		if err != nil {
			return x.failStep(d, p, step, cause, "start", err, nil)
		}
		return x.succeedControl(cause, st, value)
	case plan.ControlWait:
		wait, err := plan.ReadWait(resolved.Arguments)
		if err != nil {
			return x.failStep(d, p, step, cause, "start", fault(codeInvalidArguments, "%s", err.Error()), nil)
		}
		b := &runv1.StepStarted{StepId: st.GetStepId(), Due: timestamppb.New(x.now.Add(wait.Duration))}
		if !wait.Until.IsZero() {
			b.Due, b.Absolute = timestamppb.New(wait.Until), true
		}
		return x.event(cause, "ready", nil, &runv1.Event{Body: &runv1.Event_StepStarted{StepStarted: b}})
	case plan.ControlAsk:
		ask, err := plan.ReadAsk(resolved.Arguments)
		if err != nil {
			return x.failStep(d, p, step, cause, "start", fault(codeInvalidArguments, "%s", err.Error()), nil)
		}
		b := &runv1.UserInputRequested{RequestId: d.nextInput(), StepId: st.GetStepId(), Schema: ask.Schema, Question: ask.Question,
			Purpose: runv1.UserInputPurpose_USER_INPUT_PURPOSE_QUESTION}
		if ask.Timeout > 0 {
			b.Due = timestamppb.New(x.now.Add(ask.Timeout))
		}
		return x.event(cause, "ready", nil, &runv1.Event{Body: &runv1.Event_UserInputRequested{UserInputRequested: b}})
	}
	return x.failStep(d, p, step, cause, "start", fault(codeUnsupported, "there is no control step %s", action.GetName()), nil)
}

// whole is the value that a join or finish step makes of its arguments. An artifact can be the whole of it, and is shown
// as what it is inside it.
func (s scope) whole(action *planv1.Action, resolved plan.Resolved) (*runv1.Value, *runv1.Error) {
	if len(resolved.Artifacts) == 0 {
		return inline(resolved.Arguments), nil
	}
	if refs, err := plan.References(action.GetArguments()); err == nil && len(refs) == 1 && refs[0].Pointer == "" && len(refs[0].Path) == 0 {
		return s.value(refs[0]), nil
	}
	shown, err := plan.Resolve(action.GetArguments(), func(r plan.Reference) plan.Target {
		t := s.lookup(r)
		if t.Artifact && len(r.Path) == 0 {
			return plan.Target{Found: true, Value: &planv1.JsonText{Text: valueText(s.value(r))}}
		}
		return t
	})
	if err != nil {
		return nil, fault(codeInvalidArguments, "the arguments cannot be made: %s", err.Error())
	}
	if len(shown.Artifacts) > 0 {
		return nil, fault(codeOutputTooLarge, "%s points into a result that is larger than max_inline_bytes", shown.Artifacts[0].Text)
	}
	return inline(shown.Arguments), nil
}

func (x *decider) succeedControl(cause int64, st *runv1.StepState, value *runv1.Value) *runv1.Event {
	return x.event(cause, "control", nil, &runv1.Event{Body: &runv1.Event_StepSucceeded{StepSucceeded: &runv1.StepSucceeded{
		StepId: st.GetStepId(), Result: value}}})
}

// joined is the list of a step's dependencies' results, in the order of depends_on; null for one without a result.
func (d *data) joined(i int) *runv1.Value {
	deps := d.layout.graph.Dependencies(i)
	values := make([]*runv1.Value, len(deps))
	for k, dep := range deps {
		values[k] = d.steps.at(int(dep)).st.GetResult()
	}
	return listOf(values)
}

// listOf is a list of values, as far as MaxJoinedBytes allows: beyond it, what does not fit is left out and said so.
func listOf(values []*runv1.Value) *runv1.Value {
	b := []byte{'['}
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		text := valueText(v)
		if len(b)+len(text) > MaxJoinedBytes {
			text = `{"omitted":"over max_joined_bytes"}`
		}
		b = append(b, text...)
	}
	return inline(&planv1.JsonText{Text: string(append(b, ']'))})
}

func (d *data) nextInput() string { return "input-" + strconv.Itoa(d.inputs.len()+1) }

// askApproval asks a person before an action with confirm.
func (x *decider) askApproval(d *data, st *runv1.StepState, step *planv1.Step, cause int64, resolved plan.Resolved) *runv1.Event {
	question := step.GetTitle()
	if question == "" {
		question = step.GetObjective()
	}
	args := resolved.Arguments.GetText()
	if len(args) > 2000 {
		args = cutAtRune(args, 2000) + "…"
	}
	return x.event(cause, "confirm", values().str("risk", step.GetRisk().String()), &runv1.Event{Body: &runv1.Event_UserInputRequested{
		UserInputRequested: &runv1.UserInputRequested{
			RequestId: d.nextInput(), StepId: st.GetStepId(), Purpose: runv1.UserInputPurpose_USER_INPUT_PURPOSE_APPROVAL,
			Question: "Approve " + step.GetAction().GetName() + " with " + args + "? " + question,
			Schema:   &planv1.JsonText{Text: approvalSchema},
		}}})
}

// askFailure asks a person what becomes of a failed step.
func (x *decider) askFailure(d *data, st *runv1.StepState) *runv1.Event {
	return x.event(st.GetRevision(), "on_failure", values().str("policy", "ask_user"), &runv1.Event{Body: &runv1.Event_UserInputRequested{
		UserInputRequested: &runv1.UserInputRequested{
			RequestId: d.nextInput(), StepId: st.GetStepId(), Purpose: runv1.UserInputPurpose_USER_INPUT_PURPOSE_FAILURE,
			Question: "Step " + st.GetStepId() + " failed (" + st.GetError().GetCode() + "): " + st.GetError().GetMessage() + ". Retry, skip or fail?",
			Schema:   &planv1.JsonText{Text: decisionSchema},
		}}})
}

// cutAtRune shortens text to at most n bytes, at a rune border.
func cutAtRune(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
