package plan

import (
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Environment is what a plan is validated against.
type Environment struct {
	// Tools are the tools of the registry by name.
	Tools map[string]*planv1.ToolDefinition
	// AnyTool leaves the registry out: tools are neither looked up nor are their schemas known.
	AnyTool bool
	// AllowedTools are the names that this run may use; empty: all.
	AllowedTools []string
	// Permissions are those granted to this run.
	Permissions []string
	// Input is the run's input, to check references to it; nil: not known. Of a run that is there, it is RunInput.
	Input *planv1.JsonText
	// Goal stands in for the goal of a plan that has none.
	Goal string
	// Limits bound the plan; the zero value takes the defaults.
	Limits Limits
}

// RunInput is the input of a run that was given this one: none is an empty object.
func RunInput(given *planv1.JsonText) *planv1.JsonText {
	if given.GetText() == "" {
		return &planv1.JsonText{Text: "{}"}
	}
	return given
}

// Validate checks a plan in four layers (schema, capability, arguments, semantics) and returns all findings at once,
// errors first. It also returns the plan in normal form: missing dependencies of references added, nulls that a tool
// does not take dropped, repeated dependencies dropped, each with a note. HasErrors tells whether the plan is refused.
func Validate(p *planv1.Plan, env Environment) (*planv1.Plan, []*planv1.Finding) {
	v := newValidator(p, env)
	return v.run(), v.fs.done()
}

// validator holds one plan while it is checked.
type validator struct {
	env    Environment
	limits Limits
	fs     *findings
	plan   *planv1.Plan
	steps  []*stepCheck
	index  map[string]int
	// producers are the steps by the artifact names that they produce.
	producers map[string]int
	// judged tells whether a step is judged by what there is now: started steps are not. Nil: all are.
	judged func(id string) bool
	// pointer says where a step stands in the document, for findings.
	pointer func(i int) string
	// ids, artifacts and tools list all names for suggestions, made when the first one is wrong.
	ids, artifacts, tools []string
}

// stepCheck is a step and what is known of it.
type stepCheck struct {
	i    int
	step *planv1.Step
	// owned tells that step is a copy that may be changed.
	owned bool
	// done steps have started and are not judged again: what they used may be gone.
	done       bool
	action     actionCheck
	compensate actionCheck
	forEach    Value
	result     resultSpec
	// deps is depends_on as a set, made when it is long; added are those that references brought.
	deps  map[string]bool
	added []string
}

// actionCheck is an action and what is known of it.
type actionCheck struct {
	action *planv1.Action
	tool   *planv1.ToolDefinition
	args   Value
	refs   []Reference
	// broken tells that the arguments could not be read.
	broken bool
}

func newValidator(p *planv1.Plan, env Environment) *validator {
	limits := env.Limits.withDefaults()
	return &validator{env: env, limits: limits, fs: newFindings(limits), plan: p,
		pointer: func(i int) string { return "/steps/" + strconv.Itoa(i) }}
}

// run checks everything and returns the plan in normal form.
func (v *validator) run() *planv1.Plan {
	if v.plan == nil {
		v.fs.error(found{layer: layerSchema, code: codeEmptyPlan, message: "there is no plan"})
		return nil
	}
	if !v.fits() {
		return v.plan
	}
	v.prepare()
	v.checkDocument()
	for _, s := range v.steps {
		v.checkForm(s)
	}
	for _, s := range v.steps {
		if !s.done {
			v.checkCapability(s)
		}
	}
	v.checkReferences()
	v.checkSemantics()
	return v.normal()
}

// fits bounds the work before any is done.
func (v *validator) fits() bool {
	if n := len(v.plan.GetSteps()); n > v.limits.MaxSteps {
		v.fs.error(found{layer: layerSemantics, code: codePlanTooLarge, pointer: "/steps",
			message: fmt.Sprintf("the plan has %d steps, more than the %d allowed (max_steps)", n, v.limits.MaxSteps),
			hint:    "use for_each for steps that are alike, or split the work into several runs",
			values:  limitValues("max_steps", v.limits.MaxSteps, n)})
		return false
	}
	if n := proto.Size(v.plan); n > v.limits.MaxPlanBytes {
		v.fs.error(found{layer: layerSemantics, code: codePlanTooLarge,
			message: fmt.Sprintf("the plan has %d bytes, more than the %d allowed (max_plan_bytes)", n, v.limits.MaxPlanBytes),
			hint:    "split the work into several runs, or pass large values as the run's input",
			values:  limitValues("max_plan_bytes", v.limits.MaxPlanBytes, n)})
		return false
	}
	return true
}

func (v *validator) prepare() {
	steps := v.plan.GetSteps()
	checks := make([]stepCheck, len(steps))
	v.steps = make([]*stepCheck, len(steps))
	v.index = make(map[string]int, len(steps))
	v.producers = map[string]int{}
	for i, s := range steps {
		if s == nil {
			s = &planv1.Step{}
		}
		checks[i] = stepCheck{i: i, step: s, action: actionCheck{action: s.GetAction()}, compensate: actionCheck{action: s.GetCompensate()}}
		v.steps[i] = &checks[i]
		checks[i].done = v.judged != nil && !v.judged(s.GetId())
		if _, taken := v.index[s.GetId()]; !taken {
			v.index[s.GetId()] = i
		}
		for _, name := range s.GetProduces() {
			if _, taken := v.producers[name]; !taken {
				v.producers[name] = i
			}
		}
	}
}

// normal returns the plan with the steps as they are now.
func (v *validator) normal() *planv1.Plan {
	p := v.plan
	n := &planv1.Plan{Id: p.GetId(), Version: p.GetVersion(), Goal: p.GetGoal(), Assumptions: p.GetAssumptions(),
		Constraints: p.GetConstraints(), Acceptance: p.GetAcceptance(), CreatedBy: p.GetCreatedBy(), ParentVersion: p.GetParentVersion()}
	if n.Goal == "" {
		n.Goal = v.env.Goal
	}
	n.Steps = make([]*planv1.Step, len(v.steps))
	for i, s := range v.steps {
		n.Steps[i] = s.step
	}
	return n
}

// own makes the step a copy that may be changed. Its parts are still shared, so they are replaced, not changed.
func (s *stepCheck) own() *planv1.Step {
	if !s.owned {
		o := s.step
		s.step = &planv1.Step{Id: o.GetId(), Title: o.GetTitle(), Objective: o.GetObjective(), Action: o.GetAction(),
			DependsOn: slices.Clone(o.GetDependsOn()), When: o.GetWhen(), ForEach: o.GetForEach(), Optional: o.GetOptional(),
			AllowedTools: o.GetAllowedTools(), Result: o.GetResult(), Produces: o.GetProduces(), Expect: o.GetExpect(),
			Retry: o.GetRetry(), OnFailure: o.GetOnFailure(), Compensate: o.GetCompensate(), Risk: o.GetRisk(), Confirm: o.GetConfirm()}
		s.owned = true
	}
	return s.step
}

// withArguments is the action with other arguments.
func withArguments(a *planv1.Action, args *planv1.JsonText) *planv1.Action {
	return &planv1.Action{Kind: a.GetKind(), Name: a.GetName(), Arguments: args, Timeout: a.GetTimeout()}
}

// at points to a field of a step.
func (v *validator) at(s *stepCheck, field string) string {
	p := v.pointer(s.i)
	if field == "" {
		return p
	}
	return p + "/" + field
}

func (v *validator) error(s *stepCheck, layer, code, field, message, hint string, vals Value) {
	v.fs.error(found{layer: layer, code: code, pointer: v.at(s, field), step: s.step.GetId(), message: message, hint: hint, values: vals})
}

// nearestID suggests steps for a wrong id.
func (v *validator) nearestID(wrong string) []string {
	if v.ids == nil {
		v.ids = make([]string, 0, len(v.steps))
		for _, s := range v.steps {
			v.ids = append(v.ids, s.step.GetId())
		}
	}
	return v.fs.nearest(wrong, v.ids)
}

// nearestArtifact suggests artifacts for a wrong name.
func (v *validator) nearestArtifact(wrong string) []string {
	if v.artifacts == nil {
		v.artifacts = sortedKeys(v.producers)
	}
	return v.fs.nearest(wrong, v.artifacts)
}

// toolName is the name in the registry of the tool that an action calls, "" where it calls none.
func toolName(a *planv1.Action) string {
	switch a.GetKind() {
	case planv1.ActionKind_ACTION_KIND_TOOL:
		return a.GetName()
	case planv1.ActionKind_ACTION_KIND_LLM:
		return "llm." + a.GetName()
	}
	return ""
}

// ToolName returns the registry's name of the tool that an action calls: its name, "llm.<name>" for a model call, and
// "" for an action that calls none.
func ToolName(a *planv1.Action) string { return toolName(a) }
