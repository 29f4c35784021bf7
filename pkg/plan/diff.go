package plan

import (
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Diff returns the patch that makes the new plan of the old one, for replanners that answer with a whole plan. Steps
// with the same content are left out of it, whatever their order.
func Diff(old, new *planv1.Plan) *planv1.Patch { return DiffFrom(old, new, nil) }

// DiffFrom is Diff for a plan that is being executed: steps that are finished or under way and that the new plan does not
// mention are kept instead of removed.
func DiffFrom(old, new *planv1.Plan, view View) *planv1.Patch {
	patch := &planv1.Patch{BaseVersion: old.GetVersion()}
	before := make(map[string]*planv1.Step, len(old.GetSteps()))
	for _, s := range old.GetSteps() {
		before[s.GetId()] = s
	}
	kept := make(map[string]bool, len(new.GetSteps()))
	for _, s := range new.GetSteps() {
		was, exists := before[s.GetId()]
		kept[s.GetId()] = true
		switch {
		case !exists:
			patch.Add = append(patch.Add, s)
		case stepContent(was) != stepContent(s):
			patch.Update = append(patch.Update, s)
		}
	}
	for _, s := range old.GetSteps() {
		if !kept[s.GetId()] && view.of(s.GetId()) == Open {
			patch.Remove = append(patch.Remove, s.GetId())
		}
	}
	if new.GetGoal() != old.GetGoal() {
		patch.Goal = new.GetGoal()
	}
	if !sameAssumptions(old.GetAssumptions(), new.GetAssumptions()) {
		patch.SetAssumptions, patch.Assumptions = true, new.GetAssumptions()
	}
	return patch
}

func sameAssumptions(a, b []*planv1.Assumption) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].GetId() != b[i].GetId() || a[i].GetText() != b[i].GetText() {
			return false
		}
	}
	return true
}
