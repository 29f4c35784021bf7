package main

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// toolset is the world's tools: name to definition and to how often it fails.
type toolset struct {
	names []string
	defs  map[string]*planv1.ToolDefinition
	fails map[string]float64
}

func (w *world) makeTools() toolset {
	t := toolset{defs: map[string]*planv1.ToolDefinition{}, fails: map[string]float64{}}
	for _, d := range []struct {
		name       string
		idempotent bool
		fails      float64
	}{{"sim.read", true, 0}, {"sim.flaky", true, 0.3}, {"sim.write", false, 0.1}, {"sim.broken", true, 0.9}} {
		t.names = append(t.names, d.name)
		t.fails[d.name] = d.fails
		t.defs[d.name] = &planv1.ToolDefinition{Name: d.name, Version: "1", Idempotent: d.idempotent,
			InputSchema: &planv1.JsonText{Text: `{"type":"object"}`}, Timeout: durationpb.New(time.Duration(5+w.rng.IntN(60)) * time.Second)}
	}
	return t
}

// behave is one execution; nil: there will never be an answer.
func (t toolset) behave(w *world, c *runv1.CallWork) *runv1.Observation {
	if w.fault(0.02) {
		return nil
	}
	if w.chance(t.fails[c.GetTool()]) {
		return failure([]string{"timeout", "unavailable", "rate_limited", "internal", "resource_missing", "own_code"}[w.rng.IntN(6)])
	}
	return &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_SUCCESS, Output: &runv1.Value{Value: &runv1.Value_Inline{
		Inline: &planv1.JsonText{Text: fmt.Sprintf(`{"n":%d,"list":[1,2,3],"none":null}`, w.rng.IntN(10))}}}}
}

func (w *world) limits() *runv1.RunLimits {
	l := &runv1.RunLimits{}
	if w.chance(0.5) {
		l.MaxParallel = int32(1 + w.rng.IntN(4))
	}
	if w.chance(0.1) {
		l.MaxDuration = durationpb.New(time.Duration(10+w.rng.IntN(600)) * time.Second)
	}
	if w.chance(0.05) {
		l.MaxEvents = int64(20 + w.rng.IntN(100))
	}
	if w.chance(0.05) {
		l.MaxSteps = int32(1 + w.rng.IntN(10))
	}
	return l
}

// step makes a random step that may depend on those before it.
func (w *world) step(id string, before []string) *planv1.Step {
	s := &planv1.Step{Id: id, Objective: "do " + id}
	args := `{"x":1}`
	for _, b := range before {
		if w.chance(0.3) {
			s.DependsOn = append(s.DependsOn, b)
		}
	}
	if n := len(s.GetDependsOn()); n > 0 && w.chance(0.5) {
		from := s.GetDependsOn()[w.rng.IntN(n)]
		args = fmt.Sprintf(`{"x":{"$ref":"steps.%s.result"}}`, from)
		if w.chance(0.3) {
			args = fmt.Sprintf(`{"x":{"$ref":"steps.%s.result","default":0}}`, from)
		}
	}
	s.Action = &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: w.tools.names[w.rng.IntN(len(w.tools.names))], Arguments: &planv1.JsonText{Text: args}}
	switch {
	case w.chance(0.08):
		s.Action = &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_CONTROL, Name: "wait", Arguments: &planv1.JsonText{Text: `{"duration":"30s"}`}}
	case w.chance(0.05):
		s.Action = &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_CONTROL, Name: "user.ask", Arguments: &planv1.JsonText{Text: `{"question":"go on?"}`}}
	case w.chance(0.08) && len(s.GetDependsOn()) > 0:
		s.Action = &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_CONTROL, Name: "join", Arguments: &planv1.JsonText{Text: `{}`}}
	case w.chance(0.08):
		s.ForEach = &planv1.JsonText{Text: []string{`[1,2,3]`, `[]`, `["a"]`}[w.rng.IntN(3)]}
		s.Action.Arguments = &planv1.JsonText{Text: `{"x":{"$ref":"item"}}`}
	}
	if w.chance(0.15) {
		s.When = []string{"true", "false", "1 < 2"}[w.rng.IntN(3)]
	}
	s.Optional = w.chance(0.2)
	if w.chance(0.5) {
		s.Retry = &planv1.Retry{MaxAttempts: int32(1 + w.rng.IntN(4)), Delay: durationpb.New(time.Duration(w.rng.IntN(5)) * time.Second), Factor: 2}
	}
	if w.chance(0.1) {
		s.Expect = &planv1.Expect{Checks: []*planv1.Check{{Expression: "result != 5"}}}
	}
	s.OnFailure = []planv1.FailurePolicy{0, 1, 2, 3, 4}[w.rng.IntN(5)]
	if s.GetOptional() && w.chance(0.3) {
		s.OnFailure = planv1.FailurePolicy_FAILURE_POLICY_SKIP
	}
	s.Confirm = s.GetAction().GetKind() == planv1.ActionKind_ACTION_KIND_TOOL && s.GetForEach() == nil && w.chance(0.05)
	return s
}

func (w *world) definitions() []*planv1.ToolDefinition {
	var all []*planv1.ToolDefinition
	for _, n := range w.tools.names {
		all = append(all, proto.Clone(w.tools.defs[n]).(*planv1.ToolDefinition))
	}
	return all
}

// plan is the planner: mostly a sound plan, sometimes a broken one or none.
func (w *world) plan(id string, p *runv1.PlanWork) {
	r := &runv1.Report{Id: fmt.Sprintf("%s-%s-%d", id, p.GetRequestId(), p.GetAttempt()), RunId: id, Tenant: "default"}
	if w.chance(0.03) {
		r.Body = &runv1.Report_PlanningGivenUp{PlanningGivenUp: &runv1.PlanningGivenUp{RequestId: p.GetRequestId(), Error: &runv1.Error{Code: "no_plan", Message: "simulated"}}}
		w.publish(r)
		return
	}
	doc := &planv1.Plan{Goal: "simulate"}
	var ids []string
	for i := range 1 + w.rng.IntN(8) {
		sid := fmt.Sprintf("s%d", i)
		doc.Steps = append(doc.Steps, w.step(sid, ids))
		ids = append(ids, sid)
	}
	if w.chance(0.1) {
		doc.Steps[0].DependsOn = []string{doc.GetSteps()[len(ids)-1].GetId()} // a cycle, or a step upon itself
	}
	r.Body = &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{RequestId: p.GetRequestId(), Plan: doc, Tools: w.definitions()}}
	w.publish(r)
}

// replan is the replanner: a patch that updates or removes what failed and adds something, a stale one, or an answer.
func (w *world) replan(id string, p *runv1.ReplanWork) {
	r := &runv1.Report{Id: fmt.Sprintf("%s-%s-%d", id, p.GetRequestId(), p.GetAttempt()), RunId: id, Tenant: "default"}
	if w.chance(0.15) {
		a := &runv1.ReplanAnswered{RequestId: p.GetRequestId(), Reason: "simulated"}
		if w.chance(0.5) {
			a.Answer = &planv1.JsonText{Text: `{"done":false}`}
		}
		r.Body = &runv1.Report_ReplanAnswered{ReplanAnswered: a}
		w.publish(r)
		return
	}
	patch := &planv1.Patch{BaseVersion: p.GetPlan().GetVersion(), Reason: "simulated"}
	if w.chance(0.1) {
		patch.BaseVersion--
	}
	var finished []string
	open := map[string]bool{}
	for _, s := range p.GetSteps() {
		if s.GetStatus() == runv1.StepStatus_STEP_STATUS_SUCCEEDED {
			finished = append(finished, s.GetStepId())
		}
		open[s.GetStepId()] = s.GetStatus() == runv1.StepStatus_STEP_STATUS_PENDING || s.GetStatus() == runv1.StepStatus_STEP_STATUS_REPLANNING
	}
	var inPlan []string
	for _, s := range p.GetPlan().GetSteps() {
		for _, f := range finished {
			if f == s.GetId() {
				inPlan = append(inPlan, f)
			}
		}
	}
	for _, s := range p.GetPlan().GetSteps() {
		if s.GetId() == p.GetStepId() && open[s.GetId()] {
			patch.Update = append(patch.Update, w.step(s.GetId(), inPlan))
		}
	}
	if w.chance(0.5) {
		patch.Add = append(patch.Add, w.step(fmt.Sprintf("add-%s", p.GetRequestId()), inPlan))
	}
	r.Body = &runv1.Report_PatchProposed{PatchProposed: &runv1.PatchProposed{RequestId: p.GetRequestId(), Patch: patch, Tools: w.definitions()}}
	w.publish(r)
}
