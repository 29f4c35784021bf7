package planner_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// failingRun drives the core and a planner until the run ends; every action fails. It returns the run's error and how
// often the planner was asked.
func (w *world) failingRun() (*runv1.Error, int) {
	w.t.Helper()
	now := time.Now().UTC()
	s, asked := run.New("r1"), 0
	send := func(r *runv1.Report) {
		r.RunId, r.Tenant = "r1", "acme"
		step := run.Advance(s, r, now)
		s = step.State
		for step.More {
			step = run.Continue(s, now)
			s = step.State
		}
	}
	send(&runv1.Report{Id: "submit", Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: goal("g")}}})
	for !s.Terminal() {
		owed := run.Pending(s)
		if len(owed) == 0 {
			w.t.Fatalf("the run is %s and owes nothing", s.Status())
		}
		if c := owed[0].GetCall(); c != nil {
			send(&runv1.Report{Id: c.GetActionId(), Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{ActionId: c.GetActionId(),
				Observation: &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_ERROR, Error: &runv1.Error{Code: "internal", Message: "it broke"}}}}})
			continue
		}
		asked++
		w.send(owed[0])
		send(w.report())
	}
	return s.Snapshot().GetError(), asked
}

// TestCase69_ReplannersThatGoInCircles: whatever the model answers for ever, the run ends, and its error says how it went
// in circles.
func TestCase69_ReplannersThatGoInCircles(t *testing.T) {
	step := func(id, x string) string {
		return fmt.Sprintf(`{"id":%q,"objective":"o","action":{"kind":"tool","name":"echo","arguments":{"x":%s}},"on_failure":"replan_remaining"}`, id, x)
	}
	whole := func(steps string) string { return `{"goal":"g","steps":[` + steps + `]}` }
	added := []providerAnswer{says(whole(step("s0", "0")))}
	for i := range 10 {
		added = append(added, says(fmt.Sprintf(`{"base_version":%d,"remove":["s%d"],"add":[%s]}`, i+1, i, step(fmt.Sprintf("s%d", i+1), fmt.Sprint(i+1)))))
	}
	a, b := says(whole(step("s", `"A"`))), says(whole(step("s", `"B"`)))
	other := says(whole(step("t", `"A"`)))
	for name, c := range map[string]struct {
		answers []providerAnswer
		code    string
		asked   int
	}{
		"always another step":             {added, "replan_limit", run.DefaultMaxReplans + 1},
		"two plans in turn":               {[]providerAnswer{a, b, a, b, a}, "replan_oscillation", 3},
		"the same plan":                   {[]providerAnswer{a, a, a, a, a}, "replan_oscillation", 3},
		"the same plan under other names": {[]providerAnswer{a, other, a, other}, "replan_oscillation", 3},
		"an empty patch":                  {[]providerAnswer{a, says(`{"base_version":1}`)}, "no_progress", 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := ready(t, withModel(newProvider(t, c.answers...)))
			if e, asked := w.failingRun(); e.GetCode() != c.code || asked != c.asked {
				t.Errorf("%s after %d requests, want %s after %d: %s", e.GetCode(), asked, c.code, c.asked, e.GetMessage())
			}
		})
	}
}
