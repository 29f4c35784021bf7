package run_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/cairnrun/cairn/pkg/run"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// drawStep makes a step that may depend on those before it; most of them are valid.
func drawStep(t *rapid.T, id string, before []string) *planv1.Step {
	pick := func(label string, percent int) bool { return rapid.IntRange(0, 99).Draw(t, label) < percent }
	s := &planv1.Step{Id: id, Objective: "do " + id}
	for _, b := range before {
		if pick("depends", 35) {
			s.DependsOn = append(s.DependsOn, b)
		}
	}
	args := `{"x":1}`
	if n := len(s.GetDependsOn()); n > 0 && pick("refers", 50) {
		from := s.GetDependsOn()[rapid.IntRange(0, n-1).Draw(t, "from")]
		path := rapid.SampledFrom([]string{"", ".n", ".missing"}).Draw(t, "path")
		def := rapid.SampledFrom([]string{"", `,"default":0`}).Draw(t, "default")
		args = fmt.Sprintf(`{"x":{"$ref":"steps.%s.result%s"%s}}`, from, path, def)
	}
	s.Action = &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: rapid.SampledFrom([]string{"echo", "pay", "flaky"}).Draw(t, "tool"), Arguments: jsonText(args)}
	control := func(name, args string) {
		s.Action = &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_CONTROL, Name: name, Arguments: jsonText(args)}
	}
	switch kind := rapid.IntRange(0, 99).Draw(t, "kind"); {
	case kind < 6:
		control("wait", `{"duration":"30s"}`)
	case kind < 12:
		control("user.ask", rapid.SampledFrom([]string{`{"question":"?"}`, `{"question":"?","timeout":"1m","schema":{"type":"boolean"}}`}).Draw(t, "ask"))
	case kind < 18 && len(s.GetDependsOn()) > 0:
		control("join", `{}`)
	case kind < 22:
		control("finish", `{"done":true}`)
	case kind < 34:
		s.ForEach = jsonText(rapid.SampledFrom([]string{`[1,2,3]`, `[]`, `["a"]`}).Draw(t, "items"))
		s.Action.Arguments = jsonText(`{"x":{"$ref":"item"},"i":{"$ref":"index"}}`)
	}
	tool := s.GetAction().GetKind() == planv1.ActionKind_ACTION_KIND_TOOL
	if pick("when", 20) {
		s.When = rapid.SampledFrom([]string{"true", "false", "1 < 2"}).Draw(t, "condition")
	}
	s.Optional = pick("optional", 20)
	if tool {
		if pick("retries", 40) {
			s.Retry = &planv1.Retry{MaxAttempts: int32(rapid.IntRange(1, 3).Draw(t, "attempts")), Factor: 2,
				Delay: durationpb.New(time.Duration(rapid.IntRange(0, 2).Draw(t, "delay")) * time.Second)}
		}
		if pick("expects", 20) {
			s.Expect = &planv1.Expect{Checks: []*planv1.Check{{Expression: "result.n != 5"}}}
		}
		s.Confirm = pick("confirm", 8)
		if pick("undo", 20) {
			s.Compensate = &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: "refund", Arguments: jsonText(fmt.Sprintf(`{"of":{"$ref":"steps.%s.result","default":0}}`, id))}
		}
	}
	s.OnFailure = planv1.FailurePolicy(rapid.SampledFrom([]int{0, 0, 1, 2, 3, 4, 6}).Draw(t, "policy"))
	return s
}

func drawPlan(t *rapid.T) *planv1.Plan {
	p := &planv1.Plan{Goal: "g"}
	var ids []string
	for i := range rapid.IntRange(1, 7).Draw(t, "steps") {
		id := fmt.Sprintf("s%d", i)
		p.Steps = append(p.Steps, drawStep(t, id, ids))
		ids = append(ids, id)
	}
	return p
}

func drawPatch(t *rapid.T, p *planv1.Plan, n int) *planv1.Patch {
	patch := &planv1.Patch{BaseVersion: p.GetVersion() - int32(rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(t, "stale"))}
	for _, s := range p.GetSteps() {
		switch rapid.IntRange(0, 9).Draw(t, "change") {
		case 0:
			patch.Remove = append(patch.Remove, s.GetId())
		case 1, 2:
			patch.Update = append(patch.Update, drawStep(t, s.GetId(), nil))
		case 3:
			patch.Update = append(patch.Update, s)
		}
	}
	if rapid.Bool().Draw(t, "add") {
		patch.Add = append(patch.Add, drawStep(t, fmt.Sprintf("n%d", n), nil))
	}
	return patch
}

func drawObservation(t *rapid.T) *runv1.Observation {
	failed := func(code string) *runv1.Observation {
		return &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_ERROR, Error: &runv1.Error{Code: code, Message: "m"}}
	}
	switch rapid.IntRange(0, 9).Draw(t, "outcome") {
	case 0:
		return failed(rapid.SampledFrom([]string{"timeout", "unavailable", "internal", "resource_missing", "moody", "unknown_outcome", "transport"}).Draw(t, "code"))
	case 1:
		return failed("unavailable")
	case 2:
		return &runv1.Observation{Outcome: rapid.SampledFrom([]runv1.Outcome{runv1.Outcome_OUTCOME_REVOKED, runv1.Outcome_OUTCOME_STARTED, runv1.Outcome_OUTCOME_PARTIAL, 0}).Draw(t, "odd")}
	case 3:
		return &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_SUCCESS, Output: &runv1.Value{Value: &runv1.Value_Artifact{Artifact: &runv1.ArtifactRef{Name: "a", Sha256: "00", Size: 9}}}}
	}
	return &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_SUCCESS, Output: inlineValue(fmt.Sprintf(`{"n":%d}`, rapid.IntRange(0, 6).Draw(t, "n")))}
}

// drawReport makes a report that fits the state, or one that does not.
func drawReport(t *rapid.T, s *story, n int) *runv1.Report {
	snap := s.state.Snapshot()
	action := func() string {
		if len(snap.GetActions()) == 0 || rapid.IntRange(0, 19).Draw(t, "stranger") == 0 {
			return "nobody-1"
		}
		return snap.GetActions()[rapid.IntRange(0, len(snap.GetActions())-1).Draw(t, "action")].GetActionId()
	}
	request := func() string {
		if k := len(snap.GetPlanning()); k > 0 {
			return snap.GetPlanning()[k-1].GetRequestId()
		}
		return "plan-1"
	}
	result := func(id string) *runv1.Report {
		return &runv1.Report{Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{ActionId: id, Observation: drawObservation(t)}}}
	}
	patch := func(id string) *runv1.Report {
		return &runv1.Report{Body: &runv1.Report_PatchProposed{PatchProposed: &runv1.PatchProposed{RequestId: id, Patch: drawPatch(t, s.state.Plan(), n), Tools: storyTools()}}}
	}
	input := func() *runv1.Report {
		id := "input-1"
		if k := len(snap.GetInputs()); k > 0 {
			id = snap.GetInputs()[rapid.IntRange(0, k-1).Draw(t, "input")].GetRequestId()
		}
		answer := rapid.SampledFrom([]string{`{"approved":true}`, `{"approved":false}`, `{"decision":"retry"}`, `{"decision":"skip"}`, `{"decision":"fail"}`, `true`}).Draw(t, "answer")
		return &runv1.Report{Body: &runv1.Report_UserInput{UserInput: &runv1.UserInput{RequestId: id, Answer: jsonText(answer), By: "ann"}}}
	}
	// Most of the time what is owed is done.
	if work := run.Pending(s.state); len(work) > 0 && rapid.IntRange(0, 9).Draw(t, "owed") < 7 {
		switch b := work[rapid.IntRange(0, len(work)-1).Draw(t, "work")].GetBody().(type) {
		case *runv1.Work_Call:
			return result(b.Call.GetActionId())
		case *runv1.Work_Revoke:
			o := rapid.SampledFrom([]runv1.Outcome{runv1.Outcome_OUTCOME_REVOKED, runv1.Outcome_OUTCOME_STARTED}).Draw(t, "revoked")
			return &runv1.Report{Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{ActionId: b.Revoke.GetActionId(), Observation: &runv1.Observation{Outcome: o}}}}
		case *runv1.Work_Plan:
			return &runv1.Report{Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{RequestId: b.Plan.GetRequestId(), Plan: drawPlan(t), Tools: storyTools()}}}
		case *runv1.Work_Replan:
			if rapid.IntRange(0, 4).Draw(t, "answers") == 0 {
				a := &runv1.ReplanAnswered{RequestId: b.Replan.GetRequestId(), Reason: "r"}
				if rapid.Bool().Draw(t, "answer") {
					a.Answer = jsonText(`{"a":1}`)
				}
				return &runv1.Report{Body: &runv1.Report_ReplanAnswered{ReplanAnswered: a}}
			}
			return patch(b.Replan.GetRequestId())
		}
	}
	switch rapid.IntRange(0, 11).Draw(t, "report") {
	case 0, 1, 2:
		if d, ok := run.NextDeadline(s.state); ok {
			if d.At.After(s.now) {
				s.now = d.At
			}
			return &runv1.Report{Body: &runv1.Report_TimerDue{TimerDue: d.Timer}}
		}
		return input()
	case 3, 4, 5:
		return input()
	case 6:
		if rapid.IntRange(0, 5).Draw(t, "really") == 0 {
			return &runv1.Report{Body: &runv1.Report_CancelRun{CancelRun: &runv1.CancelRun{Reason: "r"}}}
		}
		return result(action())
	case 7:
		return &runv1.Report{Body: &runv1.Report_PlanningGivenUp{PlanningGivenUp: &runv1.PlanningGivenUp{RequestId: request(), Error: &runv1.Error{Code: "c"}}}}
	case 8:
		if s.state.Plan() != nil {
			return patch("")
		}
	case 9:
		if s.last != nil {
			return proto.Clone(s.last).(*runv1.Report)
		}
	}
	return result(action())
}

// TestAnyHistory tells runs of random plans, results, answers, patches, timers and nonsense. The driving loop of the
// stories checks after every report that no argument was changed, that folding is deciding, that a snapshot restores the
// same state, that the log verifies, that what is not terminal can go on, and that a terminal state absorbs.
func TestAnyHistory(t *testing.T) {
	ends := map[runv1.RunStatus]int{}
	rapid.Check(t, func(t *rapid.T) {
		s := newStory(t)
		spec := &runv1.RunSpec{Goal: "g", Limits: &runv1.RunLimits{
			MaxParallel: int32(rapid.IntRange(0, 3).Draw(t, "max_parallel")),
			MaxReplans:  int32(rapid.SampledFrom([]int{0, 1, -1}).Draw(t, "max_replans")),
			MaxEvents:   int64(rapid.SampledFrom([]int{0, 0, 0, 40}).Draw(t, "max_events")),
			MaxSteps:    int32(rapid.SampledFrom([]int{0, 0, 0, 5}).Draw(t, "max_steps")),
		}}
		if rapid.IntRange(0, 9).Draw(t, "deadline") == 0 {
			spec.Limits.MaxDuration = durationpb.New(time.Minute)
		}
		s.report(&runv1.Report{Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: spec}}})
		// Drawn by itself: among all reports a cancel is too rare for every test to see one.
		cancelAt := -1
		if rapid.IntRange(0, 4).Draw(t, "cancelled") == 0 {
			cancelAt = rapid.IntRange(0, 3).Draw(t, "cancel_at")
		}
		for n := range rapid.IntRange(1, 60).Draw(t, "reports") {
			before, ended := s.state, s.state.Terminal()
			r := drawReport(t, s, n)
			if n == cancelAt {
				r = &runv1.Report{Body: &runv1.Report_CancelRun{CancelRun: &runv1.CancelRun{Reason: "r"}}}
			}
			step := s.report(r)
			if ended {
				if s.state.Status() != before.Status() {
					t.Fatalf("a terminal run became %s", s.state.Status())
				}
				for _, e := range step.Events {
					if e.GetObservationRecorded() == nil {
						t.Fatalf("a terminal run took up %s", run.Explain(e))
					}
				}
			}
			// The same report again changes nothing.
			again := run.Advance(s.state, r, s.now)
			if len(again.Events) > 0 {
				t.Fatalf("the same report again leads to %s", run.Explain(again.Events[0]))
			}
			s.now = s.now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "pause")) * time.Second)
		}
		ends[s.state.Status()]++
	})
	for _, end := range []runv1.RunStatus{runv1.RunStatus_RUN_STATUS_COMPLETED, runv1.RunStatus_RUN_STATUS_FAILED, runv1.RunStatus_RUN_STATUS_CANCELLED} {
		if ends[end] == 0 {
			t.Errorf("no history ended %s: %v", end, ends)
		}
	}
	t.Logf("%v", ends)
}
