package plan

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// StepView is what expressions see of a step.
type StepView struct {
	// Status is the short name: "succeeded", "failed", "skipped", "pending", ….
	Status string
	// Result is absent where the step has none.
	Result *planv1.JsonText
}

// Scope is what an expression can see. What is absent here is absent there: has(steps.a) is false, and an expression
// that needs it fails.
type Scope struct {
	// Step returns a step by its id; only the steps that the expression names are asked for.
	Step func(id string) (StepView, bool)
	// StepIDs returns the ids that a macro over all steps runs over; it is only called for those.
	StepIDs func() []string
	// Input is the run's input.
	Input *planv1.JsonText
	// Artifact returns the value that a produced name stands for.
	Artifact func(name string) (*planv1.JsonText, bool)
	// ArtifactNames returns the names for macros over all artifacts.
	ArtifactNames func() []string
	// Result is the result that a check judges.
	Result *planv1.JsonText
	// Item and Index are the for_each element and its place; HasItem tells that they are there.
	Item    *planv1.JsonText
	Index   int
	HasItem bool
	// Answer is the run's answer, for acceptance checks.
	Answer *planv1.JsonText
	// Limits bound the evaluation; the zero value takes the defaults.
	Limits Limits
}

// EvalCondition evaluates a step's condition. It fails with *ExpressionError.
func EvalCondition(expr string, scope Scope) (bool, error) { return eval(expr, scope) }

// EvalCheck evaluates a check of a result or an answer. It fails with *ExpressionError.
func EvalCheck(expr string, scope Scope) (bool, error) { return eval(expr, scope) }

func eval(text string, scope Scope) (answer bool, err error) {
	e := compileExpression(text, scope.Limits.withDefaults())
	if e.err != nil {
		return false, e.err
	}
	ev := &evaluation{scope: scope}
	defer func() {
		if recover() != nil {
			answer, err = false, ev.failed("the expression cannot be evaluated")
		}
	}()
	out, _, evalErr := e.program.Eval(ev)
	var cancelled interpreter.EvalCancelledError
	switch {
	case errors.As(evalErr, &cancelled):
		return false, ev.failed("the expression costs more than the limit max_expression_cost allows")
	case evalErr != nil && len(ev.missing) > 0:
		return false, ev.failed(fmt.Sprintf("the expression cannot be evaluated; not there: %s", strings.Join(ev.missing, ", ")))
	case evalErr != nil:
		return false, ev.failed("the expression cannot be evaluated: types do not fit, or an index or number is out of range")
	}
	b, ok := out.(types.Bool)
	if !ok {
		return false, ev.failed("the expression does not give true or false")
	}
	return bool(b), nil
}

// evaluation answers the names of one evaluation and notes what was looked for in vain.
type evaluation struct {
	scope   Scope
	missing []string
	// Variables that were read: the library asks again each time that one is used.
	read map[string]ref.Val
}

func (ev *evaluation) failed(message string) *ExpressionError {
	return &ExpressionError{Code: CodeExpressionFailed, Message: message, Missing: ev.missing}
}

// maxMissing bounds the names that an error lists.
const maxMissing = 5

func (ev *evaluation) miss(at *pointerPart) {
	if len(ev.missing) >= maxMissing {
		return
	}
	if path := dotted(at); !slices.Contains(ev.missing, path) {
		ev.missing = append(ev.missing, path)
	}
}

// dotted writes a place the way that references write it: steps.a.result.x.
func dotted(at *pointerPart) string {
	switch {
	case at.up == nil:
		return at.name
	case at.index >= 0:
		return dotted(at.up) + "." + strconv.Itoa(at.index)
	}
	return dotted(at.up) + formatPath([]string{at.name})
}

func under(at *pointerPart, name string) *pointerPart {
	return &pointerPart{up: at, name: name, index: -1}
}

// ResolveName implements the library's Activation.
func (ev *evaluation) ResolveName(name string) (any, bool) {
	if v, ok := ev.read[name]; ok {
		return v, true
	}
	v, ok := ev.variable(name)
	if !ok {
		return nil, false
	}
	if ev.read == nil {
		ev.read = map[string]ref.Val{}
	}
	ev.read[name] = v
	return v, true
}

func (ev *evaluation) variable(name string) (ref.Val, bool) {
	var text *planv1.JsonText
	switch name {
	case "steps":
		return ev.steps(), true
	case "run":
		return ev.run(), true
	case "artifacts":
		return ev.artifacts(), true
	case "index":
		if ev.scope.HasItem {
			return types.Int(ev.scope.Index), true
		}
	case "item":
		if ev.scope.HasItem {
			text = ev.scope.Item
		}
	case "result":
		text = ev.scope.Result
	case "answer":
		text = ev.scope.Answer
	default:
		return nil, false
	}
	at := &pointerPart{name: name, index: -1}
	if text == nil {
		ev.miss(at)
		return nil, false
	}
	return ev.text(text, at)
}

// Parent implements the library's Activation.
func (ev *evaluation) Parent() interpreter.Activation { return nil }

// text reads a JSON text as a CEL value.
func (ev *evaluation) text(t *planv1.JsonText, at *pointerPart) (ref.Val, bool) {
	v, problems := valueOf(t, ev.scope.Limits.withDefaults())
	if len(problems) > 0 {
		ev.miss(at)
		return nil, false
	}
	return ev.value(v, at), true
}

func (ev *evaluation) value(v Value, at *pointerPart) ref.Val {
	switch v.kind {
	case Bool:
		return types.Bool(v.text == "true")
	case Number:
		return celNumber(v.text)
	case String:
		return types.String(v.text)
	case Array:
		items := make([]ref.Val, len(v.items))
		for i := range v.items {
			child := at
			if v.items[i].isContainer() {
				child = &pointerPart{up: at, index: i}
			}
			items[i] = ev.value(v.items[i], child)
		}
		return types.NewRefValList(types.DefaultTypeAdapter, items)
	case Object:
		return &celMap{ev: ev, at: at,
			find: func(name string) (ref.Val, bool) {
				member, ok := v.Get(name)
				if !ok {
					return nil, false
				}
				return ev.value(member, under(at, name)), true
			},
			names: func() []string {
				names := make([]string, len(v.members))
				for i := range v.members {
					names[i] = v.members[i].Name
				}
				return names
			},
		}
	}
	return types.NullValue
}

// celNumber reads a number: whole ones exactly as int or, beyond its range, uint; all others as the nearest double.
func celNumber(text string) ref.Val {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return types.Int(n)
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return types.Uint(n)
	}
	// Beyond a double's range this is an infinity, which compares as such a number does.
	f, _ := strconv.ParseFloat(text, 64)
	return types.Double(f)
}

func (ev *evaluation) steps() ref.Val {
	all := &pointerPart{name: "steps", index: -1}
	return &celMap{ev: ev, at: all,
		find: func(id string) (ref.Val, bool) {
			if ev.scope.Step == nil {
				return nil, false
			}
			view, ok := ev.scope.Step(id)
			if !ok {
				return nil, false
			}
			at := under(all, id)
			return &celMap{ev: ev, at: at,
				find: func(name string) (ref.Val, bool) {
					switch {
					case name == "status":
						return types.String(view.Status), true
					case name == "result" && view.Result != nil:
						return ev.text(view.Result, under(at, "result"))
					}
					return nil, false
				},
				names: func() []string {
					if view.Result == nil {
						return []string{"status"}
					}
					return []string{"result", "status"}
				},
			}, true
		},
		names: func() []string {
			if ev.scope.StepIDs == nil {
				return nil
			}
			return ev.scope.StepIDs()
		},
	}
}

func (ev *evaluation) run() ref.Val {
	at := &pointerPart{name: "run", index: -1}
	return &celMap{ev: ev, at: at,
		find: func(name string) (ref.Val, bool) {
			if name != "input" || ev.scope.Input == nil {
				return nil, false
			}
			return ev.text(ev.scope.Input, under(at, "input"))
		},
		names: func() []string {
			if ev.scope.Input == nil {
				return nil
			}
			return []string{"input"}
		},
	}
}

func (ev *evaluation) artifacts() ref.Val {
	at := &pointerPart{name: "artifacts", index: -1}
	return &celMap{ev: ev, at: at,
		find: func(name string) (ref.Val, bool) {
			if ev.scope.Artifact == nil {
				return nil, false
			}
			text, ok := ev.scope.Artifact(name)
			if !ok || text == nil {
				return nil, false
			}
			return ev.text(text, under(at, name))
		},
		names: func() []string {
			if ev.scope.ArtifactNames == nil {
				return nil
			}
			return ev.scope.ArtifactNames()
		},
	}
}

// celMap is a map from names whose macros run over the names in sorted order: the library's own maps run in Go's map
// order, which would let the same log give different answers.
type celMap struct {
	ev    *evaluation
	at    *pointerPart
	find  func(name string) (ref.Val, bool)
	names func() []string
	keys  []ref.Val
	// Members that were read: a list within is converted once, not once an access.
	read map[string]ref.Val
}

// get returns a member, read once.
func (m *celMap) get(name string) (ref.Val, bool) {
	if v, ok := m.read[name]; ok {
		return v, true
	}
	v, ok := m.find(name)
	if !ok {
		return nil, false
	}
	if m.read == nil {
		m.read = map[string]ref.Val{}
	}
	m.read[name] = v
	return v, true
}

var _ traits.Mapper = (*celMap)(nil)

func (m *celMap) sorted() []ref.Val {
	if m.keys == nil {
		names := slices.Clone(m.names())
		slices.Sort(names)
		m.keys = make([]ref.Val, len(names))
		for i, n := range names {
			m.keys[i] = types.String(n)
		}
	}
	return m.keys
}

// Find implements traits.Mapper.
func (m *celMap) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	v, ok := m.get(string(name))
	if !ok {
		m.ev.miss(under(m.at, string(name)))
	}
	return v, ok
}

// Get implements traits.Indexer.
func (m *celMap) Get(key ref.Val) ref.Val {
	if v, ok := m.Find(key); ok {
		return v
	}
	return types.ValOrErr(key, "no such key")
}

// Contains implements traits.Container.
func (m *celMap) Contains(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if !ok {
		return types.False
	}
	_, ok = m.get(string(name))
	return types.Bool(ok)
}

// Iterator implements traits.Iterable.
func (m *celMap) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, m.sorted()).Iterator()
}

// Size implements traits.Sizer.
func (m *celMap) Size() ref.Val { return types.Int(len(m.sorted())) }

// Type implements ref.Val.
func (m *celMap) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (m *celMap) Value() any { return m }

// Equal implements ref.Val.
func (m *celMap) Equal(other ref.Val) ref.Val {
	o, ok := other.(traits.Mapper)
	if !ok || m.Size().Equal(o.Size()) != types.True {
		return types.False
	}
	for _, key := range m.sorted() {
		mine, _ := m.get(string(key.(types.String)))
		theirs, found := o.Find(key)
		if !found || mine == nil || mine.Equal(theirs) != types.True {
			return types.False
		}
	}
	return types.True
}

// ConvertToType implements ref.Val.
func (m *celMap) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.MapType:
		return m
	case types.TypeType:
		return types.MapType
	}
	return types.NewErr("no such conversion")
}

// ConvertToNative implements ref.Val.
func (m *celMap) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("a map cannot become %s", t)
}
