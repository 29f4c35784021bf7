package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// HasErrors tells whether a finding among these refuses the document.
func HasErrors(findings []*planv1.Finding) bool {
	return slices.ContainsFunc(findings, func(f *planv1.Finding) bool {
		return f.GetSeverity() == planv1.Severity_SEVERITY_ERROR
	})
}

// found is one finding while it is made.
type found struct {
	layer   string
	code    string
	pointer string
	step    string
	message string
	hint    string
	values  Value
}

// findings gathers what a reader or validator has to say. A second error of the same code at the same place is dropped.
type findings struct {
	list    []*planv1.Finding
	seen    map[findingKey]bool
	max     int
	dropped int
	// Whether an error was among the dropped.
	droppedError bool
	// compared counts the names that were compared for suggestions.
	compared int
}

// maxCompared bounds the work of suggesting names for one answer, which would else be findings times names.
const maxCompared = 500_000

// nearest suggests known names for a wrong one, as long as that is worth it.
func (fs *findings) nearest(wrong string, known []string) []string {
	if fs.compared += len(known); fs.full() || fs.compared > maxCompared {
		return nil
	}
	return nearest(wrong, known)
}

type findingKey struct{ code, pointer string }

func newFindings(l Limits) *findings { return &findings{max: l.MaxFindings} }

func (fs *findings) error(f found) { fs.add(planv1.Severity_SEVERITY_ERROR, f) }

func (fs *findings) warning(f found) { fs.add(planv1.Severity_SEVERITY_WARNING, f) }

func (fs *findings) note(f found) { fs.add(planv1.Severity_SEVERITY_NOTE, f) }

func (fs *findings) add(severity planv1.Severity, f found) {
	fs.addMessage(&planv1.Finding{
		Severity: severity,
		Layer:    f.layer,
		Code:     f.code,
		Pointer:  f.pointer,
		StepId:   f.step,
		Message:  f.message,
		Hint:     f.hint,
		Values:   f.values.JSON(),
	})
}

// full tells that further findings are only counted: what would only make them better to read can be left out.
func (fs *findings) full() bool { return len(fs.list) >= fs.max }

func (fs *findings) addMessage(f *planv1.Finding) {
	if fs.full() {
		fs.dropped++
		fs.droppedError = fs.droppedError || f.GetSeverity() == planv1.Severity_SEVERITY_ERROR
		return
	}
	if f.GetSeverity() == planv1.Severity_SEVERITY_ERROR {
		key := findingKey{f.GetCode(), f.GetPointer()}
		if fs.seen[key] {
			return
		}
		if fs.seen == nil {
			fs.seen = map[findingKey]bool{}
		}
		fs.seen[key] = true
	}
	fs.list = append(fs.list, f)
}

// failed tells whether an error was found.
func (fs *findings) failed() bool { return fs.droppedError || HasErrors(fs.list) }

// done returns the findings, errors first, otherwise in the order in which they were made.
func (fs *findings) done() []*planv1.Finding {
	slices.SortStableFunc(fs.list, func(a, b *planv1.Finding) int {
		return cmp.Compare(a.GetSeverity(), b.GetSeverity())
	})
	if fs.dropped > 0 {
		severity := planv1.Severity_SEVERITY_NOTE
		if fs.droppedError {
			severity = planv1.Severity_SEVERITY_ERROR
		}
		fs.list = append(fs.list, &planv1.Finding{
			Severity: severity,
			Layer:    layerSchema,
			Code:     codeMoreFindings,
			Message:  fmt.Sprintf("%d more findings are not listed", fs.dropped),
			Hint:     "mend the findings listed and try again",
			Values:   values("count", intValue(fs.dropped)).JSON(),
		})
	}
	return fs.list
}

// values makes the object that shows what a rule saw: name, value, name, value, ….
func values(pairs ...any) Value {
	v := Value{kind: Object, members: make([]Member, 0, len(pairs)/2)}
	for i := 0; i+1 < len(pairs); i += 2 {
		v.members = append(v.members, Member{Name: pairs[i].(string), Value: pairs[i+1].(Value)})
	}
	return v
}

func intValue[N int | int32 | int64](n N) Value {
	return Value{kind: Number, text: strconv.FormatInt(int64(n), 10)}
}

func stringList(list []string) Value {
	v := Value{kind: Array, items: make([]Value, len(list))}
	for i, s := range list {
		v.items[i] = StringValue(s)
	}
	return v
}

// limitValues shows a limit by its configuration name, what it allows and what was seen.
func limitValues(limit string, maximum, value int) Value {
	return values("limit", StringValue(limit), "maximum", intValue(maximum), "value", intValue(value))
}
