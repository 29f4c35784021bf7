// Package responder answers an executor's work with as little logic as can be: plans by the run's goal, results without a
// tool. Benchmarks and the executor's tests use it, so that they need neither planner nor tool router.
package responder

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
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

// serve takes work of one kind. It speaks to the server itself: what is measured is the executor, and the library's
// consuming and publishing would cost more than the answers do.
func (r *Responders) serve(ctx context.Context, name, filter string, answer func(*runv1.Work) *runv1.Report) error {
	dial := r.config.Bus
	dial.Name = name
	nc, js, err := bus.Connect(dial)
	if err != nil {
		return err
	}
	r.conns = append(r.conns, nc)
	if r.partitions, err = bus.Partitions(ctx, js); err != nil {
		return err
	}
	_, err = js.CreateOrUpdateConsumer(ctx, bus.StreamWork, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy, AckWait: r.config.AckWait, MaxAckPending: 1 << 16,
	})
	if err != nil {
		return err
	}
	// The acknowledgement of a report comes on an inbox that names the work to acknowledge.
	stored := nc.NewInbox() + "."
	acks, err := nc.Subscribe(stored+">", func(m *nats.Msg) {
		work := m.Subject[len(stored):]
		if len(m.Data) == 0 || bytes.Contains(m.Data, []byte(`"error"`)) {
			_ = nc.Publish(work, []byte(`-NAK {"delay": 1000000000}`))
			return
		}
		_ = nc.Publish(work, []byte("+ACK"))
	})
	if err != nil {
		return err
	}
	_ = acks.SetPendingLimits(-1, -1)
	p, err := Pull(nc, bus.StreamWork, name, r.config.Batch, func(m *nats.Msg) {
		w := &runv1.Work{}
		if proto.Unmarshal(m.Data, w) != nil {
			_ = nc.Publish(m.Reply, []byte("+TERM"))
			return
		}
		report := answer(w)
		if report == nil {
			return
		}
		report.RunId, report.Tenant, report.Trace = w.GetRunId(), w.GetTenant(), w.GetTrace()
		data, err := proto.Marshal(report)
		if err != nil {
			_ = nc.Publish(m.Reply, []byte("+TERM"))
			return
		}
		_ = nc.PublishRequest(bus.ReportSubject(bus.Partition(w.GetRunId(), r.partitions), w.GetRunId()), stored+m.Reply, data)
	})
	if err != nil {
		return err
	}
	r.stops = append(r.stops, p.Stop)
	return nil
}

// Puller keeps a batch of messages asked for.
type Puller struct {
	nc    *nats.Conn
	next  string
	batch int
	inbox *nats.Subscription
	done  chan struct{}

	mu    sync.Mutex
	asked int
	heard time.Time
}

const pullExpiry = 2 * time.Second

// Pull hands a consumer's messages to take, one after the other.
func Pull(nc *nats.Conn, stream, consumer string, batch int, take func(*nats.Msg)) (*Puller, error) {
	p := &Puller{nc: nc, batch: batch, next: jetstream.DefaultAPIPrefix + "CONSUMER.MSG.NEXT." + stream + "." + consumer}
	return p, p.start(take)
}

func (p *Puller) start(take func(*nats.Msg)) (err error) {
	p.done = make(chan struct{})
	p.inbox, err = p.nc.Subscribe(p.nc.NewInbox(), func(m *nats.Msg) {
		status := len(m.Data) == 0 && m.Header.Get("Status") != ""
		p.mu.Lock()
		p.heard = time.Now()
		if !status {
			p.asked--
		} else if left, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages")); err == nil {
			p.asked -= left
		} else if m.Header.Get("Status") != "100" {
			p.asked = 0
		}
		p.mu.Unlock()
		p.ask()
		if !status {
			take(m)
		}
	})
	if err != nil {
		return err
	}
	_ = p.inbox.SetPendingLimits(-1, -1)
	p.ask()
	go func() {
		t := time.NewTicker(pullExpiry / 2)
		defer t.Stop()
		for {
			select {
			case <-p.done:
				return
			case <-t.C:
				p.mu.Lock()
				if time.Since(p.heard) > 2*pullExpiry {
					p.asked = 0 // lost, with a connection or in the server
				}
				p.mu.Unlock()
				p.ask()
			}
		}
	}()
	return nil
}

func (p *Puller) ask() {
	p.mu.Lock()
	n := p.batch - p.asked
	if p.asked > p.batch/2 {
		p.mu.Unlock()
		return
	}
	p.asked += n
	p.mu.Unlock()
	_ = p.nc.PublishRequest(p.next, p.inbox.Subject, fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, n, pullExpiry.Nanoseconds()))
}

// Stop takes no more.
func (p *Puller) Stop() {
	close(p.done)
	_ = p.inbox.Unsubscribe()
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
