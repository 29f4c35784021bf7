package executor

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func failed(id, action string) *runv1.Report {
	return &runv1.Report{Id: action + ":" + id, RunId: id, Tenant: "t", Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{
		ActionId: action, Observation: &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_ERROR, Error: &runv1.Error{Code: "internal", Message: "it broke"}},
	}}}
}

// TestWhatIsUnderWayAtTheEndIsCalledOff: a run that fails while others of its actions are under way, or while the planner owes
// an answer, tells the tools and empties its queues, after the end is in the log; one that leaves nothing behind does not.
func TestWhatIsUnderWayAtTheEndIsCalledOff(t *testing.T) {
	s := newStage(t, nil)
	a := s.owner(1)
	a.deliver(submit("busy", "fan 3"))
	a.deliver(proposal(t, "busy", "fan 3"))
	a.deliver(failed("busy", "s0-1"))
	done := s.has("ack s0-1:busy")
	if !inOrder(done, "append busy", "cancel busy", "ack s0-1:busy") {
		t.Errorf("done: %s", strings.Join(done, "; "))
	}
	state := verify(t, s.commits("busy"))
	if state.Status() != runv1.RunStatus_RUN_STATUS_FAILED || !state.LeftUnderWay() {
		t.Errorf("the run is %s", state.Status())
	}

	// What must not be repeated is revoked, and the revocations are published into the emptied queue.
	plan := proposal(t, "careful", "fan 3")
	careful := proto.Clone(plan.GetPlanProposed().GetTools()[0]).(*planv1.ToolDefinition)
	careful.Idempotent = false
	plan.GetPlanProposed().Tools[0] = careful
	a.deliver(submit("careful", "fan 3"))
	a.deliver(plan)
	s.has("ack plan:careful")
	s.mu.Lock()
	s.done = nil // the revocations have the calls' subjects
	s.mu.Unlock()
	a.deliver(failed("careful", "s0-1"))
	done = s.has("ack s0-1:careful")
	if !inOrder(done, "append careful", "cancel careful", "publish cairn.work.call.careful.s1-1", "publish cairn.work.call.careful.s2-1", "ack s0-1:careful") {
		t.Errorf("done: %s", strings.Join(done, "; "))
	}

	for _, id := range []string{"alone", "well"} {
		a.deliver(submit(id, "chain 1"))
		a.deliver(proposal(t, id, "chain 1"))
	}
	a.deliver(failed("alone", "s0-1"))
	a.deliver(observed("well", "s0-1"))
	s.has("ack s0-1:alone")
	done = s.has("ack s0-1:well")
	for _, id := range []string{"alone", "well"} {
		if state := verify(t, s.commits(id)); !state.Terminal() || state.LeftUnderWay() || slices.Contains(done, "cancel "+id) {
			t.Errorf("run %s is %s; done: %s", id, state.Status(), strings.Join(done, "; "))
		}
	}

	// A late result of the run that failed settles its action and calls nothing off again.
	a.deliver(observed("busy", "s1-1"))
	if done = s.has("ack s1-1:busy"); slices.Contains(done, "cancel busy") {
		t.Errorf("it was called off again")
	}
}
