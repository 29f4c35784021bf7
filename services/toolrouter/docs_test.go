package toolrouter_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/run"
	"github.com/cairnrun/cairn/pkg/tool"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
	"github.com/cairnrun/cairn/services/toolrouter"
)

func toolsDoc(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/tools.md")
	must(t, err)
	return string(data)
}

// The table of codes is the source's, line by line.
func TestDocumentedCodesAreTheSources(t *testing.T) {
	doc := toolsDoc(t)
	var got []string
	for line := range strings.Lines(doc[strings.Index(doc, "## 6. Errors"):]) {
		if strings.HasPrefix(line, "| `") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	var want []string
	for _, c := range tool.Codes() {
		class, retried := "execution", "no"
		if c.Plan {
			class = "plan"
		}
		if c.Retryable {
			retried = "yes"
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s |", c.Name, class, retried, c.Meaning))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("docs/tools.md has\n%s\nthe source has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The core classifies by a table of its own, since it imports nothing of a tool's; the two say the same.
func TestCodesAreTheCores(t *testing.T) {
	core := map[string]run.CodeRule{}
	var ambiguous []string
	for _, c := range run.Codes() {
		core[c.Code] = c
	}
	for _, c := range tool.Codes() {
		rule, ok := core[c.Name]
		if !ok || rule.Retryable != c.Retryable || (rule.Class == runv1.FaultClass_FAULT_CLASS_PLAN) != c.Plan {
			t.Errorf("%s: the core has %+v, tools have %+v", c.Name, rule, c)
		}
		if rule.Ambiguous {
			ambiguous = append(ambiguous, "`"+c.Name+"`")
		}
	}
	last := len(ambiguous) - 1
	if want := "an error " + strings.Join(ambiguous[:last], ", ") + " or " + ambiguous[last] + " of a call"; !strings.Contains(toolsDoc(t), want) {
		t.Errorf("docs/tools.md does not say %q", want)
	}
}

// Every number and name of the page that the source knows too.
func TestDocumentedNamesAndLimitsAreTheSources(t *testing.T) {
	doc := toolsDoc(t)
	c := tool.ConsumerConfig("stock.check", 0, 0)
	policy, err := json.Marshal(c.AckPolicy)
	must(t, err)
	for _, want := range []string{
		"`" + tool.ActionSubject("<run>", "<action>", "<tool>") + "` | stream `" + tool.StreamActions + "`",
		"`" + tool.ResultSubject("<run>", "<action>", "<tool>") + "` | stream `" + tool.StreamResults + "`",
		"`" + tool.ClaimSubject("<run>", "<action>") + "` | stream `KV_" + tool.BucketClaims + "`",
		"`$KV." + tool.BucketTools + ".<tool>` | stream `KV_" + tool.BucketTools + "`",
		"`" + tool.CancelPrefix + "<run>`",
		"`" + tool.ProgressPrefix + "<run>`",
		"| `" + tool.HeaderNotAfter + "` |", "| `" + tool.HeaderAttempt + "` |", "| `" + tool.HeaderContext + "` |",
		"| `" + tool.HeaderIdempotencyKey + "` |", "| `" + tool.HeaderIdempotent + "` |", "| `" + tool.HeaderToolVersion + "` |",
		"| `" + tool.HeaderTraceparent + "`, `" + tool.HeaderTracestate + "` |",
		"| `durable_name` | `" + c.Durable + "` |",
		"| `filter_subject` | `" + c.FilterSubject + "` |",
		"| `ack_policy` | `" + strings.Trim(string(policy), `"`) + "` |",
		fmt.Sprintf("| `ack_wait` | %d s |", int(c.AckWait.Seconds())),
		fmt.Sprintf("| `max_deliver` | %d |", c.MaxDeliver),
		fmt.Sprintf("| `max_ack_pending` | %d |", c.MaxAckPending),
		"object store `" + tool.BucketArtifacts + "`",
		fmt.Sprintf("`max_artifact_bytes` (%d MiB)", bus.DefaultMaxArtifactBytes>>20),
		fmt.Sprintf("absent: `%s`", tool.Duration(tool.DefaultTimeout)),
		fmt.Sprintf("(%d KiB where a call names no other)", toolrouter.DefaultMaxInlineBytes>>10),
	} {
		if !strings.Contains(doc, want) {
			t.Errorf("docs/tools.md does not say %q", want)
		}
	}
	for i, least := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 8 * time.Second, 8 * time.Second} {
		for range 100 {
			if d := tool.RedeliveryDelay(i + 1); d < least || d > least+least/4 {
				t.Errorf("delay %s after delivery %d", d, i+1)
			}
		}
	}
}

var fenced = regexp.MustCompile("(?s)```json\n(.*?)```")

// The examples are read by the types that read the real ones, and hold nothing that these do not know.
func TestDocumentedExamplesAreReadable(t *testing.T) {
	blocks := fenced.FindAllStringSubmatch(toolsDoc(t), -1)
	strict := func(text string, into any) {
		t.Helper()
		d := json.NewDecoder(bytes.NewReader([]byte(text)))
		d.DisallowUnknownFields()
		if err := d.Decode(into); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	kinds := map[string]int{}
	for _, b := range blocks {
		text := b[1]
		switch {
		case strings.Contains(text, `"input_schema"`):
			kinds["definition"]++
			must(t, exactjson.Unmarshal([]byte(text), &planv1.ToolDefinition{}))
			strict(text, &tool.Definition{})
		case strings.Contains(text, `"arguments"`):
			kinds["action"]++
			strict(text, &tool.ActionMessage{})
		case strings.Contains(text, `"state"`):
			kinds["claim"]++
			strict(text, &tool.ClaimMessage{})
		case strings.Contains(text, `"status"`):
			kinds["result"]++
			strict(text, &tool.ResultMessage{})
		case strings.Contains(text, `"fraction"`):
			kinds["progress"]++
			strict(text, &tool.ProgressMessage{})
		default:
			t.Errorf("no type for the example %s", text)
		}
	}
	for _, kind := range []string{"definition", "action", "claim", "result", "progress"} {
		if kinds[kind] == 0 {
			t.Errorf("no example of a %s", kind)
		}
	}
}
