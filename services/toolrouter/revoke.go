package toolrouter

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/tool"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// revoke forbids the start of an action and reports whether it had started. For an action that must not be repeated the
// claim decides, whatever deliveries say. An idempotent one is never claimed: it is given up, and a result that still comes
// is late.
func (r *router) revoke(ctx context.Context, w *runv1.Work, revoke *runv1.RevokeWork) error {
	outcome := runv1.Outcome_OUTCOME_REVOKED
	if !revoke.GetIdempotent() {
		revoked, err := r.claimRevoked(ctx, w.GetRunId(), revoke.GetActionId())
		if err != nil {
			return err
		}
		if !revoked {
			outcome = runv1.Outcome_OUTCOME_STARTED
		}
	}
	// To whoever executes it: the result is not wanted any more. The signal is best effort.
	if signal, err := (&tool.CancelMessage{ActionID: revoke.GetActionId(), Reason: "revoked"}).Encode(); err == nil {
		if err := r.js.Conn().Publish(tool.CancelPrefix+w.GetRunId(), signal); err != nil {
			r.Logger.WarnContext(ctx, "cancel signal not sent", "action_id", revoke.GetActionId(), "error", err)
		}
	}
	if outcome == runv1.Outcome_OUTCOME_REVOKED {
		// Only saves work: a tool that takes it finds the claim, or its result is late.
		if err := r.deleteAction(ctx, tool.ActionSubject(w.GetRunId(), revoke.GetActionId(), revoke.GetTool())); err != nil {
			r.Logger.WarnContext(ctx, "waiting action not deleted", "action_id", revoke.GetActionId(), "error", err)
		}
	}
	return r.report(ctx, w, revoke.GetActionId(), &runv1.Observation{Outcome: outcome})
}

// claimRevoked says whether the action is revoked: by this claim, or by an earlier one that also revoked.
func (r *router) claimRevoked(ctx context.Context, runID, actionID string) (bool, error) {
	created, err := tool.Claim(ctx, r.js, runID, actionID, tool.NewClaim(tool.ClaimRevoked, r.Instance))
	if err != nil || created {
		return created, err
	}
	c, err := tool.ReadClaim(ctx, r.js, runID, actionID)
	if err != nil {
		return false, fmt.Errorf("claim of %s: %w", actionID, err)
	}
	return c.State == tool.ClaimRevoked, nil
}

func (r *router) deleteAction(ctx context.Context, subject string) error {
	s, err := r.js.Stream(ctx, bus.StreamActions)
	if err != nil {
		return err
	}
	m, err := s.GetLastMsgForSubject(ctx, subject)
	if err == nil {
		err = s.DeleteMsg(ctx, m.Sequence)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	return err
}
