package plan

import (
	"slices"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Layer 2: what the plan wants to use exists, and this run may use it.

func (v *validator) checkCapability(s *stepCheck) {
	if s.step.GetAction() == nil {
		v.error(s, layerCapability, codeModeUnavailable, "", "the step has no action; steps that are child runs are not available",
			"give the step an action", Value{})
	}
	v.checkAction(s, &s.action, "action")
	v.checkAction(s, &s.compensate, "compensate")
}

func (v *validator) checkAction(s *stepCheck, a *actionCheck, field string) {
	switch a.action.GetKind() {
	case planv1.ActionKind_ACTION_KIND_TOOL, planv1.ActionKind_ACTION_KIND_LLM:
		v.checkTool(s, a, field)
	case planv1.ActionKind_ACTION_KIND_CONTROL:
		if name := a.action.GetName(); name != "" && !slices.Contains(controlNames, name) {
			near := v.fs.nearest(name, controlNames)
			v.error(s, layerCapability, codeUnknownControl, field+"/name", "there is no control "+quote(name),
				didYouMean(near, "there are: "+listed(controlNames)), values("name", StringValue(name), "nearest", stringList(near)))
		} else if field == "compensate" {
			v.error(s, layerSemantics, codeControlUnsupported, field, "a control cannot undo anything", "compensate with a tool", Value{})
		}
	case planv1.ActionKind_ACTION_KIND_RUN:
		v.error(s, layerCapability, codeModeUnavailable, field+"/kind", "child runs are not available", "use a tool, llm or control action", Value{})
	}
}

func (v *validator) checkTool(s *stepCheck, a *actionCheck, field string) {
	if a.action.GetName() == "" {
		return
	}
	name := toolName(a.action)
	if len(v.env.AllowedTools) > 0 && !slices.Contains(v.env.AllowedTools, name) {
		v.error(s, layerCapability, codeToolNotAllowed, field+"/name", "this run may not use the tool "+quote(name),
			"use one of: "+listed(v.env.AllowedTools), values("name", StringValue(name), "allowed", stringList(firstNames(v.env.AllowedTools))))
	}
	if v.env.AnyTool {
		return
	}
	tool := v.env.Tools[name]
	if tool == nil {
		if v.tools == nil {
			v.tools = sortedKeys(v.env.Tools)
		}
		known := v.tools
		near := v.fs.nearest(name, known)
		hint := "no tools are registered: start a tool service"
		if len(known) > 0 {
			hint = didYouMean(near, "there are: "+listed(known))
		}
		v.error(s, layerCapability, codeUnknownTool, field+"/name", "there is no tool "+quote(name), hint,
			values("name", StringValue(name), "nearest", stringList(near)))
		return
	}
	a.tool = tool
	if need := tool.GetPermission(); need != "" && !slices.Contains(v.env.Permissions, need) {
		v.error(s, layerCapability, codeNotPermitted, field+"/name", "the tool "+quote(name)+" needs the permission "+quote(need)+", which this run does not have",
			"grant it to the run, or use another tool", values("name", StringValue(name), "permission", StringValue(need)))
	}
}

func firstNames(names []string) []string {
	if len(names) > maxListed {
		return names[:maxListed]
	}
	return names
}
