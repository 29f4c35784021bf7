package planner

import (
	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// progress is how far the steps of a plan have come, as far as a patch must know.
func progress(steps []*runv1.StepState) plan.View {
	of := make(map[string]plan.Progress, len(steps))
	for _, s := range steps {
		switch s.GetStatus() {
		case runv1.StepStatus_STEP_STATUS_RUNNING, runv1.StepStatus_STEP_STATUS_WAITING, runv1.StepStatus_STEP_STATUS_WAITING_FOR_USER:
			of[s.GetStepId()] = plan.UnderWay
		case runv1.StepStatus_STEP_STATUS_SUCCEEDED, runv1.StepStatus_STEP_STATUS_FAILED, runv1.StepStatus_STEP_STATUS_SKIPPED,
			runv1.StepStatus_STEP_STATUS_CANCELLED, runv1.StepStatus_STEP_STATUS_REMOVED:
			of[s.GetStepId()] = plan.Finished
		case runv1.StepStatus_STEP_STATUS_READY:
			// Between two attempts, or approved already: what is said of it no longer changes.
			if s.GetAttempts() != s.GetAttemptsBefore() || s.GetApproved() {
				of[s.GetStepId()] = plan.UnderWay
			}
		}
	}
	return func(id string) plan.Progress { return of[id] }
}

// readPatch reads a replanner's document: a patch, or a whole plan, of which it makes the patch. The patch is nil where
// findings refuse the document.
func readPatch(doc []byte, r replanRequest, env plan.Environment) (*planv1.Patch, []*planv1.Finding) {
	v, err := env.Limits.ParseValue(string(doc))
	if err == nil {
		if _, whole := v.Get("steps"); whole {
			return patchOfWhole(doc, r, env)
		}
	}
	patch, found := env.Limits.ParsePatch(doc)
	if plan.HasErrors(found) {
		return nil, found
	}
	return patch, found
}

// patchOfWhole turns a plan that a replanner gave as a whole into a patch: finished steps stay, whether it repeats them
// or leaves them out, and one that it changed is refused by the patch's own rules.
func patchOfWhole(doc []byte, r replanRequest, env plan.Environment) (*planv1.Patch, []*planv1.Finding) {
	base, view := r.GetPlan(), progress(r.GetSteps())
	p, found := env.Limits.Parse(doc)
	if plan.HasErrors(found) {
		return nil, found
	}
	if len(p.GetSteps()) == 0 {
		return nil, append(found, readingError(codeEmptyPlan, "the new plan has no steps and there is no answer",
			"give the steps that are still to do, or end the run with an answer"))
	}
	// In normal form, as the base is: a dependency that was added there is no change here.
	next, _ := plan.Validate(p, env)
	next.Goal = base.GetGoal()
	if len(next.GetAssumptions()) == 0 {
		next.Assumptions = base.GetAssumptions()
	}
	done := map[string]*planv1.Step{}
	for _, s := range base.GetSteps() {
		if view(s.GetId()) != plan.Open {
			done[s.GetId()] = s
		}
	}
	for i, s := range next.GetSteps() {
		if was := done[s.GetId()]; was != nil && sameAction(was, s) {
			next.Steps[i] = was
		}
	}
	patch := plan.DiffFrom(base, next, view)
	again(patch, next, r)
	return patch, found
}

// again adds the steps that wait for the replanner and that its whole plan holds as they were: it wants them done again. A
// patch that does not name such a step leaves it failed.
func again(patch *planv1.Patch, next *planv1.Plan, r replanRequest) {
	waits := map[string]bool{}
	for _, s := range r.GetSteps() {
		waits[s.GetStepId()] = s.GetStatus() == runv1.StepStatus_STEP_STATUS_REPLANNING
	}
	for _, s := range patch.GetUpdate() {
		waits[s.GetId()] = false
	}
	for _, s := range next.GetSteps() {
		if waits[s.GetId()] {
			patch.Update = append(patch.Update, s)
		}
	}
}

// sameAction tells whether two steps do the same: other words about a finished step change nothing.
func sameAction(a, b *planv1.Step) bool {
	x, y := a.GetAction(), b.GetAction()
	return x.GetKind() == y.GetKind() && x.GetName() == y.GetName() &&
		plan.Canonical(x.GetArguments()) == plan.Canonical(y.GetArguments()) && plan.Canonical(a.GetForEach()) == plan.Canonical(b.GetForEach())
}
