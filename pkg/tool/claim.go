package tool

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Claim creates an action's key in BucketClaims: one publish with the expected last subject sequence 0. created is true for
// exactly one claimer. Where the answer was lost, the claimer's own claim is known again by its token, so that err says
// that nothing is known, and a repeat of Claim with the same token is safe.
func Claim(ctx context.Context, js jetstream.JetStream, runID, actionID string, c ClaimMessage) (created bool, err error) {
	if !ValidToken(runID) || !ValidToken(actionID) {
		return false, fmt.Errorf("claim: run %q or action %q is not a subject token", runID, actionID)
	}
	body, err := c.Encode()
	if err != nil {
		return false, err
	}
	m := &nats.Msg{Subject: ClaimSubject(runID, actionID), Data: body, Header: nats.Header{}}
	_, err = js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(0))
	if err == nil {
		return true, nil
	}
	var api *jetstream.APIError
	if !errors.As(err, &api) || !isConflict(api) {
		return false, fmt.Errorf("claim %s: %w", ClaimKey(runID, actionID), err)
	}
	if c.Token == "" {
		return false, nil
	}
	there, err := ReadClaim(ctx, js, runID, actionID)
	if err != nil {
		return false, fmt.Errorf("claim %s: read: %w", ClaimKey(runID, actionID), err)
	}
	return there.Token == c.Token, nil
}

// ReadClaim is the claim as its stream's leader has it. A value in another form reads as an empty one: it is somebody else's.
func ReadClaim(ctx context.Context, js jetstream.JetStream, runID, actionID string) (ClaimMessage, error) {
	var c ClaimMessage
	s, err := js.Stream(ctx, "KV_"+BucketClaims)
	if err != nil {
		return c, err
	}
	m, err := s.GetLastMsgForSubject(ctx, ClaimSubject(runID, actionID))
	if err != nil {
		return c, err
	}
	_ = json.Unmarshal(m.Data, &c)
	return c, nil
}

// NewClaim is a claim with a token of its own.
func NewClaim(state, by string) ClaimMessage {
	return ClaimMessage{State: state, By: by, At: time.Now().UTC(), Token: rand.Text()}
}
