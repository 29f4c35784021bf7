package planner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
	"github.com/cairnrun/cairn/pkg/llm"
	"github.com/cairnrun/cairn/pkg/plan"
	"github.com/cairnrun/cairn/pkg/telemetry"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
	"github.com/cairnrun/cairn/services/planner"
)

const patience = 20 * time.Second

// world is a bus with a planner on it; the test is the executor and the tool services.
type world struct {
	t       testing.TB
	js      jetstream.JetStream
	reports <-chan *runv1.Report
	config  planner.Config
	health  *telemetry.Health
	// asked counts requests by plan: each has a subject of its own.
	asked int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	s, err := embedded.Start(context.Background(), embedded.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	nc, js, err := bus.Connect(s.Bus("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	w := &world{t: t, js: js, health: telemetry.NewHealth("planner")}
	w.config = planner.Config{Bus: s.Bus("planner"), Health: w.health, Model: &llm.Config{}, ToolWait: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	return w
}

func (w *world) init() {
	w.t.Helper()
	if err := bus.Init(context.Background(), w.js, bus.Layout{}); err != nil {
		w.t.Fatal(err)
	}
	sub, err := bus.NewSubscriber(w.js, bus.SubscriberConfig{Stream: bus.StreamReports, Durable: "executor"})
	if err != nil {
		w.t.Fatal(err)
	}
	messages, err := sub.Subscribe(context.Background(), bus.ReportPrefix+">")
	if err != nil {
		w.t.Fatal(err)
	}
	reports := make(chan *runv1.Report, 64)
	go func() {
		for m := range messages {
			r := &runv1.Report{}
			if err := proto.Unmarshal(m.Payload, r); err != nil {
				w.t.Error(err)
			}
			reports <- r
			m.Ack()
		}
	}()
	w.t.Cleanup(func() { _ = sub.Close() })
	w.reports = reports
}

// start starts a planner; the returned function stops it and waits.
func (w *world) start() (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- planner.Run(ctx, w.config) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				w.t.Errorf("planner: %v", err)
			}
		})
	}
	w.t.Cleanup(stop)
	ready, cancelReady := context.WithTimeout(ctx, patience)
	defer cancelReady()
	if err := w.health.Wait(ready); err != nil {
		w.t.Fatal(err)
	}
	return stop
}

// ready is a bus with streams, tools and a planner.
func ready(t testing.TB, change ...func(*planner.Config)) *world {
	t.Helper()
	w := newWorld(t)
	w.init()
	w.register("echo", `{"type":"object"}`)
	w.register("search_resume", `{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}`)
	for _, f := range change {
		f(&w.config)
	}
	w.start()
	return w
}

func (w *world) register(name, input string) {
	w.t.Helper()
	kv, err := w.js.KeyValue(context.Background(), bus.BucketTools)
	if err != nil {
		w.t.Fatal(err)
	}
	value, err := exactjson.Marshal(&planv1.ToolDefinition{Name: name, Description: "test tool", InputSchema: &planv1.JsonText{Text: input}, Idempotent: true})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := kv.Put(context.Background(), name, value); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) send(work *runv1.Work) {
	w.t.Helper()
	request := work.GetPlan().GetRequestId() + work.GetReplan().GetRequestId()
	data, err := proto.Marshal(work)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.js.Publish(context.Background(), bus.PlanSubject(work.GetRunId(), request), data); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) report() *runv1.Report {
	w.t.Helper()
	select {
	case r := <-w.reports:
		return r
	case <-time.After(patience):
		w.t.Fatal("no report")
		return nil
	}
}

func (w *world) plan(spec *runv1.RunSpec) *runv1.Report {
	w.t.Helper()
	w.asked++
	w.send(&runv1.Work{RunId: "r1", Tenant: "acme", Body: &runv1.Work_Plan{Plan: &runv1.PlanWork{RequestId: fmt.Sprintf("plan-%d", w.asked), Attempt: 1, Spec: spec}}})
	return w.report()
}

// planRun asks as a run does: again with the findings, up to so many attempts. It returns the last report.
func (w *world) planRun(spec *runv1.RunSpec, attempts int) (last *runv1.Report, asked int) {
	w.t.Helper()
	p := &runv1.PlanWork{Spec: spec}
	for asked = 1; ; asked++ {
		w.asked++
		p.Attempt = int32(asked)
		p.RequestId = fmt.Sprintf("plan-%d", w.asked)
		w.send(&runv1.Work{RunId: "r1", Body: &runv1.Work_Plan{Plan: p}})
		last = w.report()
		got := last.GetPlanProposed()
		if got == nil || !plan.HasErrors(got.GetFindings()) || asked == attempts {
			return last, asked
		}
		p = proto.Clone(p).(*runv1.PlanWork)
		p.Findings, p.RejectedText = got.GetFindings(), got.GetText()
	}
}

func errorCodes(findings []*planv1.Finding) string {
	var out []string
	for _, f := range findings {
		if f.GetSeverity() == planv1.Severity_SEVERITY_ERROR {
			out = append(out, f.GetCode())
		}
	}
	return strings.Join(out, " ")
}

func hasCode(findings []*planv1.Finding, code string) bool {
	for _, f := range findings {
		if f.GetCode() == code {
			return true
		}
	}
	return false
}

// provider answers chat completions one after the other; the last answer repeats.
type provider struct {
	*httptest.Server
	mu       sync.Mutex
	answers  []providerAnswer
	requests []providerRequest
}

type providerAnswer struct {
	status  int
	text    string
	refusal string
	finish  string
	err     string
}

type providerRequest struct {
	Model    string
	Messages []llm.Message
	Format   struct {
		JSONSchema struct {
			Strict bool
			Schema json.RawMessage
		} `json:"json_schema"`
	} `json:"response_format"`
}

func (r providerRequest) user() string { return r.Messages[len(r.Messages)-1].Content }

func says(text string) providerAnswer { return providerAnswer{status: 200, text: text, finish: "stop"} }

func newProvider(t testing.TB, answers ...providerAnswer) *provider {
	t.Helper()
	p := &provider{answers: answers}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	var req providerRequest
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &req)
	p.mu.Lock()
	a := p.answers[min(len(p.requests), len(p.answers)-1)]
	p.requests = append(p.requests, req)
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if req.Format.JSONSchema.Schema != nil {
		if err := strict(req.Format.JSONSchema.Schema); err != nil {
			a = providerAnswer{status: 400, err: fmt.Sprintf("Invalid schema for response_format 'plan': %v", err)}
		}
	}
	if a.status != 200 {
		w.WriteHeader(a.status)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": a.err, "type": "invalid_request_error"}})
		return
	}
	message := map[string]any{"role": "assistant", "content": a.text}
	if a.refusal != "" {
		message = map[string]any{"role": "assistant", "content": nil, "refusal": a.refusal}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"id": "c1", "model": "mock-1", "choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": a.finish}},
		"usage": map[string]any{"prompt_tokens": 100, "completion_tokens": 10},
	})
}

func (p *provider) calls() []providerRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]providerRequest(nil), p.requests...)
}

// strict is the rule of strict structured output: every object closed, every property required, nothing at the root but an
// object.
func strict(schema json.RawMessage) error {
	var root any
	if err := json.Unmarshal(schema, &root); err != nil {
		return err
	}
	if m, _ := root.(map[string]any); m["type"] != "object" || m["anyOf"] != nil {
		return fmt.Errorf("schema must have type 'object' and not have 'anyOf' at the top level")
	}
	return strictAt("()", root)
}

func strictAt(at string, v any) error {
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			if err := strictAt(fmt.Sprintf("%s[%d]", at, i), item); err != nil {
				return err
			}
		}
	case map[string]any:
		if v["type"] == "object" || v["properties"] != nil {
			if v["additionalProperties"] != false {
				return fmt.Errorf("in context=%s, 'additionalProperties' is required to be supplied and to be false", at)
			}
			properties, _ := v["properties"].(map[string]any)
			required, _ := v["required"].([]any)
			if len(properties) == 0 || len(required) != len(properties) {
				return fmt.Errorf("in context=%s, 'required' is required to include every key in properties", at)
			}
			for _, name := range required {
				if properties[name.(string)] == nil {
					return fmt.Errorf("in context=%s, extra required key %v", at, name)
				}
			}
		}
		for _, unknown := range []string{"allOf", "not", "if", "then", "else", "oneOf", "patternProperties", "dependentRequired", "default"} {
			if _, has := v[unknown]; has {
				if _, isProperty := v[unknown].(map[string]any); !isProperty {
					return fmt.Errorf("in context=%s, '%s' is not permitted", at, unknown)
				}
			}
		}
		for k, inner := range v {
			if err := strictAt(at+"."+k, inner); err != nil {
				return err
			}
		}
	}
	return nil
}

func withModel(p *provider) func(*planner.Config) {
	return func(c *planner.Config) {
		c.Model = &llm.Config{BaseURL: p.URL, Model: "mock", RetryWait: time.Millisecond}
	}
}

func withTemplates(t testing.TB, text string) func(*planner.Config) {
	path := filepath.Join(t.TempDir(), "templates.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(c *planner.Config) { c.Templates = path }
}

// artifact is a raw answer that a trace names.
func (w *world) artifact(ref *runv1.ArtifactRef) string {
	w.t.Helper()
	a, err := bus.OpenArtifacts(context.Background(), w.js, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	data, err := a.Get(context.Background(), ref.GetSha256())
	if err != nil {
		w.t.Fatal(err)
	}
	return string(data)
}
