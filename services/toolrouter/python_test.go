package toolrouter_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cairnrun/cairn/pkg/tool"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

// pythonTool starts the example and waits until it is ready.
func (w *world) pythonTool(notes string) *exec.Cmd {
	w.t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			w.t.Fatal("python3 is needed to test examples/tools/python")
		}
		w.t.Skip("python3 is not installed: the Python example is not tested here")
	}
	cmd := exec.Command(python, "../../examples/tools/python/tool_service.py", w.server.URL())
	cmd.Env = append(os.Environ(), "NOTES="+notes, "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stderr = w.t.Output()
	out, err := cmd.StdoutPipe()
	must(w.t, err)
	must(w.t, cmd.Start())
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	ready := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		ready <- line
	}()
	if line := wait(w.t, ready, "the Python service"); line != "ready\n" {
		w.t.Fatalf("the Python service says %q", line)
	}
	return cmd
}

// The example uses nothing of ours: docs/tools.md is enough to write a tool.
func TestPythonToolService(t *testing.T) {
	w := newWorld(t, true)
	w.init()
	w.router(nil)
	notes := filepath.Join(t.TempDir(), "notes.txt")
	w.pythonTool(notes)

	kv, err := w.js.KeyValue(t.Context(), tool.BucketTools)
	must(t, err)
	w.eventually("the router completed the definition", func() bool {
		e, err := kv.Get(t.Context(), "text.count")
		must(t, err)
		def := &planv1.ToolDefinition{}
		must(t, exactjson.Unmarshal(e.Value(), def))
		return def.GetIdempotent() && len(def.GetDigest()) == 64
	})

	progress, err := w.nc.SubscribeSync(tool.ProgressPrefix + "*")
	must(t, err)
	o := w.do(call(runID(1), "count-1", "text.count", `{"text":"下单 ✅"}`))
	if got := success(t, o); got != `{"characters":4}` {
		t.Errorf("output %s", got)
	}
	if o.GetExecutedBy() == "" || o.GetStartedAt() == nil {
		t.Errorf("observation %v", o)
	}
	p, err := progress.NextMsg(patience)
	must(t, err)
	var said tool.ProgressMessage
	if err := json.Unmarshal(p.Data, &said); err != nil || said.ActionID != "count-1" || *said.Fraction != 0.5 {
		t.Errorf("progress %s, %v", p.Data, err)
	}

	failure(t, w.do(call(runID(2), "count-1", "text.count", `{"text":"x","pause":"long"}`)), tool.CodeInvalidArguments)

	// Cancelled in the middle: progress says that it has begun.
	w.send(call(runID(3), "count-1", "text.count", `{"text":"x","pause":60}`))
	_, err = progress.NextMsg(patience)
	must(t, err)
	must(t, w.nc.Publish(tool.CancelPrefix+runID(3), []byte(`{"action_id":"count-1"}`)))
	failure(t, w.report(runID(3), "count-1"), tool.CodeCancelled)

	// Work beyond the acknowledgement wait: the heartbeat keeps it, nobody gets it a second time.
	w.empty(tool.StreamActions)
	acks := w.acks("text.count")
	success(t, w.do(call(runID(4), "count-1", "text.count", `{"text":"x","pause":6}`)))
	if beats := acks(); beats < 2 {
		t.Errorf("%d heartbeats in 6 s", beats)
	}

	// The start is claimed, once.
	success(t, w.do(notIdempotent(call(runID(5), "note-1", "note.append", `{"line":"first"}`))))
	c, err := tool.ReadClaim(t.Context(), w.js, runID(5), "note-1")
	if err != nil || c.State != tool.ClaimStarted {
		t.Errorf("claim %v, %v", c, err)
	}
	created, err := tool.Claim(t.Context(), w.js, runID(6), "note-1", tool.NewClaim(tool.ClaimStarted, "somebody else"))
	if err != nil || !created {
		t.Fatal(created, err)
	}
	w.send(notIdempotent(call(runID(6), "note-1", "note.append", `{"line":"never"}`)))
	w.empty("CAIRN_WORK")
	w.empty(tool.StreamActions)
	w.send(revocation(runID(6), "note-1", "note.append", false))
	if o := w.report(runID(6), "note-1"); o.GetOutcome() != runv1.Outcome_OUTCOME_STARTED {
		t.Errorf("outcome %s", o.GetOutcome())
	}

	// Too late: refused, and nobody can start it any more.
	results, err := w.nc.SubscribeSync(tool.ResultPrefix + runID(7) + ".>")
	must(t, err)
	body := tool.ActionMessage{RunID: runID(7), StepID: "note", ActionID: "note-1", Attempt: 1, Tool: "note.append", Arguments: []byte(`{"line":"never"}`)}
	action, err := body.Encode()
	must(t, err)
	late := &nats.Msg{Subject: tool.ActionSubject(runID(7), "note-1", "note.append"), Data: action, Header: nats.Header{}}
	late.Header.Set(tool.HeaderNotAfter, "2026-01-02T03:04:05.123456789Z")
	_, err = w.js.PublishMsg(t.Context(), late)
	must(t, err)
	refusal, err := results.NextMsg(patience)
	must(t, err)
	var refused tool.ResultMessage
	if err := json.Unmarshal(refusal.Data, &refused); err != nil || refused.Error == nil || refused.Error.Code != tool.CodeTimeout || refused.ExecutedBy != "" {
		t.Errorf("refusal %s, %v", refusal.Data, err)
	}
	if c, err := tool.ReadClaim(t.Context(), w.js, runID(7), "note-1"); err != nil || c.State != tool.ClaimRevoked {
		t.Errorf("claim %v, %v", c, err)
	}
	data, err := os.ReadFile(notes)
	must(t, err)
	if got := string(data); got != "key-"+runID(5)+"-s first\n" {
		t.Errorf("notes %q", got)
	}
	if strings.Contains(string(data), "never") {
		t.Error("an action that somebody else had started was executed")
	}
}
