// Package replaytest makes logs of runs for tests: the real core is driven without services.
package replaytest

import (
	"testing"
	"time"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/run"
)

// Exact is a value that only survives where nothing reads its numbers.
const Exact = `{"id":9007199254740993,"max":9223372036854775807,"p":9011.00,"e":1e2,"n":null,"t":"读✅` + "\u2028\u0085" + `"}`

// Driver drives one run and stores what an executor would.
type Driver struct {
	State run.State
	// Commits are the stored commits, oldest first.
	Commits []*runv1.Entry
	// RulesVersion stands in the commits where it is set.
	RulesVersion string

	tb       testing.TB
	previous []byte
	now      time.Time
}

// New drives a run that is yet to be submitted.
func New(tb testing.TB, runID string) *Driver {
	return &Driver{State: run.New(runID), tb: tb, now: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)}
}

// Report lets the core judge a report, which must change something.
func (d *Driver) Report(id string, r *runv1.Report) {
	d.tb.Helper()
	r.Id, r.RunId = id, d.State.RunID()
	d.now = d.now.Add(10 * time.Millisecond)
	step := run.Advance(d.State, r, d.now)
	if len(step.Events) == 0 {
		d.tb.Fatalf("report %s changes nothing", id)
	}
	for {
		d.State = step.State
		d.store(run.NewCommit(step.State, step.Events, step.More, d.now))
		if !step.More {
			return
		}
		step = run.Continue(d.State, d.now)
	}
}

// Snapshot stores the whole state, as a run that idles has it.
func (d *Driver) Snapshot() {
	d.tb.Helper()
	c := run.NewCommit(d.State, nil, false, d.now)
	c.Snapshot = d.State.Snapshot()
	d.store(c)
}

func (d *Driver) store(c *runv1.Commit) {
	d.tb.Helper()
	c.PreviousHash = d.previous
	if d.RulesVersion != "" {
		c.RulesVersion = d.RulesVersion
	}
	e, err := eventlog.EncodeCommit(c, d.State.Revision())
	if err != nil {
		d.tb.Fatal(err)
	}
	d.previous = eventlog.Hash(e.GetCommit())
	d.Commits = append(d.Commits, e)
}

// Submit with a goal.
func (d *Driver) Submit(goal string) {
	d.tb.Helper()
	d.Report("submit", &runv1.Report{Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: &runv1.RunSpec{Goal: goal}}}})
}

// Plan a chain of steps that call the tool echo, each with the id of the value before it.
func (d *Driver) Plan(steps ...string) {
	d.tb.Helper()
	p := &planv1.Plan{Goal: "a chain"}
	for i, id := range steps {
		args := Exact
		if i > 0 {
			args = `{"id":{"$ref":"steps.` + steps[i-1] + `.result.id"}}`
		}
		p.Steps = append(p.Steps, &planv1.Step{
			Id: id, Objective: "say it again",
			Action: &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: "echo", Arguments: &planv1.JsonText{Text: args}},
		})
	}
	d.Report("plan-1", &runv1.Report{Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{
		RequestId: "plan-1", Plan: p, Tools: []*planv1.ToolDefinition{{Name: "echo", Version: "1", Idempotent: true}},
	}}})
}

// Result of a step's first attempt.
func (d *Driver) Result(step, output string) {
	d.tb.Helper()
	d.Report("result-"+step, &runv1.Report{Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{
		ActionId: step + "-1", Observation: &runv1.Observation{
			Outcome: runv1.Outcome_OUTCOME_SUCCESS,
			Output:  &runv1.Value{Value: &runv1.Value_Inline{Inline: &planv1.JsonText{Text: output}}},
		},
	}}})
}

// Completed is a run of the steps a and b, from its submission to its end.
func Completed(tb testing.TB, runID string) *Driver {
	tb.Helper()
	d := New(tb, runID)
	d.Submit("say it twice")
	d.Plan("a", "b")
	d.Result("a", Exact)
	d.Result("b", `{"id":9007199254740993}`)
	if d.State.Status() != runv1.RunStatus_RUN_STATUS_COMPLETED {
		tb.Fatalf("run %s is %s", runID, d.State.Status())
	}
	return d
}
