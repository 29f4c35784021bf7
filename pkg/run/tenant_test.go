package run_test

import (
	"testing"
	"time"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func TestForAnotherTenantThereIsNoSuchRun(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	submit := &runv1.Report{Id: "1", RunId: "r1", Tenant: "shop", Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: &runv1.RunSpec{Goal: "g"}}}}
	s := run.Advance(run.New("r1"), submit, now).State
	cancel := func(tenant string) *runv1.Report {
		return &runv1.Report{Id: "2", RunId: "r1", Tenant: tenant, Body: &runv1.Report_CancelRun{CancelRun: &runv1.CancelRun{}}}
	}
	if e := run.Record(s, cancel("desk"), now); e != nil {
		t.Errorf("another tenant's report made %v", e)
	}
	if a := run.AnswerFor(s, cancel("desk"), nil); a.GetOutcome() != runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED || a.GetCode() != "unknown_run" {
		t.Errorf("answer %v", a)
	}
	for _, tenant := range []string{"shop", ""} {
		if e := run.Record(s, cancel(tenant), now); e.GetCancelRequested() == nil {
			t.Errorf("tenant %q: %v", tenant, e)
		}
	}
}
