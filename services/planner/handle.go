package planner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/plan"
	"github.com/cairnrun/cairn/pkg/telemetry"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// maxTextBytes bounds the proposed document that travels with a report; the log keeps less still.
const maxTextBytes = 64 << 10

// maxRefusalFindings bounds the findings in an error's details; the refused proposal before has all.
const maxRefusalFindings = 20

// handle takes one request. It returns nil, and the request is acknowledged, only when the report is stored.
func (s *service) handle(m *message.Message) error {
	w := &runv1.Work{}
	if err := proto.Unmarshal(m.Payload, w); err != nil {
		return fmt.Errorf("%w: work on %s: %w", bus.ErrPoison, bus.Subject(m), err)
	}
	ctx := telemetry.WithRun(m.Context(), w.GetRunId())
	if until := w.GetValidUntil(); until != nil && time.Now().After(until.AsTime()) {
		s.Logger.InfoContext(ctx, "request came too late and is not taken up", "subject", bus.Subject(m), "valid_until", until.AsTime())
		return nil
	}
	kind, request := "plan", w.GetPlan().GetRequestId()
	if w.GetReplan() != nil {
		kind, request = "replan", w.GetReplan().GetRequestId()
	}
	if m.Metadata.Get(telemetry.HeaderTraceparent) == "" {
		// The run's own trace goes on, also where the message came without headers.
		ctx = telemetry.ContextWith(ctx, w.GetTrace())
	}
	ctx, span := otel.Tracer(telemetry.Scope).Start(ctx, kind, trace.WithAttributes(
		telemetry.RunID.String(w.GetRunId()), telemetry.RequestID.String(request), telemetry.Tenant.String(w.GetTenant())))
	defer span.End()
	begun := time.Now()
	report, p, err := s.answer(ctx, w)
	if err == nil {
		report.RunId, report.Tenant, report.Trace = w.GetRunId(), w.GetTenant(), telemetry.TraceOf(ctx)
		err = s.reporter.Report(ctx, report)
		if errors.Is(err, bus.ErrTooLarge) {
			err = s.reporter.Report(ctx, tooLarge(report, request, err))
		}
	}
	outcome := outcomeOf(report, err)
	attrs := []attribute.KeyValue{telemetry.Outcome.String(outcome), telemetry.Source.String(p.trace.GetSource())}
	span.SetAttributes(append(attrs, telemetry.Prompt.String(p.trace.GetPromptVersion()))...)
	telemetry.Metrics().PlannerDuration.Record(ctx, time.Since(begun).Seconds(), metric.WithAttributes(attrs...))
	if err != nil {
		return err
	}
	s.Logger.InfoContext(ctx, kind+" answered", "request", request, "outcome", outcome, "source", p.trace.GetSource(), "name", p.trace.GetName())
	return nil
}

// answer works out the report for a request, and the proposal that it came from.
func (s *service) answer(ctx context.Context, w *runv1.Work) (*runv1.Report, proposal, error) {
	switch b := w.GetBody().(type) {
	case *runv1.Work_Plan:
		return s.plan(ctx, w.GetRunId(), b.Plan)
	case *runv1.Work_Replan:
		return s.replan(ctx, w.GetRunId(), b.Replan)
	}
	return nil, proposal{}, fmt.Errorf("%w: neither a plan nor a replan is asked for", bus.ErrPoison)
}

func (s *service) plan(ctx context.Context, runID string, w *runv1.PlanWork) (*runv1.Report, proposal, error) {
	r := planRequest{runID: runID, PlanWork: w, tools: s.tools.now()}
	for _, st := range s.strategies {
		p, err := st.plan(ctx, r)
		if err != nil {
			return nil, proposal{trace: &runv1.PlannerTrace{Source: st.name()}}, fmt.Errorf("%s: %w", st.name(), err)
		}
		if p != nil {
			return s.planReport(ctx, r, *p), *p, nil
		}
	}
	return givenUp(w.GetRequestId(), planFault(codeNoPlan, messageNoPlanForGoal), nil), proposal{}, nil
}

func (s *service) planReport(ctx context.Context, r planRequest, p proposal) *runv1.Report {
	if p.giveUp != nil {
		return givenUp(r.GetRequestId(), p.giveUp, p.trace)
	}
	out := &runv1.PlanProposed{RequestId: r.GetRequestId(), Findings: p.findings, Text: clip(p.text, maxTextBytes), Planner: p.trace}
	if p.doc != nil {
		if p.tools != nil {
			r.tools = p.tools
		}
		env := environment(r.GetSpec(), r.tools)
		draft, _ := env.Limits.Parse(p.doc)
		env.Tools = s.toolsFor(ctx, p, draft.GetSteps(), r.tools)
		pl, found := plan.Read(p.doc, env)
		out.Findings = append(out.Findings, found...)
		if pl != nil {
			pl.CreatedBy = p.createdBy
			out.Plan, out.Tools = pl, definitions(toolsOf(pl.GetSteps()), env.Tools)
		}
	}
	if p.fixed && r.GetAttempt() > 1 && plan.HasErrors(out.Findings) {
		// It was refused before and cannot become better.
		return givenUp(r.GetRequestId(), refusal("the plan is refused", out.Findings), p.trace)
	}
	return &runv1.Report{Body: &runv1.Report_PlanProposed{PlanProposed: out}}
}

// toolsFor waits for tools that a plan of a person's making names and that are not there yet: the services that offer
// them may just be starting. A model only knows what is there.
func (s *service) toolsFor(ctx context.Context, p proposal, steps []*planv1.Step, known map[string]*planv1.ToolDefinition) map[string]*planv1.ToolDefinition {
	if !p.fixed {
		return known
	}
	names := toolsOf(steps)
	s.tools.await(ctx, s.ToolWait, func(tools map[string]*planv1.ToolDefinition) bool {
		for _, n := range names {
			if tools[n] == nil && known[n] == nil {
				return false
			}
		}
		return true
	})
	all := maps.Clone(known)
	maps.Copy(all, s.tools.now())
	return all
}

func (s *service) replan(ctx context.Context, runID string, w *runv1.ReplanWork) (*runv1.Report, proposal, error) {
	tools := map[string]*planv1.ToolDefinition{}
	for _, d := range w.GetTools() {
		tools[d.GetName()] = d
	}
	// What is registered now counts; what the plan was made with only stands in for tools that are gone.
	maps.Copy(tools, s.tools.now())
	r := replanRequest{runID: runID, ReplanWork: w, tools: tools}
	for _, st := range s.strategies {
		p, err := st.replan(ctx, r)
		if err != nil {
			return nil, proposal{trace: &runv1.PlannerTrace{Source: st.name()}}, fmt.Errorf("%s: %w", st.name(), err)
		}
		if p != nil {
			return s.patchReport(ctx, r, *p), *p, nil
		}
	}
	return declined(w.GetRequestId(), proposal{reason: messageNoReplan}), proposal{}, nil
}

func (s *service) patchReport(ctx context.Context, r replanRequest, p proposal) *runv1.Report {
	switch {
	case p.giveUp != nil:
		return givenUp(r.GetRequestId(), p.giveUp, p.trace)
	case p.decline:
		return declined(r.GetRequestId(), p)
	}
	out := &runv1.PatchProposed{RequestId: r.GetRequestId(), Findings: p.findings, Text: clip(p.text, maxTextBytes), Planner: p.trace, CreatedBy: p.createdBy}
	if p.doc != nil {
		env := environment(r.GetSpec(), r.tools)
		patch, found := readPatch(p.doc, r, env)
		out.Findings = append(out.Findings, found...)
		if patch != nil {
			changed := append(append([]*planv1.Step(nil), patch.GetAdd()...), patch.GetUpdate()...)
			env.Tools = s.toolsFor(ctx, p, changed, r.tools)
			if !plan.HasErrors(found) {
				_, applied := plan.Apply(r.GetPlan(), patch, progress(r.GetSteps()), env)
				out.Findings = append(out.Findings, applied...)
			}
			out.Patch, out.Tools = patch, definitions(toolsOf(changed), env.Tools)
		}
	}
	if p.fixed && r.GetAttempt() > 1 && plan.HasErrors(out.Findings) {
		return declined(r.GetRequestId(), proposal{trace: p.trace, reason: refusal("the patch of rule "+p.trace.GetName()+" is refused", out.Findings).GetMessage()})
	}
	return &runv1.Report{Body: &runv1.Report_PatchProposed{PatchProposed: out}}
}

// exhausted tells the run that its request cannot be worked on.
func (s *service) exhausted(ctx context.Context, d bus.Dead) error {
	parts := strings.Split(strings.TrimPrefix(d.Subject, bus.PlanPrefix), ".")
	if len(parts) != 2 {
		return nil
	}
	w := &runv1.Work{RunId: parts[0]}
	if !d.Poison {
		if err := proto.Unmarshal(d.Data, w); err != nil {
			w = &runv1.Work{RunId: parts[0]}
		}
	}
	e := planFault(codeDeliveryExhaust, fmt.Sprintf("the planner could not work on %s in %d tries: %s", parts[1], d.Deliveries, d.Reason))
	report := givenUp(parts[1], e, nil)
	report.RunId, report.Tenant, report.Trace = w.GetRunId(), w.GetTenant(), w.GetTrace()
	return s.reporter.Report(ctx, report)
}

func givenUp(request string, e *runv1.Error, t *runv1.PlannerTrace) *runv1.Report {
	return &runv1.Report{Body: &runv1.Report_PlanningGivenUp{PlanningGivenUp: &runv1.PlanningGivenUp{RequestId: request, Error: e, Planner: t}}}
}

func declined(request string, p proposal) *runv1.Report {
	return &runv1.Report{Body: &runv1.Report_ReplanAnswered{ReplanAnswered: &runv1.ReplanAnswered{
		RequestId: request, Reason: p.reason, Answer: p.answer, Planner: p.trace,
	}}}
}

// tooLarge stands in for a report over the bus's limit.
func tooLarge(r *runv1.Report, request string, err error) *runv1.Report {
	t := r.GetPlanProposed().GetPlanner()
	if p := r.GetPatchProposed(); p != nil {
		t = p.GetPlanner()
	}
	out := givenUp(request, planFault("plan_too_large", "the proposal does not fit a message of the bus: "+err.Error()), t)
	out.RunId, out.Tenant, out.Trace = r.GetRunId(), r.GetTenant(), r.GetTrace()
	return out
}

func outcomeOf(r *runv1.Report, err error) string {
	switch b := r.GetBody().(type) {
	case *runv1.Report_PlanProposed:
		if plan.HasErrors(b.PlanProposed.GetFindings()) {
			return "unsound"
		}
		return "proposed"
	case *runv1.Report_PatchProposed:
		if plan.HasErrors(b.PatchProposed.GetFindings()) {
			return "unsound"
		}
		return "proposed"
	case *runv1.Report_ReplanAnswered:
		return "answered"
	case *runv1.Report_PlanningGivenUp:
		return "given_up"
	}
	if err != nil {
		return "failed"
	}
	return ""
}

// refusal says what is wrong with a document: the first error in words, all of them in the details.
func refusal(what string, findings []*planv1.Finding) *runv1.Error {
	type shownFinding struct {
		Code    string `json:"code"`
		Pointer string `json:"pointer"`
		Message string `json:"message"`
	}
	var errs []shownFinding
	message := what
	for _, f := range findings {
		if f.GetSeverity() != planv1.Severity_SEVERITY_ERROR {
			continue
		}
		if len(errs) == 0 {
			place := f.GetCode()
			if f.GetPointer() != "" {
				place += " at " + f.GetPointer()
			}
			message += fmt.Sprintf(": %s (%s)", f.GetMessage(), place)
			if f.GetHint() != "" {
				message += "; " + f.GetHint()
			}
		}
		errs = append(errs, shownFinding{f.GetCode(), f.GetPointer(), f.GetMessage()})
	}
	if n := len(errs) - 1; n > 0 {
		message += fmt.Sprintf("; %d more findings", n)
	}
	e := planFault(codePlanRejected, message)
	if details, err := json.Marshal(map[string]any{"findings": errs[:min(len(errs), maxRefusalFindings)]}); err == nil {
		e.Details = &planv1.JsonText{Text: string(details)}
	}
	return e
}

// clip shortens to at most limit bytes at a rune border.
func clip(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && s[limit]&0xC0 == 0x80 {
		limit--
	}
	return s[:limit]
}
