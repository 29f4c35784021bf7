package main

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/run"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// follow is what the owner and the world do about an event that is in the log.
func (w *world) follow(s run.State, e *runv1.Event) {
	if work := run.WorkFor(s, e); work != nil {
		w.publishWork(work)
	}
	switch b := e.GetBody().(type) {
	case *runv1.Event_UserInputRequested:
		w.ask(e.GetRunId(), b.UserInputRequested)
	case *runv1.Event_PlanPatched:
		w.stats.replans++
	}
}

func subject(work *runv1.Work) string {
	switch b := work.GetBody().(type) {
	case *runv1.Work_Plan:
		return work.GetRunId() + ".plan." + b.Plan.GetRequestId()
	case *runv1.Work_Replan:
		return work.GetRunId() + ".plan." + b.Replan.GetRequestId()
	case *runv1.Work_Call:
		return work.GetRunId() + ".call." + b.Call.GetActionId()
	case *runv1.Work_Revoke:
		return work.GetRunId() + ".revoke." + b.Revoke.GetActionId()
	}
	return ""
}

// publishWork is a queue with one message a subject: a second one is refused while the first is there.
func (w *world) publishWork(work *runv1.Work) {
	at := subject(work)
	if at == "" {
		w.breaks("work without a body for %s", work.GetRunId())
		return
	}
	if w.work[at] != nil {
		return
	}
	w.work[at] = proto.Clone(work).(*runv1.Work)
	w.takeWork(at, work, w.soon())
}

func (w *world) takeWork(at string, work *runv1.Work, d time.Duration) {
	w.after(d, "work", func() {
		if w.work[at] == nil {
			return
		}
		if w.fault(0.02) {
			w.takeWork(at, work, ackWait) // its taker died before it did anything
			return
		}
		again := w.fault(0.02) // its taker died before it acknowledged
		if until := work.GetValidUntil(); until == nil || !w.now.After(until.AsTime()) {
			w.perform(work)
		}
		if again {
			w.stats.redelivered++
			w.takeWork(at, work, ackWait)
			return
		}
		delete(w.work, at)
	})
}

func (w *world) perform(work *runv1.Work) {
	switch b := work.GetBody().(type) {
	case *runv1.Work_Plan:
		w.plan(work.GetRunId(), b.Plan)
	case *runv1.Work_Replan:
		w.replan(work.GetRunId(), b.Replan)
	case *runv1.Work_Call:
		w.call(work.GetRunId(), b.Call)
	case *runv1.Work_Revoke:
		w.revoke(work.GetRunId(), b.Revoke)
	}
}

// call is the tool router and the tool: claims, execution, result.
func (w *world) call(id string, c *runv1.CallWork) {
	action := id + "/" + c.GetActionId()
	result := func(o *runv1.Observation) {
		w.publish(&runv1.Report{Id: action + "-result", RunId: id, Tenant: "default",
			Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{ActionId: c.GetActionId(), Observation: o}}})
	}
	if w.now.After(c.GetNotAfter().AsTime().Add(30 * time.Second)) {
		result(failure("timeout"))
		return
	}
	if !c.GetIdempotent() {
		if w.claims[action] != "" {
			return
		}
		w.claims[action] = "executed"
		if w.fault(0.02) {
			w.say("tool dies after claiming %s", action)
			return
		}
	}
	if raw, ok := w.known[c.GetIdempotencyKey()]; ok {
		o := &runv1.Observation{}
		if err := proto.Unmarshal(raw, o); err != nil {
			w.breaks("known result of %s: %v", action, err)
		}
		w.after(w.soon(), "known result", func() { result(o) })
		return
	}
	w.stats.executions++
	w.starts[action]++
	w.say("tool %s executes %s", c.GetTool(), action)
	if !c.GetIdempotent() && w.starts[action] > 1 {
		w.breaks("%s is not idempotent and was executed %d times", action, w.starts[action])
	}
	o := w.tools.behave(w, c)
	if o == nil {
		return // no answer ever
	}
	if o.GetOutcome() == runv1.Outcome_OUTCOME_SUCCESS {
		w.effects[c.GetIdempotencyKey()]++
		if n := w.effects[c.GetIdempotencyKey()]; n > 1 {
			w.breaks("%s: %d successful executions for one idempotency key", action, n)
		}
		raw, err := proto.Marshal(o)
		if err != nil {
			w.breaks("result of %s: %v", action, err)
		}
		w.known[c.GetIdempotencyKey()] = raw
	}
	delay := w.soon()
	if w.fault(0.05) {
		delay = time.Duration(w.rng.IntN(120)) * time.Second
	}
	w.after(delay, "result", func() { result(o) })
}

func (w *world) revoke(id string, r *runv1.RevokeWork) {
	action := id + "/" + r.GetActionId()
	o := &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_STARTED}
	if r.GetIdempotent() || w.claims[action] == "" || w.claims[action] == "revoked" {
		w.claims[action] = "revoked"
		o.Outcome = runv1.Outcome_OUTCOME_REVOKED
	}
	w.publish(&runv1.Report{Id: action + "-revoked", RunId: id, Tenant: "default",
		Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{ActionId: r.GetActionId(), Observation: o}}})
}

// ask answers a question after a while, sometimes twice and differently.
func (w *world) ask(id string, u *runv1.UserInputRequested) {
	answer := func(text string) {
		w.publish(&runv1.Report{Id: fmt.Sprintf("%s-%s-%s", id, u.GetRequestId(), text), RunId: id, Tenant: "default",
			Body: &runv1.Report_UserInput{UserInput: &runv1.UserInput{RequestId: u.GetRequestId(), Answer: &planv1.JsonText{Text: text}, By: "somebody"}}})
	}
	texts := []string{`{"text":"yes"}`, `{"text":"no"}`}
	switch u.GetPurpose() {
	case runv1.UserInputPurpose_USER_INPUT_PURPOSE_APPROVAL:
		texts = []string{`{"approved":true}`, `{"approved":false}`}
	case runv1.UserInputPurpose_USER_INPUT_PURPOSE_FAILURE:
		texts = []string{`{"decision":"skip"}`, `{"decision":"fail"}`, `{"decision":"retry"}`}
	}
	first := texts[w.rng.IntN(len(texts))]
	w.after(time.Duration(1+w.rng.IntN(60))*time.Second, "answer", func() { answer(first) })
	if w.chance(0.2) {
		other := texts[w.rng.IntN(len(texts))]
		w.after(time.Duration(1+w.rng.IntN(90))*time.Second, "second answer", func() { answer(other) })
	}
}

func failure(code string) *runv1.Observation {
	return &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_ERROR, Error: &runv1.Error{Code: code, Message: "simulated"}}
}
