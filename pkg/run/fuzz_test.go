package run_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// statesOf are the states of the golden logs after each commit, in a fixed order.
func statesOf(t testing.TB) []run.State {
	logs := goldenLogs(t)
	var names []string
	for name := range logs {
		names = append(names, name)
	}
	slices.Sort(names)
	states := []run.State{{}, run.New("r1")}
	for _, name := range names {
		s := run.New("r1")
		for _, c := range logs[name] {
			for _, e := range run.EventsOf(c) {
				s = run.Evolve(s, e)
			}
			states = append(states, s)
		}
	}
	return states
}

// FuzzRecord feeds any report that can be decoded to any state: nothing panics, and what is accepted folds, decides,
// hashes and restores.
func FuzzRecord(f *testing.F) {
	states := statesOf(f)
	for i, body := range []*runv1.Report{
		{Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: &runv1.RunSpec{Goal: "g"}}}},
		{Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{RequestId: "plan-1", Plan: chainPlan(2), Tools: storyTools()}}},
		{Body: &runv1.Report_PatchProposed{PatchProposed: &runv1.PatchProposed{RequestId: "replan-1"}}},
		{Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{ActionId: "a-1", Observation: &runv1.Observation{Outcome: 1}}}},
		{Body: &runv1.Report_UserInput{UserInput: &runv1.UserInput{RequestId: "input-1", Answer: jsonText("true")}}},
		{Body: &runv1.Report_CancelRun{CancelRun: &runv1.CancelRun{}}},
		{Body: &runv1.Report_TimerDue{TimerDue: &runv1.TimerDue{Timer: 3, StepId: "a", ActionId: "a-1"}}},
	} {
		raw, err := proto.Marshal(body)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint16(i*7), raw)
	}
	f.Fuzz(func(t *testing.T, which uint16, raw []byte) {
		r := &runv1.Report{}
		if proto.Unmarshal(raw, r) != nil {
			return
		}
		s := states[int(which)%len(states)]
		step := run.Advance(s, r, start)
		run.AnswerFor(step.State, r, step.Event)
		run.Pending(step.State)
		run.NextDeadline(step.State)
		for _, e := range step.Events {
			run.Explain(e)
			run.WorkFor(step.State, e)
		}
		restored, err := run.Restore(step.State.Snapshot())
		if err != nil {
			t.Fatalf("restore: %v", err)
		}
		if restored.Hash() != step.State.Hash() {
			t.Fatalf("the restored state has another hash")
		}
	})
}

// FuzzEvolve folds any event that can be decoded onto any state: Evolve is total, and so is what looks at the state after.
func FuzzEvolve(f *testing.F) {
	states := statesOf(f)
	for i, log := range []string{"chain", "for_each", "compensate", "case73_assumption", "confirm", "unknown_outcome", "cancel_grace", "refused_reports"} {
		for _, c := range goldenLogs(f)[log] {
			for _, e := range c.GetEvents() {
				raw, err := proto.Marshal(e)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(uint16(i*31)+uint16(e.GetRevision()), raw)
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint16, raw []byte) {
		e := &runv1.Event{}
		if proto.Unmarshal(raw, e) != nil {
			return
		}
		s := run.Evolve(states[int(which)%len(states)], e)
		s.Hash()
		s.Status()
		s.Phase()
		run.Explain(e)
		run.Pending(s)
		run.NextDeadline(s)
		run.Decide(s, start)
		s.Snapshot()
	})
}
