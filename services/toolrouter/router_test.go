package toolrouter_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/tool"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func TestCase15_NumbersReachTheToolAndComeBackWithTheirText(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	var seen json.RawMessage
	w.serve(nil, tool.New("echo", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) {
		seen = in
		return in, nil
	}, tool.Idempotent()))
	const numbers = `{"e":1e2,"id":9007199254740993,"max":9223372036854775807,"p":9011.00}`
	if got := success(t, w.do(call(runID(1), "s-1", "echo", numbers))); got != numbers {
		t.Errorf("output %s, want %s", got, numbers)
	}
	if string(seen) != numbers {
		t.Errorf("the tool saw %s", seen)
	}
	w.empty(bus.StreamWork)
	w.empty(bus.StreamActions)
	w.empty(bus.StreamResults)
}

func TestCase9_EmptyArgumentsAreAnObject(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	type query struct {
		Q string `json:"q"`
	}
	w.serve(nil,
		tool.New("now", func(context.Context, struct{}) (string, error) { return "noon", nil }, tool.Idempotent()),
		tool.New("find", func(_ context.Context, in query) (string, error) { return in.Q, nil }, tool.Idempotent()))
	for i, arguments := range []string{"", "null", "{}"} {
		if got := success(t, w.do(call(runID(i), "s-1", "now", arguments))); got != `"noon"` {
			t.Errorf("arguments %q: output %s", arguments, got)
		}
	}
	e := failure(t, w.do(call(runID(9), "s-1", "find", "{}")), tool.CodeInvalidArguments)
	if !strings.Contains(e.GetDetails().GetText(), "missing_argument") {
		t.Errorf("details %s do not name the missing argument", e.GetDetails().GetText())
	}
}

func TestCase14_NullAndAbsentAreTwoThings(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	w.serve(nil,
		tool.New("echo", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil }, tool.Idempotent(),
			tool.InputSchema(`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":["string","null"]},"c":{"type":"string"}}}`)),
		tool.New("void", func(context.Context, struct{}) (json.RawMessage, error) { return nil, nil }, tool.Idempotent()))
	for i, c := range []struct{ arguments, want string }{
		{`{"a":null,"c":"v"}`, `{"c":"v"}`},
		{`{"b":null}`, `{"b":null}`},
		{``, `{}`},
	} {
		if got := success(t, w.do(call(runID(i), "s-1", "echo", c.arguments))); got != c.want {
			t.Errorf("arguments %s: the tool got %s, want %s", c.arguments, got, c.want)
		}
	}
	if o := w.do(call(runID(9), "s-1", "void", "")); success(t, o) != "null" || o.GetOutput().GetInline() == nil {
		t.Errorf("a null output is %v", o.GetOutput())
	}
}

func TestCase68_UnicodeSurvivesAndErrorsAreCutAtRunes(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	w.serve(nil, echo(),
		tool.New("surrogate", func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"lone":"\ud800","nfc":"é","nfd":"é"}`), nil
		}, tool.Idempotent()),
		tool.New("complain", func(context.Context, json.RawMessage) (string, error) {
			return "", tool.Errorf("sold_out", "%s", strings.Repeat("读✅", 70_000))
		}, tool.Idempotent()))
	const odd = `{"wish":"下单 1 台 iPhone 15 Pro 256G 黑色，寄到上海浦东","separators":"a` + "\u2028\u0085" + `b","zero":"\u0000"}`
	o := w.do(call(runID(1), "s-1", "echo", odd))
	var got, want map[string]string
	must(t, json.Unmarshal([]byte(success(t, o)), &got))
	must(t, json.Unmarshal([]byte(odd), &want))
	for k := range want {
		if got[k] != want[k] {
			t.Errorf("%s is %q, want %q", k, got[k], want[k])
		}
	}
	if got := success(t, w.do(call(runID(2), "s-1", "surrogate", "{}"))); got != `{"lone":"\ufffd","nfc":"é","nfd":"é"}` {
		t.Errorf("output %s", got)
	}
	e := failure(t, w.do(call(runID(3), "s-1", "complain", "{}")), "sold_out")
	if m := e.GetMessage(); len(m) > 4096 || len(m) < 4090 || !strings.HasPrefix(strings.Repeat("读✅", 70_000), m) {
		t.Errorf("the message has %d bytes and is not a whole beginning", len(m))
	}
}

func TestRefusalsAreReportedWithTheirCode(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	called := make(chan struct{}, 1)
	w.serve(nil, tool.New("pay", func(context.Context, struct{}) (string, error) {
		called <- struct{}{}
		return "paid", nil
	}, tool.Idempotent(), tool.Permission("money")))
	granted := func(c *runv1.CallWork) { c.Permissions = []string{"money"} }
	for name, c := range map[string]struct {
		change func(*runv1.Work, *runv1.CallWork)
		code   string
		class  runv1.FaultClass
	}{
		"unknown tool":        {func(_ *runv1.Work, c *runv1.CallWork) { granted(c); c.Tool = "pay.twice" }, tool.CodeUnknownTool, runv1.FaultClass_FAULT_CLASS_PLAN},
		"not a tool's name":   {func(_ *runv1.Work, c *runv1.CallWork) { granted(c); c.Tool = "pay.>" }, tool.CodeUnknownTool, runv1.FaultClass_FAULT_CLASS_PLAN},
		"no permission":       {func(*runv1.Work, *runv1.CallWork) {}, tool.CodeNotPermitted, runv1.FaultClass_FAULT_CLASS_PLAN},
		"unknown argument":    {func(_ *runv1.Work, c *runv1.CallWork) { granted(c); c.Arguments = text(`{"x":1}`) }, tool.CodeInvalidArguments, runv1.FaultClass_FAULT_CLASS_EXECUTION},
		"arguments no object": {func(_ *runv1.Work, c *runv1.CallWork) { granted(c); c.Arguments = text(`[1]`) }, tool.CodeInvalidArguments, runv1.FaultClass_FAULT_CLASS_EXECUTION},
		"deadline passed": {func(_ *runv1.Work, c *runv1.CallWork) {
			granted(c)
			c.NotAfter = timestamppb.New(time.Now().Add(-time.Second))
		}, tool.CodeTimeout, runv1.FaultClass_FAULT_CLASS_EXECUTION},
		"work no longer valid": {func(w *runv1.Work, c *runv1.CallWork) {
			granted(c)
			w.ValidUntil = timestamppb.New(time.Now().Add(-time.Second))
		}, tool.CodeTimeout, runv1.FaultClass_FAULT_CLASS_EXECUTION},
	} {
		work := call(w.newRun(), "s-1", "pay", "{}")
		c.change(work, work.GetCall())
		e := failure(t, w.do(work), c.code)
		if e.GetClass() != c.class || e.GetMessage() == "" {
			t.Errorf("%s: %v", name, e)
		}
	}
	work := call(w.newRun(), "s-1", "pay", "{}")
	granted(work.GetCall())
	success(t, w.do(work))
	if len(called) != 1 {
		t.Errorf("the tool was called although the action was refused")
	}
}

func TestErrorsOfToolsAreClassified(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	w.serve(nil, tool.New("fail", func(_ context.Context, in struct {
		How string `json:"how"`
	}) (string, error) {
		switch in.How {
		case "panic":
			panic("out of cheese")
		case "plain":
			return "", context.Canceled
		case "busy":
			return "", tool.Retryable(tool.Errorf("busy", "later"), 2*time.Second)
		case "permanent":
			return "", tool.Permanent(tool.Errorf(tool.CodeUnavailable, "gone for good"))
		case "partial":
			return "half", tool.Partial(tool.Errorf("half_done", "the rest is missing"))
		}
		return "", tool.Errorf(in.How, "no").WithDetails(map[string]int{"left": 0})
	}, tool.Idempotent(), tool.RetryableErrors("flaky")))
	for how, want := range map[string]struct {
		code      string
		retryable bool
		class     runv1.FaultClass
	}{
		"panic":            {tool.CodeInternal, false, runv1.FaultClass_FAULT_CLASS_EXECUTION},
		"plain":            {tool.CodeInternal, false, runv1.FaultClass_FAULT_CLASS_EXECUTION},
		"busy":             {"busy", true, runv1.FaultClass_FAULT_CLASS_EXECUTION},
		"permanent":        {tool.CodeUnavailable, false, runv1.FaultClass_FAULT_CLASS_EXECUTION},
		"rate_limited":     {tool.CodeRateLimited, true, runv1.FaultClass_FAULT_CLASS_EXECUTION},
		"resource_missing": {tool.CodeResourceMissing, false, runv1.FaultClass_FAULT_CLASS_PLAN},
		"flaky":            {"flaky", true, runv1.FaultClass_FAULT_CLASS_EXECUTION},
		"sold_out":         {"sold_out", false, runv1.FaultClass_FAULT_CLASS_EXECUTION},
	} {
		e := failure(t, w.do(call(w.newRun(), "s-1", "fail", `{"how":"`+how+`"}`)), want.code)
		if e.GetRetryable() != want.retryable || e.GetClass() != want.class {
			t.Errorf("%s: %v", how, e)
		}
		if how == "busy" && e.GetRetryAfter().AsDuration() != 2*time.Second {
			t.Errorf("retry after %v", e.GetRetryAfter())
		}
		if how == "sold_out" && e.GetDetails().GetText() != `{"left":0}` {
			t.Errorf("details %v", e.GetDetails())
		}
	}
	o := w.do(call(w.newRun(), "s-1", "fail", `{"how":"partial"}`))
	if o.GetOutcome() != runv1.Outcome_OUTCOME_PARTIAL || o.GetOutput().GetInline().GetText() != `"half"` || o.GetError().GetCode() != "half_done" {
		t.Errorf("partial result: %v", o)
	}
}

func TestResultsAreExtractedAndChecked(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	w.serve(nil, echo(), tool.New("typed", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil }, tool.Idempotent(),
		tool.OutputSchema(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`)))

	work := call(runID(1), "s-1", "echo", `{"data":{"items":[{"id":9007199254740993}]}}`)
	work.GetCall().Result = text(`"data.items.0.id"`)
	o := w.do(work)
	success(t, o)
	if got := o.GetResult().GetInline().GetText(); got != "9007199254740993" {
		t.Errorf("result %s", got)
	}

	work = call(runID(2), "s-1", "echo", `{}`)
	work.GetCall().Result = text(`{"x":"data.items"}`)
	if e := failure(t, w.do(work), tool.CodeSchemaMismatch); e.GetClass() != runv1.FaultClass_FAULT_CLASS_PLAN {
		t.Errorf("class %v", e.GetClass())
	}

	if e := failure(t, w.do(call(runID(3), "s-1", "typed", `{"n":"many"}`)), tool.CodeInvalidOutput); !strings.Contains(e.GetDetails().GetText(), `"/n"`) {
		t.Errorf("details %s", e.GetDetails().GetText())
	}
	success(t, w.do(call(runID(4), "s-1", "typed", `{"n":1}`)))
}

func TestLargeResultsAreJudgedByTheRouter(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	w.serve(nil, echo())
	work := call(runID(1), "s-1", "echo", `{"list":[1,2,3,4,5,6,7,8,9,10]}`)
	work.GetCall().MaxInlineBytes = 16
	work.GetCall().Result = text(`"list"`)
	work.GetCall().Expect = &planv1.Expect{Checks: []*planv1.Check{{Expression: "size(result) == 10"}, {Expression: "result[0] == 2"}, {Expression: "result.nothing"}}}
	o := w.do(work)
	if o.GetResult().GetArtifact().GetSha256() == "" || o.GetOutput().GetArtifact().GetSha256() == "" {
		t.Fatalf("not off-loaded: %v", o)
	}
	var passed []bool
	for i, v := range o.GetVerdicts() {
		if int(v.GetIndex()) != i {
			t.Errorf("verdict %d has the index %d", i, v.GetIndex())
		}
		passed = append(passed, v.GetPassed())
	}
	if len(passed) != 3 || !passed[0] || passed[1] || passed[2] || o.GetVerdicts()[2].GetDetail() == "" {
		t.Errorf("verdicts %v", o.GetVerdicts())
	}
	work.GetCall().ActionId = "s-2"
	work.GetCall().Expect = &planv1.Expect{Schema: text(`{"type":"array","maxItems":3}`)}
	list := w.do(work)
	e := failure(t, list, tool.CodeSchemaMismatch)
	if d := e.GetDetails().GetText(); !strings.HasPrefix(d, `{"findings":[`) || !strings.HasSuffix(d, `],"result":[1,2,3,4,5,6,7,8,9,10]}`) || !json.Valid([]byte(d)) {
		t.Errorf("details %s", d)
	}
}

// A part of a result counts as a result: where it is an artifact, it comes with verdicts, too.
func TestPartsOfResultsAreJudgedByTheRouter(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	w.serve(nil, tool.New("half", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) {
		return in, tool.Partial(tool.Errorf("half_done", "the rest is missing"))
	}, tool.Idempotent()))
	do := func(id int, expect *planv1.Expect, result string) *runv1.Observation {
		work := call(runID(id), "s-1", "half", `{"list":[1,2,3,4,5,6,7,8,9,10]}`)
		work.GetCall().MaxInlineBytes = 16
		work.GetCall().Result = text(result)
		work.GetCall().Expect = expect
		return w.do(work)
	}
	o := do(1, &planv1.Expect{Checks: []*planv1.Check{{Expression: "size(result) == 10"}, {Expression: "result[0] == 2"}}}, `"list"`)
	v := o.GetVerdicts()
	if o.GetOutcome() != runv1.Outcome_OUTCOME_PARTIAL || o.GetError().GetCode() != "half_done" || o.GetResult().GetArtifact() == nil || len(v) != 2 || !v[0].GetPassed() || v[1].GetPassed() {
		t.Errorf("checked: %v", o)
	}
	failure(t, do(2, &planv1.Expect{Schema: text(`{"type":"array","maxItems":3}`)}, `"list"`), tool.CodeSchemaMismatch)
	e := failure(t, do(3, nil, `"nothing"`), tool.CodeSchemaMismatch)
	if e.GetDetails().GetText() != `{"output":{"list":[1,2,3,4,5,6,7,8,9,10]}}` {
		t.Errorf("details %s", e.GetDetails().GetText())
	}
}

// The expectations travel with the action; those that do not fit into a header go by the artifact store.
func TestExpectationsOfAnySizeComeBackWithTheResult(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	w.serve(nil, echo())
	for i, size := range []int{100, 200_000} {
		work := call(runID(i), "s-1", "echo", `{"a":1}`)
		work.GetCall().Expect = &planv1.Expect{Schema: text(`{"description":"` + strings.Repeat("x", size) + `"}`)}
		work.GetCall().Result = text(`"a"`)
		if o := w.do(work); success(t, o) != `{"a":1}` || o.GetResult().GetInline().GetText() != "1" {
			t.Errorf("%d bytes of schema: %v", size, o)
		}
	}
}
