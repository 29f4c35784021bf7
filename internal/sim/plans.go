package main

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// toolset is the world's tools: what they are, and how often they fail.
type toolset struct {
	names []string
	all   []*planv1.ToolDefinition
	defs  map[string]*planv1.ToolDefinition
	fails map[string]float64
}

func (w *world) makeTools() toolset {
	t := toolset{defs: map[string]*planv1.ToolDefinition{}, fails: map[string]float64{}}
	for _, d := range []struct {
		name       string
		idempotent bool
		fails      float64
	}{{"sim.read", true, 0}, {"sim.flaky", true, 0.3}, {"sim.write", false, 0.12}, {"sim.broken", true, 0.85}, {"sim.undo", true, 0.1}} {
		t.names = append(t.names, d.name)
		t.fails[d.name] = d.fails
		t.defs[d.name] = &planv1.ToolDefinition{Name: d.name, Version: "1", Idempotent: d.idempotent,
			InputSchema: &planv1.JsonText{Text: `{"type":"object"}`}, Timeout: durationpb.New(time.Duration(5+w.rng.IntN(60)) * time.Second)}
		t.all = append(t.all, t.defs[d.name])
	}
	return t
}

func (w *world) definitions() []*planv1.ToolDefinition { return w.tools.all }

func inline(text string) *runv1.Value {
	return &runv1.Value{Value: &runv1.Value_Inline{Inline: &planv1.JsonText{Text: text}}}
}

// behave is one execution: what it says, nil where it never answers, and whether it had its effect.
func (t toolset) behave(w *world, c *runv1.CallWork) (o *runv1.Observation, happened bool) {
	if w.fault(0.02) {
		return nil, w.chance(0.7)
	}
	if w.chance(t.fails[c.GetTool()]) {
		code := pick(w, "timeout", "unavailable", "rate_limited", "internal", "resource_missing", "own_code", "transport", "unknown_outcome")
		o = failure(code)
		if w.chance(0.5) {
			o.ExecutedBy = "somewhere"
		}
		open := code == "timeout" || code == "transport" || code == "unknown_outcome"
		return o, open && w.chance(0.6)
	}
	n := w.rng.IntN(10)
	x := c.GetArguments().GetText()
	if len(x) > 60 {
		x = "0"
	}
	o = &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_SUCCESS, Output: inline(fmt.Sprintf(`{"list":[1,2,%d],"n":%d,"x":%s}`, n, n, x))}
	switch {
	case w.chance(0.05):
		o.Outcome = runv1.Outcome_OUTCOME_PARTIAL
	case w.chance(0.05):
		o.Output = &runv1.Value{Value: &runv1.Value_Artifact{Artifact: &runv1.ArtifactRef{Name: "large", Sha256: fmt.Sprintf("%064x", w.rng.Uint64()), Size: 1 << 20}}}
		for i := range c.GetExpect().GetChecks() {
			if w.chance(0.9) {
				o.Verdicts = append(o.Verdicts, &runv1.CheckVerdict{Index: int32(i), Passed: w.chance(0.8)})
			}
		}
	}
	return o, true
}

func (w *world) limits() *runv1.RunLimits {
	l := &runv1.RunLimits{}
	if w.chance(0.6) {
		l.MaxParallel = pick[int32](w, 1, 1, 2, 2, 3, 4, 0, -1)
	}
	if w.large {
		l.MaxParallel = 500
	}
	if w.chance(0.1) {
		l.MaxDuration = durationpb.New(time.Duration(w.rng.IntN(600)-20) * time.Second)
	}
	if w.chance(0.07) {
		l.MaxEvents = int64(w.rng.IntN(150) - 10)
	}
	if w.chance(0.07) {
		l.MaxSteps = int32(w.rng.IntN(14) - 2)
	}
	if w.chance(0.3) {
		l.MaxReplans = pick[int32](w, -1, 1, 1, 2, 3)
	}
	if w.chance(0.1) {
		l.MaxPlanningTime = durationpb.New(time.Duration(w.rng.IntN(90)-5) * time.Second)
	}
	if w.chance(0.2) {
		l.MaxPlanAttempts = pick[int32](w, -1, 1, 2, 4)
	}
	return l
}

// conditions that the model knows the value of.
var conditions = map[string]bool{"true": true, "1 < 2": true, "false": false}

// step makes a random step that may depend on those before it.
func (w *world) step(id string, before []string) *planv1.Step {
	s := &planv1.Step{Id: id, Objective: "do " + id}
	share := min(0.3, 2.5/float64(len(before)+1))
	for _, b := range before {
		if w.chance(share) {
			s.DependsOn = append(s.DependsOn, b)
		}
	}
	s.Action = &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: w.tools.names[w.rng.IntN(4)], Arguments: &planv1.JsonText{Text: w.arguments(s)}}
	if w.chance(0.1) {
		s.Action.Timeout = durationpb.New(time.Duration(1+w.rng.IntN(20)) * time.Second)
	}
	control := func(name, args string) {
		s.Action = &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_CONTROL, Name: name, Arguments: &planv1.JsonText{Text: args}}
	}
	switch n := w.rng.IntN(100); {
	case n < 7:
		control("wait", pick(w, `{"duration":"30s"}`, `{"duration":"2s"}`, `{"until":"2026-01-02T03:05:00Z"}`))
	case n < 12:
		control("user.ask", pick(w, `{"question":"go on?"}`, `{"question":"go on?","timeout":"20s"}`))
	case n < 21 && len(s.GetDependsOn()) > 0:
		control("join", `{}`)
	case n < 23:
		control("finish", w.arguments(s))
	case n < 33:
		s.ForEach = &planv1.JsonText{Text: w.items(s)}
		s.Action.Arguments = &planv1.JsonText{Text: pick(w, `{"x":{"$ref":"item"}}`, `{"i":{"$ref":"index"},"x":{"$ref":"item"}}`)}
	}
	tool := s.GetAction().GetKind() == planv1.ActionKind_ACTION_KIND_TOOL
	if w.chance(0.15) {
		s.When = pick(w, "true", "false", "1 < 2")
	}
	s.Optional = w.chance(0.2)
	if w.chance(0.5) {
		s.Retry = &planv1.Retry{MaxAttempts: int32(1 + w.rng.IntN(4)), Delay: durationpb.New(time.Duration(w.rng.IntN(5)) * time.Second), Factor: 2}
		if w.chance(0.2) {
			s.Retry.On = []string{pick(w, "check_failed", "internal", "timeout")}
		}
	}
	if tool && w.chance(0.15) {
		s.Expect = &planv1.Expect{Checks: []*planv1.Check{{Expression: "result.n != 5"}}}
	}
	s.OnFailure = planv1.FailurePolicy(pick(w, 0, 0, 1, 2, 2, 3, 3, 4, 6))
	if s.GetOptional() && w.chance(0.3) {
		s.OnFailure = planv1.FailurePolicy_FAILURE_POLICY_SKIP
	}
	if tool {
		s.Confirm = s.GetForEach() == nil && w.chance(0.06)
		if w.chance(0.25) {
			s.Compensate = &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: "sim.undo",
				Arguments: &planv1.JsonText{Text: fmt.Sprintf(`{"of":%q}`, id)}}
		}
	}
	return s
}

// arguments refer to what the step depends on.
func (w *world) arguments(s *planv1.Step) string {
	n := len(s.GetDependsOn())
	if n == 0 || w.chance(0.5) {
		return fmt.Sprintf(`{"x":%d}`, w.rng.IntN(3))
	}
	from := s.GetDependsOn()[w.rng.IntN(n)]
	return fmt.Sprintf(`{"x":{"$ref":"steps.%s.result%s"%s}}`, from, pick(w, "", ".n", ".missing"), pick(w, "", `,"default":0`))
}

// items of a for_each step.
func (w *world) items(s *planv1.Step) string {
	if n := len(s.GetDependsOn()); n > 0 && w.chance(0.2) {
		return fmt.Sprintf(`{"$ref":"steps.%s.result.list"}`, s.GetDependsOn()[w.rng.IntN(n)])
	}
	if w.chance(0.01) || w.large && w.chance(0.3) {
		var b strings.Builder
		for i := range 240 + w.rng.IntN(60) {
			fmt.Fprintf(&b, ",%d", i)
		}
		return "[" + b.String()[1:] + "]"
	}
	return pick(w, `[1,2,3]`, `[]`, `["a"]`, `[3,2,1,0]`, `["b",{"k":1}]`)
}

// document is a plan; mostly a small one.
func (w *world) document() *planv1.Plan {
	n := 1 + w.rng.IntN(8)
	if w.chance(0.03) {
		n = 10 + w.rng.IntN(50)
	}
	doc := &planv1.Plan{Goal: "simulate"}
	var ids []string
	for i := range n {
		sid := fmt.Sprintf("s%d", i)
		doc.Steps = append(doc.Steps, w.step(sid, ids))
		ids = append(ids, sid)
	}
	switch {
	case w.chance(0.06):
		doc.Steps[0].DependsOn = []string{ids[n-1]} // a cycle, or a step upon itself
	case w.chance(0.03):
		doc.Steps[n-1].Action.Name = "sim.nowhere"
	}
	if w.chance(0.08) {
		doc.Acceptance = []*planv1.Check{{Expression: pick(w, "true", "true", "false")}}
	}
	return doc
}

// plan is the planner: mostly a sound plan, sometimes a broken one or none.
func (w *world) plan(id string, p *runv1.PlanWork) {
	r := &runv1.Report{RunId: id, Tenant: tenant}
	if w.chance(0.03) {
		r.Body = &runv1.Report_PlanningGivenUp{PlanningGivenUp: &runv1.PlanningGivenUp{RequestId: p.GetRequestId(), Error: &runv1.Error{Code: "no_plan", Message: "simulated"}}}
	} else {
		r.Body = &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{RequestId: p.GetRequestId(), Plan: w.document(), Tools: w.definitions()}}
	}
	w.after(w.think(), func() { w.publish(r) })
}

func (w *world) think() time.Duration {
	if w.fault(0.1) {
		return w.seconds(60)
	}
	return w.soon()
}

// replan is the replanner: a patch that updates or removes what failed and adds something, a stale or empty one, the same
// again, or an answer.
func (w *world) replan(id string, p *runv1.ReplanWork) {
	r := &runv1.Report{RunId: id, Tenant: tenant}
	defer func() { w.after(w.think(), func() { w.publish(r) }) }()
	if w.chance(0.1) {
		a := &runv1.ReplanAnswered{RequestId: p.GetRequestId(), Reason: "simulated"}
		if w.chance(0.5) {
			a.Answer = &planv1.JsonText{Text: `{"done":false}`}
		}
		r.Body = &runv1.Report_ReplanAnswered{ReplanAnswered: a}
		return
	}
	patch := &planv1.Patch{BaseVersion: p.GetPlan().GetVersion(), Reason: "simulated"}
	if w.chance(0.1) {
		patch.BaseVersion--
	}
	var finished []string
	status := map[string]runv1.StepStatus{}
	for _, s := range p.GetSteps() {
		status[s.GetStepId()] = s.GetStatus()
	}
	for _, s := range p.GetPlan().GetSteps() {
		if status[s.GetId()] == runv1.StepStatus_STEP_STATUS_SUCCEEDED && len(finished) < 6 {
			finished = append(finished, s.GetId())
		}
	}
	for _, s := range p.GetPlan().GetSteps() {
		open := status[s.GetId()] == runv1.StepStatus_STEP_STATUS_PENDING || status[s.GetId()] == runv1.StepStatus_STEP_STATUS_REPLANNING
		switch {
		case s.GetId() == p.GetStepId() && open && w.chance(0.75):
			patch.Update = append(patch.Update, w.step(s.GetId(), finished))
		case s.GetId() == p.GetStepId() && w.chance(0.4):
			patch.Update = append(patch.Update, s) // a second try
		case s.GetId() == p.GetStepId() && w.chance(0.3):
			patch.Remove = append(patch.Remove, s.GetId())
		case w.chance(0.02):
			patch.Update = append(patch.Update, w.step(s.GetId(), nil))
		}
	}
	if w.chance(0.5) {
		patch.Add = append(patch.Add, w.step("add-"+p.GetRequestId(), finished))
	}
	r.Body = &runv1.Report_PatchProposed{PatchProposed: &runv1.PatchProposed{RequestId: p.GetRequestId(), Patch: patch, Tools: w.definitions()}}
}
