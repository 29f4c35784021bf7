package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/plan"
	"github.com/cairnrun/cairn/pkg/telemetry"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// runIDChars of base32 keep 100 bits, enough that two requests never meet.
const runIDChars = 20

var runIDEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// reportOverhead is kept free below max_payload for a message's headers.
const reportOverhead = 4 << 10

// runService changes runs: it checks requests at the door and reports them to the owner of the run's partition.
type runService struct {
	apiv1.UnimplementedRunServiceServer
	g *gateway
}

// runID names a run. The same tenant and request id give the same run, whichever gateway is asked and whenever.
func runID(tenant, requestID string) string {
	seed := []byte(tenant + "\x00" + requestID)
	if requestID == "" {
		seed = []byte(rand.Text() + rand.Text())
	}
	sum := sha256.Sum256(seed)
	return "r" + strings.ToLower(runIDEncoding.EncodeToString(sum[:]))[:runIDChars]
}

func (s *runService) SubmitRun(ctx context.Context, r *apiv1.SubmitRunRequest) (*apiv1.SubmitRunResponse, error) {
	if err := (&door{limits: s.g.limits}).submit(r); err != nil {
		return nil, err
	}
	id := runID(tenantOf(ctx), r.GetRequestId())
	again := "the same request_id may safely be sent again"
	if r.GetRequestId() == "" {
		again = "without a request_id a repeat would make another run: first ask for run " + id
	}
	report := &runv1.Report{RunId: id, Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: r.GetSpec()}}}
	a, err := s.ask(ctx, report, again)
	if err != nil {
		return nil, err
	}
	return &apiv1.SubmitRunResponse{RunId: id, Created: created(a), Revision: a.GetRevision(), Position: position(a)}, nil
}

func (s *runService) CancelRun(ctx context.Context, r *apiv1.CancelRunRequest) (*apiv1.CancelRunResponse, error) {
	if err := (&door{limits: s.g.limits}).cancel(r); err != nil {
		return nil, err
	}
	report := &runv1.Report{RunId: r.GetRunId(), Body: &runv1.Report_CancelRun{CancelRun: &runv1.CancelRun{
		Reason: r.GetReason(), By: r.GetBy(),
	}}}
	a, err := s.ask(ctx, report, "the cancellation may safely be sent again")
	if err != nil {
		return nil, err
	}
	done := &apiv1.CancelRunResponse{Status: a.GetStatus(), Revision: a.GetRevision(), Position: position(a)}
	if !r.GetWait() || ended(a.GetStatus()) {
		return done, nil
	}
	// The answer's status is that of the commit with the cancellation in it; whatever ends the run comes after it.
	watch := &apiv1.WatchRunRequest{RunId: r.GetRunId(), AfterRevision: a.GetRevision(), Position: position(a)}
	err = s.g.follow(ctx, watch, func(e *runv1.Event) error {
		if status := endOf(e); status != runv1.RunStatus_RUN_STATUS_UNSPECIFIED {
			done.Status, done.Revision = status, e.GetRevision()
		}
		return nil
	})
	if toStatus(err).Code() == codes.Unavailable || err == nil && !ended(done.GetStatus()) {
		return nil, unavailable(reasonStoreAway, "run %s is being cancelled; when it has ended cannot be told now: %v", r.GetRunId(), err)
	}
	return done, err
}

func (s *runService) AnswerInput(ctx context.Context, r *apiv1.AnswerInputRequest) (*apiv1.AnswerInputResponse, error) {
	if err := (&door{limits: s.g.limits}).answer(r); err != nil {
		return nil, err
	}
	report := &runv1.Report{RunId: r.GetRunId(), Body: &runv1.Report_UserInput{UserInput: &runv1.UserInput{
		RequestId: r.GetRequestId(), Answer: r.GetAnswer(), By: r.GetBy(),
	}}}
	a, err := s.ask(ctx, report, "exactly this answer may safely be sent again")
	if err != nil {
		return nil, err
	}
	return &apiv1.AnswerInputResponse{Revision: a.GetRevision(), Position: position(a), Created: created(a)}, nil
}

func (s *runService) PatchPlan(ctx context.Context, r *apiv1.PatchPlanRequest) (*apiv1.PatchPlanResponse, error) {
	if err := (&door{limits: s.g.limits}).patch(r); err != nil {
		return nil, err
	}
	text := r.GetPatch().GetText()
	patch, findings := plan.ParsePatch([]byte(text))
	if plan.HasErrors(findings) {
		return nil, refusedDocument("patch", "the patch is refused", findings)
	}
	all, err := s.g.registry.all()
	if err != nil {
		return nil, err
	}
	report := &runv1.Report{RunId: r.GetRunId(), Body: &runv1.Report_PatchProposed{PatchProposed: &runv1.PatchProposed{
		Patch: patch, Findings: findings, Text: text, Tools: usedBy(patch, all),
		CreatedBy: planv1.CreatedBy_CREATED_BY_HUMAN, Planner: &runv1.PlannerTrace{Source: "explicit"},
	}}}
	a, err := s.ask(ctx, report, "look at the plan's version before the patch is sent again")
	if err != nil {
		return nil, err
	}
	return &apiv1.PatchPlanResponse{Revision: a.GetRevision(), PlanVersion: patch.GetBaseVersion() + 1, Position: position(a)}, nil
}

// usedBy picks the definitions of the tools that a patch's steps name; a missing one is the core's to refuse.
func usedBy(patch *planv1.Patch, all map[string]*planv1.ToolDefinition) []*planv1.ToolDefinition {
	var defs []*planv1.ToolDefinition
	seen := map[string]bool{}
	take := func(a *planv1.Action) {
		name := a.GetName()
		if a.GetKind() == planv1.ActionKind_ACTION_KIND_LLM {
			name = "llm." + name
		}
		if d := all[name]; d != nil && !seen[name] {
			seen[name] = true
			defs = append(defs, d)
		}
	}
	for _, steps := range [][]*planv1.Step{patch.GetAdd(), patch.GetUpdate()} {
		for _, step := range steps {
			take(step.GetAction())
			take(step.GetCompensate())
		}
	}
	return defs
}

func (s *runService) ValidatePlan(ctx context.Context, r *apiv1.ValidatePlanRequest) (*apiv1.ValidatePlanResponse, error) {
	if err := (&door{limits: s.g.limits}).validate(r); err != nil {
		return nil, err
	}
	all, err := s.g.registry.all()
	if err != nil {
		return nil, err
	}
	spec := r.GetSpec()
	env := plan.Environment{Tools: all, AllowedTools: spec.GetAllowedTools(), Permissions: spec.GetPermissions(), Goal: spec.GetGoal()}
	if spec != nil {
		// Without one, nobody says yet what the input will be.
		env.Input = plan.RunInput(spec.GetInput())
	}
	if n := int(spec.GetLimits().GetMaxSteps()); n > 0 {
		env.Limits.MaxSteps = n
	}
	parsed, findings := plan.Read([]byte(r.GetPlan().GetText()), env)
	return &apiv1.ValidatePlanResponse{Valid: !plan.HasErrors(findings), Findings: findings, Plan: parsed}, nil
}

// ask reports to the owner of the run's partition and waits until the outcome is in the log. A refusal is an error.
func (s *runService) ask(ctx context.Context, report *runv1.Report, again string) (*runv1.Answer, error) {
	reporter, err := s.g.ready()
	if err != nil {
		return nil, err
	}
	report.Id = "gw-" + rand.Text()
	report.Tenant = tenantOf(ctx)
	report.Trace = telemetry.TraceOf(ctx)
	report.ReportedAt = timestamppb.Now()
	if most := s.g.maxPayload() - reportOverhead; most > 0 && proto.Size(report) > most {
		return nil, newProblem(codes.ResourceExhausted, reasonTooLarge,
			"the request makes a message of %d bytes; the limit max_payload of NATS leaves %d. Nothing was accepted: make the plan smaller, or raise max_payload", proto.Size(report), most)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.g.times.Answer, errAnswerTimeout)
	defer cancel()
	a, err := reporter.Ask(ctx, report)
	switch {
	case err == nil:
		return a, refusal(documentOf(report), a)
	case errors.Is(err, bus.ErrTooLarge):
		return nil, newProblem(codes.ResourceExhausted, reasonTooLarge, "%v. Nothing was accepted", err)
	case errors.Is(err, bus.ErrMissing):
		return nil, unavailable(reasonNotReady, "%v", err)
	case context.Cause(ctx) == errAnswerTimeout:
		p := unavailable(reasonNoAnswer, "no executor answered within answer_timeout (%s). The outcome is open: it may still be accepted; %s", s.g.times.Answer, again)
		return nil, p.with("run_id", report.GetRunId())
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	p := unavailable(reasonBusAway, "NATS did not take the request: %v. The outcome is open; %s", err, again)
	return nil, p.with("run_id", report.GetRunId())
}

var errAnswerTimeout = errors.New("no answer in time")

// documentOf is the field of the request that the core's findings are about.
func documentOf(report *runv1.Report) string {
	switch {
	case report.GetUserInput() != nil:
		return "answer"
	case report.GetSubmitRun() != nil:
		return "spec.plan"
	}
	return "patch"
}

// refusal makes an error of an answer that says no; findings are about the document.
func refusal(document string, a *runv1.Answer) error {
	if a.GetOutcome() != runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED {
		return nil
	}
	code, reason := codes.FailedPrecondition, a.GetCode()
	violations := fromFindings(document, a.GetFindings())
	if len(violations) > 0 {
		code = codes.InvalidArgument
	}
	if len(violations) == 1 && violations[0].reason == reasonVersionConflict {
		// The patch may be good; the plan has moved on under it.
		reason = reasonVersionConflict
	}
	switch reason {
	case reasonKeyReused, "answer_conflict":
		code = codes.AlreadyExists
	case reasonVersionConflict:
		code = codes.Aborted
	case reasonUnknownRun, "unknown_request":
		code = codes.NotFound
	}
	p := newProblem(code, reason, "%s", a.GetMessage())
	p.violations = violations
	_ = p.with("run_id", a.GetRunId()).with("revision", strconv.FormatInt(a.GetRevision(), 10))
	if name, ok := statusName(a.GetStatus()); ok {
		_ = p.with("status", name)
	}
	return p
}

// refusedDocument shows all findings of a document that was refused before anything was published.
func refusedDocument(field, message string, findings []*planv1.Finding) error {
	p := newProblem(codes.InvalidArgument, reasonPatchRejected, "%s", message)
	p.violations = fromFindings(field, findings)
	if len(p.violations) > 0 {
		p.message += ": " + p.violations[0].field + ": " + p.violations[0].text
	}
	return p
}

func created(a *runv1.Answer) bool {
	return a.GetOutcome() == runv1.AnswerOutcome_ANSWER_OUTCOME_ACCEPTED
}

func position(a *runv1.Answer) *apiv1.LogPosition {
	return &apiv1.LogPosition{Partition: a.GetPartition(), Sequence: a.GetLogSequence()}
}
