package run_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cairnrun/cairn/pkg/run"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func jsonText(s string) *planv1.JsonText { return &planv1.JsonText{Text: s} }

func inlineValue(s string) *runv1.Value {
	return &runv1.Value{Value: &runv1.Value_Inline{Inline: jsonText(s)}}
}

func echoStep(id, args string, deps ...string) *planv1.Step {
	return &planv1.Step{Id: id, Objective: "o", DependsOn: deps, Action: &planv1.Action{
		Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: "echo", Arguments: jsonText(args)}}
}

// chainPlan is steps one after the other, each with the result of the one before.
func chainPlan(n int) *planv1.Plan {
	p := &planv1.Plan{Goal: "chain"}
	for i := range n {
		args := `{"n":0}`
		if i > 0 {
			args = fmt.Sprintf(`{"n":{"$ref":"steps.s%d.result.n"}}`, i-1)
		}
		p.Steps = append(p.Steps, echoStep(fmt.Sprintf("s%d", i), args))
	}
	return p
}

// fanPlan is steps side by side and a join of them all.
func fanPlan(n int) *planv1.Plan {
	p := &planv1.Plan{Goal: "fan"}
	var ids []string
	for i := range n {
		id := fmt.Sprintf("s%d", i)
		ids = append(ids, id)
		p.Steps = append(p.Steps, echoStep(id, fmt.Sprintf(`{"n":%d}`, i)))
	}
	p.Steps = append(p.Steps, &planv1.Step{Id: "join", Objective: "o", DependsOn: ids,
		Action: &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_CONTROL, Name: "join"}})
	return p
}

// drive runs a plan to its end with a tool that answers at once with its arguments, and returns what was committed.
// limits may be nil.
func drive(t testing.TB, p *planv1.Plan, limits *runv1.RunLimits) (run.State, []*runv1.Commit) {
	t.Helper()
	s, now := run.New("r1"), time.Unix(1_700_000_000, 0)
	var commits []*runv1.Commit
	var calls []*runv1.CallWork
	take := func(step run.Step) {
		for {
			if len(step.Events) > 0 {
				commits = append(commits, run.NewCommit(step.State, step.Events, step.More, now))
			}
			for _, e := range step.Events {
				if w := run.WorkFor(step.State, e); w.GetCall() != nil {
					calls = append(calls, w.GetCall())
				}
			}
			s = step.State
			if !step.More {
				return
			}
			step = run.Continue(s, now)
		}
	}
	send := func(r *runv1.Report) {
		now = now.Add(time.Millisecond)
		r.RunId, r.Tenant = "r1", "acme"
		take(run.Advance(s, r, now))
	}
	send(&runv1.Report{Id: "1", Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: &runv1.RunSpec{Goal: "g", Limits: limits}}}})
	send(&runv1.Report{Id: "2", Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{RequestId: "plan-1", Plan: p, Tools: storyTools()}}})
	for len(calls) > 0 {
		c := calls[0]
		calls = calls[1:]
		send(&runv1.Report{Id: c.GetActionId(), Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{
			ActionId: c.GetActionId(), Observation: &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_SUCCESS, Output: inlineValue(c.GetArguments().GetText())}}}})
	}
	if s.Status() != runv1.RunStatus_RUN_STATUS_COMPLETED {
		t.Fatalf("the run is %s, %s: %v", s.Status(), s.Phase(), s.Snapshot().GetError())
	}
	return s, commits
}

// BenchmarkChain5 is the whole life of a run of five steps, state hashes included.
func BenchmarkChain5(b *testing.B) {
	p := chainPlan(5)
	b.ReportAllocs()
	for range b.N {
		drive(b, p, nil)
	}
}

// BenchmarkFan is a wide run to its end.
func BenchmarkFan(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		p := fanPlan(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				drive(b, p, nil)
			}
		})
	}
}

// BenchmarkEvent is one result in a run of 20,000 steps side by side: record, evolve, decide, hash.
func BenchmarkEvent(b *testing.B) {
	for _, n := range []int{10, 1000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, now := run.New("r1"), time.Unix(1_700_000_000, 0)
			p := fanPlan(n - 1)
			for _, r := range []*runv1.Report{
				{Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: &runv1.RunSpec{Goal: "g"}}}},
				{Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{RequestId: "plan-1", Plan: p, Tools: storyTools()}}},
			} {
				r.RunId = "r1"
				s = run.Advance(s, r, now).State
			}
			result := &runv1.Report{RunId: "r1", Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{
				ActionId: "s3-1", Observation: &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_SUCCESS, Output: inlineValue(`{"n":1}`)}}}}
			b.ReportAllocs()
			for b.Loop() {
				step := run.Advance(s, result, now)
				if step.Event == nil {
					b.Fatal("the result was not taken")
				}
				step.State.Hash()
			}
		})
	}
}

// BenchmarkFold is replay: the events of a long run folded from its log.
func BenchmarkFold(b *testing.B) {
	_, commits := drive(b, fanPlan(5000), nil)
	events := 0
	for _, c := range commits {
		events += len(c.GetEvents())
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := run.Replay(commits, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkRestore is a snapshot of 10,000 steps read again.
func BenchmarkRestore(b *testing.B) {
	s, _ := drive(b, fanPlan(10_000), nil)
	m := s.Snapshot()
	for b.Loop() {
		if _, err := run.Restore(m); err != nil {
			b.Fatal(err)
		}
	}
}
