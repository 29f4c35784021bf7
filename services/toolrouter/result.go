package toolrouter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/telemetry"
	"github.com/cairnrun/cairn/pkg/tool"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// handleResult takes a tool's result. It returns nil, and the result is acknowledged, only when the report is stored.
func (r *router) handleResult(m *message.Message) error {
	ctx := m.Context()
	subject := bus.Subject(m)
	runID, actionID, name, ok := tool.ParseSubject(subject)
	if !ok || !tool.ValidToken(runID) || !tool.ValidToken(actionID) || !tool.ValidName(name) {
		return fmt.Errorf("%w: %s is not a result's subject", bus.ErrPoison, subject)
	}
	header := m.Metadata.Get(tool.HeaderContext)
	if header == "" {
		return r.refuse(ctx, unknownCall(runID, actionID, name), actionID,
			fault(tool.CodeInvalidOutput, "the result lacks the header %s: a tool puts the action's headers %s and %s on its result", tool.HeaderContext, tool.HeaderAttempt, tool.HeaderContext))
	}
	w, err := r.decodeContext(ctx, header)
	if errors.Is(err, errContext) {
		return r.refuse(ctx, unknownCall(runID, actionID, name), actionID, fault(tool.CodeInvalidOutput, "the result's header %s is not the action's: %s", tool.HeaderContext, err))
	}
	if err != nil {
		return err
	}
	call := w.GetCall()
	if w.GetRunId() != runID || call.GetActionId() != actionID || call.GetTool() != name {
		return fmt.Errorf("%w: the result on %s carries the context of run %s, action %s, tool %s", bus.ErrPoison, subject, w.GetRunId(), call.GetActionId(), call.GetTool())
	}
	ctx = telemetry.WithStep(ctx, call.GetStepId())
	switch token := m.Metadata.Get(tool.HeaderAttempt); token {
	case tool.AttemptToken(runID, actionID, call.GetIdempotencyKey()):
	case "":
		return r.refuse(ctx, w, actionID, fault(tool.CodeInvalidOutput, "the result lacks the header %s", tool.HeaderAttempt))
	default:
		return fmt.Errorf("%w: the result on %s carries the token of another attempt", bus.ErrPoison, subject)
	}
	o, err := r.observe(ctx, w, m.Payload)
	if err != nil {
		return err
	}
	if e := o.GetError(); e != nil {
		r.Logger.InfoContext(ctx, "action failed", "action_id", actionID, "tool", name, "code", e.GetCode(), "error", e.GetMessage())
	}
	r.measure(ctx, name, o.GetError(), o.GetDuration().AsDuration())
	return r.report(ctx, w, actionID, o)
}

// observe makes an observation of a result's body.
func (r *router) observe(ctx context.Context, w *runv1.Work, body []byte) (*runv1.Observation, error) {
	var m tool.ResultMessage
	if err := json.Unmarshal(body, &m); err != nil {
		return &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_ERROR, Error: fault(tool.CodeInvalidOutput, "the result is not readable: %s", err)}, nil
	}
	def, err := r.registry.get(ctx, w.GetCall().GetTool())
	if err != nil {
		return nil, err
	}
	o := newObservation(&m)
	switch m.Status {
	case tool.StatusSuccess:
	case tool.StatusError:
		o.Outcome, o.Error = runv1.Outcome_OUTCOME_ERROR, faultOf(m.Error, def)
		return o, nil
	case tool.StatusPartial:
		o.Outcome, o.Error = runv1.Outcome_OUTCOME_PARTIAL, faultOf(m.Error, def)
	default:
		return failed(o, fault(tool.CodeInvalidOutput, "the result's status %q is none of success, error, partial", clip(m.Status, 16))), nil
	}
	out, refusal, err := r.readOutput(ctx, &m)
	if err == nil && refusal == nil {
		refusal, err = r.judge(ctx, w.GetCall(), def, o, out)
	}
	if err != nil {
		return nil, err
	}
	if refusal != nil {
		return failed(o, refusal), nil
	}
	return o, nil
}

// failed keeps what is known of the call and replaces its outcome.
func failed(o *runv1.Observation, e *runv1.Error) *runv1.Observation {
	o.Outcome, o.Error, o.Output, o.Result, o.Verdicts = runv1.Outcome_OUTCOME_ERROR, e, nil, nil, nil
	return o
}
