package toolrouter

import (
	"context"
	"encoding/json"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/tool"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// watchExhausted looks for actions that used up their deliveries: a tool's own consumer leaves them in the stream.
func (r *router) watchExhausted(ctx context.Context) error {
	return bus.WatchExhausted(ctx, r.js, bus.ExhaustedConfig{
		Stream: bus.StreamActions, Every: r.SweepEvery, Logger: r.Logger, Told: r.actionExhausted,
	})
}

func (r *router) actionExhausted(ctx context.Context, d bus.Dead) error {
	runID, actionID, name, ok := tool.ParseSubject(d.Subject)
	if !ok {
		return nil
	}
	w, err := r.decodeContext(ctx, d.Header.Get(tool.HeaderContext))
	if err != nil || w.GetRunId() != runID {
		w = unknownCall(runID, actionID, name)
	}
	e := fault(tool.CodeDeliveryExhaust, "%s took the action %d times and never answered", name, d.Deliveries)
	if d.Header.Get(tool.HeaderIdempotent) == "false" {
		// Only when nobody has started it, and nobody can any more, is it known that nothing happened.
		revoked, err := r.claimRevoked(ctx, runID, actionID)
		if err != nil {
			return err
		}
		if !revoked {
			e = fault(tool.CodeUnknownOutcome, "%s took the action %d times, started it and never answered", name, d.Deliveries)
		}
	}
	return r.refuse(ctx, w, actionID, e)
}

// resultExhausted tells the run that a result came which the router could not handle.
func (r *router) resultExhausted(ctx context.Context, d bus.Dead) error {
	runID, actionID, name, ok := tool.ParseSubject(d.Subject)
	if !ok || d.Poison {
		// A poisonous result is somebody else's: it says nothing about the action in its subject.
		return nil
	}
	var body tool.ResultMessage
	_ = json.Unmarshal(d.Data, &body)
	return r.refuse(ctx, unknownCall(runID, actionID, name), actionID,
		fault(tool.CodeInternal, "the tool answered %q, and the tool router could not handle the result in %d tries: %s", clip(body.Status, 16), d.Deliveries, d.Reason))
}

// unknownCall stands for a call of which only the subject is known.
func unknownCall(runID, actionID, name string) *runv1.Work {
	return &runv1.Work{RunId: runID, Body: &runv1.Work_Call{Call: &runv1.CallWork{ActionId: actionID, Tool: name}}}
}
