package toolrouter

import (
	"context"
	"errors"
	"fmt"

	"github.com/cairnrun/cairn/pkg/plan"
	"github.com/cairnrun/cairn/pkg/tool"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// arguments resolves what still refers to artifacts and checks the whole against the tool's schema.
func (r *router) arguments(ctx context.Context, call *runv1.CallWork, def *planv1.ToolDefinition) (*planv1.JsonText, *runv1.Error, error) {
	arguments := call.GetArguments()
	if len(call.GetArtifacts()) > 0 {
		var refusal *runv1.Error
		var err error
		if arguments, refusal, err = r.resolveArtifacts(ctx, call); err != nil || refusal != nil {
			return nil, refusal, err
		}
	}
	normal, _, wrong := plan.NormaliseArguments(def.GetInputSchema(), arguments)
	if plan.HasErrors(wrong) {
		return nil, withFindings(fault(tool.CodeInvalidArguments, "the arguments do not fit the input schema of %s", def.GetName()), wrong), nil
	}
	return normal, nil, nil
}

func (r *router) resolveArtifacts(ctx context.Context, call *runv1.CallWork) (*planv1.JsonText, *runv1.Error, error) {
	values := map[string]*planv1.JsonText{}
	var failed error
	resolved, err := plan.Resolve(call.GetArguments(), func(ref plan.Reference) plan.Target {
		a := artifactFor(call.GetArtifacts(), ref)
		if a == nil {
			// Not one of those that were left to resolve here: data of a tool that looks like a reference.
			return plan.Target{Found: true, Artifact: true}
		}
		text, ok := values[a.GetSha256()]
		if !ok {
			data, err := r.artifacts.Get(ctx, a.GetSha256())
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("artifact %s: %w", a.GetName(), err))
				return plan.Target{}
			}
			text = &planv1.JsonText{Text: string(data)}
			values[a.GetSha256()] = text
		}
		return plan.Target{Found: true, Value: text}
	})
	var large *plan.TooLargeError
	switch {
	case permanentArtifact(failed):
		return nil, fault(tool.CodeRefUnavailable, "%s", failed), nil
	case failed != nil:
		return nil, nil, failed
	case errors.As(err, &large):
		return nil, fault(tool.CodeInvalidArguments, "%s", err), nil
	case err != nil:
		return nil, fault(tool.CodeRefUnavailable, "%s", err), nil
	}
	return resolved.Arguments, nil, nil
}

// artifactFor finds the artifact that a reference's root stands for, by the root as the reference writes it.
func artifactFor(artifacts []*runv1.ArtifactRef, ref plan.Reference) *runv1.ArtifactRef {
	root := ref.Text
	switch ref.Root {
	case plan.RootStep:
		root = "steps." + ref.Name + ".result"
	case plan.RootArtifact:
		root = "artifacts." + ref.Name
	}
	for _, a := range artifacts {
		if a.GetName() == root {
			return a
		}
	}
	return nil
}
