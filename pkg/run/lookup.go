package run

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// scope is where references and expressions of one step look.
type scope struct {
	d *data
	// item is the element that an item of a for_each step stands for.
	item    *planv1.JsonText
	index   int
	hasItem bool
}

func (d *data) scopeOf(p place) scope {
	s := scope{d: d}
	if p.kind == placeUndo {
		base := d.find(strings.TrimSuffix(d.undo.at(p.step).st.GetStepId(), undoSuffix))
		if base.kind != placeItem {
			return s
		}
		p = base
	}
	if p.kind == placeItem {
		if items := d.steps.at(p.step).st.GetItems(); p.item < len(items) {
			s.item, s.index, s.hasItem = items[p.item], p.item, true
		}
	}
	return s
}

// value is what a reference's root stands for.
func (s scope) value(r plan.Reference) *runv1.Value {
	switch r.Root {
	case plan.RootStep:
		i, ok := s.d.indexOf(r.Name)
		if !ok {
			return nil
		}
		if el := s.d.steps.at(i); el.st.GetStatus() == runv1.StepStatus_STEP_STATUS_SUCCEEDED {
			return el.st.GetResult()
		}
	case plan.RootInput:
		return inline(plan.RunInput(s.d.spec.GetInput()))
	case plan.RootArtifact:
		if i := s.d.producer(r.Name); i >= 0 {
			if el := s.d.steps.at(i); el.st.GetStatus() == runv1.StepStatus_STEP_STATUS_SUCCEEDED {
				return el.st.GetResult()
			}
		}
	case plan.RootItem:
		if s.hasItem && s.item != nil {
			return inline(s.item)
		}
	case plan.RootIndex:
		if s.hasItem {
			return inline(&planv1.JsonText{Text: strconv.Itoa(s.index)})
		}
	}
	return nil
}

// producer is the step that produces a named artifact, -1 where none does.
func (d *data) producer(name string) int {
	if i, ok := d.layout.producers[name]; ok {
		return i
	}
	return -1
}

// lookup resolves references.
func (s scope) lookup(r plan.Reference) plan.Target {
	v := s.value(r)
	switch b := v.GetValue().(type) {
	case *runv1.Value_Inline:
		return plan.Target{Found: true, Value: b.Inline}
	case *runv1.Value_Artifact:
		return plan.Target{Found: true, Artifact: true}
	}
	return plan.Target{}
}

// rootOf is the part of a reference that names a value: what the artifact of an action is called.
func rootOf(r plan.Reference) string {
	switch r.Root {
	case plan.RootStep:
		return "steps." + r.Name + ".result"
	case plan.RootArtifact:
		return "artifacts." + r.Name
	}
	return r.Text
}

// artifacts lists what the references left in arguments point into, each once.
func (s scope) artifacts(refs []plan.Reference) []*runv1.ArtifactRef {
	var all []*runv1.ArtifactRef
	for _, r := range refs {
		name := rootOf(r)
		a := s.value(r).GetArtifact()
		if a == nil || slices.ContainsFunc(all, func(x *runv1.ArtifactRef) bool { return x.GetName() == name }) {
			continue
		}
		all = append(all, &runv1.ArtifactRef{Name: name, Sha256: a.GetSha256(), Size: a.GetSize(), MediaType: a.GetMediaType()})
	}
	return all
}

// expressions is what conditions and checks see.
func (s scope) expressions(result *planv1.JsonText) plan.Scope {
	return plan.Scope{
		Step: func(id string) (plan.StepView, bool) {
			if s.d.layout == nil {
				return plan.StepView{}, false
			}
			i, ok := s.d.indexOf(id)
			if !ok {
				return plan.StepView{}, false
			}
			st := s.d.steps.at(i).st
			return plan.StepView{Status: shortStatus(st.GetStatus()), Result: st.GetResult().GetInline()}, true
		},
		StepIDs: func() []string {
			ids := make([]string, 0, len(s.d.plan.GetSteps()))
			for _, step := range s.d.plan.GetSteps() {
				ids = append(ids, step.GetId())
			}
			return ids
		},
		Input: plan.RunInput(s.d.spec.GetInput()),
		Artifact: func(name string) (*planv1.JsonText, bool) {
			v := s.value(plan.Reference{Root: plan.RootArtifact, Name: name}).GetInline()
			return v, v != nil
		},
		ArtifactNames: func() []string {
			var names []string
			for _, step := range s.d.plan.GetSteps() {
				names = append(names, step.GetProduces()...)
			}
			return names
		},
		Result:  result,
		Item:    s.item,
		Index:   s.index,
		HasItem: s.hasItem,
	}
}

func shortStatus(s runv1.StepStatus) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STEP_STATUS_"))
}
