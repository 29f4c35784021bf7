package planner

import (
	"testing"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// TestCodesAreInTheTable: what a planner gives up with is in the table of codes, which docs/failures.md shows. empty_plan is
// a finding and never an error's code.
func TestCodesAreInTheTable(t *testing.T) {
	known := map[string]bool{}
	for _, c := range run.Codes() {
		known[c.Code] = c.Class == runv1.FaultClass_FAULT_CLASS_PLAN
	}
	for _, code := range []string{codeNoPlan, codePlanRejected, codeRefusedByModel, codeRejectedSchema, codeRejectedRequest, codePromptTooLarge,
		codePlanUnparseable, codePlanTruncated} {
		if !known[code] {
			t.Errorf("the core's table does not have %s as a plan fault", code)
		}
	}
}
