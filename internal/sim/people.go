package main

import (
	"fmt"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// heard is what people see of an event in the log: a question is answered, sometimes twice and differently, sometimes by
// nonsense first, sometimes never where it has a time limit.
func (w *world) heard(id string, e *runv1.Event) {
	u := e.GetUserInputRequested()
	if u == nil {
		return
	}
	texts := []string{`{"text":"yes"}`, `"no"`, `7`}
	switch u.GetPurpose() {
	case runv1.UserInputPurpose_USER_INPUT_PURPOSE_APPROVAL:
		texts = []string{`{"approved":true}`, `{"approved":true}`, `{"approved":false}`}
	case runv1.UserInputPurpose_USER_INPUT_PURPOSE_FAILURE:
		texts = []string{`{"decision":"skip"}`, `{"decision":"fail"}`, `{"decision":"retry"}`}
	}
	if u.GetDue() != nil && w.chance(0.3) {
		return
	}
	w.after(w.seconds(60), func() { w.answerTo(id, u.GetRequestId(), texts[w.rng.IntN(len(texts))]) })
	if w.chance(0.3) {
		w.after(w.seconds(90), func() { w.answerTo(id, u.GetRequestId(), texts[w.rng.IntN(len(texts))]) })
	}
	if w.chance(0.1) {
		w.after(w.seconds(30), func() {
			w.answerTo(id, u.GetRequestId(), pick(w, `{`, `{"approved":"perhaps"}`, `{"decision":"guess"}`))
		})
	}
}

func (w *world) answerTo(id, request, text string) {
	w.publish(&runv1.Report{RunId: id, Tenant: tenant,
		Body: &runv1.Report_UserInput{UserInput: &runv1.UserInput{RequestId: request, Answer: &planv1.JsonText{Text: text}, By: "somebody"}}})
}

func (w *world) cancel(id string) {
	r := &runv1.Report{RunId: id, Tenant: tenant, Body: &runv1.Report_CancelRun{CancelRun: &runv1.CancelRun{Reason: "simulated", By: "somebody"}}}
	w.publish(r)
	if w.chance(0.3) {
		w.after(w.seconds(5), func() { w.publish(r) })
	}
}

// patchByPerson changes the plan as it stands in the log: what is open, and sometimes what is finished, or a version that
// is no more.
func (w *world) patchByPerson(id string) {
	r := w.log.runs[id]
	if r == nil || r.state.Plan() == nil {
		return
	}
	p := r.state.Plan()
	patch := &planv1.Patch{BaseVersion: p.GetVersion(), Reason: "a person's"}
	if w.chance(0.1) {
		patch.BaseVersion--
	}
	var before []string
	for _, s := range p.GetSteps() {
		st := r.model.steps[s.GetId()].status
		switch {
		case st == pending && w.chance(0.2) || st.terminal() && w.chance(0.03):
			patch.Update = append(patch.Update, w.step(s.GetId(), before))
		case (st == pending || st.terminal()) && w.chance(0.04):
			patch.Remove = append(patch.Remove, s.GetId())
		}
		if len(before) < 6 {
			before = append(before, s.GetId())
		}
	}
	if w.chance(0.6) {
		w.made++
		patch.Add = append(patch.Add, w.step(fmt.Sprintf("more%d", w.made), before))
	}
	report := &runv1.Report{RunId: id, Tenant: tenant,
		Body: &runv1.Report_PatchProposed{PatchProposed: &runv1.PatchProposed{Patch: patch, Tools: w.definitions()}}}
	w.stats.patches++
	w.publish(report)
	if w.chance(0.2) {
		w.after(w.seconds(20), func() { w.publish(report) })
	}
}

// forge makes a report that nobody asked for: for a run, request or action that is not there, of another tenant, with
// another body, or of nonsense. None of them may change anything but be noted as refused.
func (w *world) forge(id string) {
	w.stats.forged++
	r := &runv1.Report{Id: fmt.Sprintf("forged-%d", w.made), RunId: id, Tenant: tenant}
	w.made++
	result := func(action string, o *runv1.Observation) {
		r.Body = &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{ActionId: action, Observation: o}}
	}
	success := &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_SUCCESS, Output: inline(`{"n":99}`)}
	open := "s0-1"
	if run := w.log.runs[id]; run != nil {
		for _, a := range run.model.order {
			if a.open() {
				open = a.id
			}
		}
	}
	step, attempt := stepOf(open)
	switch w.rng.IntN(10) {
	case 0:
		r.RunId = "nobody"
		result("s0-1", success)
	case 1:
		result(fmt.Sprintf("%s-%d", step, attempt+50+w.rng.IntN(3)), success)
	case 2:
		result(pick(w, "", "-", "s0", "s0-0", "s0=9-1", "ghost-1", "s0-01"), success)
	case 3:
		r.Tenant = "another"
		result(open, success)
	case 4:
		r.Tenant = "another"
		r.Body = &runv1.Report_CancelRun{CancelRun: &runv1.CancelRun{Reason: "a stranger's"}}
	case 5:
		r.Body = &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{RequestId: pick(w, "replan-1", "plan-9", ""),
			Plan: w.document(), Tools: w.definitions()}}
	case 6:
		r.Body = &runv1.Report_PatchProposed{PatchProposed: &runv1.PatchProposed{RequestId: pick(w, "replan-77", "plan-1"),
			Patch: &planv1.Patch{BaseVersion: 1, Remove: []string{"s0"}}}}
	case 7:
		r.Body = &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: &runv1.RunSpec{Goal: "something else"}}}
		if w.log.runs[id] == nil {
			r.Body = &runv1.Report_CancelRun{CancelRun: &runv1.CancelRun{}}
		}
	case 8:
		r.Body = &runv1.Report_UserInput{UserInput: &runv1.UserInput{RequestId: pick(w, "input-99", "input-0", ""), Answer: &planv1.JsonText{Text: "1"}}}
	case 9:
		result(open, &runv1.Observation{})
	}
	w.publish(r)
}
