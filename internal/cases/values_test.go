package cases

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cairnrun/cairn/pkg/tool"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// get reads a path of the gateway.
func (s *system) get(t *testing.T, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t), http.MethodGet, "http://"+s.dev.Gateway()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v: %s", path, resp.Status, err, body)
	}
	return string(body)
}

// Null is a value; what is absent is none; neither becomes text.
func TestCase14_NullAgainstMissing(t *testing.T) {
	t.Parallel()
	h := shared.plan(t, `{"goal":"g","steps":[
		{"id":"dropped","tool":"nullable","arguments":{"a":null,"c":"v"}},
		{"id":"kept","tool":"nullable","arguments":{"b":null,"c":"v"}},
		{"id":"none","tool":"nullable"},
		{"id":"nothing","tool":"void"},
		{"id":"after","tool":"echo","arguments":{"from":{"$ref":"steps.nothing.result"},"b":{"$ref":"steps.kept.result.b"}}}]}`)
	s := h.completed()
	f := finding(h.all(created)[0].GetPlanCreated().GetFindings(), "null_dropped")
	if f.GetStepId() != "dropped" || f.GetPointer() != "/steps/0/action/arguments/a" {
		t.Errorf("note %v", f)
	}
	for id, want := range map[string]string{"dropped": `{"c":"v"}`, "kept": `{"b":null,"c":"v"}`, "none": `{}`, "after": `{"b":null,"from":null}`} {
		if got := arguments(s, id); got != want {
			t.Errorf("arguments of %s are %s, want %s", id, got, want)
		}
		if got := result(s, id); got != want {
			t.Errorf("%s was called with %s, want %s", id, got, want)
		}
	}
	hasStatus(t, s, "nothing", runv1.StepStatus_STEP_STATUS_SUCCEEDED, "")
	if got := result(s, "nothing"); got != "null" {
		t.Errorf("the result of a tool that returns nothing is %q", got)
	}
	for _, path := range []string{"/v1/runs/" + h.id, "/v1/runs/" + h.id + "/events"} {
		if body := shared.get(t, path); strings.Contains(body, "<nil>") || strings.Contains(body, `\u003cnil\u003e`) {
			t.Errorf("%s: %s", path, body)
		}
	}
}

// Numbers keep their text: through tool, log, reference, a restart in between, and the HTTP gateway.
func TestCase15_NumbersKeepTheirText(t *testing.T) {
	t.Parallel()
	s := ownSystem(t)
	h := s.plan(t, `{"goal":"g","steps":[
		{"id":"a","tool":"echo","arguments":{"id":9007199254740993,"max":9223372036854775807,"p":9011.00,"e":1e2}},
		{"id":"hold","action":{"kind":"control","name":"user.ask","arguments":{"question":"go on?"}},"depends_on":["a"]},
		{"id":"b","tool":"echo","arguments":{"id":{"$ref":"steps.a.result.id"},"p":{"$ref":"steps.a.result.p"},"e":{"$ref":"steps.a.result.e"}},"depends_on":["hold"]}]}`)
	h.until(asked("hold"))
	before := h.state.Hash()
	s.restart(t, nil)
	h = s.watch(t, h.id, nil)
	h.until(asked("hold"))
	if h.state.Hash() != before {
		t.Error("the state has another hash after the restart")
	}
	h.answer("input-1", "true")
	state := h.completed()
	const whole, part = `{"e":1e2,"id":9007199254740993,"max":9223372036854775807,"p":9011.00}`, `{"e":1e2,"id":9007199254740993,"p":9011.00}`
	if result(state, "a") != whole || arguments(state, "b") != part || result(state, "b") != part {
		t.Errorf("a gave %s, b took %s and gave %s", result(state, "a"), arguments(state, "b"), result(state, "b"))
	}
	for _, path := range []string{"/v1/runs/" + h.id, "/v1/runs/" + h.id + "/events"} {
		body := s.get(t, path)
		if strings.Count(body, part) < 2 || strings.Contains(body, "9007199254740992") {
			t.Errorf("%s does not hold the numbers as they were: %s", path, body)
		}
	}
	v, err := s.query.ReplayRun(within(t), &apiv1.ReplayRunRequest{RunId: h.id, Verify: true})
	if hash := h.state.Hash(); err != nil || !bytes.Equal(v.GetStateHash(), hash[:]) {
		t.Errorf("replay ends at hash %x, %v; the watcher's is %x", v.GetStateHash(), err, hash)
	}
}

// Text that looks like a reference is text, values keep their types, and a reference with other keys is refused.
func TestCase16_ReferencesAreNotText(t *testing.T) {
	t.Parallel()
	const odd = `"costs $1 or ${1} or {\"$ref\":\"x\"}"`
	a := `{"id":"a","tool":"echo","arguments":{"n":7,"l":[1,2]}}`
	s := shared.plan(t, `{"goal":"g","steps":[`+a+`,{"id":"b","tool":"echo","arguments":{"t":`+odd+`,"n":{"$ref":"steps.a.result.n"},"l":{"$ref":"steps.a.result.l"}}}]}`).completed()
	if got := result(s, "b"); got != `{"l":[1,2],"n":7,"t":`+odd+`}` {
		t.Errorf("b was called with %s", got)
	}
	h := shared.plan(t, `{"goal":"g","steps":[`+a+`,{"id":"b","tool":"echo","arguments":{"m":{"$ref":"steps.a.result.n","x":1}}}]}`)
	h.end()
	f := finding(h.all(rejected)[0].GetPlanRejected().GetFindings(), "ref_with_siblings")
	if f.GetPointer() != "/steps/1/action/arguments/m" || len(h.all(requested("a"))) != 0 {
		t.Errorf("%v\n%s", f, h.told())
	}
}

// Payloads of every size arrive: small ones in the log, large ones as artifacts, too large ones as a failure of the step.
func TestCase60_LargePayloads(t *testing.T) {
	t.Parallel()
	var lost atomic.Int32
	count := nats.DisconnectErrHandler(func(*nats.Conn, error) { lost.Add(1) })
	b := shared.dev.Bus("case60")
	ctx, cancel := context.WithCancel(context.Background())
	served, ready := make(chan error, 1), make(chan error, 8)
	huge := tool.New("huge", func(_ context.Context, in struct {
		Bytes int `json:"bytes"`
	}) (json.RawMessage, error) {
		return json.RawMessage(`{"first":"here","text":"` + strings.Repeat("x", in.Bytes-len(`{"first":"here","text":""}`)) + `"}`), nil
	}, tool.OutputSchema(anyObject), tool.Idempotent())
	go func() {
		served <- tool.Serve(ctx, tool.Config{URL: b.URL, Options: append(b.Options, count), OnReady: func(err error) { ready <- err }, Logger: slog.New(slog.DiscardHandler)}, huge)
	}()
	for err := range ready {
		if err == nil {
			break
		}
	}

	for _, size := range []int{64 << 10, 64<<10 + 1, 1<<20 + 1, 1_500_000, 12 << 20} {
		h := shared.plan(t, fmt.Sprintf(`{"goal":"g","steps":[{"id":"a","tool":"huge","arguments":{"bytes":%d}},
			{"id":"b","tool":"echo","arguments":{"x":{"$ref":"steps.a.result.first"}}}]}`, size))
		s := h.completed()
		if got := result(s, "b"); got != `{"x":"here"}` {
			t.Errorf("%d bytes: b was called with %s", size, got)
		}
		observed := h.all(func(e *runv1.Event) bool { return e.GetObservationRecorded().GetStepId() == "a" })[0].GetObservationRecorded().GetObservation()
		output := observed.GetOutput()
		if size <= 64<<10 {
			if len(output.GetInline().GetText()) != size {
				t.Errorf("%d bytes: the log holds %v", size, output.GetArtifact())
			}
			continue
		}
		ref := output.GetArtifact()
		if ref.GetSize() != int64(size) {
			t.Errorf("%d bytes: the log holds %v and %d bytes", size, ref, len(output.GetInline().GetText()))
			continue
		}
		body := shared.artifact(t, ref)
		if sum := sha256.Sum256(body); len(body) != size || hex.EncodeToString(sum[:]) != ref.GetSha256() {
			t.Errorf("%d bytes: the artifact has %d", size, len(body))
		}
	}
	for _, size := range []int{33 << 20} {
		h := shared.plan(t, fmt.Sprintf(`{"goal":"g","steps":[{"id":"a","tool":"huge","arguments":{"bytes":%d}}]}`, size))
		s := h.end()
		if step(s, "a").GetError().GetCode() != "output_too_large" || s.GetStatus() != runv1.RunStatus_RUN_STATUS_FAILED {
			t.Errorf("%d bytes: %v\n%s", size, step(s, "a"), h.told())
		}
	}
	// Arguments of 300 KB, and a plan of 1.2 MB: both within the limits.
	h := shared.plan(t, `{"goal":"g","steps":[{"id":"a","tool":"big","arguments":{"bytes":100}},{"id":"b","tool":"echo","arguments":{"text":"`+strings.Repeat("y", 300_000)+`"},"depends_on":["a"]}]}`)
	if s := h.completed(); len(arguments(s, "b")) < 300_000 {
		t.Errorf("arguments of %d bytes", len(arguments(s, "b")))
	}
	document := func(bytes int) string {
		var doc strings.Builder
		doc.WriteString(`{"goal":"g","steps":[`)
		for i := 0; doc.Len() < bytes; i++ {
			if i > 0 {
				doc.WriteByte(',')
			}
			fmt.Fprintf(&doc, `{"id":"s%d","tool":"echo","arguments":{"text":"%s"}}`, i, strings.Repeat("z", 50_000))
		}
		doc.WriteString(`]}`)
		return doc.String()
	}
	shared.plan(t, document(1_200_000)).completed()
	_, err := shared.runs.SubmitRun(within(t), &apiv1.SubmitRunRequest{Spec: &runv1.RunSpec{Plan: text(document(6 << 20))}})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "6291456") {
		t.Errorf("a plan over the limit: %v", err)
	}
	body := fmt.Sprintf(`{"spec":{"plan":%s}}`, document(6<<20))
	req, err := http.NewRequestWithContext(within(t), http.MethodPost, "http://"+shared.dev.Gateway()+"/v1/runs", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a plan over the limit over HTTP: %s", resp.Status)
	}
	if n := lost.Load(); n != 0 {
		t.Errorf("the tool's connection was closed %d times", n)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Text of any kind survives: as a goal, a key, a value, a large output, and in one frame an event.
func TestCase68_Unicode(t *testing.T) {
	t.Parallel()
	const goal = `下单 1 台 iPhone 15 Pro 256G 黑色，寄到上海浦东`
	h := shared.plan(t, `{"goal":"`+goal+`","steps":[
		{"id":"a","tool":"echo","arguments":{"lines":"a\u2028b\u0085c\u0000d","lone":"x\ud800y","caf\u00e9":1,"cafe\u0301":2}},
		{"id":"b","tool":"echo","arguments":{"text":{"$ref":"steps.a.result.lines"},"nfd":{"$ref":"steps.a.result.cafe\u0301"},"nfc":{"$ref":"steps.a.result.caf\u00e9"}}},
		{"id":"long","tool":"repeat","arguments":{"text":"读✅","times":70000}},
		{"id":"bad","tool":"broken","arguments":{"code":"internal","message":"读✅","times":2000},"optional":true}]}`)
	s := h.completed()
	if s.GetPlan().GetGoal() != goal {
		t.Errorf("goal %q", s.GetPlan().GetGoal())
	}
	var got struct {
		Text     string
		NFD, NFC int
	}
	if err := json.Unmarshal([]byte(result(s, "b")), &got); err != nil || got.Text != "a\u2028b\u0085c\x00d" || got.NFD != 2 || got.NFC != 1 {
		t.Errorf("b gave %q, %v", result(s, "b"), err)
	}
	if !strings.Contains(result(s, "a"), "x\uFFFDy") {
		t.Errorf("a gave %q", result(s, "a"))
	}
	long := shared.artifact(t, step(s, "long").GetResult().GetArtifact())
	if string(long) != `"`+strings.Repeat("读✅", 70000)+`"` {
		t.Errorf("the large output has %d bytes", len(long))
	}
	if m := step(s, "bad").GetError().GetMessage(); !utf8.ValidString(m) || len(m) > 4096 || len(m) < 4090 {
		t.Errorf("a message of %d bytes", len(m))
	}
	// One frame an event, whatever its values hold.
	watched := shared.get(t, "/v1/runs/"+h.id+"/watch")
	if !utf8.ValidString(watched) || strings.ContainsAny(watched, "\u2028\u0085\x00\r") {
		t.Error("the stream holds what ends lines, or is not UTF-8")
	}
	frames := 0
	for frame := range strings.SplitSeq(strings.TrimSpace(watched), "\n\n") {
		var data []string
		for line := range strings.SplitSeq(frame, "\n") {
			if value, ok := strings.CutPrefix(line, "data: "); ok {
				data = append(data, value)
			}
		}
		if len(data) == 1 && strings.Contains(data[0], `"revision":`) && json.Valid([]byte(data[0])) {
			frames++
		} else if len(data) > 1 {
			t.Errorf("a frame of %d data lines: %.200s", len(data), frame)
		}
	}
	if frames != len(h.events) {
		t.Errorf("%d frames for %d events", frames, len(h.events))
	}
}
