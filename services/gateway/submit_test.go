package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func goal(text string) *runv1.RunSpec { return &runv1.RunSpec{Goal: text} }

func TestCase51_SameRequestIDGivesTheSameRun(t *testing.T) {
	server, world := newServer(t), newWorld()
	h := build(t, setup{server: server, world: world})
	submit := func(text string) (*apiv1.SubmitRunResponse, error) {
		return h.runs().SubmitRun(t.Context(), &apiv1.SubmitRunRequest{RequestId: "K", Spec: goal(text)})
	}
	var mu sync.Mutex
	var all []*apiv1.SubmitRunResponse
	var together sync.WaitGroup
	for range 3 {
		together.Go(func() {
			r, err := submit("B")
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, r)
		})
	}
	together.Wait()
	world.add(all[0].GetRunId(), &runv1.Event{Body: &runv1.Event_RunCompleted{RunCompleted: &runv1.RunCompleted{}}})
	after, err := submit("B")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h = build(t, setup{server: server, world: world, leaderless: true})
	restarted, err := submit("B")
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, after, restarted)
	made := 0
	for _, r := range all {
		if r.GetRunId() != all[0].GetRunId() {
			t.Errorf("run ids %s and %s", r.GetRunId(), all[0].GetRunId())
		}
		if r.GetCreated() {
			made++
		}
	}
	if made != 1 {
		t.Errorf("created %d times", made)
	}

	_, err = submit("B'")
	if status.Code(err) != codes.AlreadyExists || reasonOf(err) != reasonKeyReused {
		t.Errorf("another body: %v", err)
	}
	r := h.call("POST", "/v1/runs", `{"request_id":"K","spec":{"goal":"B''"}}`)
	if r.code != http.StatusConflict || r.failure(t).reason() != reasonKeyReused {
		t.Errorf("another body over HTTP: %d %s", r.code, r.body)
	}
}

func TestRunIDIsOfTenantAndRequest(t *testing.T) {
	form := `^r[a-z2-7]{20}$`
	seen := map[string]bool{}
	for _, id := range []string{runID("a", "bc"), runID("ab", "c"), runID("a", ""), runID("a", "")} {
		if len(id) != 21 || id[0] != 'r' || strings.Trim(id[1:], "abcdefghijklmnopqrstuvwxyz234567") != "" {
			t.Errorf("%s is not of the form %s", id, form)
		}
		if seen[id] {
			t.Errorf("%s twice", id)
		}
		seen[id] = true
	}
	if one, again := runID("a", "bc"), runID("a", "bc"); one != again {
		t.Error("the same tenant and request give two ids")
	}
}

func TestCase64_NothingOfAnIDReachesASubject(t *testing.T) {
	h := build(t, setup{})
	nc := h.js.Conn()
	var mu sync.Mutex
	var published []string
	if _, err := nc.Subscribe("cairn.>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		published = append(published, m.Subject)
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 65)
	bad := []string{"a.>", "x *", "t1.evil", strings.Repeat("a", 300), long, "选择", "a/b", "a\x00", " "}
	ctx := t.Context()
	for _, id := range bad {
		for what, err := range map[string]error{
			"request_id": ignore(h.runs().SubmitRun(ctx, &apiv1.SubmitRunRequest{RequestId: id, Spec: goal("g")})),
			"run_id":     ignore(h.runs().CancelRun(ctx, &apiv1.CancelRunRequest{RunId: id})),
			"run_id ":    ignore(h.queries().GetRun(ctx, &apiv1.GetRunRequest{RunId: id})),
			"run_id  ":   ignore(h.runs().PatchPlan(ctx, &apiv1.PatchPlanRequest{RunId: id, Patch: &planv1.JsonText{Text: "{}"}})),
			"tool.name":  ignore(h.tools().RegisterTool(ctx, &apiv1.RegisterToolRequest{Tool: &planv1.ToolDefinition{Name: id}})),
			"name":       ignore(h.tools().GetTool(ctx, &apiv1.GetToolRequest{Name: id})),
		} {
			if id == "t1.evil" && (what == "name" || what == "tool.name") {
				continue // a good name of a tool
			}
			want := strings.TrimSpace(what) + " " + reasonInvalidID
			if status.Code(err) != codes.InvalidArgument || !slices.Contains(fieldsOf(err), want) {
				t.Errorf("%q as %s: %v %v", id, what, err, fieldsOf(err))
			}
		}
		if strings.Trim(id, " ") == id && !strings.ContainsAny(id, "\x00选") { // what metadata can carry
			_, err := h.runs().SubmitRun(metadata.AppendToOutgoingContext(ctx, tenantHeader, id), &apiv1.SubmitRunRequest{Spec: goal("g")})
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%q as tenant: %v", id, err)
			}
		}
	}
	if _, err := h.runs().CancelRun(ctx, &apiv1.CancelRunRequest{}); !slices.Contains(fieldsOf(err), "run_id invalid_id") {
		t.Errorf("empty run id: %v", err)
	}
	r := h.call("POST", "/v1/runs", `{"request_id":"选择","spec":{"goal":"g"}}`)
	if r.code != http.StatusBadRequest || !slices.Equal(r.failure(t).fields(), []string{"request_id invalid_id"}) {
		t.Errorf("over HTTP: %d %s", r.code, r.body)
	}
	if r := h.call("POST", "/v1/runs/a.%3E:cancel", `{}`); r.code != http.StatusBadRequest {
		t.Errorf("in a path: %d %s", r.code, r.body)
	}

	// The form's border, and that a good one shows on the tap, so that the silence above means something.
	ok, err := h.runs().SubmitRun(ctx, &apiv1.SubmitRunRequest{RequestId: strings.Repeat("x", 64), Spec: goal("g")})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(published) != 1 || !strings.HasSuffix(published[0], "."+ok.GetRunId()) {
		t.Errorf("published on %q", published)
	}
}

func ignore[T any](_ T, err error) error { return err }

// exact are values whose text must survive every hop.
const exact = `{"id":9007199254740993,"max":9223372036854775807,"p":9011.00,"e":1e2,"null":null,"deep":[{"n":-0.10}],"text":"costs $1 or ${1}"}`

func TestCase15_NumbersKeepTheirTextThroughHTTP(t *testing.T) {
	h := build(t, setup{})
	r := h.call("POST", "/v1/runs", `{"request_id":"exact","spec":{"goal":"g","input":`+exact+`}}`)
	if r.code != http.StatusOK {
		t.Fatalf("%d %s", r.code, r.body)
	}
	id := runID(defaultTenant, "exact")
	if got := h.world.reported()[0].GetSubmitRun().GetSpec().GetInput().GetText(); got != exact {
		t.Errorf("reported %s", got)
	}
	h.world.add(id, &runv1.Event{Body: &runv1.Event_RunCompleted{RunCompleted: &runv1.RunCompleted{Answer: &planv1.JsonText{Text: "9007199254740993"}}}})
	for path, want := range map[string]string{
		"/v1/runs/" + id:             `"input":` + exact,
		"/v1/runs/" + id + "/events": `"input":` + exact,
		"/v1/runs/" + id + "/watch":  `"input":` + exact,
		"/v1/runs/" + id + ":export": `"answer":9007199254740993`,
	} {
		if r := h.call("GET", path, ""); r.code != http.StatusOK || !strings.Contains(r.body, want) {
			t.Errorf("%s: %d %s", path, r.code, r.body)
		}
	}
}

func TestCase14_NullIsAValueAndAbsentIsNone(t *testing.T) {
	h := build(t, setup{})
	h.world.add("rwaits", &runv1.Event{})
	for _, c := range []struct {
		body string
		code int
		text string
	}{
		{`{"answer":null}`, http.StatusOK, "null"},
		{`{"answer":""}`, http.StatusOK, `""`},
		{`{"answer":{"a":null}}`, http.StatusOK, `{"a":null}`},
		{`{}`, http.StatusBadRequest, ""},
	} {
		before := len(h.world.reported())
		r := h.call("POST", "/v1/runs/rwaits/inputs/input-1:answer", c.body)
		if r.code != c.code {
			t.Errorf("%s: %d %s", c.body, r.code, r.body)
		}
		reports := h.world.reported()[before:]
		switch {
		case c.code != http.StatusOK && len(reports) > 0:
			t.Errorf("%s was reported", c.body)
		case c.code == http.StatusOK && reports[0].GetUserInput().GetAnswer().GetText() != c.text:
			t.Errorf("%s became %q", c.body, reports[0].GetUserInput().GetAnswer().GetText())
		}
	}
	events := h.call("GET", "/v1/runs/rwaits/events", "").body
	if !strings.Contains(events, `"answer":null`) || strings.Contains(events, "<nil>") {
		t.Errorf("events: %s", events)
	}
}

func TestLimitsAtTheDoor(t *testing.T) {
	limits := Limits{
		MaxRequestBytes: 4000, MaxPlanBytes: 100, MaxPatchBytes: 100, MaxInputBytes: 100, MaxGoalBytes: 100,
		MaxLabels: 2, MaxLabelBytes: 10, MaxNames: 2, MaxToolBytes: 100,
	}
	h := build(t, setup{config: Config{Limits: limits}})
	h.world.add("r1", &runv1.Event{})
	// text is a JSON string of n bytes.
	text := func(n int) string { return `"` + strings.Repeat("a", n-2) + `"` }
	object := func(n int) string { return `{"a":` + text(n-6) + `}` }
	labels := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"key":"k%d","value":"v"}`, i))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	names := func(n int) string { return `["` + strings.Join(slices.Repeat([]string{"a.b"}, n), `","`) + `"]` }
	spec := func(field, value string) string {
		if field != "goal" && field != "plan" {
			field = `goal":"g","` + field
		}
		return `{"spec":{"` + field + `":` + value + `}}`
	}
	for _, c := range []struct {
		limit, method, path string
		at, over            string
		code                int
		field               string
	}{
		{"max_goal_bytes", "POST", "/v1/runs", spec("goal", text(102)), spec("goal", text(103)), 413, "spec.goal"},
		{"max_plan_bytes", "POST", "/v1/runs", spec("plan", object(100)), spec("plan", object(101)), 413, "spec.plan"},
		{"max_input_bytes", "POST", "/v1/runs", spec("input", object(100)), spec("input", object(101)), 413, "spec.input"},
		{"max_labels", "POST", "/v1/runs", spec("labels", labels(2)), spec("labels", labels(3)), 400, "spec.labels"},
		{"max_label_bytes", "POST", "/v1/runs", spec("labels", `[{"key":"k","value":"0123456789"}]`), spec("labels", `[{"key":"k","value":"01234567890"}]`), 413, "spec.labels[0].value"},
		{"max_names", "POST", "/v1/runs", spec("allowed_tools", names(2)), spec("allowed_tools", names(3)), 400, "spec.allowed_tools"},
		{"max_names", "POST", "/v1/runs", spec("permissions", names(2)), spec("permissions", names(3)), 400, "spec.permissions"},
		{"max_input_bytes", "POST", "/v1/runs/r1/inputs/input-1:answer", `{"answer":` + text(100) + `}`, `{"answer":` + text(101) + `}`, 413, "answer"},
		{"max_tool_bytes", "PUT", "/v1/tools/a.b", `{"input_schema":` + object(100) + `}`, `{"input_schema":` + object(101) + `}`, 413, "tool.input_schema"},
		{"max_request_bytes", "POST", "/v1/runs", spec("goal", text(100)) + strings.Repeat(" ", 4000-118), spec("goal", text(100)) + strings.Repeat(" ", 4001-118), 413, ""},
	} {
		if r := h.call(c.method, c.path, c.at); r.code != http.StatusOK {
			t.Errorf("%s at the limit: %d %s", c.limit, r.code, r.body)
		}
		before := len(h.world.reported())
		r := h.call(c.method, c.path, c.over)
		f := r.failure(t)
		if r.code != c.code || !strings.Contains(f.Message, c.limit) {
			t.Errorf("%s over the limit: %d %s", c.limit, r.code, r.body)
		}
		if c.field != "" && (len(f.fields()) != 1 || !strings.HasPrefix(f.fields()[0], c.field+" ")) {
			t.Errorf("%s: fields %q", c.limit, f.fields())
		}
		if n := len(h.world.reported()); n != before {
			t.Errorf("%s: %d reports of what was refused", c.limit, n-before)
		}
	}
}

func TestCase60_AReportOverThePayloadLimitIsRefusedByItsName(t *testing.T) {
	h := build(t, setup{config: Config{Limits: Limits{MaxPlanBytes: 64 << 20, MaxRequestBytes: 64 << 20}}})
	plan := `{"goal":"` + strings.Repeat("x", 8<<20) + `"}`
	r := h.call("POST", "/v1/runs", `{"spec":{"plan":`+plan+`}}`)
	if r.code != http.StatusRequestEntityTooLarge || !strings.Contains(r.failure(t).Message, "max_payload") {
		t.Errorf("%d %.300s", r.code, r.body)
	}
	if n := len(h.world.reported()); n != 0 {
		t.Errorf("%d reports", n)
	}
	// The connection to NATS is as it was.
	if r := h.call("POST", "/v1/runs", `{"spec":{"goal":"g"}}`); r.code != http.StatusOK {
		t.Errorf("afterwards: %d %s", r.code, r.body)
	}
}

func TestBadSpecsAreRefusedWithEveryField(t *testing.T) {
	h := build(t, setup{})
	for _, c := range []struct {
		body string
		want []string
	}{
		{`{}`, []string{"spec missing_field"}},
		{``, []string{"spec missing_field"}},
		{`{"spec":{}}`, []string{"spec.goal missing_field"}},
		{`{"spec":{"goal":"  "}}`, []string{"spec.goal missing_field"}},
		{`{"spec":{"goal":"g","input":[1]}}`, []string{"spec.input invalid_argument"}},
		{`{"spec":{"goal":"g","mode":"dance"}}`, []string{"spec.mode invalid_argument"}},
		{`{"spec":{"goal":"g","limits":{"max_steps":-1,"max_duration":"-1s"}}}`, []string{"spec.limits.max_steps invalid_argument", "spec.limits.max_duration invalid_argument"}},
		{`{"request_id":"a b","spec":{"goal":"g","labels":[{"key":"a"},{"key":"a"},{"key":"-"}],"allowed_tools":["File Read"]}}`, []string{
			"request_id invalid_id", "spec.labels[1].key invalid_argument", "spec.labels[2].key invalid_argument", "spec.allowed_tools[0] invalid_id",
		}},
		{`{"spec":{"goal":"g","colour":1}}`, []string{"/spec/colour invalid_json"}},
		{`{"spec":{"goal":7}}`, []string{"/spec/goal invalid_json"}},
		{`{"spec":{"goal":"g","limits":{"max_steps":"many"}}}`, []string{"/spec/limits/max_steps invalid_json"}},
		{`{"spec":{"goal":"g","input":{"a":1,"a":2}}}`, []string{"/spec/input invalid_json"}},
		{`{"spec":`, []string{"/spec invalid_json"}},
		{`not json`, []string{"/ invalid_json"}},
	} {
		r := h.call("POST", "/v1/runs", c.body, "Content-Type", "application/json")
		if got := r.failure(t).fields(); r.code != http.StatusBadRequest || !slices.Equal(got, c.want) {
			t.Errorf("%s:\n %d %s\n got  %q\n want %q", c.body, r.code, r.body, got, c.want)
		}
	}
	_, err := h.runs().SubmitRun(t.Context(), &apiv1.SubmitRunRequest{Spec: &runv1.RunSpec{Goal: "g", Input: &planv1.JsonText{Text: "{'a':1}"}}})
	if !slices.Equal(fieldsOf(err), []string{"spec.input invalid_json"}) {
		t.Errorf("text that is no JSON over gRPC: %v", err)
	}
	if n := len(h.world.reported()); n != 0 {
		t.Errorf("%d reports", n)
	}
}

func TestNoExecutorLeavesTheOutcomeOpenAndSaysSo(t *testing.T) {
	h := build(t, setup{leaderless: true, config: Config{Times: Times{Answer: 50 * time.Millisecond}}})
	r := h.call("POST", "/v1/runs", `{"request_id":"K","spec":{"goal":"g"}}`)
	f := r.failure(t)
	if r.code != http.StatusServiceUnavailable || f.reason() != reasonNoAnswer || r.header.Get("Retry-After") != "1" ||
		!strings.Contains(f.Message, "answer_timeout") || !strings.Contains(f.Message, "same request_id may safely be sent again") {
		t.Errorf("%d %v %s", r.code, r.header, r.body)
	}
	_, err := h.runs().SubmitRun(t.Context(), &apiv1.SubmitRunRequest{Spec: goal("g")})
	if status.Code(err) != codes.Unavailable || retryOf(status.Convert(err)) != retryPause {
		t.Errorf("over gRPC: %v", err)
	}
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && !strings.Contains(err.Error(), "ask for run "+info.GetMetadata()["run_id"]) {
			t.Errorf("without a request id the error names no run: %v", err)
		}
	}
	// An impatient client gets its own deadline back.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := h.runs().SubmitRun(ctx, &apiv1.SubmitRunRequest{Spec: goal("g")}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("own deadline: %v", err)
	}
}
