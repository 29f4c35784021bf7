// Package responder answers an executor's work with as little logic as can be: plans by the run's goal, results without a
// tool. Benchmarks and the executor's tests use it, so that they need neither planner nor tool router.
package responder

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/bus"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Config of responders.
type Config struct {
	// Bus is dialled once for planning and once for calls.
	Bus bus.Config
	// Call gives the observation of a call; nil: success with an empty object at once. Nil results are not reported.
	Call func(*runv1.Work) *runv1.Observation
	// Plan gives the plan for a goal; nil: ByGoal.
	Plan func(goal string) (*planv1.Plan, []*planv1.ToolDefinition, error)
	// AckWait of the work consumers. Default 30 s.
	AckWait time.Duration
	// Batch of a pull. Default 512.
	Batch int
}

// Tool is the one tool of the plans that ByGoal makes.
var Tool = &planv1.ToolDefinition{
	Name: "bench.step", Version: "1", Description: "does nothing",
	InputSchema: &planv1.JsonText{Text: `{"type":"object"}`}, Idempotent: true,
}

// ByGoal makes plans of "chain N", N steps one after the other; "fan N", N steps at once; "wide N", N steps and one after
// them.
func ByGoal(goal string) (*planv1.Plan, []*planv1.ToolDefinition, error) {
	var shape string
	var n int
	if _, err := fmt.Sscanf(goal, "%s %d", &shape, &n); err != nil {
		return nil, nil, fmt.Errorf("goal %q is not SHAPE N: %w", goal, err)
	}
	p := &planv1.Plan{Goal: goal, CreatedBy: planv1.CreatedBy_CREATED_BY_TEMPLATE}
	step := func(i int, after ...string) {
		p.Steps = append(p.Steps, &planv1.Step{
			Id: fmt.Sprintf("s%d", i), Title: fmt.Sprintf("step %d", i), DependsOn: after, Objective: "nothing",
			Action: &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: Tool.GetName(), Arguments: &planv1.JsonText{Text: `{"text":"some words"}`}},
		})
	}
	switch shape {
	case "chain":
		for i := range n {
			if i == 0 {
				step(i)
				continue
			}
			step(i, fmt.Sprintf("s%d", i-1))
		}
	case "fan", "wide":
		all := make([]string, 0, n)
		for i := range n {
			step(i)
			all = append(all, fmt.Sprintf("s%d", i))
		}
		if shape == "wide" {
			step(n, all...)
		}
	default:
		return nil, nil, fmt.Errorf("goal %q has an unknown shape", goal)
	}
	return p, []*planv1.ToolDefinition{Tool}, nil
}

// Responders serve until they are stopped.
type Responders struct {
	config     Config
	partitions int
	stops      []func()
	conns      []*nats.Conn

	mu    sync.Mutex
	calls map[string]int
	// Count says whether calls are counted by run and action.
	count bool
}

// Start serves plan work and call work. With count, Calls tells how often each action was delivered.
func Start(ctx context.Context, c Config, count bool) (*Responders, error) {
	if c.Plan == nil {
		c.Plan = ByGoal
	}
	if c.Call == nil {
		c.Call = func(*runv1.Work) *runv1.Observation { return Success(`{}`) }
	}
	if c.AckWait == 0 {
		c.AckWait = 30 * time.Second
	}
	if c.Batch == 0 {
		c.Batch = 512
	}
	r := &Responders{config: c, calls: map[string]int{}, count: count}
	for name, serve := range map[string]struct {
		filter string
		answer func(*runv1.Work) *runv1.Report
	}{
		"planner":    {bus.PlanPrefix + ">", r.plan},
		"toolrouter": {bus.CallPrefix + ">", r.call},
	} {
		if err := r.serve(ctx, name, serve.filter, serve.answer); err != nil {
			r.Stop()
			return nil, err
		}
	}
	return r, nil
}

// Success is an observation with this JSON output.
func Success(output string) *runv1.Observation {
	return &runv1.Observation{
		Outcome: runv1.Outcome_OUTCOME_SUCCESS,
		Output:  &runv1.Value{Value: &runv1.Value_Inline{Inline: &planv1.JsonText{Text: output}}},
	}
}

// Stop ends serving.
func (r *Responders) Stop() {
	for _, s := range r.stops {
		s()
	}
	for _, nc := range r.conns {
		nc.Close()
	}
}

// Calls is how often the calls of a run were taken, by action.
func (r *Responders) Calls(runID string) map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int{}
	for k, n := range r.calls {
		if id, action, _ := strings.Cut(k, "/"); id == runID {
			out[action] = n
		}
	}
	return out
}

func (r *Responders) serve(ctx context.Context, name, filter string, answer func(*runv1.Work) *runv1.Report) error {
	dial := r.config.Bus
	dial.Name = name
	nc, _, err := bus.Connect(dial)
	if err != nil {
		return err
	}
	r.conns = append(r.conns, nc)
	// Work is acknowledged when the report is stored.
	var mu sync.Mutex
	owed := map[*nats.Msg]jetstream.Msg{}
	take := func(m *nats.Msg) jetstream.Msg {
		mu.Lock()
		defer mu.Unlock()
		w := owed[m]
		delete(owed, m)
		return w
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1<<16),
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, m *nats.Msg, _ *jetstream.PubAck) { _ = take(m).Ack() }),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, _ error) { _ = take(m).NakWithDelay(time.Second) }))
	if err != nil {
		return err
	}
	if r.partitions, err = bus.Partitions(ctx, js); err != nil {
		return err
	}
	cons, err := js.CreateOrUpdateConsumer(ctx, bus.StreamWork, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy, AckWait: r.config.AckWait, MaxAckPending: 1 << 16,
	})
	if err != nil {
		return err
	}
	cc, err := cons.Consume(func(m jetstream.Msg) {
		w := &runv1.Work{}
		if proto.Unmarshal(m.Data(), w) != nil {
			_ = m.Term()
			return
		}
		report := answer(w)
		if report == nil {
			return
		}
		report.RunId, report.Tenant, report.Trace = w.GetRunId(), w.GetTenant(), w.GetTrace()
		data, err := proto.Marshal(report)
		if err != nil {
			_ = m.Term()
			return
		}
		out := &nats.Msg{Subject: bus.ReportSubject(bus.Partition(w.GetRunId(), r.partitions), w.GetRunId()), Data: data}
		mu.Lock()
		owed[out] = m
		mu.Unlock()
		if _, err := js.PublishMsgAsync(out); err != nil {
			_ = take(out).NakWithDelay(time.Second)
		}
	}, jetstream.PullMaxMessages(r.config.Batch), jetstream.PullExpiry(2*time.Second))
	if err != nil {
		return err
	}
	r.stops = append(r.stops, cc.Stop)
	return nil
}

func (r *Responders) plan(w *runv1.Work) *runv1.Report {
	request, spec := w.GetPlan().GetRequestId(), w.GetPlan().GetSpec()
	if w.GetReplan() != nil {
		return &runv1.Report{Id: "replan-" + w.GetRunId(), Body: &runv1.Report_ReplanAnswered{ReplanAnswered: &runv1.ReplanAnswered{
			RequestId: w.GetReplan().GetRequestId(), Reason: "no replanner here",
		}}}
	}
	p, tools, err := r.config.Plan(spec.GetGoal())
	if err != nil {
		return &runv1.Report{Id: "plan-" + w.GetRunId(), Body: &runv1.Report_PlanningGivenUp{PlanningGivenUp: &runv1.PlanningGivenUp{
			RequestId: request, Error: &runv1.Error{Code: "internal", Message: err.Error()},
		}}}
	}
	return &runv1.Report{Id: "plan-" + w.GetRunId(), Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{
		RequestId: request, Plan: p, Tools: tools, Planner: &runv1.PlannerTrace{Source: "template", Name: "bench"},
	}}}
}

func (r *Responders) call(w *runv1.Work) *runv1.Report {
	action := w.GetCall().GetActionId()
	if w.GetRevoke() != nil {
		action = w.GetRevoke().GetActionId()
		return &runv1.Report{Id: "revoke-" + action, Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{
			ActionId: action, Observation: &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_REVOKED},
		}}}
	}
	if r.count {
		r.mu.Lock()
		r.calls[w.GetRunId()+"/"+action]++
		r.mu.Unlock()
	}
	o := r.config.Call(w)
	if o == nil {
		return nil
	}
	return &runv1.Report{Id: action, Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{ActionId: action, Observation: o}}}
}
