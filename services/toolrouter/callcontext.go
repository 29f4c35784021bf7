package toolrouter

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// What the router must know when a result comes back (what to extract, what to check, which limit applies) travels in
// the action's header Cairn-Context, which the tool puts on the result. So the router keeps nothing between the two, any
// router can take the result, and a call costs no further write.

// maxContextHeader bounds the header in bytes; JetStream takes 64 KiB of headers in all. A larger context, such as a long
// expected schema, goes to the artifact store and the header names it.
const maxContextHeader = 16 << 10

const contextArtifact = "sha256:"

var errContext = errors.New("call context cannot be read")

// encodeContext returns the header's value.
func (r *router) encodeContext(ctx context.Context, w *runv1.Work) (string, error) {
	call := w.GetCall()
	kept := &runv1.Work{
		RunId: w.GetRunId(), Tenant: w.GetTenant(), Trace: w.GetTrace(),
		Body: &runv1.Work_Call{Call: &runv1.CallWork{
			ActionId: call.GetActionId(), StepId: call.GetStepId(), Attempt: call.GetAttempt(), Tool: call.GetTool(),
			ToolVersion: call.GetToolVersion(), IdempotencyKey: call.GetIdempotencyKey(), NotAfter: call.GetNotAfter(),
			Idempotent: call.GetIdempotent(), Result: call.GetResult(), Expect: call.GetExpect(), Produces: call.GetProduces(),
			MaxInlineBytes: call.GetMaxInlineBytes(),
		}},
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(kept)
	if err != nil {
		return "", fmt.Errorf("call context: %w", err)
	}
	if base64.RawURLEncoding.EncodedLen(len(data)) <= maxContextHeader {
		return base64.RawURLEncoding.EncodeToString(data), nil
	}
	ref, err := r.artifacts.Put(ctx, call.GetActionId()+".context", "application/x-protobuf", data)
	if err != nil {
		return "", fmt.Errorf("call context: %w", err)
	}
	return contextArtifact + ref.GetSha256(), nil
}

// decodeContext reads the header's value. Errors that a repeat cannot cure wrap errContext.
func (r *router) decodeContext(ctx context.Context, header string) (*runv1.Work, error) {
	var data []byte
	var err error
	if sha, ok := strings.CutPrefix(header, contextArtifact); ok {
		data, err = r.artifacts.Get(ctx, sha)
		if permanentArtifact(err) {
			return nil, fmt.Errorf("%w: %w", errContext, err)
		}
		if err != nil {
			return nil, err
		}
	} else if data, err = base64.RawURLEncoding.DecodeString(header); err != nil {
		return nil, fmt.Errorf("%w: %w", errContext, err)
	}
	w := &runv1.Work{}
	if err := proto.Unmarshal(data, w); err != nil {
		return nil, fmt.Errorf("%w: %w", errContext, err)
	}
	if w.GetCall() == nil {
		return nil, fmt.Errorf("%w: it holds no call", errContext)
	}
	return w, nil
}
