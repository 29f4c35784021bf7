package cases

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// refusedPlan submits a plan that must be refused with a finding; nothing of it may run.
func refusedPlan(t *testing.T, doc, code string) *history {
	t.Helper()
	h := shared.plan(t, doc)
	s := h.end()
	if s.GetStatus() != runv1.RunStatus_RUN_STATUS_FAILED || len(h.all(rejected)) == 0 || len(h.all(created)) > 0 || len(s.GetActions()) > 0 {
		t.Fatalf("the plan is not refused:\n%s", h.told())
	}
	if f := finding(h.all(rejected)[0].GetPlanRejected().GetFindings(), code); f == nil {
		t.Fatalf("no finding %s:\n%s", code, h.told())
	}
	return h
}

// Cycles are refused with their path, in a plan and in a patch on a running plan, which goes on as it was.
func TestCase18_Cycles(t *testing.T) {
	t.Parallel()
	cyclic := func(edges ...string) string {
		var steps []string
		for _, e := range edges {
			id, needs, _ := strings.Cut(e, ":")
			steps = append(steps, fmt.Sprintf(`{"id":%q,"tool":"add","arguments":{},"depends_on":[%q]}`, id, needs))
		}
		return `{"goal":"g","steps":[` + strings.Join(steps, ",") + `]}`
	}
	for doc, path := range map[string]string{cyclic("a:a"): `["a","a"]`, cyclic("a:c", "b:a", "c:b"): `["a","b","c","a"]`} {
		h := refusedPlan(t, doc, "cycle")
		f := finding(h.all(rejected)[0].GetPlanRejected().GetFindings(), "cycle")
		if f.GetValues().GetText() != `{"path":`+path+`}` || !strings.HasPrefix(f.GetPointer(), "/steps/") {
			t.Errorf("%s", f)
		}
	}
	h := shared.plan(t, `{"goal":"g","steps":[{"id":"done","tool":"add","arguments":{}},
		{"id":"hold","action":{"kind":"control","name":"user.ask","arguments":{"question":"?"}},"depends_on":["done"]},
		{"id":"x","tool":"add","arguments":{},"depends_on":["hold"]},{"id":"y","tool":"add","arguments":{},"depends_on":["x"]}]}`)
	h.until(asked("hold"))
	_, err := shared.runs.PatchPlan(within(t), &apiv1.PatchPlanRequest{RunId: h.id, Patch: text(`{"base_version":1,"reason":"bad","update":[
		{"id":"x","tool":"add","arguments":{},"depends_on":["done","y"]}]}`)})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("the patch: %v", err)
	}
	e := h.until(func(e *runv1.Event) bool { return e.GetPatchRejected() != nil })
	if f := finding(e.GetPatchRejected().GetFindings(), "cycle"); f.GetValues().GetText() != `{"path":["x","y","x"]}` {
		t.Errorf("%v", e.GetPatchRejected().GetFindings())
	}
	h.answer("input-1", "true")
	if s := h.completed(); s.GetPlan().GetVersion() != 1 {
		t.Errorf("the plan is at version %d", s.GetPlan().GetVersion())
	}
	for _, id := range []string{"done", "x", "y"} {
		h.did(id, 1)
	}
}

// What refers to a skipped step is skipped, unless it has a default; nothing waits for ever.
func TestCase20_ReferenceToSkippedStep(t *testing.T) {
	t.Parallel()
	h := shared.plan(t, `{"goal":"g","steps":[{"id":"a","tool":"echo","arguments":{},"when":"false"},
		{"id":"b","tool":"add","arguments":{"x":{"$ref":"steps.a.result.x"}},"depends_on":["a"]},
		{"id":"b2","tool":"add","arguments":{"x":{"$ref":"steps.a.result.x","default":null}},"depends_on":["a"]}]}`)
	s := h.completed()
	hasStatus(t, s, "a", runv1.StepStatus_STEP_STATUS_SKIPPED, "condition_false")
	hasStatus(t, s, "b", runv1.StepStatus_STEP_STATUS_SKIPPED, "ref_unavailable")
	hasStatus(t, s, "b2", runv1.StepStatus_STEP_STATUS_SUCCEEDED, "")
	if got := result(s, "b2"); got != `{"x":null}` {
		t.Errorf("b2 was called with %s", got)
	}
	h.did("b", 0)
	h.did("b2", 1)
	for _, st := range s.GetSteps() {
		if n := len(h.all(requested(st.GetStepId()))); n > 1 {
			t.Errorf("%s was asked for %d times", st.GetStepId(), n)
		}
	}
	first, last := h.events[0].GetTime().AsTime(), h.events[len(h.events)-1].GetTime().AsTime()
	called := h.all(func(e *runv1.Event) bool { return e.GetObservationRecorded() != nil })[0].GetObservationRecorded().GetObservation()
	if own := last.Sub(first) - called.GetDuration().AsDuration(); own > 10*time.Second {
		t.Errorf("the run took %s", own)
	}
}

// The condition is asked first: arguments that cannot be resolved do not matter for a step that is not run.
func TestCase22_ConditionBeforeReferences(t *testing.T) {
	t.Parallel()
	h := shared.plan(t, `{"goal":"g","steps":[{"id":"a","tool":"echo","arguments":{},"when":"false"},
		{"id":"b","tool":"echo","arguments":{"f":{"$ref":"steps.a.result.file"}},"when":"false"}]}`)
	s := h.completed()
	hasStatus(t, s, "a", runv1.StepStatus_STEP_STATUS_SKIPPED, "condition_false")
	hasStatus(t, s, "b", runv1.StepStatus_STEP_STATUS_SKIPPED, "condition_false")
	if len(s.GetActions()) > 0 || step(s, "b").GetError() != nil {
		t.Errorf("\n%s", h.told())
	}
}

// A join waits for all its branches, also when an optional one has failed long before.
func TestCase24_JoinWaitsForAllBranches(t *testing.T) {
	t.Parallel()
	// s ends only after f has failed and mark, which waits for f, has run.
	h := shared.plan(t, `{"goal":"g","steps":[{"id":"f","tool":"broken","arguments":{"code":"internal"},"optional":true},
		{"id":"mark","tool":"add.again","arguments":{},"depends_on":["f"]},
		{"id":"s","tool":"add.again","arguments":{"after":"mark","n":1}},
		{"id":"j","tool":"echo","arguments":{"n":{"$ref":"steps.s.result.n"}},"depends_on":["f","s"]}]}`)
	s := h.completed()
	f := h.all(func(e *runv1.Event) bool { return e.GetStepFailed().GetStepId() == "f" })
	if len(f) != 1 || !f[0].GetStepFailed().GetOptional() {
		t.Fatalf("f: %v", f)
	}
	done := h.all(func(e *runv1.Event) bool { return e.GetStepSucceeded().GetStepId() == "s" })[0].GetRevision()
	if joined := h.all(requested("j")); len(joined) != 1 || joined[0].GetRevision() < done || f[0].GetRevision() > done {
		t.Errorf("the join was early:\n%s", h.told())
	}
	if got := result(s, "j"); got != `{"n":1}` {
		t.Errorf("j was called with %s", got)
	}
}

// A join of nothing is refused.
func TestCase25_JoinOfNothing(t *testing.T) {
	t.Parallel()
	h := refusedPlan(t, `{"goal":"g","steps":[{"id":"slow","tool":"add","arguments":{}},{"id":"j","action":{"kind":"control","name":"join"},"depends_on":[]}]}`, "join_without_inputs")
	if f := finding(h.all(rejected)[0].GetPlanRejected().GetFindings(), "join_without_inputs"); f.GetStepId() != "j" {
		t.Errorf("%v", f)
	}
	h.did("slow", 0)
}

// fanOut is a plan of n steps and a join of them.
func fanOut(n int) string {
	var doc, ids strings.Builder
	doc.WriteString(`{"goal":"g","steps":[`)
	for i := range n {
		fmt.Fprintf(&doc, `{"id":"s%d","tool":"echo","arguments":{"n":%d}},`, i, i)
		if i > 0 {
			ids.WriteByte(',')
		}
		fmt.Fprintf(&ids, `"s%d"`, i)
	}
	fmt.Fprintf(&doc, `{"id":"join","action":{"kind":"control","name":"join"},"depends_on":[%s]}]}`, ids.String())
	return doc.String()
}

// 2,000 steps are joined once, after all of them and in order; more steps than a plan may have are refused.
func TestCase26_WideFanOut(t *testing.T) {
	t.Parallel()
	const n = 2000
	h := shared.plan(t, fanOut(n))
	s := h.completed()
	joined := h.all(func(e *runv1.Event) bool { return e.GetStepSucceeded().GetStepId() == "join" })
	if len(joined) != 1 {
		t.Fatalf("joined %d times", len(joined))
	}
	before := h.all(func(e *runv1.Event) bool {
		return e.GetStepSucceeded() != nil && e.GetRevision() < joined[0].GetRevision()
	})
	if len(before) != n {
		t.Errorf("joined after %d of %d steps", len(before), n)
	}
	var want strings.Builder
	for i := range n {
		fmt.Fprintf(&want, `,{"n":%d}`, i)
	}
	if got := s.GetAnswer().GetText(); got != "["+want.String()[1:]+"]" {
		t.Errorf("the results are out of order: %.80s", got)
	}
	refusedPlan(t, fanOut(20_000), "plan_too_large")
}

// A slow step is not started again when a sibling chain goes on.
func TestCase29_NoSecondStart(t *testing.T) {
	t.Parallel()
	var runs []*history
	for range 100 {
		// C ends only after B has started.
		runs = append(runs, shared.plan(t, `{"goal":"g","steps":[{"id":"A","tool":"add","arguments":{}},{"id":"B","tool":"add","arguments":{},"depends_on":["A"]},{"id":"C","tool":"add","arguments":{"after":"B"}}]}`))
	}
	for _, h := range runs {
		h.completed()
		for _, id := range []string{"A", "B", "C"} {
			h.did(id, 1)
			if n := len(h.all(requested(id))); n != 1 {
				t.Errorf("%s was asked for %d times", id, n)
			}
		}
	}
}
