package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/telemetry"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestTraceContextTravelsInHeadersAndMessages(t *testing.T) {
	want := &runv1.TraceContext{Traceparent: traceparent, Tracestate: "vendor=x"}
	h := nats.Header{}
	telemetry.Inject(telemetry.ContextWith(t.Context(), want), h)
	if h["traceparent"][0] != traceparent || h["tracestate"][0] != "vendor=x" {
		t.Errorf("headers %v", h)
	}
	if got := telemetry.TraceOf(telemetry.Extract(t.Context(), h)); !proto.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got := telemetry.TraceOf(telemetry.ContextWith(t.Context(), &runv1.TraceContext{Traceparent: "garbage"})); got != nil {
		t.Errorf("garbage became %v", got)
	}
	if got := telemetry.TraceOf(t.Context()); got != nil {
		t.Errorf("nothing became %v", got)
	}
}

func TestLogsNameRunStepAndTrace(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(telemetry.LogHandler{Handler: slog.NewTextHandler(&out, nil)}).With("service", "test")
	ctx := telemetry.WithStep(telemetry.WithRun(telemetry.ContextWith(t.Context(), &runv1.TraceContext{Traceparent: traceparent}), "r1"), "s1")
	log.InfoContext(ctx, "hello")
	for _, want := range []string{"service=test", "run_id=r1", "step_id=s1", "trace_id=0af7651916cd43dd8448eb211c80319c", "span_id=b7ad6b7169203331"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in %s", want, out.String())
		}
	}
	out.Reset()
	log.Info("hello")
	if strings.Contains(out.String(), "_id=") {
		t.Errorf("ids out of nowhere: %s", out.String())
	}
}

func TestOpsTellLivenessReadinessAndMetrics(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	shutdown, err := telemetry.Setup(t.Context(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shutdown(context.Background()) }()
	i, err := telemetry.NewInstruments(otel.Meter("test"))
	if err != nil {
		t.Fatal(err)
	}
	i.PlansJudged.Add(t.Context(), 3, metric.WithAttributes(telemetry.Outcome.String("accepted")))

	h := telemetry.NewHealth("planner")
	ctx, cancel := context.WithCancel(t.Context())
	addr, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- telemetry.ServeOps(ctx, "127.0.0.1:0", h, func(a string) { addr <- a })
	}()
	base := "http://" + <-addr
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	if code, _ := get("/livez"); code != 200 {
		t.Errorf("livez %d", code)
	}
	if code, body := get("/readyz"); code != 503 || !strings.Contains(body, "planner: starting") {
		t.Errorf("readyz before: %d %s", code, body)
	}
	h.Set("planner", errors.New("missing stream: CAIRN_WORK"))
	if code, body := get("/readyz"); code != 503 || !strings.Contains(body, "CAIRN_WORK") {
		t.Errorf("readyz without a stream: %d %s", code, body)
	}
	h.Set("planner", nil)
	if code, _ := get("/readyz"); code != 200 {
		t.Errorf("readyz after: %d", code)
	}
	if _, body := get("/metrics"); !regexp.MustCompile(`(?m)^cairn_plans_judged_total\{.*cairn_outcome="accepted".*\} 3$`).MatchString(body) || !strings.Contains(body, "go_goroutines") {
		t.Errorf("metrics:\n%s", body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("end: %v", err)
	}
}

func TestOpsNameATakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	err = telemetry.ServeOps(t.Context(), l.Addr().String(), nil)
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) || !strings.Contains(err.Error(), "--ops") {
		t.Errorf("got %v", err)
	}
}

func TestTracesAreExportedOnlyWhereAnEndpointIsSet(t *testing.T) {
	got := make(chan string, 8)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + string(body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer collector.Close()
	before := otel.GetTracerProvider()
	defer otel.SetTracerProvider(before)
	span := func() {
		shutdown, err := telemetry.Setup(t.Context(), "test", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, s := otel.Tracer("test").Start(t.Context(), "plan a run")
		s.SetAttributes(attribute.String("k", "v"))
		s.End()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := shutdown(ctx); err != nil {
			t.Error(err)
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	span()
	if len(got) != 0 {
		t.Fatal("exported without an endpoint")
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	span()
	if s := <-got; !strings.HasPrefix(s, "/v1/traces ") || !strings.Contains(s, "plan a run") || !strings.Contains(s, "cairn-test") {
		t.Errorf("exported %q", s)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier/pigeon")
	if _, err := telemetry.Setup(t.Context(), "test", nil); err == nil || !strings.Contains(err.Error(), "http/protobuf") {
		t.Errorf("unknown protocol: %v", err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "")
	t.Setenv("OTEL_SDK_DISABLED", "true")
	otel.SetTracerProvider(before)
	span()
	if len(got) != 0 {
		t.Error("exported although disabled")
	}
}

// documented returns the names in the first column of the tables of docs/telemetry.md.
func documented(t *testing.T) map[string]string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)\\|$").FindAllStringSubmatch(string(doc), -1) {
		out[m[1]] = m[2]
	}
	return out
}

func TestDocumentationListsEveryInstrument(t *testing.T) {
	doc := documented(t)
	known := map[string]bool{}
	for _, i := range telemetry.Catalogue() {
		known[i.Name] = true
		if row, want := doc[i.Name], " "+i.Kind+" | "+i.Unit+" | "+i.Description+" "; row != want {
			t.Errorf("%s: docs/telemetry.md says %q, want %q", i.Name, row, want)
		}
	}
	for name, row := range doc {
		if strings.Contains(row, "| {") && !known[name] {
			t.Errorf("docs/telemetry.md lists %s, which does not exist", name)
		}
	}
}

func TestDocumentationListsEveryAttribute(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "attributes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	doc := documented(t)
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		if lit, ok := node.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			name, _ := strconv.Unquote(lit.Value)
			if name == "go.opentelemetry.io/otel/attribute" {
				return true
			}
			n++
			if _, ok := doc[name]; !ok {
				t.Errorf("docs/telemetry.md does not list %s", name)
			}
		}
		return true
	})
	if n == 0 {
		t.Error("no attribute found")
	}
}
