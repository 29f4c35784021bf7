package tool

// Error codes. They are stable; docs/tools.md has the table. A tool may use codes of its own: they are execution faults
// and not retried unless the tool says so.
const (
	CodeTimeout          = "timeout"
	CodeRateLimited      = "rate_limited"
	CodeUnavailable      = "unavailable"
	CodeTransport        = "transport"
	CodeInvalidArguments = "invalid_arguments"
	CodeInternal         = "internal"
	CodeDeliveryExhaust  = "delivery_exhausted"
	CodeCancelled        = "cancelled"
	CodeOutputTooLarge   = "output_too_large"
	CodeInvalidOutput    = "invalid_output"
	CodeUnknownOutcome   = "unknown_outcome"

	CodeCheckFailed         = "check_failed"
	CodeSchemaMismatch      = "schema_mismatch"
	CodeAssumptionFalsified = "assumption_falsified"
	CodeResourceMissing     = "resource_missing"
	CodeNotPermitted        = "not_permitted"
	CodeUnknownTool         = "unknown_tool"
	CodeRefUnavailable      = "ref_unavailable"
	CodeBudgetExhausted     = "budget_exhausted"
)

// Code says how an error code is treated where neither the error nor the tool's definition says otherwise.
type Code struct {
	Name string
	// Plan faults are replanned, the others are execution faults.
	Plan bool
	// Retryable: a repeat of the same call may cure it.
	Retryable bool
	Meaning   string
}

// Codes is the code table, in the order of docs/tools.md.
func Codes() []Code {
	return []Code{
		{Name: CodeTimeout, Retryable: true, Meaning: "the deadline passed before the start, or an idempotent call ran out of time"},
		{Name: CodeRateLimited, Retryable: true, Meaning: "whoever the tool asks wants fewer calls"},
		{Name: CodeUnavailable, Retryable: true, Meaning: "whoever the tool needs is not there at the moment"},
		{Name: CodeTransport, Retryable: true, Meaning: "the connection to whoever the tool needs broke"},
		{Name: CodeInvalidArguments, Meaning: "the arguments do not fit the input schema, or the tool refuses them"},
		{Name: CodeInternal, Meaning: "the tool failed in a way that it does not name, or panicked"},
		{Name: CodeDeliveryExhaust, Meaning: "the action was delivered as often as allowed and never answered"},
		{Name: CodeCancelled, Meaning: "the call ended because its run or its action was cancelled"},
		{Name: CodeOutputTooLarge, Meaning: "the output is over the largest artifact"},
		{Name: CodeInvalidOutput, Meaning: "the output is not exact JSON or does not fit the output schema, or the result lacks its headers"},
		{Name: CodeUnknownOutcome, Meaning: "a call that must not be repeated started, and nobody knows how it ended"},
		{Name: CodeCheckFailed, Plan: true, Meaning: "a check of the step is false for its result"},
		{Name: CodeSchemaMismatch, Plan: true, Meaning: "the output lacks what the step extracts, or the result does not fit the expected schema"},
		{Name: CodeAssumptionFalsified, Plan: true, Meaning: "something that the plan took for granted is not so"},
		{Name: CodeResourceMissing, Plan: true, Meaning: "what the call names does not exist"},
		{Name: CodeNotPermitted, Plan: true, Meaning: "the run lacks the permission, or the tool may not do this"},
		{Name: CodeUnknownTool, Plan: true, Meaning: "no tool of this name is registered"},
		{Name: CodeRefUnavailable, Plan: true, Meaning: "a reference in the arguments points to nothing"},
		{Name: CodeBudgetExhausted, Plan: true, Meaning: "the run has used up a budget"},
	}
}

// LookupCode is the table's entry for a code; a code of a tool's own is an execution fault that is not retried.
func LookupCode(name string) (Code, bool) {
	for _, c := range Codes() {
		if c.Name == name {
			return c, true
		}
	}
	return Code{Name: name}, false
}
