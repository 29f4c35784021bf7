package run

import (
	"slices"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// CodeRule is a row of the code table.
type CodeRule struct {
	Code string
	// Class: execution faults are retried where Retryable, plan faults replanned.
	Class     runv1.FaultClass
	Retryable bool
	// Ambiguous: the action may have had its effect all the same. Where it must not be repeated, it is first asked whether
	// it has started.
	Ambiguous bool
	Meaning   string
}

const (
	executionFault = runv1.FaultClass_FAULT_CLASS_EXECUTION
	planFault      = runv1.FaultClass_FAULT_CLASS_PLAN
)

// Codes is the code table: the error codes that the system itself uses. Tools may use their own; those are execution
// faults and not retried, unless the tool's definition lists them as retryable.
func Codes() []CodeRule { return slices.Clone(codeTable) }

var codeTable = []CodeRule{
	{codeTimeout, executionFault, true, true, "no answer before the deadline"},
	{"rate_limited", executionFault, true, false, "the tool asks to come again later"},
	{"unavailable", executionFault, true, false, "the tool cannot be reached"},
	{"transport", executionFault, true, true, "the connection broke"},
	{"delivery_exhausted", executionFault, false, true, "the action was delivered as often as may be, without an answer"},
	{"invalid_arguments", executionFault, false, false, "the tool does not accept the arguments"},
	{"internal", executionFault, false, false, "the tool failed"},
	{"cancelled", executionFault, false, false, "it was cancelled"},
	{"output_too_large", executionFault, false, false, "the output exceeds a limit"},
	{"invalid_output", executionFault, false, false, "the output does not fit the tool's schema"},
	{codeUnknownOutcome, executionFault, false, false, "it started, and nobody knows how it ended"},
	{codeCheckFailed, planFault, false, false, "a check of the result is not true"},
	{codeSchemaMismatch, planFault, false, false, "the result does not have the shape that the plan expects"},
	{"assumption_falsified", planFault, false, false, "what the plan took for granted is not so"},
	{"resource_missing", planFault, false, false, "what the step needs is not there"},
	{codeNotPermitted, planFault, false, false, "it was not approved, or the run may not do it"},
	{"unknown_tool", planFault, false, false, "there is no such tool"},
	{codeRefUnavailable, planFault, false, false, "a reference has no value"},
	{codeBudgetExhausted, planFault, false, false, "a limit of the run is reached"},
	{codeConditionFailed, planFault, false, false, "a condition cannot be evaluated"},
	{codeUnsupported, planFault, false, false, "the step asks for what this version cannot do"},
	{codeAcceptanceFailed, planFault, false, false, "all steps are done, and an acceptance check is not true"},
	{codeDependencyFailed, planFault, false, false, "a step that must run cannot, since what it depends on failed"},
	{findingUnparseable, planFault, false, false, "the planner's answers could not be read as plans"},
	{findingTruncated, planFault, false, false, "the planner's answers were cut off"},
	{codePlanRejected, planFault, false, false, "the plan was refused, as often as may be"},
	{codePatchRejected, planFault, false, false, "the patch was refused, as often as may be"},
	{codePlanningFailed, planFault, false, false, "the planner gave up and did not say why"},
	{codePlanningTimeout, executionFault, true, false, "the planner did not answer within max_planning_time"},
	{"no_plan", planFault, false, false, "no template fits the goal, and there is no model"},
	{"planner_refused", planFault, false, false, "the model refused to plan"},
	{"provider_rejected_schema", planFault, false, false, "the model's provider does not take the plan's schema"},
	{"provider_rejected_request", planFault, false, false, "the model's provider does not take the request"},
	{"prompt_too_large", planFault, false, false, "what the model must be told is over the planner's limit"},
	{codeReplanLimit, planFault, false, false, "the run was replanned as often as may be"},
	{codeOscillation, planFault, false, false, "the replanner comes back to what failed before"},
	{codeNoProgress, planFault, false, false, "the replanner changes nothing"},
	{codeHistoryLimit, planFault, false, false, "the run's history is full"},
	{codeModeUnavailable, planFault, false, false, "this version has no such mode"},
	{codeStuck, planFault, false, false, "steps are open and nothing can bring them on: a mistake of the core"},
}

// Codes that the core itself gives.
const (
	codeTimeout          = "timeout"
	codeUnknownOutcome   = "unknown_outcome"
	codeCheckFailed      = "check_failed"
	codeSchemaMismatch   = "schema_mismatch"
	codeNotPermitted     = "not_permitted"
	codeRefUnavailable   = "ref_unavailable"
	codeBudgetExhausted  = "budget_exhausted"
	codeConditionFailed  = "condition_failed"
	codeUnsupported      = "unsupported"
	codeAcceptanceFailed = "acceptance_failed"
	codeOutputTooLarge   = "output_too_large"
	codeDependencyFailed = "dependency_failed"

	codePlanRejected     = "plan_rejected"
	codePatchRejected    = "patch_rejected"
	codeReplanLimit      = "replan_limit"
	codeOscillation      = "replan_oscillation"
	codeNoProgress       = "no_progress"
	codeReplanDeclined   = "replan_declined"
	codeHistoryLimit     = "history_limit"
	codeModeUnavailable  = "mode_unavailable"
	codeStuck            = "stuck"
	codePlanningFailed   = "planning_failed"
	codePlanningTimeout  = "planning_timeout"
	codeInvalidArguments = "invalid_arguments"
)

// Codes of refused reports.
const (
	refusedKeyReused      = "key_reused"
	refusedRunClosed      = "run_closed"
	refusedUnknownRun     = "unknown_run"
	refusedUnknownRequest = "unknown_request"
	refusedRequestClosed  = "request_closed"
	refusedWithdrawn      = "request_withdrawn"
	refusedUnknownAction  = "unknown_action"
	refusedAnswerConflict = "answer_conflict"
	refusedInvalidAnswer  = "invalid_answer"
	refusedInvalidReport  = "invalid_report"
	refusedNotNow         = "not_now"
	refusedTooMany        = "too_many"
)

// Refusal is a row of the table of refusals.
type Refusal struct{ Code, Meaning string }

// Refusals lists the codes of reports that are refused and change nothing. A refused plan or patch has the codes
// plan_rejected and patch_rejected, and findings.
func Refusals() []Refusal {
	return []Refusal{
		{refusedKeyReused, "a run with this id was submitted with another body"},
		{refusedRunClosed, "the run has ended"},
		{refusedUnknownRun, "there is no such run, or it is another tenant's"},
		{refusedUnknownRequest, "nothing was asked under this id"},
		{refusedRequestClosed, "the request has its answer, or its time is up"},
		{refusedWithdrawn, "the question was withdrawn: what it asked about is known now"},
		{refusedUnknownAction, "the run has no such action"},
		{refusedAnswerConflict, "another answer or result was taken before"},
		{refusedInvalidAnswer, "the answer is no JSON, too large, or not of the shape that was asked for"},
		{refusedInvalidReport, "the report says nothing that the core knows"},
		{refusedNotNow, "the run is in no state for it: quarantined, or without a plan to patch"},
		{refusedTooMany, "persons have sent as many patches as a run takes"},
	}
}

// Reasons of skipped steps.
const (
	skipConditionFalse   = "condition_false"
	skipRefUnavailable   = "ref_unavailable"
	skipDependencyFailed = "dependency_failed"
	skipByUser           = "user"
	skipByPolicy         = "policy"
)

// rule of the table for a code.
func codeRule(code string) CodeRule {
	for _, r := range codeTable {
		if r.Code == code {
			return r
		}
	}
	return CodeRule{Code: code, Class: executionFault}
}

// Classify is the code table: the class of an error code, and whether a repeat may cure it.
func Classify(code string) (class runv1.FaultClass, retryable bool) {
	r := codeRule(code)
	return r.Class, r.Retryable
}
