package run

import (
	"slices"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// measure is how far a run is with one of its limits.
type measure struct {
	name           string
	value, maximum int64
}

func (d *data) measures() [3]measure {
	return [3]measure{
		{"max_events", d.revision, d.limits.maxEvents},
		{"max_steps", int64(d.actions.len()), d.limits.maxSteps},
		{"max_run_inline_bytes", d.inlineBytes, MaxRunInlineBytes},
	}
}

// warn says once that a limit is nearly reached.
func (x *decider) warn(d *data) *runv1.Event {
	for _, m := range d.measures() {
		if m.value < (m.maximum*warnAt+99)/100 || slices.Contains(d.warned, m.name) {
			continue
		}
		return x.event(d.revision, "warn", values().int("percent", warnAt), &runv1.Event{Body: &runv1.Event_LimitWarned{
			LimitWarned: &runv1.LimitWarned{Limit: m.name, Value: m.value, Maximum: m.maximum}}})
	}
	return nil
}

// boundary fails a run that has used up its history or its actions, once nothing is under way: no result that is still
// to come is lost. done tells that no new work may begin.
func (x *decider) boundary(d *data) (e *runv1.Event, done bool) {
	ready := d.steps.sum().flags&(wantsLook|wantsSlot) != 0
	switch {
	case d.revision >= d.limits.maxEvents:
		if d.actions.sum().open > 0 {
			return nil, true
		}
		err := fault(codeHistoryLimit, "the run's history has reached max_events")
		return x.fail(d, d.revision, "max_events", values().int("value", d.revision).int("maximum", d.limits.maxEvents),
			withDetails(err, values().str("limit", "max_events").int("value", d.revision).int("maximum", d.limits.maxEvents).raw("results", d.resultsSoFar()).json())), true
	case ready && d.steps.sum().flags&wantsLook == 0 && d.held() == "" && int64(d.actions.len()) >= d.limits.maxSteps:
		if d.actions.sum().open > 0 {
			return nil, true
		}
		return x.fail(d, d.revision, "max_steps", values().int("value", int64(d.actions.len())).int("maximum", d.limits.maxSteps),
			budgetFault("max_steps", int64(d.actions.len()), d.limits.maxSteps)), true
	}
	return nil, false
}

// inlineLimit is how large a result of the next action may be in the log.
func (d *data) inlineLimit() int64 {
	if d.inlineBytes >= MaxRunInlineBytes {
		return min(d.limits.maxInlineBytes, TightInlineBytes)
	}
	return d.limits.maxInlineBytes
}

// resultsInDetails bounds the results that an error shows.
const resultsInDetails = 20

// resultsSoFar shows what the run has reached, as an object of step ids and results, for errors that end it.
func (d *data) resultsSoFar() string {
	o := values()
	n := 0
	d.steps.each(0, func(_ int, el *stepElem) bool {
		if el.st.GetStatus() == runv1.StepStatus_STEP_STATUS_SUCCEEDED && el.st.GetResult() != nil {
			text := valueText(el.st.GetResult())
			if len(text) > int(TightInlineBytes) {
				text = `{"omitted":"read the step"}`
			}
			o.raw(el.st.GetStepId(), text)
			n++
		}
		return n < resultsInDetails
	})
	return o.json().GetText()
}
