package planner

import (
	"fmt"
	"strings"

	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// facts is what a replan rule can see: results of steps, the run's input, and what failed.
type facts struct {
	r     replanRequest
	steps map[string]*runv1.StepState
}

func newFacts(r replanRequest) *facts {
	f := &facts{r: r, steps: make(map[string]*runv1.StepState, len(r.GetSteps()))}
	for _, s := range r.GetSteps() {
		f.steps[s.GetStepId()] = s
	}
	return f
}

// errorFacts are the parts of the failure.
var errorFacts = []string{"error.code", "error.message", "error.step", "error.details"}

func checkFactPath(path string) error {
	for _, e := range errorFacts {
		if path == e || e == "error.details" && strings.HasPrefix(path, e+".") {
			return nil
		}
	}
	if strings.HasPrefix(path, "error.") {
		return fmt.Errorf("fact %s: of the error there are %s", path, strings.Join(errorFacts, ", "))
	}
	ref, err := plan.ParseReference(path)
	if err != nil {
		return fmt.Errorf("fact %s: %w", path, err)
	}
	if ref.Root != plan.RootStep && ref.Root != plan.RootInput {
		return fmt.Errorf("fact %s: facts are steps.<id>.result…, run.input… and %s", path, strings.Join(errorFacts, ", "))
	}
	return nil
}

// get returns the exact JSON text of a fact.
func (f *facts) get(path string) (string, bool) {
	text := func(s string) (string, bool) { return string(plan.StringValue(s).Append(nil)), s != "" }
	e := f.r.GetError()
	switch {
	case path == "error.code":
		return text(e.GetCode())
	case path == "error.message":
		return text(e.GetMessage())
	case path == "error.step":
		return text(f.r.GetStepId())
	case path == "error.details":
		return e.GetDetails().GetText(), e.GetDetails() != nil
	case strings.HasPrefix(path, "error.details."):
		return at(e.GetDetails(), strings.TrimPrefix(path, "error.details."))
	}
	ref, err := plan.ParseReference(path)
	if err != nil {
		return "", false
	}
	var root *planv1.JsonText
	switch ref.Root {
	case plan.RootStep:
		root = f.result(ref.Name)
	case plan.RootInput:
		root = plan.RunInput(f.r.GetSpec().GetInput())
	}
	if root == nil {
		return "", false
	}
	if len(ref.Path) == 0 {
		return root.GetText(), true
	}
	// The path as written: names that need quoting stay quoted.
	prefix := "run.input"
	if ref.Root == plan.RootStep {
		prefix = "steps." + ref.Name + ".result"
	}
	if rest, ok := strings.CutPrefix(path, prefix); ok {
		return at(root, strings.TrimPrefix(rest, "."))
	}
	return "", false
}

func at(root *planv1.JsonText, path string) (string, bool) {
	v, ok := plan.AtPath(root, path)
	return v.GetText(), ok
}

// result is a step's result; for the step that failed, the result that was not as expected, where the error tells it.
func (f *facts) result(id string) *planv1.JsonText {
	if r := f.steps[id].GetResult().GetInline(); r != nil {
		return r
	}
	if id == f.r.GetStepId() {
		if v, ok := plan.AtPath(f.r.GetError().GetDetails(), "result"); ok {
			return v
		}
	}
	return nil
}

// scope is what conditions see.
func (f *facts) scope() plan.Scope {
	return plan.Scope{
		Step: func(id string) (plan.StepView, bool) {
			s, ok := f.steps[id]
			if !ok {
				return plan.StepView{}, false
			}
			status := strings.ToLower(strings.TrimPrefix(s.GetStatus().String(), "STEP_STATUS_"))
			return plan.StepView{Status: status, Result: f.result(id)}, true
		},
		StepIDs: func() []string {
			ids := make([]string, 0, len(f.r.GetPlan().GetSteps()))
			for _, s := range f.r.GetPlan().GetSteps() {
				ids = append(ids, s.GetId())
			}
			return ids
		},
		Input: plan.RunInput(f.r.GetSpec().GetInput()),
	}
}
