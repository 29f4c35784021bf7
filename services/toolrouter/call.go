package toolrouter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/telemetry"
	"github.com/cairnrun/cairn/pkg/tool"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// handleWork takes a call or a revocation. It returns nil, and the work is acknowledged, only when the action or the
// report about it is stored.
func (r *router) handleWork(m *message.Message) error {
	ctx := m.Context()
	w, err := readWork(bus.Subject(m), m.Payload)
	if err != nil {
		return err
	}
	if m.Metadata.Get(telemetry.HeaderTraceparent) == "" {
		ctx = telemetry.ContextWith(ctx, w.GetTrace())
	}
	if revoke := w.GetRevoke(); revoke != nil {
		return r.revoke(telemetry.WithStep(ctx, revoke.GetStepId()), w, revoke)
	}
	return r.call(telemetry.WithStep(ctx, w.GetCall().GetStepId()), w)
}

// readWork refuses work whose subject and body disagree: an action must never be published under another run's name.
func readWork(subject string, data []byte) (*runv1.Work, error) {
	w := &runv1.Work{}
	if err := proto.Unmarshal(data, w); err != nil {
		return nil, fmt.Errorf("%w: work on %s: %w", bus.ErrPoison, subject, err)
	}
	var actionID, name string
	switch b := w.GetBody().(type) {
	case *runv1.Work_Call:
		actionID, name = b.Call.GetActionId(), b.Call.GetTool()
	case *runv1.Work_Revoke:
		actionID, name = b.Revoke.GetActionId(), b.Revoke.GetTool()
	default:
		return nil, fmt.Errorf("%w: work on %s is neither a call nor a revocation", bus.ErrPoison, subject)
	}
	if !tool.ValidToken(w.GetRunId()) || !tool.ValidToken(actionID) || bus.CallSubject(w.GetRunId(), actionID) != subject {
		return nil, fmt.Errorf("%w: work on %s names run %q and action %q", bus.ErrPoison, subject, w.GetRunId(), actionID)
	}
	if !tool.ValidName(name) && w.GetRevoke() != nil {
		return nil, fmt.Errorf("%w: work on %s revokes the tool %q", bus.ErrPoison, subject, name)
	}
	return w, nil
}

func (r *router) call(ctx context.Context, w *runv1.Work) error {
	call := w.GetCall()
	def, refusal, err := r.admit(ctx, w)
	if err != nil {
		return err
	}
	var arguments *planv1.JsonText
	if refusal == nil {
		arguments, refusal, err = r.arguments(ctx, call, def)
		if err != nil {
			return err
		}
	}
	if refusal == nil {
		err = r.dispatch(ctx, w, def, arguments)
		var large *bus.TooLargeError
		if !errors.As(err, &large) {
			return err
		}
		refusal = fault(tool.CodeInvalidArguments, "the arguments do not fit into a message: %d bytes, the bus takes %d (max_payload); hand large values over as artifacts", large.Size, large.Limit)
	}
	return r.refuseCall(ctx, w, def, refusal)
}

// refuseCall reports a refusal if it is true. The work may have come before, and its action may have been dispatched then: for
// one that must not be repeated only the claim tells whether it has started. If so nothing is reported here: its result
// will be, or the run asks for a revocation.
func (r *router) refuseCall(ctx context.Context, w *runv1.Work, def *planv1.ToolDefinition, refusal *runv1.Error) error {
	call := w.GetCall()
	if !call.GetIdempotent() || def != nil && !def.GetIdempotent() {
		revoked, err := r.claimRevoked(ctx, w.GetRunId(), call.GetActionId())
		if err != nil {
			return err
		}
		if !revoked {
			r.Logger.WarnContext(ctx, "action has started already, its refusal is not reported", "action_id", call.GetActionId(), "code", refusal.GetCode())
			return nil
		}
	}
	return r.refuse(ctx, w, call.GetActionId(), refusal)
}

// admit says whether the call may be made at all.
func (r *router) admit(ctx context.Context, w *runv1.Work) (*planv1.ToolDefinition, *runv1.Error, error) {
	call := w.GetCall()
	now := time.Now()
	if t := w.GetValidUntil(); t != nil && now.After(t.AsTime()) {
		return nil, fault(tool.CodeTimeout, "not started: the work was valid until %s", stamp(t.AsTime())), nil
	}
	if t := call.GetNotAfter(); t != nil && now.After(t.AsTime()) {
		return nil, fault(tool.CodeTimeout, "not started: the deadline %s had passed", stamp(t.AsTime())), nil
	}
	def, err := r.registry.get(ctx, call.GetTool())
	if err != nil {
		return nil, nil, err
	}
	if def == nil {
		return nil, fault(tool.CodeUnknownTool, "no tool %q is registered; list them with: cairn tool list", clip(call.GetTool(), 64)), nil
	}
	if p := def.GetPermission(); p != "" && !slices.Contains(call.GetPermissions(), p) {
		return nil, fault(tool.CodeNotPermitted, "%s needs the permission %q, which the run was not granted", def.GetName(), p), nil
	}
	return def, nil, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// dispatch publishes the action. That it waits already is success: somebody has it.
func (r *router) dispatch(ctx context.Context, w *runv1.Work, def *planv1.ToolDefinition, arguments *planv1.JsonText) error {
	call := w.GetCall()
	body := tool.ActionMessage{
		RunID: w.GetRunId(), StepID: call.GetStepId(), ActionID: call.GetActionId(), Attempt: int(call.GetAttempt()),
		Tool: call.GetTool(), ToolVersion: call.GetToolVersion(), Arguments: []byte(arguments.GetText()),
	}
	data, err := body.Encode()
	if err != nil {
		return fmt.Errorf("action %s: %w", call.GetActionId(), err)
	}
	context, err := r.encodeContext(ctx, w)
	if err != nil {
		return err
	}
	m := &nats.Msg{Subject: tool.ActionSubject(w.GetRunId(), call.GetActionId(), call.GetTool()), Data: data, Header: nats.Header{}}
	m.Header.Set(tool.HeaderAttempt, tool.AttemptToken(w.GetRunId(), call.GetActionId(), call.GetIdempotencyKey()))
	m.Header.Set(tool.HeaderContext, context)
	m.Header.Set(tool.HeaderIdempotencyKey, call.GetIdempotencyKey())
	// What the plan was validated against and what the tool says today may differ: the more careful of both counts.
	m.Header.Set(tool.HeaderIdempotent, strconv.FormatBool(call.GetIdempotent() && def.GetIdempotent()))
	m.Header.Set(tool.HeaderNotAfter, stamp(r.deadline(call, def)))
	if v := call.GetToolVersion(); v != "" {
		m.Header.Set(tool.HeaderToolVersion, v)
	}
	if _, err := r.actions.Send(ctx, m); err != nil {
		return fmt.Errorf("action %s: %w", call.GetActionId(), err)
	}
	return nil
}

// deadline is the call's, or follows from the timeout where it has none.
func (r *router) deadline(call *runv1.CallWork, def *planv1.ToolDefinition) time.Time {
	if t := call.GetNotAfter(); t != nil {
		return t.AsTime()
	}
	timeout := tool.DefaultTimeout
	if d := def.GetTimeout(); d != nil {
		timeout = d.AsDuration()
	}
	if d := call.GetTimeout(); d != nil {
		timeout = d.AsDuration()
	}
	return time.Now().Add(timeout)
}

// workExhausted tells the run that its call could not be handled.
func (r *router) workExhausted(ctx context.Context, d bus.Dead) error {
	w, err := readWork(d.Subject, d.Data)
	if err != nil || w.GetCall() == nil {
		// Nobody can be told about what cannot be read; a revocation is asked for again by the run itself.
		return nil
	}
	return r.refuseCall(ctx, w, nil, fault(tool.CodeDeliveryExhaust, "the tool router could not dispatch the action in %d tries: %s", d.Deliveries, d.Reason))
}
