package run_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/pkg/run"
	"github.com/cairnrun/cairn/pkg/tool"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// failuresDoc returns the rows of a section's table, without heading, their cells trimmed.
func failuresDoc(t *testing.T, section string) [][]string {
	t.Helper()
	data, err := os.ReadFile("../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(data), "\n## "+section+"\n")
	if !found {
		t.Fatalf("docs/failures.md has no section %s", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var rows [][]string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

func TestFailuresPageHasEveryCode(t *testing.T) {
	var want []string
	for _, c := range run.Codes() {
		class, retried := "execution", "no"
		if c.Class == runv1.FaultClass_FAULT_CLASS_PLAN {
			class = "plan"
		}
		if c.Retryable {
			retried = "yes"
		}
		want = append(want, fmt.Sprintf("`%s` | %s | %s | %s", c.Code, class, retried, c.Meaning))
	}
	var got []string
	from := regexp.MustCompile(`^(core|router|tool|planner)(, (core|router|tool|planner))*$`)
	by := map[string]string{}
	for _, r := range failuresDoc(t, "Codes") {
		if len(r) != 6 || !from.MatchString(r[3]) || r[5] == "" {
			t.Errorf("the row of %s is not whole: %q", r[0], r)
			continue
		}
		got = append(got, strings.Join([]string{r[0], r[1], r[2], r[4]}, " | "))
		by[strings.Trim(r[0], "`")] = r[3]
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("docs/failures.md has\n%s\nthe core has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, c := range tool.Codes() {
		if by[c.Name] == "" {
			t.Errorf("docs/failures.md does not have the tools' code %s", c.Name)
		}
	}
	// What ends a run in the stories is the core's word, unless it was reported.
	for name, commits := range goldenLogs(t) {
		reported := map[string]bool{}
		for _, c := range commits {
			for _, e := range run.EventsOf(c) {
				reported[e.GetObservationRecorded().GetObservation().GetError().GetCode()] = true
				reported[e.GetPlanningFailed().GetError().GetCode()] = true
				for _, code := range []string{e.GetStepFailed().GetError().GetCode(), e.GetRunFailed().GetError().GetCode()} {
					if code != "" && !reported[code] && !strings.Contains(by[code], "core") {
						t.Errorf("%s: the core gives the code %s, which is from %q", name, code, by[code])
					}
				}
			}
		}
	}
}

func TestFailuresPageHasEveryRefusal(t *testing.T) {
	var want, got []string
	known := map[string]bool{}
	for _, r := range run.Refusals() {
		want = append(want, "`"+r.Code+"` | "+r.Meaning)
		known[r.Code] = true
	}
	for _, r := range failuresDoc(t, "Refusals") {
		got = append(got, strings.Join(r, " | "))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("docs/failures.md has\n%s\nthe core has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for name, commits := range goldenLogs(t) {
		for _, c := range commits {
			for _, e := range c.GetEvents() {
				if code := e.GetReportRefused().GetCode(); code != "" && !known[code] {
					t.Errorf("%s: the refusal %s is not listed", name, code)
				}
			}
		}
	}
}

func TestFailuresPageHasTheLimits(t *testing.T) {
	defaults := map[string]string{
		"max_parallel": fmt.Sprint(run.DefaultMaxParallel), "max_steps": fmt.Sprint(run.DefaultMaxSteps), "max_replans": fmt.Sprint(run.DefaultMaxReplans),
		"max_plan_attempts": fmt.Sprint(run.DefaultMaxPlanAttempts), "max_duration": "none", "max_events": fmt.Sprint(run.DefaultMaxEvents),
		"max_inline_bytes": fmt.Sprint(run.DefaultMaxInlineBytes), "max_planning_time": run.DefaultMaxPlanningTime.String(),
	}
	fields := (&runv1.RunLimits{}).ProtoReflect().Descriptor().Fields()
	rows := failuresDoc(t, "Limits of a run")
	if len(rows) != fields.Len() {
		t.Fatalf("%d limits are described, there are %d", len(rows), fields.Len())
	}
	for i, r := range rows {
		if name := fields.Get(i).TextName(); r[0] != "`"+name+"`" || r[1] != defaults[name] {
			t.Errorf("%s: %s is described with %s, it is %q", name, r[0], r[1], defaults[name])
		}
	}
	data, err := os.ReadFile("../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{fmt.Sprintf("Over\n%d KiB", run.MaxResultInDetails>>10), fmt.Sprintf("until %d s after its deadline", run.ActionGrace/time.Second)} {
		if !strings.Contains(string(data), said) {
			t.Errorf("docs/failures.md does not say %q", said)
		}
	}
}
