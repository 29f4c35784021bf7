package gateway

import (
	"errors"
	"strings"
	"testing"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func TestFindingsAreAboutWhatTheRequestHolds(t *testing.T) {
	refused := &runv1.Answer{Outcome: runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED, Code: "invalid_answer", Message: "because", Findings: []*planv1.Finding{
		{Severity: planv1.Severity_SEVERITY_ERROR, Code: "schema_mismatch", Pointer: "/approved", Message: "is a string"},
	}}
	for want, report := range map[string]*runv1.Report{
		"answer/approved":    {Body: &runv1.Report_UserInput{UserInput: &runv1.UserInput{}}},
		"patch/approved":     {Body: &runv1.Report_PatchProposed{PatchProposed: &runv1.PatchProposed{}}},
		"spec.plan/approved": {Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{}}},
	} {
		var p *problem
		if err := refusal(documentOf(report), refused); !errors.As(err, &p) || len(p.violations) != 1 || p.violations[0].field != want {
			t.Errorf("%v, want field %s", err, want)
		}
	}
}

func TestAnOpenDoorIsAConfigError(t *testing.T) {
	var c *ConfigError
	if err := Run(t.Context(), Config{Listen: "0.0.0.0:0"}); !errors.As(err, &c) || !strings.Contains(err.Error(), "--tokens") || !strings.Contains(err.Error(), "--insecure") {
		t.Errorf("an open address: %v", err)
	}
	if err := Run(t.Context(), Config{TokensFile: "nowhere"}); !errors.As(err, &c) {
		t.Errorf("no tokens file: %v", err)
	}
}
