package main

import (
	"fmt"
	"time"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// queued is work in its queue, which holds one message a subject.
type queued struct {
	at   string
	work *runv1.Work
}

// workshop is what tools keep: claims, results by key, and what the world outside has seen of them.
type workshop struct {
	// claims: action -> executed or revoked. The first one stands.
	claims map[string]string
	// known results by idempotency key, of tools that honour keys.
	known map[string]*runv1.Observation
	// started counts executions by action, effects counts what happened outside by key.
	started map[string]int
	effects map[string]int
	// forced keys were wanted again by a person, although nobody knew whether they had their effect.
	forced map[string]bool
}

func newWorkshop() workshop {
	return workshop{claims: map[string]string{}, known: map[string]*runv1.Observation{}, started: map[string]int{},
		effects: map[string]int{}, forced: map[string]bool{}}
}

// effectKey: keys are a tool's own.
func effectKey(tool, key string) string { return tool + " " + key }

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

// publishWork is what owners do with what is owed. Nothing is asked for that is not in the log.
func (w *world) publishWork(work *runv1.Work) {
	at := subject(work)
	if !w.log.owes(work) {
		w.breaks("durable_first", "%s is published and not in the log", at)
		return
	}
	if r := work.GetRevoke(); r != nil && w.chance(0.8) {
		delete(w.work, work.GetRunId()+".call."+r.GetActionId()) // only saves work
	}
	if w.work[at] != nil {
		return
	}
	q := &queued{at: at, work: work}
	w.work[at] = q
	w.takeWork(q, w.soon())
}

// takeWork delivers until it is acknowledged.
func (w *world) takeWork(q *queued, d time.Duration) {
	w.after(d, func() {
		if w.work[q.at] != q {
			return
		}
		if w.fault(0.02) {
			w.takeWork(q, ackWait) // its taker died before it did anything
			return
		}
		busy := w.perform(q.work)
		if w.fault(0.02) {
			w.stats.redelivered++
			w.takeWork(q, ackWait) // its taker died before it acknowledged
			return
		}
		if busy > ackWait && w.fault(0.5) {
			w.stats.redelivered++
			w.takeWork(q, ackWait) // its taker is slow, and a heartbeat was lost
		}
		w.after(busy, func() {
			if w.work[q.at] == q {
				delete(w.work, q.at)
			}
		})
	})
}

// perform does work and tells how long it takes.
func (w *world) perform(work *runv1.Work) time.Duration {
	id := work.GetRunId()
	stale := work.GetValidUntil() != nil && w.now.After(work.GetValidUntil().AsTime())
	switch b := work.GetBody().(type) {
	case *runv1.Work_Plan:
		if !stale {
			w.plan(id, b.Plan)
		}
	case *runv1.Work_Replan:
		if !stale {
			w.replan(id, b.Replan)
		}
	case *runv1.Work_Call:
		return w.call(id, b.Call, stale)
	case *runv1.Work_Revoke:
		w.revoke(id, b.Revoke)
	}
	return w.soon()
}

func (w *world) result(id, action string, o *runv1.Observation, d time.Duration) {
	w.after(d, func() {
		w.publish(&runv1.Report{RunId: id, Tenant: tenant,
			Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{ActionId: action, Observation: o}}})
	})
}

// claim takes an action's start, once for all.
func (w *world) claim(action, state string) bool {
	if w.tool.claims[action] != "" {
		return false
	}
	w.tool.claims[action] = state
	return true
}

// call is the tool router and the tool: claims, execution, result.
func (w *world) call(id string, c *runv1.CallWork, stale bool) time.Duration {
	action := id + "/" + c.GetActionId()
	late := stale || w.now.After(c.GetNotAfter().AsTime())
	if !c.GetIdempotent() {
		state := "executed"
		if late {
			state = "revoked"
		}
		if !w.claim(action, state) {
			return w.soon()
		}
		if w.fault(0.02) {
			w.say("the tool dies after claiming %s", action)
			return w.soon()
		}
	}
	if late {
		w.result(id, c.GetActionId(), failure("timeout"), w.soon())
		return w.soon()
	}
	if o := w.tool.known[effectKey(c.GetTool(), c.GetIdempotencyKey())]; o != nil && c.GetIdempotent() {
		w.result(id, c.GetActionId(), o, w.soon())
		return w.soon()
	}
	w.begins(id, c)
	took := w.soon()
	if w.fault(0.08) {
		took = w.seconds(100)
	}
	w.after(took, func() {
		o := w.execute(action, c)
		if o != nil {
			d := w.soon()
			if w.fault(0.03) {
				d = w.seconds(120)
			}
			w.result(id, c.GetActionId(), o, d)
		}
	})
	return took
}

// begins notes that an execution starts, and what it may not be.
func (w *world) begins(id string, c *runv1.CallWork) {
	action := id + "/" + c.GetActionId()
	w.stats.executions++
	w.tool.started[action]++
	w.say("tool %s executes %s", c.GetTool(), action)
	if w.now.After(c.GetNotAfter().AsTime()) {
		w.breaks("not_after", "%s begins after its deadline", action)
	}
	if n := w.tool.started[action]; n > 1 && !c.GetIdempotent() {
		w.breaks("at_most_once", "%s must not be repeated and is executed %d times", action, n)
	}
	if w.tool.claims[action] == "revoked" {
		w.breaks("at_most_once", "%s is revoked and begins all the same", action)
	}
}

// execute is the end of an execution: what it did outside, and what it says. nil: there will never be an answer.
func (w *world) execute(action string, c *runv1.CallWork) *runv1.Observation {
	key := effectKey(c.GetTool(), c.GetIdempotencyKey())
	if o := w.tool.known[key]; o != nil && c.GetIdempotent() {
		return o // another instance was faster
	}
	o, happened := w.tools.behave(w, c)
	if happened {
		// One that may be repeated honours its key: the effect of a second attempt is the first one's.
		w.tool.effects[key]++
		if n := w.tool.effects[key]; n > 1 && !c.GetIdempotent() && !w.tool.forced[key] {
			w.breaks("at_most_once", "%s: its effect happened %d times for one key", action, n)
		}
	}
	if o == nil || !happened {
		return o
	}
	if o.GetOutcome() != runv1.Outcome_OUTCOME_ERROR {
		w.tool.known[key] = o
	}
	return o
}

func (w *world) revoke(id string, r *runv1.RevokeWork) {
	action := id + "/" + r.GetActionId()
	o := &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_STARTED}
	if w.claim(action, "revoked") || w.tool.claims[action] == "revoked" {
		o.Outcome = runv1.Outcome_OUTCOME_REVOKED
	}
	w.result(id, r.GetActionId(), o, w.soon())
}

func failure(code string) *runv1.Observation {
	return &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_ERROR, Error: &runv1.Error{Code: code, Message: fmt.Sprintf("simulated %s", code)}}
}
