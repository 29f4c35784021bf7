package render

import (
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// PlainLines tells a run's course line by line, for what is not a terminal. It is asked once an event, after Add.
func (v *View) PlainLines(e *runv1.Event) []string {
	if lines := v.tell(e); lines != nil {
		return lines
	}
	switch b := e.GetBody().(type) {
	case *runv1.Event_PlanCreated:
		lines := []string{"plan " + EventText(e)}
		for _, l := range v.tree.Lines(v.unstarted(), Options{}) {
			lines = append(lines, "  "+l)
		}
		return lines
	case *runv1.Event_StepSucceeded:
		return []string{v.succeeded(b.StepSucceeded)}
	case *runv1.Event_StepFailed:
		return []string{"✗ " + EventText(e)}
	case *runv1.Event_StepSkipped:
		return []string{"↷ " + EventText(e)}
	case *runv1.Event_StepRetryScheduled:
		return []string{"◷ " + EventText(e)}
	}
	return nil
}

// unstarted is the run with its plan only.
func (v *View) unstarted() *runv1.RunState { return &runv1.RunState{Plan: v.State().GetPlan()} }

// succeeded tells a step's result from the events alone: the whole state of a large plan is too much to make once a step.
func (v *View) succeeded(b *runv1.StepSucceeded) string {
	result := b.GetResult()
	if result == nil {
		o := v.observed[b.GetStepId()]
		if result = o.GetResult(); result == nil {
			result = o.GetOutput()
		}
	}
	delete(v.observed, b.GetStepId())
	return "✓ " + join(b.GetStepId(), Result(result))
}
