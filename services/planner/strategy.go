package planner

import (
	"context"

	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// strategy is one way to a plan or a patch. Strategies are asked in order; nil means that this one does not apply. An
// error means that it may work later: the request is delivered again.
type strategy interface {
	name() string
	plan(ctx context.Context, r planRequest) (*proposal, error)
	replan(ctx context.Context, r replanRequest) (*proposal, error)
}

// planRequest is a request for a plan, with the tools that the run may use.
type planRequest struct {
	runID string
	*runv1.PlanWork
	tools map[string]*planv1.ToolDefinition
}

// replanRequest is a request for a patch.
type replanRequest struct {
	runID string
	*runv1.ReplanWork
	tools map[string]*planv1.ToolDefinition
}

// proposal is what a strategy came to: a document, a refusal, or an answer.
type proposal struct {
	trace *runv1.PlannerTrace
	// doc is the document's JSON: a plan, or for a replan a patch or a whole plan. text is what was proposed, as it came.
	doc  []byte
	text string
	// findings of reading it; with an error among them there is no doc.
	findings  []*planv1.Finding
	createdBy planv1.CreatedBy
	// fixed: asked again it would propose the same.
	fixed bool
	// tools as the strategy saw them; nil: those of the request.
	tools map[string]*planv1.ToolDefinition

	// giveUp says that no plan is to be had.
	giveUp *runv1.Error
	// reason and answer end a replan without a patch.
	reason  string
	answer  *planv1.JsonText
	decline bool
}

// Sources of a PlannerTrace.
const (
	sourceExplicit = "explicit"
	sourceTemplate = "template"
	sourceRules    = "rules"
	sourceModel    = "model"
)

// Codes of giving up and of findings that reading a document makes.
const (
	codeNoPlan           = "no_plan"
	codePlanRejected     = "plan_rejected"
	codeRefusedByModel   = "planner_refused"
	codeRejectedSchema   = "provider_rejected_schema"
	codeRejectedRequest  = "provider_rejected_request"
	codePromptTooLarge   = "prompt_too_large"
	codePlanUnparseable  = "plan_unparseable"
	codePlanTruncated    = "plan_truncated"
	codeEmptyPlan        = "empty_plan"
	codeDeliveryExhaust  = "delivery_exhausted"
	noteFence            = "fence"
	noteProse            = "prose"
	noteRepaired         = "repaired"
	layerDocument        = "schema"
	hintWholeJSON        = "answer with one JSON object and nothing else"
	messageNoPlanForGoal = "nothing here makes a plan for this goal; submit the run with a plan, give the planner a template whose goal pattern fits (cairn planner --templates FILE), or configure a model (CAIRN_LLM_BASE_URL, CAIRN_LLM_MODEL)"
	messageNoReplan      = "no replan rule fits and no model is configured"
)

func planFault(code, message string) *runv1.Error {
	return &runv1.Error{Code: code, Message: message, Class: runv1.FaultClass_FAULT_CLASS_PLAN}
}

func readingError(code, message, hint string) *planv1.Finding {
	return &planv1.Finding{Severity: planv1.Severity_SEVERITY_ERROR, Layer: layerDocument, Code: code, Message: message, Hint: hint}
}

func readingNote(code, message string) *planv1.Finding {
	return &planv1.Finding{Severity: planv1.Severity_SEVERITY_NOTE, Layer: layerDocument, Code: code, Message: message}
}

// explicit proposes the plan that came with the run.
type explicit struct{}

func (explicit) name() string { return sourceExplicit }

func (explicit) plan(_ context.Context, r planRequest) (*proposal, error) {
	given := r.GetSpec().GetPlan()
	if given == nil {
		return nil, nil
	}
	return &proposal{
		doc: []byte(given.GetText()), text: given.GetText(), createdBy: planv1.CreatedBy_CREATED_BY_HUMAN, fixed: true,
		trace: &runv1.PlannerTrace{Source: sourceExplicit},
	}, nil
}

// replan: a plan that came with the run says nothing about what to do when it fails.
func (explicit) replan(context.Context, replanRequest) (*proposal, error) { return nil, nil }

// environment is what a document of this run is validated against.
func environment(spec *runv1.RunSpec, tools map[string]*planv1.ToolDefinition) plan.Environment {
	env := plan.Environment{
		Tools: tools, AllowedTools: spec.GetAllowedTools(), Permissions: spec.GetPermissions(), Input: plan.RunInput(spec.GetInput()), Goal: spec.GetGoal(),
		Limits: plan.DefaultLimits(),
	}
	if n := int(spec.GetLimits().GetMaxSteps()); n > 0 {
		env.Limits.MaxSteps = min(n, env.Limits.MaxSteps)
	}
	return env
}

// toolsOf names the tools that steps call, each once, in order.
func toolsOf(steps []*planv1.Step) []string {
	var names []string
	seen := map[string]bool{}
	for _, s := range steps {
		for _, a := range []*planv1.Action{s.GetAction(), s.GetCompensate()} {
			if name := plan.ToolName(a); name != "" && !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// definitions picks those that are known.
func definitions(names []string, tools map[string]*planv1.ToolDefinition) []*planv1.ToolDefinition {
	var out []*planv1.ToolDefinition
	for _, n := range names {
		if d := tools[n]; d != nil {
			out = append(out, d)
		}
	}
	return out
}
