package cases

import (
	"strings"
	"testing"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func created(e *runv1.Event) bool { return e.GetPlanCreated() != nil }

func rejected(e *runv1.Event) bool { return e.GetPlanRejected() != nil }

// A fenced plan with words around it is the same plan as the bare one.
func TestCase1_FencedPlanIsThePlan(t *testing.T) {
	t.Parallel()
	bare := `{"goal":"g","steps":[{"id":"a","objective":"say it","tool":"echo","arguments":{"x":1}}]}`
	fenced := "Sure, here it is:\n```json\n" + bare + "\n```\nDone."
	model.script("case 1 bare", bare)
	model.script("case 1 fenced", fenced)
	digest := func(goal string) (*history, *runv1.PlanCreated) {
		h := shared.submit(t, &runv1.RunSpec{Goal: goal})
		h.completed()
		return h, h.all(created)[0].GetPlanCreated()
	}
	_, want := digest("case 1 bare")
	h, got := digest("case 1 fenced")
	if got.GetPlanDigest() != want.GetPlanDigest() || got.GetPlanDigest() == "" {
		t.Errorf("digest %s, the bare plan's is %s", got.GetPlanDigest(), want.GetPlanDigest())
	}
	if finding(got.GetFindings(), "fence") == nil || finding(got.GetFindings(), "prose") == nil || finding(want.GetFindings(), "fence") != nil {
		t.Errorf("notes %v", got.GetFindings())
	}
	raw := got.GetPlanner().GetRaw()
	if len(raw) != 1 || string(shared.artifact(t, raw[0])) != fenced {
		t.Errorf("the raw answer is not kept: %v\n%s", raw, h.told())
	}
}

// A planner that never says anything readable costs three calls and the run; the next run is planned as if nothing were.
func TestCase3_UnreadableAnswersFailTheRunAfterThreeCalls(t *testing.T) {
	t.Parallel()
	model.script("case 3 broken", "not json 1", "not json 2", "not json 3", "not json 4")
	model.script("case 3 whole", `{"goal":"g","steps":[{"id":"a","objective":"o","tool":"echo","arguments":{}}]}`)
	h := shared.submit(t, &runv1.RunSpec{Goal: "case 3 broken", Limits: &runv1.RunLimits{MaxPlanAttempts: 3}})
	s := h.failed("plan_unparseable")
	if n := len(model.prompts("case 3 broken")); n != 3 {
		t.Errorf("%d calls", n)
	}
	if text := s.GetError().GetDetails().GetText(); !strings.Contains(text, `"attempts":3`) {
		t.Errorf("details of the failure: %s", text)
	}
	refused := h.all(rejected)
	if len(refused) != 3 {
		t.Fatalf("%d refused plans:\n%s", len(refused), h.told())
	}
	for i, e := range refused {
		raw := e.GetPlanRejected().GetPlanner().GetRaw()
		if want := "not json " + string(rune('1'+i)); len(raw) != 1 || string(shared.artifact(t, raw[0])) != want {
			t.Errorf("raw answer %d: %v", i+1, raw)
		}
	}
	shared.submit(t, &runv1.RunSpec{Goal: "case 3 whole"}).completed()
}

// A tool that does not exist goes back to the planner with the nearest name, and the run goes on.
func TestCase13_UnknownToolIsReplacedByTheNearest(t *testing.T) {
	t.Parallel()
	wrong := `{"goal":"g","steps":[{"id":"a","objective":"o","tool":"search_resumes","arguments":{"q":"go"}}]}`
	right := strings.ReplaceAll(wrong, "search_resumes", "search_resume")
	model.script("case 13 first", wrong, right)
	model.script("case 13 later", right)
	h := shared.submit(t, &runv1.RunSpec{Goal: "case 13 first"})
	h.completed()
	refused := h.all(rejected)
	if len(refused) != 1 {
		t.Fatalf("%d refusals:\n%s", len(refused), h.told())
	}
	f := finding(refused[0].GetPlanRejected().GetFindings(), "unknown_tool")
	if !strings.Contains(f.GetValues().GetText(), `"nearest":["search_resume"`) || !strings.HasPrefix(f.GetPointer(), "/steps/0/") {
		t.Errorf("finding %v", f)
	}
	prompts := model.prompts("case 13 first")
	if len(prompts) != 2 || !strings.Contains(prompts[1], "unknown_tool") || !strings.Contains(prompts[1], `"nearest":["search_resume"`) {
		t.Errorf("%d prompts; the last:\n%s", len(prompts), prompts[len(prompts)-1])
	}
	if n := len(h.all(func(e *runv1.Event) bool { return e.GetActionRequested() != nil })); n != 1 {
		t.Errorf("%d actions", n)
	}
	shared.submit(t, &runv1.RunSpec{Goal: "case 13 later"}).completed()
}

// What the provider refuses for good is asked once, and its own words are in the log; a refusal of the model is no
// unreadable answer.
func TestCase17_PermanentRefusalsAreAskedOnce(t *testing.T) {
	t.Parallel()
	const words = "Invalid schema for response_format 'plan': In context=('properties', 'when'), 'required' is missing"
	model.put("case 17 schema", &script{fault: words})
	model.put("case 17 refusal", &script{refusal: "I cannot help with that."})
	for mark, want := range map[string][2]string{
		"case 17 schema":  {"provider_rejected_schema", "'required' is missing"},
		"case 17 refusal": {"planner_refused", "I cannot help with that."},
	} {
		h := shared.submit(t, &runv1.RunSpec{Goal: mark})
		s := h.failed(want[0])
		gaveUp := h.all(func(e *runv1.Event) bool { return e.GetPlanningFailed() != nil })
		if len(gaveUp) != 1 || !strings.Contains(gaveUp[0].GetPlanningFailed().GetError().GetMessage(), want[1]) || !strings.Contains(s.GetError().GetMessage(), want[1]) {
			t.Errorf("%s: %v\n%s", mark, s.GetError(), h.told())
		}
		if n := len(model.prompts(mark)); n != 1 {
			t.Errorf("%s: %d calls", mark, n)
		}
	}
}
