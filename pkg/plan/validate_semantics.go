package plan

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Layer 4: the plan makes sense as a whole, and keeps to the policies.

func (v *validator) checkSemantics() {
	v.checkGoal()
	v.checkUnique()
	assumptions := map[string]bool{}
	for _, a := range v.plan.GetAssumptions() {
		assumptions[a.GetId()] = true
	}
	for _, s := range v.steps {
		v.checkExpressions(s, assumptions)
		v.checkDependencies(s)
		if s.done {
			continue
		}
		v.checkPolicies(s)
		v.checkControlForm(s)
	}
	v.checkAcceptance(assumptions)
	v.noteAdded()
	v.checkCycles()
}

func (v *validator) checkGoal() {
	p := v.plan
	if len(p.GetSteps()) == 0 {
		v.fs.error(found{layer: layerSemantics, code: codeEmptyPlan, pointer: "/steps", message: "the plan has no steps",
			hint: "write the steps that reach the goal, or answer instead of planning"})
	}
	if strings.TrimSpace(p.GetGoal()) != "" || p.GetGoal() == "" && strings.TrimSpace(v.env.Goal) != "" {
		return
	}
	f := found{layer: layerSemantics, code: codeEmptyGoal, pointer: "/goal", message: "the plan has no goal", hint: "say in a sentence what is to be reached"}
	for _, s := range p.GetSteps() {
		if p := s.GetOnFailure(); p == planv1.FailurePolicy_FAILURE_POLICY_REPLAN_STEP || p == planv1.FailurePolicy_FAILURE_POLICY_REPLAN_REMAINING {
			f.message, f.step = "the plan has no goal, and a step that asks for a new plan on failure: nobody would know what to plan for", s.GetId()
			v.fs.error(f)
			return
		}
	}
	v.fs.warning(f)
}

// checkUnique checks that ids and artifact names stand for one thing each.
func (v *validator) checkUnique() {
	for i, s := range v.steps {
		if id := s.step.GetId(); id != "" && v.index[id] != i {
			v.error(s, layerSemantics, codeDuplicateID, "id", "the step id "+quote(id)+" stands twice", "give each step an id of its own",
				values("id", StringValue(id), "first", StringValue(v.pointer(v.index[id]))))
		}
		for k, name := range s.step.GetProduces() {
			if v.producers[name] != i || slices.Contains(s.step.GetProduces()[:k], name) {
				v.error(s, layerSemantics, codeDuplicateArtifact, "produces/"+strconv.Itoa(k), "the artifact "+quote(name)+" is produced twice",
					"give each artifact a name of its own", values("name", StringValue(name), "first", StringValue(v.steps[v.producers[name]].step.GetId())))
			}
		}
	}
}

func (v *validator) checkDependencies(s *stepCheck) {
	list := s.step.GetDependsOn()
	given := len(list) - len(s.added)
	seen := map[string]bool(nil)
	repeated := false
	for k, id := range list {
		if _, ok := v.index[id]; !ok && k < given {
			near := v.nearestID(id)
			hint := didYouMean(near, "name a step of this plan")
			if base, _, isItem := strings.Cut(id, "["); isItem {
				hint = "depend on the whole for_each step " + quote(base)
			}
			v.error(s, layerSemantics, codeDanglingDependency, "depends_on/"+strconv.Itoa(k), "there is no step "+quote(id), hint,
				values("name", StringValue(id), "nearest", stringList(near)))
		}
		if len(list) < 2 {
			continue
		}
		if seen == nil {
			seen = make(map[string]bool, len(list))
		}
		if seen[id] {
			repeated = true
			v.fs.note(found{layer: layerSemantics, code: codeDuplicateDependency, pointer: v.at(s, "depends_on/"+strconv.Itoa(k)), step: s.step.GetId(),
				message: "the dependency on " + quote(id) + " stands twice and counts once"})
		}
		seen[id] = true
	}
	if repeated {
		step := s.own()
		kept := step.DependsOn[:0]
		clear(seen)
		for _, id := range step.DependsOn {
			if !seen[id] {
				kept = append(kept, id)
			}
			seen[id] = true
		}
		step.DependsOn = kept
	}
}

// noteAdded says once a step which dependencies its references brought.
func (v *validator) noteAdded() {
	for _, s := range v.steps {
		if len(s.added) == 0 {
			continue
		}
		names := firstNames(s.added)
		v.fs.note(found{layer: layerArguments, code: codeDependencyAdded, pointer: v.at(s, "depends_on"), step: s.step.GetId(),
			message: "the step refers to " + quotedList(s.added) + " and now depends on it", values: values("added", stringList(names))})
	}
}

// maxCycles bounds the cycles that one answer names.
const maxCycles = 10

func (v *validator) checkCycles() {
	g := NewGraph(v.normal())
	for _, path := range g.Cycles(maxCycles) {
		i, _ := g.Index(path[0])
		v.error(v.steps[i], layerSemantics, codeCycle, "depends_on", "steps wait for each other: "+strings.Join(shownPath(path), " → "),
			"take out one of these dependencies", values("path", stringList(path)))
	}
}

// shownPath shortens a path for a message; values hold all of it.
func shownPath(path []string) []string {
	const most = 12
	if len(path) <= most {
		return path
	}
	return append(append(slices.Clone(path[:most-2]), "…"), path[len(path)-1])
}

func (v *validator) checkPolicies(s *stepCheck) {
	step := s.step
	if step.GetObjective() != "" && strings.TrimSpace(step.GetObjective()) == "" || step.GetAction() == nil && step.GetObjective() == "" {
		v.error(s, layerSemantics, codeEmptyObjective, "objective", "the objective is empty", "say what the step is to reach", Value{})
	}
	if step.GetOnFailure() == planv1.FailurePolicy_FAILURE_POLICY_SKIP && !step.GetOptional() {
		v.error(s, layerSemantics, codeSkipPolicyNeedsOption, "on_failure", "only an optional step may be skipped on failure",
			"set optional: true, or choose another on_failure", Value{})
	}
	high := planv1.Risk_RISK_HIGH
	if !step.GetConfirm() && (step.GetRisk() == high || s.action.tool.GetRisk() == high) {
		why := "the step's risk is high"
		if step.GetRisk() != high {
			why = "the risk of the tool " + quote(s.action.tool.GetName()) + " is high"
		}
		v.error(s, layerSemantics, codeRiskWithoutConfirm, "confirm", why+", and nobody confirms it", "set confirm: true", Value{})
	}
	v.checkTimeout(s, step.GetAction(), "action")
	v.checkTimeout(s, step.GetCompensate(), "compensate")
	v.checkRetry(s)
}

func (v *validator) checkTimeout(s *stepCheck, a *planv1.Action, field string) {
	if a.GetTimeout() == nil {
		return
	}
	if d := a.GetTimeout().AsDuration(); !a.GetTimeout().IsValid() || d <= 0 || d > v.limits.MaxTimeout {
		v.error(s, layerSemantics, codeTimeoutOutOfRange, field+"/timeout", fmt.Sprintf("a timeout is more than 0 and at most %s (max_timeout)", v.limits.MaxTimeout), "",
			values("limit", StringValue("max_timeout"), "maximum", StringValue(formatDuration(v.limits.MaxTimeout)), "value", StringValue(formatDuration(d))))
	}
}

func (v *validator) checkRetry(s *stepCheck) {
	r := s.step.GetRetry()
	if r == nil {
		return
	}
	if n := int(r.GetMaxAttempts()); n < 0 || n > v.limits.MaxAttempts {
		v.error(s, layerSemantics, codeRetryOutOfRange, "retry/max_attempts", fmt.Sprintf("a step has 0 to %d attempts (max_attempts)", v.limits.MaxAttempts), "",
			limitValues("max_attempts", v.limits.MaxAttempts, n))
	}
	for _, d := range []struct {
		field string
		given bool
		valid bool
		value time.Duration
	}{
		{"delay", r.GetDelay() != nil, r.GetDelay().IsValid(), r.GetDelay().AsDuration()},
		{"max_delay", r.GetMaxDelay() != nil, r.GetMaxDelay().IsValid(), r.GetMaxDelay().AsDuration()},
	} {
		if d.given && (!d.valid || d.value < 0 || d.value > v.limits.MaxRetryDelay) {
			v.error(s, layerSemantics, codeRetryOutOfRange, "retry/"+d.field, fmt.Sprintf("a wait between attempts is 0 to %s (max_retry_delay)", v.limits.MaxRetryDelay), "",
				values("limit", StringValue("max_retry_delay"), "maximum", StringValue(formatDuration(v.limits.MaxRetryDelay)), "value", StringValue(formatDuration(d.value))))
		}
	}
	if f := r.GetFactor(); math.IsNaN(f) || f != 0 && f < 1 || f > v.limits.MaxRetryFactor {
		v.error(s, layerSemantics, codeRetryOutOfRange, "retry/factor", fmt.Sprintf("a factor is 1 to %g (max_retry_factor)", v.limits.MaxRetryFactor), "", Value{})
	}
}

func (v *validator) checkExpressions(s *stepCheck, assumptions map[string]bool) {
	if s.done {
		return
	}
	if s.step.GetWhen() != "" {
		v.checkExpression(s, s.step.GetWhen(), "when", conditionVariables)
	}
	for i, c := range s.step.GetExpect().GetChecks() {
		at := "expect/checks/" + strconv.Itoa(i)
		if strings.TrimSpace(c.GetExpression()) != "" {
			v.checkExpression(s, c.GetExpression(), at+"/expression", checkVariables)
		}
		if id := c.GetAssumption(); id != "" && !assumptions[id] {
			v.unknownAssumption(v.at(s, at+"/assumption"), s.step.GetId(), id)
		}
	}
}

func (v *validator) unknownAssumption(pointer, step, id string) {
	known := make([]string, 0, len(v.plan.GetAssumptions()))
	for _, a := range v.plan.GetAssumptions() {
		known = append(known, a.GetId())
	}
	near := v.fs.nearest(id, known)
	v.fs.error(found{layer: layerSemantics, code: codeUnknownAssumption, pointer: pointer, step: step, message: "there is no assumption " + quote(id),
		hint: didYouMean(near, "name one of the plan's assumptions"), values: values("name", StringValue(id), "nearest", stringList(near))})
}

// checkExpression checks an expression of a step, and makes the steps that it names dependencies.
func (v *validator) checkExpression(s *stepCheck, text, field string, variables []string) {
	e := compileExpression(text, v.limits)
	if !v.reportExpression(e, v.at(s, field), s.step.GetId(), variables, s.step.GetForEach() != nil) {
		return
	}
	for _, id := range e.steps {
		target, ok := v.index[id]
		switch {
		case !ok:
			v.unknownStep(s, field, id)
		case target == s.i:
			v.error(s, layerArguments, codeRefToItself, field, "the expression looks at its own step", "use the variable result in checks", Value{})
		default:
			s.addDependency(id)
		}
	}
	for _, name := range e.artifacts {
		target, ok := v.producers[name]
		switch {
		case !ok:
			near := v.nearestArtifact(name)
			v.error(s, layerArguments, codeRefUnknownArtifact, field, "no step produces the artifact "+quote(name),
				didYouMean(near, "name it in a step's produces"), values("name", StringValue(name), "nearest", stringList(near)))
		case target == s.i:
			v.error(s, layerArguments, codeRefToItself, field, "the expression looks at an artifact of its own step", "use the variable result in checks", Value{})
		default:
			s.addDependency(v.steps[target].step.GetId())
		}
	}
}

// reportExpression reports what does not compile, and variables that do not exist where the expression stands.
func (v *validator) reportExpression(e *expression, pointer, step string, variables []string, hasItem bool) bool {
	if e.err != nil {
		f := found{layer: layerSemantics, code: e.err.Code, pointer: pointer, step: step, message: e.err.Message,
			hint: "conditions and checks are written in CEL, with the variables " + strings.Join(variables, ", ")}
		if e.err.unknown != "" {
			near := v.fs.nearest(e.err.unknown, variables)
			f.hint = didYouMean(near, "there are: "+strings.Join(variables, ", "))
			f.values = values("name", StringValue(e.err.unknown), "nearest", stringList(near))
		} else if e.err.Line > 0 {
			f.values = values("line", intValue(e.err.Line), "column", intValue(e.err.Column))
		}
		v.fs.error(f)
		return false
	}
	for _, name := range e.variables {
		if !slices.Contains(variables, name) {
			v.fs.error(found{layer: layerSemantics, code: codeExpressionUnknownName, pointer: pointer, step: step,
				message: quote(name) + " is not known here", hint: "there are: " + strings.Join(variables, ", "),
				values: values("name", StringValue(name), "nearest", stringList(nil))})
			return false
		}
		if (name == "item" || name == "index") && !hasItem {
			v.fs.error(found{layer: layerSemantics, code: codeRefOutsideForEach, pointer: pointer, step: step,
				message: quote(name) + " has no meaning here: only for_each steps have an item and an index", hint: "give the step a for_each"})
			return false
		}
	}
	return true
}

func (v *validator) checkAcceptance(assumptions map[string]bool) {
	for i, c := range v.plan.GetAcceptance() {
		at := "/acceptance/" + strconv.Itoa(i)
		if strings.TrimSpace(c.GetExpression()) == "" {
			v.fs.error(found{layer: layerSchema, code: codeMissingField, pointer: at + "/expression", message: "the check has no expression", hint: "write the condition that must hold"})
			continue
		}
		if id := c.GetAssumption(); id != "" && !assumptions[id] {
			v.unknownAssumption(at+"/assumption", "", id)
		}
		e := compileExpression(c.GetExpression(), v.limits)
		if !v.reportExpression(e, at+"/expression", "", acceptanceVariables, false) {
			continue
		}
		for _, id := range e.steps {
			if _, ok := v.index[id]; !ok {
				near := v.nearestID(id)
				v.fs.error(found{layer: layerArguments, code: codeRefUnknownStep, pointer: at + "/expression", message: "there is no step " + quote(id),
					hint: didYouMean(near, "name a step of this plan"), values: values("name", StringValue(id), "nearest", stringList(near))})
			}
		}
		for _, name := range e.artifacts {
			if _, ok := v.producers[name]; !ok {
				near := v.nearestArtifact(name)
				v.fs.error(found{layer: layerArguments, code: codeRefUnknownArtifact, pointer: at + "/expression", message: "no step produces the artifact " + quote(name),
					hint: didYouMean(near, "name it in a step's produces"), values: values("name", StringValue(name), "nearest", stringList(near))})
			}
		}
	}
}
