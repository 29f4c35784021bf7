package plan

import (
	"fmt"
	"slices"
	"strconv"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Progress is how far a step has come, as far as a patch must know.
type Progress int

const (
	// Open steps may be changed and removed: not started, or failed and waiting for a new plan.
	Open Progress = iota
	// UnderWay steps have an action or a wait that is not over; they can neither be changed nor removed.
	UnderWay
	// Finished steps are kept for ever, with their evidence.
	Finished
)

// View tells the progress of the base plan's steps. A nil View sees all of them open.
type View func(stepID string) Progress

func (view View) of(id string) Progress {
	if view == nil {
		return Open
	}
	return view(id)
}

// Apply makes the next version of a plan: base version and patch must agree, finished steps and steps under way stay
// as they are, and the plan that results is validated as a whole. A finished or running step that the patch repeats
// unchanged is kept as it is. It returns the new plan, with version, parent version and id set and the author left to
// the caller; nil where findings refuse the patch. Pointers are into the patch where the patch is at fault, else into
// the resulting plan.
func Apply(base *planv1.Plan, patch *planv1.Patch, view View, env Environment) (*planv1.Plan, []*planv1.Finding) {
	limits := env.Limits.withDefaults()
	fs := newFindings(limits)
	if patch == nil {
		fs.error(found{layer: layerSchema, code: codeEmptyPatch, message: "there is no patch"})
		return nil, fs.done()
	}
	if base.GetVersion() != patch.GetBaseVersion() {
		fs.error(found{layer: layerSemantics, code: codeVersionConflict, pointer: "/base_version",
			message: fmt.Sprintf("the patch changes version %d, and the plan is at version %d", patch.GetBaseVersion(), base.GetVersion()),
			hint:    "read the plan again and make the patch for its version",
			values:  values("base_version", intValue(patch.GetBaseVersion()), "version", intValue(base.GetVersion()))})
		return nil, fs.done()
	}
	b := patchBuilder{base: base, patch: patch, view: view, fs: fs}
	next, places := b.build()
	v := newValidator(next, env)
	v.fs = fs
	v.pointer = func(i int) string { return places[i] }
	v.judged = func(id string) bool { return view.of(id) == Open || !b.kept[id] }
	normal := v.run()
	if fs.failed() {
		return nil, fs.done()
	}
	if !b.changed {
		fs.warning(found{layer: layerSemantics, code: codeEmptyPatch, message: "the patch changes nothing", hint: "change what failed, or answer instead"})
	}
	normal.Version = base.GetVersion() + 1
	normal.ParentVersion = base.GetVersion()
	normal.Id = "p" + strconv.Itoa(int(normal.GetVersion()))
	normal.CreatedBy = planv1.CreatedBy_CREATED_BY_UNSPECIFIED
	return normal, fs.done()
}

// patchBuilder puts a patch onto a plan.
type patchBuilder struct {
	base  *planv1.Plan
	patch *planv1.Patch
	view  View
	fs    *findings
	// index is the place of each base step in the new list.
	index map[string]int
	steps []*planv1.Step
	// places are the pointers of the new list's steps.
	places []string
	// kept are the base steps that stay as they are.
	kept    map[string]bool
	changed bool
	// ids lists the base's step ids for suggestions, made when the first one is wrong.
	ids []string
}

func (b *patchBuilder) build() (*planv1.Plan, []string) {
	b.index = make(map[string]int, len(b.base.GetSteps()))
	b.kept = make(map[string]bool, len(b.base.GetSteps()))
	for i, s := range b.base.GetSteps() {
		b.index[s.GetId()] = i
		b.kept[s.GetId()] = true
	}
	b.steps = slices.Clone(b.base.GetSteps())
	b.places = make([]string, len(b.steps))
	touched := b.update()
	b.remove(touched)
	b.add(touched)
	b.compact()
	next := &planv1.Plan{Id: b.base.GetId(), Version: b.base.GetVersion(), Goal: b.base.GetGoal(), Assumptions: b.base.GetAssumptions(),
		Constraints: b.base.GetConstraints(), Acceptance: b.base.GetAcceptance(), Steps: b.steps}
	if g := b.patch.GetGoal(); g != "" && g != next.GetGoal() {
		next.Goal, b.changed = g, true
	}
	if b.patch.GetSetAssumptions() || len(b.patch.GetAssumptions()) > 0 {
		next.Assumptions, b.changed = b.patch.GetAssumptions(), true
	}
	return next, b.places
}

func (b *patchBuilder) refuse(code, pointer, id, message, hint string) {
	b.fs.error(found{layer: layerSemantics, code: code, pointer: pointer, step: id, message: message, hint: hint})
}

// update replaces steps; it returns the ids that the patch has named.
func (b *patchBuilder) update() map[string]bool {
	touched := map[string]bool{}
	for k, s := range b.patch.GetUpdate() {
		at := "/update/" + strconv.Itoa(k)
		id := s.GetId()
		if b.twice(touched, at, id) {
			continue
		}
		i, ok := b.index[id]
		if !ok {
			b.unknown(at+"/id", id, "to add a step, put it into add")
			continue
		}
		if b.mayChange(i, s, at) {
			b.steps[i], b.places[i] = s, at
			b.kept[id] = false
			b.changed = true
		}
	}
	return touched
}

// mayChange tells whether a step of the base may be replaced; a repetition of one that may not is kept silently.
func (b *patchBuilder) mayChange(i int, s *planv1.Step, at string) bool {
	old := b.base.GetSteps()[i]
	id := old.GetId()
	switch b.view.of(id) {
	case Finished:
		if !sameWork(old, s) {
			b.refuse(codeStepImmutable, at, id, "the step "+quote(id)+" is finished and cannot be changed", "leave it as it is, and add a step with another id")
		}
		return false
	case UnderWay:
		if !sameWork(old, s) {
			b.refuse(codeStepUnderWay, at, id, "the step "+quote(id)+" is under way and cannot be changed", "wait for its end, or change what comes after it")
		}
		return false
	}
	return stepContent(old) != stepContent(s)
}

func (b *patchBuilder) twice(touched map[string]bool, at, id string) bool {
	if touched[id] {
		b.refuse(codeDuplicateID, at, id, "the patch names the step "+quote(id)+" twice", "name each step once")
		return true
	}
	touched[id] = true
	return false
}

func (b *patchBuilder) unknown(at, id, hint string) {
	if b.ids == nil {
		for _, s := range b.base.GetSteps() {
			b.ids = append(b.ids, s.GetId())
		}
	}
	near := b.fs.nearest(id, b.ids)
	b.fs.error(found{layer: layerSemantics, code: codeUnknownStep, pointer: at, step: id, message: "the plan has no step " + quote(id),
		hint: didYouMean(near, hint), values: values("name", StringValue(id), "nearest", stringList(near))})
}

func (b *patchBuilder) remove(touched map[string]bool) {
	for k, id := range b.patch.GetRemove() {
		at := "/remove/" + strconv.Itoa(k)
		if b.twice(touched, at, id) {
			continue
		}
		i, ok := b.index[id]
		if !ok {
			b.unknown(at, id, "leave it out")
			continue
		}
		switch b.view.of(id) {
		case Finished:
			b.refuse(codeStepImmutable, at, id, "the step "+quote(id)+" is finished and cannot be removed", "leave it in the plan; it is not done again")
		case UnderWay:
			b.refuse(codeStepUnderWay, at, id, "the step "+quote(id)+" is under way and cannot be removed", "wait for its end, or change what comes after it")
		default:
			b.steps[i] = nil
			b.kept[id] = false
			b.changed = true
		}
	}
}

func (b *patchBuilder) add(touched map[string]bool) {
	for k, s := range b.patch.GetAdd() {
		at := "/add/" + strconv.Itoa(k)
		i, exists := b.index[s.GetId()]
		if exists {
			if b.twice(touched, at, s.GetId()) {
				continue
			}
			if b.view.of(s.GetId()) != Open {
				b.mayChange(i, s, at)
			} else if stepContent(b.base.GetSteps()[i]) != stepContent(s) {
				b.refuse(codeDuplicateID, at+"/id", s.GetId(), "the plan already has a step "+quote(s.GetId()), "to change it, put it into update")
			}
			continue
		}
		if s.GetId() != "" && b.twice(touched, at, s.GetId()) {
			continue
		}
		b.steps, b.places = append(b.steps, s), append(b.places, at)
		b.changed = true
	}
}

// compact takes the removed steps out, and gives steps that the patch does not name their place in the new plan.
func (b *patchBuilder) compact() {
	n := 0
	for i, s := range b.steps {
		if s == nil {
			continue
		}
		place := b.places[i]
		if place == "" {
			place = "/steps/" + strconv.Itoa(n)
		}
		b.steps[n], b.places[n] = s, place
		n++
	}
	b.steps, b.places = b.steps[:n], b.places[:n]
}

// stepContent is the text by which two steps are the same.
func stepContent(s *planv1.Step) string { return string(encoder{content: true}.step(nil, s)) }

// sameWork tells whether a step that a planner writes again is the one that was started: same action and arguments,
// and nothing else said differently that matters for what was done. What the new text leaves out is not a difference,
// nor are its words, its dependencies or its policies.
func sameWork(old, again *planv1.Step) bool {
	a, b := old.GetAction(), again.GetAction()
	if a.GetKind() != b.GetKind() || a.GetName() != b.GetName() || argumentsContent(a) != argumentsContent(b) {
		return false
	}
	if again.GetWhen() != "" && again.GetWhen() != old.GetWhen() {
		return false
	}
	if !sameJSON(old.GetForEach(), again.GetForEach()) || again.GetResult() != nil && !sameJSON(old.GetResult(), again.GetResult()) {
		return false
	}
	if len(again.GetProduces()) > 0 && !slices.Equal(old.GetProduces(), again.GetProduces()) {
		return false
	}
	if again.GetCompensate() != nil {
		a, b := old.GetCompensate(), again.GetCompensate()
		return a.GetKind() == b.GetKind() && a.GetName() == b.GetName() && argumentsContent(a) == argumentsContent(b)
	}
	return true
}

func argumentsContent(a *planv1.Action) string {
	if a.GetArguments() == nil {
		return "{}"
	}
	return Canonical(a.GetArguments())
}

func sameJSON(a, b *planv1.JsonText) bool { return Canonical(a) == Canonical(b) }
