package toolrouter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/pkg/llm"
	"github.com/cairnrun/cairn/pkg/tool"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/services/toolrouter"
)

// builtin calls a built-in tool through the bus.
func (w *world) builtin(name, arguments string) *runv1.Observation {
	w.t.Helper()
	work := call(w.newRun(), "s-1", name, arguments)
	work.GetCall().Permissions = []string{"file.write"}
	return w.do(work)
}

func field(t *testing.T, document, name string) string {
	t.Helper()
	var m map[string]json.RawMessage
	must(t, json.Unmarshal([]byte(document), &m))
	var s string
	if json.Unmarshal(m[name], &s) == nil {
		return s
	}
	return string(m[name])
}

func TestFileToolsStayInTheirFolder(t *testing.T) {
	w := withStreams(t)
	root, outside := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
	must(t, os.Symlink(outside, filepath.Join(root, "link")))
	must(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(root, "file-link")))
	must(t, os.Symlink("notes/a.md", filepath.Join(root, "inside-link")))
	w.router(func(c *toolrouter.Config) { c.Root = root })

	o := w.builtin("file.write", `{"path":"notes/a.md","content":"下单\nsecond line\u2028still second\n"}`)
	sum := field(t, success(t, o), "sha256")
	if again := w.builtin("file.write", `{"path":"notes/a.md","mode":"create","content":"下单\nsecond line\u2028still second\n"}`); field(t, success(t, again), "sha256") != sum {
		t.Error("the same call a second time is not the same")
	}
	failure(t, w.builtin("file.write", `{"path":"notes/a.md","mode":"create","content":"other"}`), "already_exists")
	for _, path := range []string{"notes/a.md", "notes/../notes/a.md", "inside-link"} {
		out := success(t, w.builtin("file.read", `{"path":"`+path+`"}`))
		if field(t, out, "content") != "下单\nsecond line\u2028still second\n" || field(t, out, "sha256") != sum || field(t, out, "encoding") != "utf-8" {
			t.Errorf("%s: %s", path, out)
		}
	}
	for _, path := range []string{"../secret", "/etc/passwd", "link/secret", "file-link", "notes/../../secret"} {
		failure(t, w.builtin("file.read", `{"path":"`+path+`"}`), tool.CodeNotPermitted)
		failure(t, w.builtin("file.write", `{"path":"`+path+`","content":"x"}`), tool.CodeNotPermitted)
	}
	if data, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(data) != "secret" {
		t.Errorf("the file outside is now %q, %v", data, err)
	}
	failure(t, w.builtin("file.read", `{"path":"nothing"}`), tool.CodeResourceMissing)
	failure(t, w.builtin("file.read", `{"path":"notes"}`), tool.CodeInvalidArguments)
	failure(t, w.builtin("file.read", `{"path":""}`), tool.CodeInvalidArguments)
	failure(t, w.builtin("file.write", `{"path":"notes","content":"x"}`), tool.CodeInvalidArguments)

	success(t, w.builtin("file.write", `{"path":"notes/b.bin","content":"//4A","encoding":"base64"}`))
	if out := success(t, w.builtin("file.read", `{"path":"notes/b.bin"}`)); field(t, out, "content") != "//4A" || field(t, out, "encoding") != "base64" {
		t.Errorf("bytes that are no text: %s", out)
	}

	for arguments, want := range map[string]string{
		`{"pattern":"*.md"}`:                        `[{"path":"notes/a.md"}]`,
		`{"pattern":"**/a.*"}`:                      `[{"path":"notes/a.md"}]`,
		`{"pattern":"other/*.md"}`:                  `[]`,
		`{"text":"second"}`:                         `[{"path":"notes/a.md","line":2,"text":"second line` + "\u2028" + `still second"}]`,
		`{"text":"secret"}`:                         `[]`,
		`{"pattern":"*.md","text":"下"}`:             `[{"path":"notes/a.md","line":1,"text":"下单"}]`,
		`{"pattern":"notes/**","max_results":1}`:    `[{"path":"notes/a.md"}]`,
		`{"pattern":"notes/**/*","text":"no such"}`: `[]`,
	} {
		var got, wanted any
		out := success(t, w.builtin("file.search", arguments))
		must(t, json.Unmarshal([]byte(field(t, out, "matches")), &got))
		must(t, json.Unmarshal([]byte(want), &wanted))
		if fmt.Sprint(got) != fmt.Sprint(wanted) {
			t.Errorf("%s: %s, want %s", arguments, out, want)
		}
		if truncated := field(t, out, "truncated") == "true"; truncated != strings.Contains(arguments, "max_results") {
			t.Errorf("%s: truncated is %v", arguments, truncated)
		}
	}
	for _, n := range []int{-1, 1001} {
		failure(t, w.builtin("file.search", number(`{"max_results":%}`, n)), tool.CodeInvalidArguments)
	}
	success(t, w.builtin("file.search", `{"max_results":1000}`))
}

func TestFileToolsHaveASizeLimit(t *testing.T) {
	w := withStreams(t)
	root := t.TempDir()
	const limit = 4 << 20
	must(t, os.WriteFile(filepath.Join(root, "at"), make([]byte, limit), 0o600))
	must(t, os.WriteFile(filepath.Join(root, "over"), make([]byte, limit+1), 0o600))
	w.router(func(c *toolrouter.Config) { c.Root = root })
	success(t, w.builtin("file.read", `{"path":"at"}`))
	failure(t, w.builtin("file.read", `{"path":"over"}`), tool.CodeOutputTooLarge)
}

func TestARootThatIsNotThereIsRefused(t *testing.T) {
	w := newWorld(t, false)
	missing := filepath.Join(t.TempDir(), "nothing")
	err := toolrouter.Run(t.Context(), toolrouter.Config{Bus: w.server.Bus("toolrouter"), Root: missing})
	if err == nil || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "--root") {
		t.Errorf("error %v", err)
	}
}

// provider answers chat completions with what the test says.
func provider(t *testing.T, answer func(request map[string]any) (status int, body string)) llm.Config {
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var request map[string]any
		data, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(data, &request); err != nil {
			t.Errorf("request: %v", err)
		}
		status, body := answer(request)
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(status)
		_, _ = io.WriteString(rw, body)
	}))
	t.Cleanup(s.Close)
	return llm.Config{BaseURL: s.URL, Model: "test-model", MaxCalls: 1, RetryWait: time.Millisecond}
}

func says(text string) string {
	content, _ := json.Marshal(text)
	return `{"id":"1","model":"test-model-2","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":` + string(content) + `}}],"usage":{"prompt_tokens":12,"completion_tokens":3}}`
}

func TestModelTools(t *testing.T) {
	w := withStreams(t)
	answers := make(chan func(map[string]any) (int, string), 1)
	w.router(func(c *toolrouter.Config) {
		c.Model = provider(t, func(r map[string]any) (int, string) { return (<-answers)(r) })
	})
	reply := func(status int, body string) {
		answers <- func(map[string]any) (int, string) { return status, body }
	}

	reply(200, says("读✅"))
	o := w.builtin("llm.generate", `{"prompt":"hello","system":"be brief"}`)
	if out := success(t, o); field(t, out, "text") != "读✅" || field(t, out, "model") != "test-model-2" {
		t.Errorf("output %s", out)
	}
	if u := o.GetUsage(); u.GetInputTokens() != 12 || u.GetOutputTokens() != 3 || u.GetModel() != "test-model-2" {
		t.Errorf("usage %v", u)
	}

	answers <- func(r map[string]any) (int, string) {
		if format, _ := json.Marshal(r["response_format"]); !strings.Contains(string(format), `"enum":["yes","no"]`) {
			t.Errorf("format %s", format)
		}
		return 200, says("```json\n{\"label\":\"no\"}\n```")
	}
	if out := success(t, w.builtin("llm.classify", `{"text":"never","labels":["yes","no"]}`)); out != `{"label":"no"}` {
		t.Errorf("label %s", out)
	}
	reply(200, says(`{"label":"maybe"}`))
	if e := failure(t, w.builtin("llm.classify", `{"text":"never","labels":["yes","no"]}`), tool.CodeInvalidOutput); !e.GetRetryable() {
		t.Error("another answer may be right")
	}
	failure(t, w.builtin("llm.classify", `{"text":"never","labels":[]}`), tool.CodeInvalidArguments)

	const schema = `{"type":"object","required":["price"],"properties":{"price":{"type":"number"}}}`
	reply(200, says(`{"price":9011.00}`))
	if out := success(t, w.builtin("llm.extract", `{"text":"9011.00 yuan","schema":`+schema+`}`)); out != `{"price":9011.00}` {
		t.Errorf("extracted %s", out)
	}
	for _, bad := range []string{`{"price":"much"}`, `no JSON`} {
		reply(200, says(bad))
		failure(t, w.builtin("llm.extract", `{"text":"x","schema":`+schema+`}`), tool.CodeInvalidOutput)
	}

	for _, c := range []struct {
		status    int
		body      string
		code      string
		retryable bool
	}{
		{429, `{"error":{"message":"slow down"}}`, tool.CodeRateLimited, true},
		{503, `{"error":{"message":"overloaded"}}`, tool.CodeUnavailable, true},
		{401, `{"error":{"message":"wrong key","code":"invalid_api_key"}}`, "model_rejected", false},
		{200, `{"choices":[{"finish_reason":"stop","message":{"refusal":"I will not"}}]}`, "model_refused", false},
	} {
		reply(c.status, c.body)
		if e := failure(t, w.builtin("llm.generate", `{"prompt":"x"}`), c.code); e.GetRetryable() != c.retryable {
			t.Errorf("%d: %v", c.status, e)
		}
	}
}

// Tools that a program serves in the router's process, as cairn dev does.
func TestFurtherToolsAreServedInTheProcess(t *testing.T) {
	w := withStreams(t)
	w.router(func(c *toolrouter.Config) {
		c.Tools = []*tool.Tool{tool.New("hello", func(context.Context, struct{}) (string, error) { return "world", nil })}
	})
	if out := success(t, w.do(call(runID(1), "s-1", "hello", "{}"))); out != `"world"` {
		t.Errorf("output %s", out)
	}
}
