package plan

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Controls are the actions that the core itself does.
const (
	ControlAsk    = "user.ask"
	ControlWait   = "wait"
	ControlJoin   = "join"
	ControlFinish = "finish"
)

var controlNames = []string{ControlAsk, ControlWait, ControlJoin, ControlFinish}

// Ask is what a user.ask step asks.
type Ask struct {
	Question string
	// Schema of the answer, absent: anything.
	Schema *planv1.JsonText
	// Timeout after which the step fails, 0: none.
	Timeout time.Duration
}

// Wait is what a wait step waits for: a duration, or a time.
type Wait struct {
	Duration time.Duration
	Until    time.Time
}

// ControlError tells what is wrong with a control's arguments.
type ControlError struct {
	// Pointer into the arguments.
	Pointer string
	Message string
}

func (e *ControlError) Error() string { return e.Message }

// ReadAsk reads the resolved arguments of a user.ask step. It fails with *ControlError.
func ReadAsk(args *planv1.JsonText) (Ask, error) {
	v, problems := valueOf(args, DefaultLimits())
	if len(problems) > 0 {
		return Ask{}, &ControlError{Message: problems[0].Error()}
	}
	ask, errs := readAsk(v, DefaultLimits())
	if len(errs) > 0 {
		return Ask{}, errs[0]
	}
	return ask, nil
}

// ReadWait reads the resolved arguments of a wait step. It fails with *ControlError.
func ReadWait(args *planv1.JsonText) (Wait, error) {
	v, problems := valueOf(args, DefaultLimits())
	if len(problems) > 0 {
		return Wait{}, &ControlError{Message: problems[0].Error()}
	}
	wait, errs := readWait(v, DefaultLimits())
	if len(errs) > 0 {
		return Wait{}, errs[0]
	}
	return wait, nil
}

// isReference tells that a value will be known only when it is resolved.
func isReference(v Value) bool {
	_, ok := v.Get("$ref")
	return v.kind == Object && ok
}

func readAsk(v Value, l Limits) (Ask, []*ControlError) {
	var ask Ask
	var errs []*ControlError
	fail := func(pointer, format string, args ...any) {
		errs = append(errs, &ControlError{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
	}
	asked := false
	for _, m := range v.members {
		if isReference(m.Value) {
			asked = asked || m.Name == "question"
			continue
		}
		switch m.Name {
		case "question":
			asked = true
			if m.Value.kind != String || strings.TrimSpace(m.Value.text) == "" {
				fail("/question", "the question is not a text")
			}
			ask.Question = m.Value.text
		case "schema":
			if m.Value.kind == Null {
				continue
			}
			ask.Schema = m.Value.JSON()
			if !hasReference(m.Value) {
				if cs := compileSchema(ask.Schema.GetText(), l); cs.problem != "" {
					fail("/schema", "%s", cs.problem)
				}
			}
		case "timeout":
			if m.Value.kind == Null {
				continue
			}
			d, ok := parseDuration(m.Value.text)
			if m.Value.kind != String || !ok || d <= 0 {
				fail("/timeout", "the timeout is not a duration like \"30m\"")
			} else if d > l.MaxTimeout {
				fail("/timeout", "the timeout is longer than %s (max_timeout)", l.MaxTimeout)
			}
			ask.Timeout = d
		default:
			fail("/"+escapePointer(m.Name), "user.ask has no argument %s; there are: question, schema, timeout", quote(m.Name))
		}
	}
	if !asked {
		fail("", "user.ask needs the argument \"question\"")
	}
	return ask, errs
}

func readWait(v Value, l Limits) (Wait, []*ControlError) {
	var wait Wait
	var errs []*ControlError
	fail := func(pointer, format string, args ...any) {
		errs = append(errs, &ControlError{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
	}
	count := 0
	for _, m := range v.members {
		if m.Value.kind == Null && (m.Name == "duration" || m.Name == "until") {
			continue
		}
		switch m.Name {
		case "duration":
			count++
			if isReference(m.Value) {
				continue
			}
			d, ok := parseDuration(m.Value.text)
			if m.Value.kind != String || !ok {
				fail("/duration", "the duration is not one like \"90s\" or \"2h\"")
			} else if d > l.MaxWait {
				fail("/duration", "the duration is longer than %s (max_wait)", l.MaxWait)
			}
			wait.Duration = d
		case "until":
			count++
			if isReference(m.Value) {
				continue
			}
			t, err := time.Parse(time.RFC3339Nano, m.Value.text)
			if m.Value.kind != String || err != nil {
				fail("/until", "until is not a time like \"2030-01-31T08:00:00Z\"")
			}
			wait.Until = t
		default:
			fail("/"+escapePointer(m.Name), "wait has no argument %s; there are: duration, until", quote(m.Name))
		}
	}
	if count != 1 {
		fail("", "wait needs either the argument \"duration\" or \"until\"")
	}
	return wait, errs
}

// checkControl checks the arguments of a control step.
func (v *validator) checkControl(s *stepCheck) {
	a := &s.action
	if a.action.GetKind() != planv1.ActionKind_ACTION_KIND_CONTROL || a.broken {
		return
	}
	var errs []*ControlError
	switch a.action.GetName() {
	case ControlAsk:
		_, errs = readAsk(a.args, v.limits)
	case ControlWait:
		_, errs = readWait(a.args, v.limits)
	case ControlJoin:
		for _, m := range a.args.members {
			errs = append(errs, &ControlError{Pointer: "/" + escapePointer(m.Name), Message: "join has no arguments"})
		}
	default:
		return
	}
	if isReference(a.args) {
		return
	}
	for _, e := range errs {
		v.error(s, layerArguments, codeInvalidControl, "action/arguments"+e.Pointer, e.Message, "", Value{})
	}
}

// checkControlForm checks what makes no sense for a control.
func (v *validator) checkControlForm(s *stepCheck) {
	if s.step.GetAction().GetKind() != planv1.ActionKind_ACTION_KIND_CONTROL {
		return
	}
	name := s.step.GetAction().GetName()
	if name == ControlJoin && len(s.step.GetDependsOn()) == 0 {
		v.error(s, layerSemantics, codeJoinWithoutInputs, "depends_on", "the join waits for nothing", "name the steps to wait for in depends_on", Value{})
	}
	if s.step.GetForEach() != nil && (name == ControlJoin || name == ControlFinish) {
		v.error(s, layerSemantics, codeControlUnsupported, "for_each", quote(name)+" cannot run for each element of a list", "leave for_each out", Value{})
	}
	if s.step.GetAction().GetTimeout() != nil {
		hint := "leave it out"
		if name == ControlAsk {
			hint = "write it as an argument of user.ask"
		}
		v.error(s, layerSemantics, codeControlUnsupported, "action/timeout", "a control has no timeout of its own", hint, Value{})
	}
	if s.step.GetRetry().GetMaxAttempts() > 1 {
		v.error(s, layerSemantics, codeControlUnsupported, "retry", "a control is not retried, "+strconv.Itoa(int(s.step.GetRetry().GetMaxAttempts()))+" attempts make no sense", "leave retry out", Value{})
	}
}
