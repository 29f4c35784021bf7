package run

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// fill sets a field to something that is not its zero value.
func fill(m protoreflect.Message, f protoreflect.FieldDescriptor) {
	value := func() protoreflect.Value {
		switch f.Kind() {
		case protoreflect.MessageKind:
			var sub protoreflect.Message
			if f.IsList() {
				sub = m.Mutable(f).List().NewElement().Message()
			} else {
				sub = m.NewField(f).Message()
			}
			fields := sub.Descriptor().Fields()
			fill(sub, fields.Get(0))
			return protoreflect.ValueOfMessage(sub)
		case protoreflect.StringKind:
			return protoreflect.ValueOfString("x")
		case protoreflect.BoolKind:
			return protoreflect.ValueOfBool(true)
		case protoreflect.EnumKind:
			return protoreflect.ValueOfEnum(1)
		case protoreflect.Int32Kind:
			return protoreflect.ValueOfInt32(7)
		case protoreflect.DoubleKind:
			return protoreflect.ValueOfFloat64(7)
		default:
			return protoreflect.ValueOfInt64(7)
		}
	}
	if f.IsList() {
		m.Mutable(f).List().Append(value())
		return
	}
	m.Set(f, value())
}

// TestHashCoversEveryField sets each field of what the trees hold and looks whether the hash changes. What is left out is
// named here, with its reason.
func TestHashCoversEveryField(t *testing.T) {
	left := map[string]string{
		"StepState.started_at":             "a time",
		"StepState.ended_at":               "a time",
		"StepState.revision":               "a log position",
		"StepState.items_open":             "follows from the items",
		"StepState.ready_by_dependencies":  "only shown",
		"ActionState.requested_at":         "a time",
		"ActionState.not_after":            "a time",
		"ActionState.grace_due":            "a time",
		"ActionState.requested_revision":   "a log position",
		"ActionState.observed_revision":    "a log position",
		"PlanningRequest.due":              "a time",
		"PlanningRequest.revision":         "a log position",
		"PlanningRequest.outcome_revision": "a log position",
		"UserInputState.due":               "a time",
		"UserInputState.revision":          "a log position",
		"UserInputState.closed_revision":   "a log position",
		"RunState.revision":                "a log position",
		"RunState.phase":                   "follows from the rest",
		"RunState.submitted_at":            "a time",
		"RunState.updated_at":              "a time",
		"RunState.deadline":                "a time",
		"RunState.cancel_due":              "a time",
		"RunState.plan_revision":           "a log position",
		"RunState.base_revision":           "a log position",
		"RunState.trace":                   "decides nothing",
		"RunState.spec":                    "stands in body_digest",
		"RunState.plan":                    "stands in plan_digest, but for its version",
		"RunState.refused_uncounted":       "counted by the owner",
	}
	used := map[string]bool{}
	check := func(name string, m proto.Message, hash func(proto.Message) ([32]byte, bool)) {
		base, ok := hash(m)
		if !ok {
			t.Fatalf("%s: the empty message has no hash", name)
		}
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			key := name + "." + string(f.Name())
			c := proto.Clone(m)
			switch {
			case !m.ProtoReflect().Has(f):
				fill(c.ProtoReflect(), f)
			case f.Kind() == protoreflect.Int64Kind:
				c.ProtoReflect().Set(f, protoreflect.ValueOfInt64(m.ProtoReflect().Get(f).Int()+1))
			default:
				c.ProtoReflect().Clear(f)
			}
			got, ok := hash(c)
			if !ok {
				continue
			}
			changed := got != base
			_, out := left[key]
			used[key] = true
			if changed == out {
				t.Errorf("%s: changed the hash: %v, left out on purpose: %v", key, changed, out)
			}
		}
	}
	check("StepState", &runv1.StepState{StepId: "s"}, func(m proto.Message) ([32]byte, bool) {
		return newStepElem(m.(*runv1.StepState)).hash, true
	})
	check("ActionState", &runv1.ActionState{ActionId: "s-1"}, func(m proto.Message) ([32]byte, bool) {
		return newActionElem(m.(*runv1.ActionState)).hash, true
	})
	check("PlanningRequest", &runv1.PlanningRequest{RequestId: "plan-1"}, func(m proto.Message) ([32]byte, bool) {
		return newPlanningElem(m.(*runv1.PlanningRequest)).hash, true
	})
	check("UserInputState", &runv1.UserInputState{RequestId: "input-1"}, func(m proto.Message) ([32]byte, bool) {
		return newInputElem(m.(*runv1.UserInputState)).hash, true
	})
	state := &runv1.RunState{RunId: "r", Revision: 3, Spec: &runv1.RunSpec{}, Status: runv1.RunStatus_RUN_STATUS_FAILED,
		Plan: &planv1.Plan{Version: 1, Steps: []*planv1.Step{{Id: "s"}}}, Steps: []*runv1.StepState{{StepId: "s"}}, SubmittedAt: timestamppb.New(timeOf(nil))}
	check("RunState", state, func(m proto.Message) ([32]byte, bool) {
		s, err := Restore(m.(*runv1.RunState))
		if err != nil {
			return [32]byte{}, false
		}
		return s.Hash(), true
	})
	for key := range left {
		if !used[key] && !strings.HasPrefix(key, "RunState.") {
			t.Errorf("%s is not a field", key)
		}
	}
}

// TestCopiesHoldEveryField: messages are copied field by field, and a new field must not be forgotten.
func TestCopiesHoldEveryField(t *testing.T) {
	full := func(m proto.Message) proto.Message {
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			fill(m.ProtoReflect(), fields.Get(i))
		}
		return m
	}
	step := full(&runv1.StepState{}).(*runv1.StepState)
	step.ReadyByDependencies = false // only shown, never kept
	action := full(&runv1.ActionState{}).(*runv1.ActionState)
	request := full(&runv1.PlanningRequest{}).(*runv1.PlanningRequest)
	input := full(&runv1.UserInputState{}).(*runv1.UserInputState)
	for _, c := range []struct{ of, copy proto.Message }{
		{step, copyStep(step)}, {action, copyAction(action)}, {request, copyPlanning(request)}, {input, copyInput(input)},
	} {
		if !proto.Equal(c.of, c.copy) {
			t.Errorf("the copy of a %s lacks something:\n%v\n%v", c.of.ProtoReflect().Descriptor().Name(), c.of, c.copy)
		}
	}
}

// TestSnapshotHoldsEveryField: a state survives its snapshot whole.
func TestSnapshotHoldsEveryField(t *testing.T) {
	m := &runv1.RunState{}
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		fill(m.ProtoReflect(), fields.Get(i))
	}
	m.Status, m.Phase = runv1.RunStatus_RUN_STATUS_FAILED, runv1.RunPhase_RUN_PHASE_ENDED
	m.Plan = &planv1.Plan{Version: 1, Steps: []*planv1.Step{{Id: "s"}}}
	m.Steps = []*runv1.StepState{{StepId: "s", Status: runv1.StepStatus_STEP_STATUS_FAILED}}
	m.Actions = []*runv1.ActionState{{ActionId: "s-1", StepId: "s"}}
	s, err := Restore(m)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Snapshot(); !proto.Equal(m, got) {
		t.Errorf("the snapshot lost something:\n%v\n%v", m, got)
	}
}

// TestFieldsAreDeclaredInOrder: the canonical encoding writes fields as they are declared, which must be the order of
// their numbers.
func TestFieldsAreDeclaredInOrder(t *testing.T) {
	seen := map[protoreflect.FullName]bool{}
	var walk func(d protoreflect.MessageDescriptor)
	walk = func(d protoreflect.MessageDescriptor) {
		if seen[d.FullName()] {
			return
		}
		seen[d.FullName()] = true
		last := protoreflect.FieldNumber(0)
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			if f.Number() < last {
				t.Errorf("%s is declared after a field with a higher number", f.FullName())
			}
			if f.IsMap() {
				t.Errorf("%s is a map, which has no order", f.FullName())
			}
			last = f.Number()
			if f.Message() != nil {
				walk(f.Message())
			}
		}
	}
	walk((&runv1.Report{}).ProtoReflect().Descriptor())
	walk((&runv1.Commit{}).ProtoReflect().Descriptor())
}
