package planner_test

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cairnrun/cairn/pkg/telemetry"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

const traceID = "0af7651916cd43dd8448eb211c80319c"

func work() *runv1.Work {
	return &runv1.Work{RunId: "r1", Trace: &runv1.TraceContext{Traceparent: "00-" + traceID + "-b7ad6b7169203331-01"},
		Body: &runv1.Work_Plan{Plan: &runv1.PlanWork{RequestId: "plan-1", Spec: goal("g")}}}
}

func TestTraceGoesOnInTheReport(t *testing.T) {
	w := ready(t)
	w.send(work())
	if got := w.report().GetTrace().GetTraceparent(); !strings.Contains(got, traceID) {
		t.Errorf("the report's trace is %q", got)
	}
}

func TestSpansNameRunRequestAndModel(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	w := newWorld(t)
	w.init()
	w.register("echo", `{"type":"object"}`)
	withModel(newProvider(t, says(good)))(&w.config)
	stop := w.start()
	w.send(work())
	w.report()
	stop()

	want := map[string]map[string]string{
		"plan":      {string(telemetry.RunID): "r1", string(telemetry.RequestID): "plan-1", string(telemetry.Source): "model", string(telemetry.Outcome): "proposed", string(telemetry.Prompt): "plan.v1"},
		"chat mock": {string(telemetry.GenAIRequestModel): "mock", string(telemetry.GenAIResponseModel): "mock-1", string(telemetry.GenAIInputTokens): "100", string(telemetry.GenAIOutputTokens): "10", string(telemetry.GenAIOutputType): "json"},
	}
	for _, s := range spans.Ended() {
		if _, wanted := want[s.Name()]; wanted && s.SpanContext().TraceID().String() != traceID {
			t.Errorf("span %s is in trace %s, not in the run's", s.Name(), s.SpanContext().TraceID())
		}
		attrs := map[string]string{}
		for _, a := range s.Attributes() {
			attrs[string(a.Key)] = a.Value.String()
		}
		for k, v := range want[s.Name()] {
			if attrs[k] != v {
				t.Errorf("span %s: %s is %q, want %q", s.Name(), k, attrs[k], v)
			}
		}
		delete(want, s.Name())
	}
	for name := range want {
		t.Errorf("no span %s", name)
	}
}
