package gateway

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/telemetry"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

func TestMissingStreamsAreReportedAndNotMade(t *testing.T) {
	health := telemetry.NewHealth(component)
	h := build(t, setup{bare: true, config: Config{Health: health}})
	eventually(t, 10*time.Second, "the missing stream is named", func() bool {
		return strings.Contains(h.call("GET", "/readyz", "").body, bus.StreamLog)
	})
	if err := health.Err(); err == nil || !strings.Contains(err.Error(), "cairn init") {
		t.Errorf("health: %v", err)
	}
	if r := h.call("GET", "/livez", ""); r.code != http.StatusOK {
		t.Errorf("/livez: %d", r.code)
	}
	r := h.call("POST", "/v1/runs", `{"spec":{"goal":"g"}}`)
	if f := r.failure(t); r.code != http.StatusServiceUnavailable || f.reason() != reasonNotReady || !strings.Contains(f.Message, bus.StreamLog) {
		t.Errorf("submit: %d %s", r.code, r.body)
	}
	check := healthpb.NewHealthClient(h.conn)
	if s, err := check.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || s.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("gRPC health: %v, %v", s, err)
	}
	if err := bus.Check(t.Context(), h.js); err == nil {
		t.Fatal("the gateway made streams")
	}
	if err := bus.Init(t.Context(), h.js, bus.Layout{}); err != nil {
		t.Fatal(err)
	}
	wait, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()
	if err := health.Wait(wait); err != nil {
		t.Fatal(err)
	}
	if r := h.call("GET", "/readyz", ""); r.code != http.StatusOK {
		t.Errorf("/readyz: %d %s", r.code, r.body)
	}
	if s, err := check.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || s.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("gRPC health: %v, %v", s, err)
	}
	// A stream that goes away makes it unready again, and is not made anew.
	if err := h.js.DeleteStream(t.Context(), bus.StreamReports); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the stream that went away is named", func() bool {
		return strings.Contains(h.call("GET", "/readyz", "").body, bus.StreamReports)
	})
}

func TestStartUpOrderDoesNotMatter(t *testing.T) {
	w := newWorld()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	_ = ln.Close()
	h := build(t, setup{world: w, config: Config{RunStore: address, Times: Times{Store: 200 * time.Millisecond}}})
	w.add("r1", step("a"))
	r := h.call("GET", "/v1/runs/r1", "")
	if f := r.failure(t); r.code != http.StatusServiceUnavailable || f.reason() != reasonStoreAway || !strings.Contains(f.Message, address) || r.header.Get("Retry-After") == "" {
		t.Errorf("no run store: %d %s", r.code, r.body)
	}
	if r := h.call("GET", "/v1/runs/r1/watch", ""); r.code != http.StatusServiceUnavailable {
		t.Errorf("watch without a run store: %d %s", r.code, r.body)
	}
	// Commands need no run store.
	if r := h.call("POST", "/v1/runs", `{"spec":{"goal":"g"}}`); r.code != http.StatusOK {
		t.Errorf("submit: %d %s", r.code, r.body)
	}
	w.listenAsStore(t, address)
	eventually(t, 10*time.Second, "the run store is found", func() bool { return h.call("GET", "/v1/runs/r1", "").code == http.StatusOK })
}

func TestWithoutARunStoreQuestionsSaySo(t *testing.T) {
	h := build(t, setup{noStore: true})
	if r := h.call("GET", "/v1/runs/r1", ""); r.code != http.StatusServiceUnavailable || !strings.Contains(r.body, "without the address of a run store") {
		t.Errorf("%d %s", r.code, r.body)
	}
}

func TestListeningForOthersNeedsTokens(t *testing.T) {
	for _, c := range []struct {
		address       string
		authenticated bool
		insecure      bool
		ok            bool
	}{
		{"127.0.0.1:7070", false, false, true},
		{"localhost:7070", false, false, true},
		{"[::1]:7070", false, false, true},
		{"0.0.0.0:7070", false, false, false},
		{":7070", false, false, false},
		{"[::]:7070", false, false, false},
		{"10.0.0.1:7070", false, false, false},
		{"example.org:7070", false, false, false},
		{"0.0.0.0:7070", true, false, true},
		{"0.0.0.0:7070", false, true, true},
	} {
		if err := checkListen(c.address, c.authenticated, c.insecure); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
	err := Run(t.Context(), Config{Listen: "0.0.0.0:0"})
	if err == nil || !strings.Contains(err.Error(), "without authentication") {
		t.Errorf("Run: %v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if err := Run(t.Context(), Config{Listen: ln.Addr().String()}); err == nil || !strings.Contains(err.Error(), "choose another address") {
		t.Errorf("port taken: %v", err)
	}
}

func TestTokensTellTheTenant(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("# who may call\n\nsecret-of-the-shop shop\nsecret-of-the-desk desk\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	known, err := readTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	h := build(t, setup{tokens: known})
	for _, c := range []struct {
		authorization, tenant string
		code                  int
		want                  string
	}{
		{"", "", http.StatusUnauthorized, reasonUnauthenticated},
		{"Bearer nobody", "", http.StatusUnauthorized, reasonUnauthenticated},
		{"Basic c2hvcA==", "", http.StatusUnauthorized, reasonUnauthenticated},
		{"Bearer secret-of-the-shop", "desk", http.StatusForbidden, reasonForbidden},
		{"Bearer secret-of-the-shop", "", http.StatusOK, "shop"},
		{"Bearer secret-of-the-desk", "desk", http.StatusOK, "desk"},
	} {
		r := h.call("POST", "/v1/runs", `{"spec":{"goal":"g"}}`, "Authorization", c.authorization, tenantHeader, c.tenant)
		if r.code != c.code {
			t.Errorf("%+v: %d %s", c, r.code, r.body)
		}
		_, err := h.runs().SubmitRun(metadata.AppendToOutgoingContext(t.Context(), "authorization", c.authorization, tenantHeader, c.tenant), &apiv1.SubmitRunRequest{Spec: goal("g")})
		if c.code == http.StatusOK {
			reports := h.world.reported()
			if err != nil || reports[len(reports)-1].GetTenant() != c.want || reports[len(reports)-2].GetTenant() != c.want {
				t.Errorf("%+v: %v, reported for %s", c, err, reports[len(reports)-1].GetTenant())
			}
			continue
		}
		if got := r.failure(t).reason(); got != c.want || reasonOf(err) != c.want {
			t.Errorf("%+v: reasons %s and %s", c, got, reasonOf(err))
		}
		if (r.header.Get("WWW-Authenticate") == "Bearer") != (c.code == http.StatusUnauthorized) {
			t.Errorf("%+v: WWW-Authenticate %q", c, r.header.Get("WWW-Authenticate"))
		}
	}
	// Streams are asked for a token too; health is not.
	s, err := h.queries().WatchRun(t.Context(), &apiv1.WatchRunRequest{RunId: "r1"})
	if err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("stream: %v", err)
	}
	if _, err := healthpb.NewHealthClient(h.conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
}

func TestBadTokensFilesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "holds no token",
		"# nothing\n":                "holds no token",
		"short shop":                 "line 1",
		"secret-of-the-shop":         "line 1",
		"\nsecret-of-the-shop a b":   "line 2",
		"secret-of-the-shop tenant!": "tenant!",
	} {
		path := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Run(t.Context(), Config{TokensFile: path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := Run(t.Context(), Config{TokensFile: "nowhere"}); err == nil || !strings.Contains(err.Error(), "tokens file") {
		t.Errorf("no file: %v", err)
	}
}

func TestWebPagesOfStrangersCannotCall(t *testing.T) {
	h := build(t, setup{})
	body := `{"spec":{"goal":"g"}}`
	for _, headers := range [][]string{
		{"Origin", "https://evil.example", "Content-Type", "text/plain"},
		{"Sec-Fetch-Site", "cross-site"},
		{"Host", "evil.example"},
		{"Host", "evil.example:7070", "Origin", "http://evil.example:7070"},
	} {
		r := h.call("POST", "/v1/runs", body, headers...)
		if r.code != http.StatusForbidden || r.failure(t).reason() != reasonForbiddenOrigin {
			t.Errorf("%q: %d %s", headers, r.code, r.body)
		}
	}
	if r := h.call("POST", "/v1/runs", body, "Content-Type", "text/plain"); r.code != http.StatusBadRequest || !strings.Contains(r.body, "application/json") {
		t.Errorf("text/plain: %d %s", r.code, r.body)
	}
	if r := h.call("POST", "/v1/runs", body, "Origin", "http://"+h.addr); r.code != http.StatusOK {
		t.Errorf("own origin: %d %s", r.code, r.body)
	}
	if n := len(h.world.reported()); n != 1 {
		t.Errorf("%d reports", n)
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	h := build(t, setup{})
	for _, c := range []struct {
		method, path string
		code         int
		reason       string
	}{
		{"GET", "/", http.StatusNotFound, reasonNotFound},
		{"GET", "/v1/nothing", http.StatusNotFound, reasonNotFound},
		{"DELETE", "/v1/runs/r1", http.StatusMethodNotAllowed, reasonMethod},
	} {
		r := h.call(c.method, c.path, "")
		if r.code != c.code || r.failure(t).reason() != c.reason || r.header.Get("Content-Type") != contentTypeJSON {
			t.Errorf("%s %s: %d %s", c.method, c.path, r.code, r.body)
		}
	}
}

func TestReflectionNamesTheServices(t *testing.T) {
	h := build(t, setup{})
	s, err := reflectionpb.NewServerReflectionClient(h.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range r.GetListServicesResponse().GetService() {
		names = append(names, v.GetName())
	}
	for _, want := range []string{"cairn.api.v1.RunService", "cairn.api.v1.QueryService", "cairn.api.v1.ToolService", "grpc.health.v1.Health"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %q", want, names)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Error(err)
	}
}

func TestTraceReachesTheReport(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	h := build(t, setup{})
	if r := h.call("POST", "/v1/runs", `{"spec":{"goal":"g"}}`, "traceparent", parent); r.code != http.StatusOK {
		t.Fatalf("%d %s", r.code, r.body)
	}
	if _, err := h.runs().SubmitRun(metadata.AppendToOutgoingContext(t.Context(), "traceparent", parent), &apiv1.SubmitRunRequest{Spec: goal("g")}); err != nil {
		t.Fatal(err)
	}
	for _, r := range h.world.reported() {
		if got := r.GetTrace().GetTraceparent(); got != parent {
			t.Errorf("traceparent %q", got)
		}
	}
}
