package gateway

import (
	"testing"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// A violation is one sentence: what is wrong, and what to do next.
func TestViolationsOfADocumentSayWhatToDoNext(t *testing.T) {
	for hint, want := range map[string]string{
		"": "step a has started and cannot be removed.", "wait until it has ended": "step a has started and cannot be removed; wait until it has ended",
	} {
		got := fromFindings("patch", []*planv1.Finding{
			{Severity: planv1.Severity_SEVERITY_ERROR, Code: "step_frozen", Pointer: "/remove/0", Message: "step a has started and cannot be removed.", Hint: hint},
			{Severity: planv1.Severity_SEVERITY_WARNING, Code: "note"},
		})
		if len(got) != 1 || got[0].text != want || got[0].field != "patch/remove/0" {
			t.Errorf("got %+v, want %q", got, want)
		}
	}
}
