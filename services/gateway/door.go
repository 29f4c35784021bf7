package gateway

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cairnrun/cairn/pkg/plan"
	"github.com/cairnrun/cairn/pkg/tool"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

var (
	labelKeyPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./-]{0,62}$`)
	sha256Pattern   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

const (
	idForm           = "an id is of the form [A-Za-z0-9_-]{1,64}"
	maxPermissionLen = 128
	modePlanSolve    = "plan-and-solve"
)

// door collects what is wrong with a request, all of it at once. Values are put into their exact compact form on the way.
type door struct {
	limits Limits
	wrong  []violation
}

func (d *door) add(field, reason, format string, args ...any) {
	d.wrong = append(d.wrong, violation{field, reason, fmt.Sprintf(format, args...)})
}

func (d *door) err() error { return invalid(d.wrong) }

// id checks a name that becomes part of a subject.
func (d *door) id(field, value string) {
	if !idPattern.MatchString(value) {
		d.add(field, reasonInvalidID, "%q is no id: %s", cut(value), idForm)
	}
}

// text checks a text for people.
func (d *door) text(field, value string) {
	if len(value) > d.limits.MaxGoalBytes {
		d.add(field, reasonFieldTooLarge, "%d bytes; the limit max_goal_bytes is %d", len(value), d.limits.MaxGoalBytes)
	}
}

// json reads a value that came as text, which over gRPC may be anything, and says whether it is there and good.
func (d *door) json(field string, v *planv1.JsonText, reason, limit string, most int) bool {
	if v == nil {
		return false
	}
	text, err := exactjson.Text([]byte(v.GetText()))
	if err != nil {
		d.add(field, reasonInvalidJSON, "not JSON: %v", err)
		return false
	}
	if len(text) > most {
		d.add(field, reason, "%d bytes; the limit %s is %d", len(text), limit, most)
		return false
	}
	v.Text = text
	return true
}

func (d *door) submit(r *apiv1.SubmitRunRequest) error {
	if r.GetRequestId() != "" {
		d.id("request_id", r.GetRequestId())
	}
	if r.GetSpec() == nil {
		d.add("spec", reasonMissing, "a run needs a spec with a goal or a plan")
		return d.err()
	}
	if r.GetSpec().GetPlan() == nil && strings.TrimSpace(r.GetSpec().GetGoal()) == "" {
		d.add("spec.goal", reasonMissing, "a run needs a goal or a plan")
	}
	d.spec("spec", r.GetSpec())
	return d.err()
}

func (d *door) spec(at string, s *runv1.RunSpec) {
	d.text(at+".goal", s.GetGoal())
	d.json(at+".plan", s.GetPlan(), reasonPlanTooLarge, "max_plan_bytes", d.limits.MaxPlanBytes)
	if d.json(at+".input", s.GetInput(), reasonFieldTooLarge, "max_input_bytes", d.limits.MaxInputBytes) {
		if s.GetInput().GetText()[0] != '{' {
			d.add(at+".input", reasonInvalidArgument, "the input of a run is a JSON object")
		}
	}
	if s.GetMode() != "" && s.GetMode() != modePlanSolve {
		d.add(at+".mode", reasonInvalidArgument, "mode %q is unknown; there is %s", cut(s.GetMode()), modePlanSolve)
	}
	d.labels(at+".labels", s.GetLabels())
	d.names(at+".allowed_tools", s.GetAllowedTools(), d.tool)
	d.names(at+".permissions", s.GetPermissions(), func(field, name string) {
		if name == "" || len(name) > maxPermissionLen {
			d.add(field, reasonInvalidArgument, "a permission has 1 to %d bytes", maxPermissionLen)
		}
	})
	d.runLimits(at+".limits", s.GetLimits())
}

func (d *door) labels(at string, labels []*runv1.Label) {
	if len(labels) > d.limits.MaxLabels {
		d.add(at, reasonTooMany, "%d labels; the limit max_labels is %d", len(labels), d.limits.MaxLabels)
		return
	}
	seen := map[string]bool{}
	for i, l := range labels {
		field := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case !labelKeyPattern.MatchString(l.GetKey()):
			d.add(field+".key", reasonInvalidArgument, "%q is no label key: it is of the form %s", cut(l.GetKey()), "[A-Za-z0-9][A-Za-z0-9_./-]{0,62}")
		case seen[l.GetKey()]:
			d.add(field+".key", reasonInvalidArgument, "the label %q stands twice", l.GetKey())
		}
		seen[l.GetKey()] = true
		if len(l.GetValue()) > d.limits.MaxLabelBytes {
			d.add(field+".value", reasonFieldTooLarge, "%d bytes; the limit max_label_bytes is %d", len(l.GetValue()), d.limits.MaxLabelBytes)
		}
	}
}

func (d *door) names(at string, names []string, check func(field, name string)) {
	if len(names) > d.limits.MaxNames {
		d.add(at, reasonTooMany, "%d names; the limit max_names is %d", len(names), d.limits.MaxNames)
		return
	}
	for i, n := range names {
		check(fmt.Sprintf("%s[%d]", at, i), n)
	}
}

func (d *door) tool(field, name string) {
	if !tool.ValidName(name) {
		d.add(field, reasonInvalidID, "%q is no tool name: it is dotted lower-case tokens, as file.read, of at most 64 bytes", cut(name))
	}
}

func (d *door) runLimits(at string, l *runv1.RunLimits) {
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"max_parallel", int64(l.GetMaxParallel())}, {"max_steps", int64(l.GetMaxSteps())},
		{"max_replans", int64(l.GetMaxReplans())}, {"max_plan_attempts", int64(l.GetMaxPlanAttempts())},
		{"max_events", l.GetMaxEvents()}, {"max_inline_bytes", l.GetMaxInlineBytes()},
	} {
		if n.value < 0 {
			d.add(at+"."+n.name, reasonInvalidArgument, "%d is negative; leave it out for the default", n.value)
		}
	}
	d.duration(at+".max_duration", l.GetMaxDuration())
}

func (d *door) duration(field string, v *durationpb.Duration) {
	if v == nil {
		return
	}
	if err := v.CheckValid(); err != nil || v.AsDuration() <= 0 {
		d.add(field, reasonInvalidArgument, "a duration over 0 is expected; leave it out for the default")
	}
}

func (d *door) cancel(r *apiv1.CancelRunRequest) error {
	d.id("run_id", r.GetRunId())
	d.text("reason", r.GetReason())
	d.text("by", r.GetBy())
	return d.err()
}

func (d *door) answer(r *apiv1.AnswerInputRequest) error {
	d.id("run_id", r.GetRunId())
	d.id("request_id", r.GetRequestId())
	d.text("by", r.GetBy())
	if r.GetAnswer() == nil {
		d.add("answer", reasonMissing, "an answer is any JSON value, null among them; it is not there")
	}
	d.json("answer", r.GetAnswer(), reasonFieldTooLarge, "max_input_bytes", d.limits.MaxInputBytes)
	return d.err()
}

func (d *door) patch(r *apiv1.PatchPlanRequest) error {
	d.id("run_id", r.GetRunId())
	if r.GetPatch() == nil {
		d.add("patch", reasonMissing, "a patch document is expected")
	}
	d.json("patch", r.GetPatch(), reasonFieldTooLarge, "max_patch_bytes", d.limits.MaxPatchBytes)
	return d.err()
}

func (d *door) validate(r *apiv1.ValidatePlanRequest) error {
	if r.GetPlan() == nil {
		d.add("plan", reasonMissing, "a plan document is expected")
	}
	// Text that is no JSON is for the plan's reader to judge: it says more, and all of it.
	if len(r.GetPlan().GetText()) > d.limits.MaxPlanBytes {
		d.add("plan", reasonPlanTooLarge, "%d bytes; the limit max_plan_bytes is %d", len(r.GetPlan().GetText()), d.limits.MaxPlanBytes)
	}
	if r.GetSpec() != nil {
		d.spec("spec", r.GetSpec())
	}
	return d.err()
}

func (d *door) definition(t *planv1.ToolDefinition) error {
	if t == nil {
		d.add("tool", reasonMissing, "a tool definition is expected")
		return d.err()
	}
	d.tool("tool.name", t.GetName())
	d.text("tool.description", t.GetDescription())
	for _, s := range []struct {
		field  string
		schema *planv1.JsonText
	}{{"tool.input_schema", t.GetInputSchema()}, {"tool.output_schema", t.GetOutputSchema()}} {
		if d.json(s.field, s.schema, reasonFieldTooLarge, "max_tool_bytes", d.limits.MaxToolBytes) {
			if f := plan.CheckSchema(s.schema); f != nil {
				d.add(s.field, reasonSchemaInvalid, "%s; %s", f.GetMessage(), f.GetHint())
			}
		}
	}
	d.duration("tool.timeout", t.GetTimeout())
	return d.err()
}

// cut shortens what a client sent, at a rune border, for an error message.
func cut(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	s = s[:most]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}

func (d *door) watch(r *apiv1.WatchRunRequest) {
	d.id("run_id", r.GetRunId())
	if r.GetAfterRevision() < 0 {
		d.add("after_revision", reasonInvalidArgument, "a revision is 0 or more")
	}
}
