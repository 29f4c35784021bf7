package toolrouter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/telemetry"
	"github.com/cairnrun/cairn/pkg/tool"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

// maxMessageBytes and maxDetailsBytes bound an error in a report.
const (
	maxMessageBytes = 4 << 10
	maxDetailsBytes = 32 << 10
	// maxValueBytes bounds a value that an error shows; of a larger one, size and sha256 are told. It is run.MaxResultInDetails.
	maxValueBytes = 16 << 10
)

// report tells the run what came of an action. w names run, tenant and trace.
func (r *router) report(ctx context.Context, w *runv1.Work, actionID string, o *runv1.Observation) error {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(o)
	if err != nil {
		return fmt.Errorf("observation of %s: %w", actionID, err)
	}
	// The same observation has the same id, however often it is reported.
	sum := sha256.Sum256(data)
	trace := telemetry.TraceOf(ctx)
	if trace == nil {
		trace = w.GetTrace()
	}
	return r.reporter.Report(ctx, &runv1.Report{
		Id: "result/" + actionID + "/" + hex.EncodeToString(sum[:8]), RunId: w.GetRunId(), Tenant: w.GetTenant(), Trace: trace,
		ReportedAt: timestamppb.Now(),
		Body:       &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{ActionId: actionID, Observation: o}},
	})
}

// refuse reports that an action failed without a result of a tool. Nobody executed it: ExecutedBy is empty, which tells the
// core that an ambiguous code may be cleared up by a revocation.
func (r *router) refuse(ctx context.Context, w *runv1.Work, actionID string, e *runv1.Error) error {
	r.Logger.WarnContext(ctx, "action refused", "action_id", actionID, "code", e.GetCode(), "error", e.GetMessage())
	r.measure(ctx, w.GetCall().GetTool(), e, 0)
	return r.report(ctx, w, actionID, &runv1.Observation{Outcome: runv1.Outcome_OUTCOME_ERROR, Error: e})
}

func (r *router) measure(ctx context.Context, name string, e *runv1.Error, took time.Duration) {
	m := telemetry.Metrics()
	outcome := "success"
	if e != nil {
		outcome = "error"
		m.Errors.Add(ctx, 1, metric.WithAttributeSet(attribute.NewSet(telemetry.ErrorType.String(metricCode(e.GetCode())))))
	}
	attrs := metric.WithAttributeSet(attribute.NewSet(telemetry.Tool.String(name), telemetry.Outcome.String(outcome)))
	m.ActionsEnded.Add(ctx, 1, attrs)
	if took > 0 {
		m.ActionDuration.Record(ctx, took.Seconds(), attrs)
	}
}

// metricCode keeps the number of metric series bounded: codes of a tool's own are one.
func metricCode(code string) string {
	if _, ok := tool.LookupCode(code); ok {
		return code
	}
	return "other"
}

// fault makes an error of the code table.
func fault(code, format string, args ...any) *runv1.Error {
	c, _ := tool.LookupCode(code)
	e := &runv1.Error{
		Code: code, Message: clip(fmt.Sprintf(format, args...), maxMessageBytes), Class: runv1.FaultClass_FAULT_CLASS_EXECUTION, Retryable: c.Retryable,
	}
	if c.Plan {
		e.Class = runv1.FaultClass_FAULT_CLASS_PLAN
	}
	return e
}

// faultOf reads a tool's error. The tool's word goes before its definition, the definition before the code table.
func faultOf(e *tool.WireError, def *planv1.ToolDefinition) *runv1.Error {
	if e == nil {
		return fault(tool.CodeInternal, "the tool answered an error without saying which")
	}
	code := clip(e.Code, 64)
	if code == "" {
		code = tool.CodeInternal
	}
	out := fault(code, "%s", e.Message)
	if slices.Contains(def.GetRetryableErrors(), code) {
		out.Retryable = true
	}
	if e.Retryable != nil {
		out.Retryable = *e.Retryable
	}
	if e.RetryAfter > 0 {
		out.RetryAfter = durationpb.New(time.Duration(e.RetryAfter))
	}
	if len(e.Details) > 0 && len(e.Details) <= maxDetailsBytes {
		// Details that are not exact JSON are left out: the error itself must get through.
		if text, err := exactjson.Text(e.Details); err == nil {
			out.Details = &planv1.JsonText{Text: text}
		}
	}
	return out
}

// withFindings adds what a schema check found as details.
func withFindings(e *runv1.Error, findings []*planv1.Finding) *runv1.Error {
	texts := make([]string, 0, len(findings))
	size := 0
	for _, f := range findings {
		text, err := exactjson.Marshal(f)
		if err != nil || size+len(text) > maxDetailsBytes {
			break
		}
		size += len(text) + 1
		texts = append(texts, string(text))
	}
	e.Details = &planv1.JsonText{Text: `{"findings":[` + strings.Join(texts, ",") + `]}`}
	return e
}

// withValue adds the value that was not as expected to an error's details, as the core does for values that it sees.
func withValue(e *runv1.Error, name string, value *planv1.JsonText) *runv1.Error {
	shown := strconv.Quote(name) + ":" + value.GetText()
	if n := len(value.GetText()); n > maxValueBytes {
		shown = fmt.Sprintf(`"%s_omitted":{"size":%d,"sha256":"%x"}`, name, n, sha256.Sum256([]byte(value.GetText())))
	}
	members := strings.TrimSuffix(e.GetDetails().GetText(), "}")
	if members == "" {
		members = "{"
	} else {
		members += ","
	}
	e.Details = &planv1.JsonText{Text: members + shown + "}"}
	return e
}

// clip shortens s to at most n bytes of valid UTF-8, at a rune border.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
