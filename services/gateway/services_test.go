package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cairnrun/cairn/pkg/bus"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func TestCancelWithWaitAnswersWhenTheRunHasEnded(t *testing.T) {
	w := newWorld()
	w.hold = make(chan struct{})
	h := build(t, setup{world: w})
	w.add("r1", step("a"))
	now, err := h.runs().CancelRun(t.Context(), &apiv1.CancelRunRequest{RunId: "r1", Reason: "enough"})
	if err != nil || now.GetStatus() != runv1.RunStatus_RUN_STATUS_CANCELLING || now.GetRevision() != 2 {
		t.Errorf("without wait: %v, %v", now, err)
	}
	w.add("r2", step("a"))
	answers := make(chan *apiv1.CancelRunResponse, 1)
	go func() {
		r, err := h.runs().CancelRun(context.Background(), &apiv1.CancelRunRequest{RunId: "r2", Reason: "enough", Wait: true})
		if err != nil {
			t.Error(err)
		}
		answers <- r
	}()
	eventually(t, 10*time.Second, "the run is followed", func() bool { return w.openWatches() == 1 })
	select {
	case r := <-answers:
		t.Fatalf("answered before the end: %v", r)
	default:
	}
	close(w.hold)
	if r := <-answers; r.GetStatus() != runv1.RunStatus_RUN_STATUS_CANCELLED || r.GetRevision() != 3 {
		t.Errorf("at the end: %v", r)
	}

	// A run that is over stays what it was, and the answer says what that is.
	r := h.call("POST", "/v1/runs/r2:cancel", `{}`)
	f := r.failure(t)
	if r.code != http.StatusConflict || f.reason() != reasonRunClosed || f.Details[0].Metadata["status"] != "cancelled" {
		t.Errorf("again: %d %s", r.code, r.body)
	}
	if r := h.call("POST", "/v1/runs/nobody:cancel", `{}`); r.code != http.StatusNotFound || r.failure(t).reason() != reasonUnknownRun {
		t.Errorf("unknown: %d %s", r.code, r.body)
	}
}

func TestRefusalsKeepTheirCode(t *testing.T) {
	h := build(t, setup{})
	for code, want := range map[string]int{
		"version_conflict": http.StatusConflict, "answer_conflict": http.StatusConflict, "unknown_request": http.StatusNotFound,
		"something_new": http.StatusBadRequest,
	} {
		h.world.mu.Lock()
		h.world.refuse["r1"] = &runv1.Answer{RunId: "r1", Outcome: runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED, Code: code, Message: "because"}
		h.world.mu.Unlock()
		r := h.call("POST", "/v1/runs/r1/plan:patch", `{"patch":{"base_version":1,"remove":["a"]}}`)
		if f := r.failure(t); r.code != want || f.reason() != code || f.Message != "because" {
			t.Errorf("%s: %d %s", code, r.code, r.body)
		}
	}
	h.world.mu.Lock()
	h.world.refuse["r1"] = &runv1.Answer{RunId: "r1", Outcome: runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED, Code: "patch_rejected", Message: "because", Findings: []*planv1.Finding{
		{Severity: planv1.Severity_SEVERITY_ERROR, Code: "cycle", Pointer: "/add/0/depends_on", Message: "a needs itself.", Hint: "remove a edge"},
		{Severity: planv1.Severity_SEVERITY_NOTE, Code: "dependency_added", Pointer: "/add/1"},
	}}
	h.world.mu.Unlock()
	r := h.call("POST", "/v1/runs/r1/plan:patch", `{"patch":{"base_version":1,"remove":["a"]}}`)
	if f := r.failure(t); r.code != http.StatusBadRequest || !slices.Equal(f.fields(), []string{"patch/add/0/depends_on cycle"}) {
		t.Errorf("with findings: %d %s", r.code, r.body)
	}
	h.world.mu.Lock()
	h.world.refuse["r1"] = &runv1.Answer{RunId: "r1", Outcome: runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED, Code: "patch_rejected", Message: "because", Findings: []*planv1.Finding{
		{Severity: planv1.Severity_SEVERITY_ERROR, Code: "version_conflict", Pointer: "/base_version", Message: "the plan is at version 2"},
	}}
	h.world.mu.Unlock()
	r = h.call("POST", "/v1/runs/r1/plan:patch", `{"patch":{"base_version":1,"remove":["a"]}}`)
	if f := r.failure(t); r.code != http.StatusConflict || f.reason() != reasonVersionConflict || len(f.fields()) != 1 {
		t.Errorf("a plan that moved on: %d %s", r.code, r.body)
	}
}

func register(t *testing.T, h *house, name string) {
	t.Helper()
	if r := h.call("PUT", "/v1/tools/"+name, `{"version":"1","description":"d","input_schema":{"type":"object"},"idempotent":true}`); r.code != http.StatusOK {
		t.Fatalf("register %s: %d %s", name, r.code, r.body)
	}
}

func TestPatchIsProposedByAPersonWithTheDefinitionsOfItsTools(t *testing.T) {
	h := build(t, setup{})
	h.world.add("r1", step("a"))
	register(t, h, "shop.stock")
	register(t, h, "shop.pay")
	patch := `{"base_version":3,"add":[{"id":"s","title":"t","objective":"o","action":{"kind":"tool","name":"shop.stock","arguments":{"n":9011.00}}}],"reason":"by hand"}`
	r := h.call("POST", "/v1/runs/r1/plan:patch", `{"patch":`+patch+`}`)
	if r.code != http.StatusOK || !strings.Contains(r.body, `"plan_version":4`) {
		t.Fatalf("%d %s", r.code, r.body)
	}
	p := h.world.reported()[0].GetPatchProposed()
	if p.GetCreatedBy() != planv1.CreatedBy_CREATED_BY_HUMAN || p.GetRequestId() != "" || p.GetPatch().GetBaseVersion() != 3 ||
		len(p.GetTools()) != 1 || p.GetTools()[0].GetName() != "shop.stock" || p.GetPatch().GetAdd()[0].GetAction().GetArguments().GetText() != `{"n":9011.00}` {
		t.Errorf("proposed %v", p)
	}
	bad := h.call("POST", "/v1/runs/r1/plan:patch", `{"patch":{"base_version":3,"add":[{"id":"s","colour":1}]}}`)
	fields := bad.failure(t).fields()
	if bad.code != http.StatusBadRequest || bad.failure(t).reason() != reasonPatchRejected || len(fields) == 0 || !strings.HasPrefix(fields[0], "patch/add/0") {
		t.Errorf("unreadable: %d %s", bad.code, bad.body)
	}
	if n := len(h.world.reported()); n != 1 {
		t.Errorf("%d reports", n)
	}
}

func TestValidatePlanTellsAllFindings(t *testing.T) {
	h := build(t, setup{})
	register(t, h, "shop.stock")
	good := `{"goal":"g","steps":[{"id":"a","title":"t","objective":"o","action":{"kind":"tool","name":"shop.stock","arguments":{}}}]}`
	if r := h.call("POST", "/v1/plans:validate", `{"plan":`+good+`}`); r.code != http.StatusOK || !strings.Contains(r.body, `"valid":true`) || !strings.Contains(r.body, `"id":"a"`) {
		t.Errorf("good: %d %s", r.code, r.body)
	}
	bad := strings.NewReplacer("shop.stock", "shop.stok", `"id":"a"`, `"id":"a","depends_on":["zz"]`).Replace(good)
	r := h.call("POST", "/v1/plans:validate", `{"plan":`+bad+`}`)
	if r.code != http.StatusOK || strings.Contains(r.body, `"valid"`) || !strings.Contains(r.body, "unknown_tool") || strings.Count(r.body, `"severity":"error"`) < 2 {
		t.Errorf("bad: %d %s", r.code, r.body)
	}
	// What is wrong with the form of one step hides neither the other steps nor the other layers.
	mixed := `{"goal":"g","steps":[{"id":"b b","tol":"x"},{"id":"c","tool":"shop.none","retry":{"max":2},"depends_on":["d"]}]}`
	checked, err := h.runs().ValidatePlan(t.Context(), &apiv1.ValidatePlanRequest{Plan: &planv1.JsonText{Text: mixed}})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, f := range checked.GetFindings() {
		found[f.GetCode()+" "+f.GetPointer()] = f.GetStepId()
	}
	for what, step := range map[string]string{"unknown_field /steps/0/tol": "b b", "invalid_id /steps/0/id": "b b", "unknown_field /steps/1/retry/max": "c",
		"unknown_tool /steps/1/action/name": "c", "dangling_dependency /steps/1/depends_on/0": "c"} {
		if id, ok := found[what]; !ok || id != step {
			t.Errorf("%s of step %q is missing among %v", what, step, found)
		}
	}
	// Of a run without input it is known that it has none; without a run it is not known.
	refers := `{"goal":"g","steps":[{"id":"a","tool":"shop.stock","arguments":{"k":{"$ref":"run.input.k"}}}]}`
	for spec, valid := range map[string]bool{``: true, `,"spec":{}`: false, `,"spec":{"goal":"g"}`: false, `,"spec":{"input":{"k":1}}`: true} {
		r := h.call("POST", "/v1/plans:validate", `{"plan":`+refers+spec+`}`)
		if strings.Contains(r.body, `"valid":true`) != valid || strings.Contains(r.body, "ref_unknown_input") == valid {
			t.Errorf("spec %q: %s", spec, r.body)
		}
	}
	if r := h.call("POST", "/v1/plans:validate", `{}`); r.code != http.StatusBadRequest || !slices.Equal(r.failure(t).fields(), []string{"plan missing_field"}) {
		t.Errorf("none: %d %s", r.code, r.body)
	}
	if n := len(h.world.reported()); n != 0 {
		t.Errorf("%d reports", n)
	}
}

func TestToolsAreKeptAndPaged(t *testing.T) {
	h := build(t, setup{})
	first := h.call("PUT", "/v1/tools/shop.a", `{"version":"1","input_schema":{"type":"object","properties":{"n":{"const":9011.00}}},"timeout":"1m30s"}`)
	if first.code != http.StatusOK || !strings.Contains(first.body, `"created":true`) || !strings.Contains(first.body, `"timeout":"90s"`) || !strings.Contains(first.body, "9011.00") {
		t.Errorf("%d %s", first.code, first.body)
	}
	again := h.call("PUT", "/v1/tools/shop.a", `{"version":"1","input_schema":{"type":"object","properties":{"n":{"const":9011.00}}},"timeout":"90s"}`)
	if again.code != http.StatusOK || strings.Contains(again.body, "created") {
		t.Errorf("again: %d %s", again.code, again.body)
	}
	got := h.call("GET", "/v1/tools/shop.a", "")
	if got.code != http.StatusOK || !strings.Contains(got.body, `"digest":"`) {
		t.Errorf("get: %d %s", got.code, got.body)
	}
	if r := h.call("GET", "/v1/tools/shop.none", ""); r.code != http.StatusNotFound || r.failure(t).reason() != reasonUnknownTool {
		t.Errorf("none: %d %s", r.code, r.body)
	}
	if r := h.call("PUT", "/v1/tools/shop.a", `{"input_schema":[1],"risk":"daring"}`); r.code != http.StatusBadRequest || !slices.Equal(r.failure(t).fields(), []string{"/risk invalid_json"}) {
		t.Errorf("bad: %d %s", r.code, r.body)
	}
	for schema, usable := range map[string]bool{`true`: true, `{"type":["object","null"]}`: true, `{"type":"objekt"}`: false, `7`: false,
		`{"properties":{"a":{"type":"strnig"}}}`: false, `{"$ref":"https://example.com/s.json"}`: false} {
		for _, field := range []string{"input_schema", "output_schema"} {
			r := h.call("PUT", "/v1/tools/shop.a", `{"version":"1","`+field+`":`+schema+`}`)
			if usable && r.code != http.StatusOK || !usable && (r.code != http.StatusBadRequest || !slices.Equal(r.failure(t).fields(), []string{"tool." + field + " schema_invalid"})) {
				t.Errorf("%s %s: %d %s", field, schema, r.code, r.body)
			}
		}
	}
	// A tool service writes the bucket itself.
	kv, err := h.js.KeyValue(t.Context(), bus.BucketTools)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		name := fmt.Sprintf("shop.t%d", i)
		if _, err := kv.PutString(t.Context(), name, `{"name":"`+name+`"}`); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := kv.PutString(t.Context(), "shop.broken", `{"name":7}`); err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), "shop.a"); err != nil {
		t.Fatal(err)
	}
	var names []string
	list := func() []string {
		names = nil
		for token := ""; ; {
			page, err := h.tools().ListTools(t.Context(), &apiv1.ListToolsRequest{PageSize: 2, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			if len(page.GetTools()) > 2 {
				t.Fatalf("%d tools on a page", len(page.GetTools()))
			}
			for _, d := range page.GetTools() {
				names = append(names, d.GetName())
			}
			if token = page.GetNextPageToken(); token == "" {
				return names
			}
		}
	}
	want := []string{"shop.t0", "shop.t1", "shop.t2", "shop.t3", "shop.t4"}
	eventually(t, 10*time.Second, "the registry follows the bucket", func() bool { return slices.Equal(list(), want) })
	for _, bad := range []*apiv1.ListToolsRequest{{PageSize: -1}, {PageSize: maxToolPage + 1}, {PageToken: "!"}} {
		if _, err := h.tools().ListTools(t.Context(), bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := h.tools().ListTools(t.Context(), &apiv1.ListToolsRequest{PageSize: maxToolPage}); err != nil {
		t.Errorf("the largest page: %v", err)
	}
}

func TestArtifactsComeWholeByTheirHash(t *testing.T) {
	h := build(t, setup{})
	store, err := h.js.ObjectStore(t.Context(), bus.BucketArtifacts)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, artifactChunk, artifactChunk + 1, 5*artifactChunk + 7} {
		data := bytes.Repeat([]byte{7}, size)
		sum := sha256.Sum256(data)
		name := hex.EncodeToString(sum[:])
		if _, err := store.Put(t.Context(), jetstream.ObjectMeta{Name: name}, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		s, err := h.runs().GetArtifact(t.Context(), &apiv1.GetArtifactRequest{Sha256: name})
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for {
			r, err := s.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(r.GetChunk()) > artifactChunk {
				t.Errorf("a chunk of %d bytes", len(r.GetChunk()))
			}
			got = append(got, r.GetChunk()...)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("gRPC: %d bytes of %d", len(got), size)
		}
		r := h.call("GET", "/v1/artifacts/"+name, "")
		if r.code != http.StatusOK || r.body != string(data) || r.header.Get("ETag") != `"`+name+`"` {
			t.Errorf("HTTP: %d, %d bytes of %d", r.code, len(r.body), size)
		}
	}
	if r := h.call("GET", "/v1/artifacts/"+strings.Repeat("0", 64), ""); r.code != http.StatusNotFound || r.failure(t).reason() != reasonUnknownArtifact {
		t.Errorf("unknown: %d %s", r.code, r.body)
	}
	if r := h.call("GET", "/v1/artifacts/..%2Fx", ""); r.code == http.StatusOK {
		t.Errorf("no hash: %d %s", r.code, r.body)
	}
	if r := h.call("GET", "/v1/artifacts/"+strings.Repeat("A", 64), ""); r.code != http.StatusBadRequest {
		t.Errorf("upper case: %d %s", r.code, r.body)
	}
}

func TestATenantSeesItsOwnRunsOnly(t *testing.T) {
	h := build(t, setup{})
	if r := h.call("POST", "/v1/runs", `{"request_id":"k","spec":{"goal":"g"}}`, tenantHeader, "shop"); r.code != http.StatusOK {
		t.Fatalf("%d %s", r.code, r.body)
	}
	id := runID("shop", "k")
	if got := h.world.reported()[0].GetTenant(); got != "shop" {
		t.Errorf("reported for tenant %q", got)
	}
	if r := h.call("GET", "/v1/runs/"+id, "", tenantHeader, "shop"); r.code != http.StatusOK || !strings.Contains(r.body, `"status":"running"`) {
		t.Errorf("own: %d %s", r.code, r.body)
	}
	for _, path := range []string{"/v1/runs/" + id, "/v1/runs/" + id + "/events", "/v1/runs/" + id + "/watch", "/v1/runs/" + id + ":export"} {
		if r := h.call("GET", path, ""); r.code != http.StatusNotFound {
			t.Errorf("%s as another tenant: %d %s", path, r.code, r.body)
		}
	}
	if r := h.call("GET", "/v1/runs?filter=status%3Dfailed", "", tenantHeader, "shop"); r.code != http.StatusOK || !strings.Contains(r.body, id) {
		t.Errorf("own list: %d %s", r.code, r.body)
	}
	if r := h.call("GET", "/v1/runs", ""); r.code == http.StatusOK {
		t.Errorf("another's run in a list: %s", r.body)
	}
	if want := []string{"status=failed AND tenant=shop", "tenant=default"}; !slices.Equal(h.world.filters, want) {
		t.Errorf("filters %q, want %q", h.world.filters, want)
	}
	if r := h.call("POST", "/v1/runs/"+id+":replay", "{}"); r.code != http.StatusNotImplemented {
		t.Errorf("what the run store cannot do: %d %s", r.code, r.body)
	}
	if r := h.call("GET", "/v1/runs/"+id+"?colour=red", ""); r.code != http.StatusBadRequest || !strings.Contains(r.body, "unknown parameter") {
		t.Errorf("unknown parameter: %d %s", r.code, r.body)
	}
	if r := h.call("GET", "/v1/runs/"+id+"?position.sequence=1&position.nothing=1", ""); r.code != http.StatusBadRequest {
		t.Errorf("unknown part of a parameter: %d %s", r.code, r.body)
	}
}
