package runstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

	"github.com/cairnrun/cairn/pkg/eventlog"
)

func TestListRunsFilters(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 2)
	s := start(t, quiet(t), log, 2)
	team := func(v string) *runv1.Label { return &runv1.Label{Key: "team", Value: v} }
	a.say("ra", submitted("Order 1 blue phone", team("shop"), &runv1.Label{Key: "env", Value: "a b"}))
	a.say("ra", planned("order.pay", "stock.check"))
	a.say("ra", completed("1"))
	a.say("rb", submitted("下单 1 台 iPhone 15 Pro 256G 黑色，寄到上海浦东", team("shop")))
	a.say("rb", planned("order.pay"))
	a.say("rb", runFailed("timeout"))
	a.say("rc", submitted("", team("ops")))
	a.say("rc", planned("order.pay")) // its goal is the plan's
	a.say("rd", submitted(`100% "quoted" \ _`))
	s.sync(t)
	third := a.clock // rd was submitted then
	all := "rd rc rb ra"
	for filter, want := range map[string]string{
		"":                                  all,
		"  ":                                all,
		"status=failed":                     "rb",
		"state=running":                     "rc",
		"state = completed":                 "ra",
		"phase=ended":                       "rb ra",
		"label.team=shop":                   "rb ra",
		"label.team=shop AND status=failed": "rb",
		`label.env="a b"`:                   "ra",
		"tool=order.pay":                    "rc rb ra",
		"tool=order.pay AND tool=stock.check AND label.team=shop": "ra",
		"tool=none":             "",
		`goal~"BLUE phone"`:     "ra",
		`goal~上海`:               "rb",
		`goal~"100%"`:           "rd",
		`goal~_`:                "rd",
		`goal~"\\"`:             "rd",
		`goal~"\"quoted\""`:     "rd",
		`goal~"goal of"`:        "rc",
		"submitted>=2026-01-02": all,
		"submitted>2026-01-03":  "",
		"submitted<2026-01-02T03:04:06Z AND status=failed":                                    "rb",
		"submitted<" + third.Format(time.RFC3339Nano):                                         "rc rb ra",
		"submitted<=" + third.Format(time.RFC3339Nano):                                        all,
		"updated>=" + third.Format(time.RFC3339Nano):                                          "rd",
		"tool=order.pay AND submitted<" + third.Format(time.RFC3339Nano) + " AND phase=ended": "rb ra",
		"tenant=acme": "",
	} {
		var got []string
		token := ""
		for {
			page, err := s.ListRuns(t.Context(), &apiv1.ListRunsRequest{Filter: filter, PageSize: 1, PageToken: token})
			if err != nil {
				t.Fatalf("%s: %v", filter, err)
			}
			for _, r := range page.GetRuns() {
				got = append(got, r.GetRunId())
			}
			if token = page.GetNextPageToken(); token == "" {
				break
			}
			if len(page.GetRuns()) != 1 {
				t.Fatalf("%s: a page of %d", filter, len(page.GetRuns()))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", filter, got, want)
		}
	}
}

func TestListRunsSummaries(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	s := start(t, quiet(t), log, 1)
	a.say("r1", submitted("g", &runv1.Label{Key: "k", Value: "v"}))
	a.say("r1", planned("b", "a"), succeeded("s0"))
	seq := a.say("r1", runFailed("timeout"))
	page, err := s.ListRuns(t.Context(), &apiv1.ListRunsRequest{Position: &apiv1.LogPosition{Sequence: seq}})
	if err != nil {
		t.Fatal(err)
	}
	got := page.GetRuns()[0]
	if got.GetRunId() != "r1" || got.GetStatus() != runv1.RunStatus_RUN_STATUS_FAILED || got.GetPhase() != runv1.RunPhase_RUN_PHASE_ENDED ||
		got.GetGoal() != "g" || got.GetLabels()[0].GetValue() != "v" || fmt.Sprint(got.GetTools()) != "[a b]" || got.GetPlanVersion() != 1 ||
		got.GetErrorCode() != "timeout" || got.GetRevision() != 4 ||
		got.GetUpdatedAt().AsTime().Sub(got.GetSubmittedAt().AsTime()) != 2*time.Millisecond {
		t.Fatalf("got %v", got)
	}
}

func TestBadFiltersNameTheFieldAndThePlace(t *testing.T) {
	c := quiet(t)
	s := start(t, c, eventlog.NewMemory(), 1)
	for filter, want := range map[string]string{
		"sate=failed":                    `at byte 0: unknown term "sate"`,
		"status=hapy":                    `"hapy" is not one of cancelled,`,
		"status=FAILED":                  "is not one of",
		"status>failed":                  "status takes =, not >",
		"status":                         "is not a term",
		"status=":                        "has no value",
		"status=failed phase=ended":      "at byte 14: terms are joined by AND",
		"status=failed AND ":             "a term must follow AND",
		"status=failed AND bad=1":        "at byte 18: unknown term",
		"status=failed OR status=failed": `not by "OR"`,
		"submitted=2026-01-02":           "takes > >= < <=",
		"submitted>soon":                 "is not a time such as",
		"updated>1066-10-14":             "outside the years",
		`goal="x"`:                       "goal takes ~, not =",
		`goal~"x`:                        "does not end",
		"label.=x":                       "unknown term",
		"tool!=x":                        "tool takes =, not !=",
	} {
		_, err := s.ListRuns(t.Context(), &apiv1.ListRunsRequest{Filter: filter})
		if field, text := violation(t, err); field != "filter" || !strings.Contains(text, want) {
			t.Errorf("%s: %s: %s, want %q", filter, field, text, want)
		}
	}
}

// violation takes the field violation out of an InvalidArgument error.
func violation(t *testing.T, err error) (field, text string) {
	t.Helper()
	st := status.Convert(err)
	if st.Code() != codes.InvalidArgument {
		t.Fatalf("got %v, want InvalidArgument", err)
	}
	for _, d := range st.Details() {
		if b, ok := d.(*errdetails.BadRequest); ok {
			return b.GetFieldViolations()[0].GetField(), b.GetFieldViolations()[0].GetDescription()
		}
	}
	t.Fatalf("no BadRequest in %v", st.Details())
	return "", ""
}

func TestFilterLimits(t *testing.T) {
	terms := func(n int) string { return strings.TrimSuffix(strings.Repeat("tool=a AND ", n), " AND ") }
	if _, err := parseFilter(terms(16), 16); err != nil {
		t.Error(err)
	}
	var e *filterError
	if _, err := parseFilter(terms(17), 16); !errors.As(err, &e) || !strings.Contains(e.text, "more than 16") {
		t.Errorf("got %v", err)
	}
	c := quiet(t)
	s := start(t, c, eventlog.NewMemory(), 1)
	for size, want := range map[int]codes.Code{c.MaxFilterBytes: codes.OK, c.MaxFilterBytes + 1: codes.InvalidArgument} {
		filter := "goal~" + strings.Repeat("x", size-5)
		if _, err := s.ListRuns(t.Context(), &apiv1.ListRunsRequest{Filter: filter}); status.Code(err) != want {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func FuzzFilter(f *testing.F) {
	for _, s := range []string{`status=failed AND goal~"x"`, "label.a=b AND tool=c", "submitted>2026-01-02", "AND", `"`, "a=\"\\u"} {
		f.Add(s)
	}
	db, err := openSQLite(":memory:", time.Second)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(schema); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := parseFilter(text, 16)
		if err != nil {
			return
		}
		query, args := parsed.query(&runKey{1, "r"}, 5)
		rows, err := db.Query(query, args...)
		if err != nil {
			t.Fatalf("%q became %s: %v", text, query, err)
		}
		rows.Close()
	})
}
