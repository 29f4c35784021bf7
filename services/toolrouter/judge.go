package toolrouter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/plan"
	"github.com/cairnrun/cairn/pkg/tool"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

const mediaJSON = "application/json"

// maxInstanceBytes bounds what a tool says of itself.
const maxInstanceBytes = 256

func newObservation(m *tool.ResultMessage) *runv1.Observation {
	o := &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_SUCCESS, ExecutedBy: clip(m.ExecutedBy, maxInstanceBytes)}
	if m.StartedAt != nil && m.StartedAt.Year() >= 1 && m.StartedAt.Year() <= 9999 {
		o.StartedAt = timestamppb.New(*m.StartedAt)
	}
	if m.Duration > 0 {
		o.Duration = durationpb.New(time.Duration(m.Duration))
	}
	if u := m.Usage; u != nil {
		o.Usage = &runv1.Usage{InputTokens: max(u.InputTokens, 0), OutputTokens: max(u.OutputTokens, 0), Model: clip(u.Model, maxInstanceBytes)}
	}
	return o
}

// output is a tool's output as exact JSON, and where it is stored already.
type output struct {
	text   *planv1.JsonText
	stored *runv1.ArtifactRef
}

// readOutput returns the whole output, fetched where the tool has put it into the artifact store.
func (r *router) readOutput(ctx context.Context, m *tool.ResultMessage) (output, *runv1.Error, error) {
	raw := []byte(m.Output)
	var out output
	if a := m.OutputArtifact; a != nil {
		data, err := r.artifacts.Get(ctx, a.SHA256)
		switch {
		case errors.Is(err, bus.ErrArtifactTooLarge):
			return out, r.tooLarge(a.Size), nil
		case permanentArtifact(err):
			return out, fault(tool.CodeInvalidOutput, "the output's artifact: %s", err), nil
		case err != nil:
			return out, nil, err
		}
		raw = data
		out.stored = &runv1.ArtifactRef{Sha256: a.SHA256, Size: int64(len(data)), MediaType: mediaJSON}
	}
	if int64(len(raw)) > r.MaxArtifactBytes {
		return out, r.tooLarge(int64(len(raw))), nil
	}
	if len(raw) == 0 {
		// A tool that returns nothing returns null.
		raw = []byte("null")
	}
	text, err := exactjson.Text(raw)
	if err != nil {
		return out, fault(tool.CodeInvalidOutput, "the output is not exact JSON: %s", err), nil
	}
	out.text = &planv1.JsonText{Text: text}
	if out.stored != nil && text != string(raw) {
		// White space or a lone surrogate was mended: what is kept is what was judged.
		out.stored = nil
	}
	return out, nil, nil
}

func (r *router) tooLarge(size int64) *runv1.Error {
	return fault(tool.CodeOutputTooLarge, "the output has %d bytes, at most %d are taken (max_artifact_bytes)", size, r.MaxArtifactBytes)
}

func permanentArtifact(err error) bool {
	return errors.Is(err, bus.ErrArtifactMissing) || errors.Is(err, bus.ErrArtifactCorrupt) || errors.Is(err, bus.ErrArtifactTooLarge)
}

// judge fills in output, result and verdicts, or says what is wrong with the output.
func (r *router) judge(ctx context.Context, call *runv1.CallWork, def *planv1.ToolDefinition, o *runv1.Observation, out output) (*runv1.Error, error) {
	partial := o.GetOutcome() == runv1.Outcome_OUTCOME_PARTIAL
	if s := def.GetOutputSchema(); s != nil && !partial {
		if findings := plan.ValidateSchema(s, out.text); plan.HasErrors(findings) {
			return withFindings(fault(tool.CodeInvalidOutput, "the output does not fit the output schema of %s", call.GetTool()), findings), nil
		}
	}
	// A part of an output is no less than what the step goes on with: what the step takes and expects must be there.
	result, err := plan.Extract(call.GetResult(), out.text)
	if err != nil {
		return withValue(fault(tool.CodeSchemaMismatch, "%s", err), "output", out.text), nil
	}
	if o.Output, err = r.store(ctx, call, "output", out.text, out.stored); err != nil {
		return r.storeFailed(err)
	}
	kept := o.GetOutput()
	if call.GetResult() != nil {
		if o.Result, err = r.store(ctx, call, "result", result, nil); err != nil {
			return r.storeFailed(err)
		}
		kept = o.GetResult()
	}
	if kept.GetArtifact() == nil {
		return nil, nil
	}
	// The core does not see what is in an artifact, so the step's expectations are judged here.
	if s := call.GetExpect().GetSchema(); s != nil {
		if findings := plan.ValidateSchema(s, result); plan.HasErrors(findings) {
			return withValue(withFindings(fault(tool.CodeSchemaMismatch, "the result does not fit the step's expected schema"), findings), "result", result), nil
		}
	}
	o.Verdicts = verdicts(call.GetExpect().GetChecks(), result)
	return nil, nil
}

// verdicts evaluates checks over a result: of the names an expression can use, only "result" is there.
func verdicts(checks []*planv1.Check, result *planv1.JsonText) []*runv1.CheckVerdict {
	limits := plan.DefaultLimits()
	limits.MaxResolvedBytes = math.MaxInt
	out := make([]*runv1.CheckVerdict, 0, len(checks))
	for i, c := range checks {
		v := &runv1.CheckVerdict{Index: int32(i)}
		ok, err := plan.EvalCheck(c.GetExpression(), plan.Scope{Result: result, Limits: limits})
		v.Passed = ok && err == nil
		if err != nil {
			v.Detail = clip(err.Error(), maxMessageBytes)
		}
		out = append(out, v)
	}
	return out
}

// store keeps a value inline up to the call's limit, and beyond it as an artifact.
func (r *router) store(ctx context.Context, call *runv1.CallWork, what string, text *planv1.JsonText, stored *runv1.ArtifactRef) (*runv1.Value, error) {
	limit := min(call.GetMaxInlineBytes(), MaxInlineBytes)
	if limit <= 0 {
		limit = DefaultMaxInlineBytes
	}
	if int64(len(text.GetText())) <= limit {
		return &runv1.Value{Value: &runv1.Value_Inline{Inline: text}}, nil
	}
	name := fmt.Sprintf("%s.%s", call.GetStepId(), what)
	if stored == nil {
		var err error
		if stored, err = r.artifacts.Put(ctx, name, mediaJSON, []byte(text.GetText())); err != nil {
			return nil, err
		}
	}
	stored.Name = name
	return &runv1.Value{Value: &runv1.Value_Artifact{Artifact: stored}}, nil
}

func (r *router) storeFailed(err error) (*runv1.Error, error) {
	if errors.Is(err, bus.ErrArtifactTooLarge) {
		return fault(tool.CodeOutputTooLarge, "%s", err), nil
	}
	return nil, err
}
