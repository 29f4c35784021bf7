package llm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cairnrun/cairn/pkg/llm"
)

// canned answers every call with a body that is read as reader says.
type canned struct {
	status      int
	contentType string
	body        string
	header      http.Header
	reader      func(io.Reader) io.Reader
	calls       int
}

func (c *canned) RoundTrip(r *http.Request) (*http.Response, error) {
	c.calls++
	h := http.Header{"Content-Type": {c.contentType}}
	for k, v := range c.header {
		h[k] = v
	}
	var body io.Reader = strings.NewReader(c.body)
	if c.reader != nil {
		body = c.reader(body)
	}
	return &http.Response{StatusCode: c.status, Header: h, Body: io.NopCloser(body), Request: r}, nil
}

func client(t testing.TB, rt http.RoundTripper, change ...func(*llm.Config)) *llm.Client {
	t.Helper()
	c := llm.Config{Model: "m", BaseURL: "http://provider.test/v1", HTTP: &http.Client{Transport: rt}, RetryWait: time.Millisecond}
	for _, f := range change {
		f(&c)
	}
	out, err := llm.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func stream(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("data: " + e + "\n\n")
	}
	return b.String()
}

func TestCase68_StreamSplitAnywhereYieldsTheSame(t *testing.T) {
	unicode := "下单 1 台 iPhone 🙂 \u0085\u2028 é e\u0301"
	quoted, _ := json.Marshal(unicode)
	for name, tc := range map[string]struct {
		body string
		want llm.Response
	}{
		"text": {
			body: ": a comment\r\n\r\n" + stream(
				`{"id":"c1","model":"m-2","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`,
				`{"id":"c1","choices":[{"index":0,"delta":{"content":`+string(quoted)+`}}]}`,
				`{"id":"c1","choices":[{"index":0,"delta":{"content":"half \ud83d"}}]}`,
				`{"id":"c1","choices":[{"index":0,"delta":{"content":"\ude42 whole"}}]}`,
				`{"id":"c1","choices":[{"index":1,"delta":{"content":"another choice"}}]}`,
				`{"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
				`{"id":"c1","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7}}`, `[DONE]`),
			want: llm.Response{ID: "c1", Model: "m-2", Text: unicode + "half 🙂 whole", FinishReason: "stop", Usage: llm.Usage{InputTokens: 11, OutputTokens: 7}, Calls: 1},
		},
		"CRLF, lone CR, data over two lines, no last blank line": {
			body: "event: message\r\ndata: {\"choices\":[{\"index\":0,\r\ndata: \"delta\":{\"content\":\"a\"}}]}\r\n\r\n" +
				"data:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"}}]}\r\r" + "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}",
			want: llm.Response{Text: "ab", FinishReason: "length", Calls: 1},
		},
		"tool calls": {
			body: "\xef\xbb\xbf" + stream(
				`{"choices":[{"index":0,"delta":{"content":null,"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"get_","arguments":""}}]}}]}`,
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"weather","arguments":"{\"city\":"}}]}}]}`,
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"t2","function":{"name":"now","arguments":""}}]}}]}`,
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"上海\"}"}}]}}]}`,
				`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`, `[DONE]`),
			want: llm.Response{FinishReason: "tool_calls", Calls: 1, ToolCalls: []llm.ToolCall{{ID: "t1", Name: "get_weather", Arguments: `{"city":"上海"}`}, {ID: "t2", Name: "now"}}},
		},
		"refusal": {
			body: stream(`{"choices":[{"index":0,"delta":{"refusal":"I can"}}]}`, `{"choices":[{"index":0,"delta":{"refusal":"not."}}]}`,
				`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, `[DONE]`),
			want: llm.Response{Refusal: "I cannot.", FinishReason: "stop", Calls: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(split string, reader func(io.Reader) io.Reader) {
				var heard strings.Builder
				c := client(t, &canned{status: 200, contentType: "text/event-stream; charset=utf-8", body: tc.body, reader: reader})
				got, err := c.Chat(t.Context(), llm.Request{OnText: func(s string) { heard.WriteString(s) }})
				if err != nil {
					t.Fatalf("%s: %v", split, err)
				}
				if diff := cmp.Diff(&tc.want, got); diff != "" {
					t.Fatalf("%s: %s", split, diff)
				}
				if heard.String() != tc.want.Text {
					t.Fatalf("%s: heard %q", split, heard.String())
				}
			}
			check("after every byte", iotest.OneByteReader)
			for i := range tc.body {
				check(fmt.Sprintf("at byte %d", i), func(r io.Reader) io.Reader {
					return io.MultiReader(io.LimitReader(r, int64(i)), r)
				})
			}
		})
	}
}

func TestListenerGetsWholeCharacters(t *testing.T) {
	body := stream(`{"choices":[{"index":0,"delta":{"content":"a\ud83d"}}]}`, `{"choices":[{"index":0,"delta":{"content":"\ude42"},"finish_reason":"stop"}]}`, `[DONE]`)
	var pieces []string
	c := client(t, &canned{status: 200, contentType: "text/event-stream", body: body})
	if _, err := c.Chat(t.Context(), llm.Request{OnText: func(s string) { pieces = append(pieces, s) }}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "🙂"}, pieces); diff != "" {
		t.Error(diff)
	}
}

func TestStreamThatEndsEarlyOrFails(t *testing.T) {
	partial := stream(`{"choices":[{"index":0,"delta":{"content":"{\"goal\":"}}]}`)
	rt := &canned{status: 200, contentType: "text/event-stream", body: partial}
	if _, err := client(t, rt).Chat(t.Context(), llm.Request{OnText: func(string) {}}); !errors.Is(err, llm.ErrInterrupted) {
		t.Errorf("early end: %v", err)
	}
	if rt.calls != 1 {
		t.Errorf("%d calls after text was heard, want 1", rt.calls)
	}
	rt = &canned{status: 200, contentType: "text/event-stream", body: stream(`{"error":{"message":"overloaded","code":"busy"}}`)}
	var e *llm.Error
	if _, err := client(t, rt).Chat(t.Context(), llm.Request{OnText: func(string) {}}); !errors.As(err, &e) || e.Code != "busy" || e.Message != "overloaded" {
		t.Errorf("error event: %v", err)
	}
	if rt.calls != 4 {
		t.Errorf("%d calls before any text, want 4", rt.calls)
	}
}

func TestAnswersThatDoNotStream(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want llm.Response
	}{
		"text": {
			`{"id":"x","model":"m-1","choices":[{"message":{"content":"hi","refusal":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
			llm.Response{ID: "x", Model: "m-1", Text: "hi", FinishReason: "stop", Usage: llm.Usage{InputTokens: 1, OutputTokens: 2}, Calls: 1},
		},
		"content in parts": {
			`{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},"finish_reason":"stop"}]}`,
			llm.Response{Text: "ab", FinishReason: "stop", Calls: 1},
		},
		"arguments as an object, and an old function call": {
			`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":{"a":1}}}],"function_call":{"name":"g","arguments":"{}"}},"finish_reason":"tool_calls"}]}`,
			llm.Response{FinishReason: "tool_calls", Calls: 1, ToolCalls: []llm.ToolCall{{ID: "1", Name: "f", Arguments: `{"a":1}`}}, FunctionCall: &llm.ToolCall{Name: "g", Arguments: "{}"}},
		},
		"refusal": {
			`{"choices":[{"message":{"content":null,"refusal":"No."},"finish_reason":"stop"}]}`,
			llm.Response{Refusal: "No.", FinishReason: "stop", Calls: 1},
		},
	} {
		got, err := client(t, &canned{status: 200, contentType: "application/json", body: tc.body}).Chat(t.Context(), llm.Request{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(&tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for name, body := range map[string]string{"no choices": `{"choices":[]}`, "not JSON": `<html>`, "error in a 200": `{"error":{"message":"no"}}`} {
		if _, err := client(t, &canned{status: 200, contentType: "application/json", body: body}).Chat(t.Context(), llm.Request{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestErrorBodies(t *testing.T) {
	for body, want := range map[string]llm.Error{
		`{"error":{"message":"bad schema","type":"invalid_request_error","param":"response_format","code":"invalid_json_schema"}}`: {Status: 400, Code: "invalid_json_schema", Type: "invalid_request_error", Param: "response_format", Message: "bad schema", Calls: 1},
		`[{"error":{"code":400,"message":"in a list"}}]`: {Status: 400, Code: "400", Message: "in a list", Calls: 1},
		`{"error":"just text"}`:                          {Status: 400, Message: "just text", Calls: 1},
		`{"message":"flat","code":null}`:                 {Status: 400, Message: "flat", Calls: 1},
		`{"detail":"another"}`:                           {Status: 400, Message: "another", Calls: 1},
		`plain words`:                                    {Status: 400, Message: "plain words", Calls: 1},
		``:                                               {Status: 400, Message: "Bad Request", Calls: 1},
	} {
		rt := &canned{status: 400, contentType: "application/json", body: body}
		_, err := client(t, rt).Chat(t.Context(), llm.Request{})
		var got *llm.Error
		if !errors.As(err, &got) {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
		if rt.calls != 1 {
			t.Errorf("%s: a 400 was sent %d times", body, rt.calls)
		}
	}
}

func TestRepeats(t *testing.T) {
	ok := `{"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}]}`
	type answer struct {
		status int
		header http.Header
		body   string
	}
	for name, tc := range map[string]struct {
		answers []answer
		change  func(*llm.Config)
		calls   int
		failed  bool
	}{
		"rate limit, then success":      {answers: []answer{{429, http.Header{"Retry-After": {"0.01"}}, ""}, {200, nil, ok}}, calls: 2},
		"trouble of the provider":       {answers: []answer{{500, nil, ""}, {502, nil, ""}, {503, nil, ""}, {200, nil, ok}}, calls: 4},
		"at most four calls":            {answers: []answer{{500, nil, ""}, {500, nil, ""}, {500, nil, ""}, {500, nil, ""}, {200, nil, ok}}, calls: 4, failed: true},
		"longer wait than the budget":   {answers: []answer{{429, http.Header{"Retry-After": {"3600"}}, ""}, {200, nil, ok}}, calls: 1, failed: true},
		"a used-up quota is not a rate": {answers: []answer{{429, nil, `{"error":{"code":"insufficient_quota","message":"pay"}}`}, {200, nil, ok}}, calls: 1, failed: true},
		"refused request":               {answers: []answer{{400, nil, ""}, {200, nil, ok}}, calls: 1, failed: true},
		"refused key":                   {answers: []answer{{401, nil, ""}, {200, nil, ok}}, calls: 1, failed: true},
		"limit of one call":             {answers: []answer{{500, nil, ""}, {200, nil, ok}}, change: func(c *llm.Config) { c.MaxCalls = 1 }, calls: 1, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				a := tc.answers[n]
				n++
				for k, v := range a.header {
					w.Header()[k] = v
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(a.status)
				_, _ = io.WriteString(w, a.body)
			}))
			defer srv.Close()
			c := client(t, http.DefaultTransport, func(c *llm.Config) {
				c.BaseURL = srv.URL
				if tc.change != nil {
					tc.change(c)
				}
			})
			resp, err := c.Chat(t.Context(), llm.Request{})
			if (err != nil) != tc.failed || n != tc.calls {
				t.Fatalf("error %v after %d calls, want %d", err, n, tc.calls)
			}
			var e *llm.Error
			if errors.As(err, &e) && e.Calls != tc.calls || resp != nil && resp.Calls != tc.calls {
				t.Errorf("told another number of calls than %d", tc.calls)
			}
		})
	}
}

func TestUnreachableProviderIsNamed(t *testing.T) {
	c := client(t, http.DefaultTransport, func(c *llm.Config) { c.BaseURL, c.MaxCalls = "http://127.0.0.1:1/v1", 2 })
	if _, err := c.Chat(t.Context(), llm.Request{}); err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:1/v1") {
		t.Errorf("got %v", err)
	}
}

func TestAnswerAtAndOverTheLimit(t *testing.T) {
	answer := `{"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}]}`
	events := stream(`{"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}`, `[DONE]`)
	for _, tc := range []struct{ kind, body string }{{"application/json", answer}, {"text/event-stream", events}} {
		for over, want := range map[int]bool{0: false, 1: true} {
			c := client(t, &canned{status: 200, contentType: tc.kind, body: tc.body}, func(c *llm.Config) { c.MaxResponseBytes = int64(len(tc.body) - over) })
			_, err := c.Chat(t.Context(), llm.Request{OnText: func(string) {}})
			// A stream's end is known before its last line end, so it may lack that one byte.
			if tc.kind == "text/event-stream" && over == 1 && err == nil {
				c = client(t, &canned{status: 200, contentType: tc.kind, body: tc.body}, func(c *llm.Config) { c.MaxResponseBytes = int64(len(tc.body) - 3) })
				_, err = c.Chat(t.Context(), llm.Request{OnText: func(string) {}})
			}
			if errors.Is(err, llm.ErrTooLarge) != want {
				t.Errorf("%s, %d over: %v", tc.kind, over, err)
			}
		}
	}
}

func TestRequestOnTheWire(t *testing.T) {
	var got map[string]any
	var auth, path string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth, path = r.Header.Get("Authorization"), r.URL.Path
		_ = json.NewDecoder(r.Body).Decode(&got)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}]}`)
	}))
	defer srv.Close()
	c := client(t, http.DefaultTransport, func(c *llm.Config) { c.BaseURL, c.Key = srv.URL+"/v1/", "secret" })
	temperature := 0.0
	_, err := c.Chat(t.Context(), llm.Request{
		Messages: []llm.Message{{Role: llm.RoleSystem, Content: "s"}, {Role: llm.RoleUser, Content: "u"}},
		Schema:   &llm.Schema{Name: "plan", JSON: `{"type":"object"}`, Strict: true}, Temperature: &temperature, MaxTokens: 9,
		Tools: []llm.Tool{{Name: "f", Description: "d", Parameters: `{"type":"object"}`}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"model": "m", "temperature": 0.0, "max_completion_tokens": 9.0,
		"messages":        []any{map[string]any{"role": "system", "content": "s"}, map[string]any{"role": "user", "content": "u"}},
		"response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "plan", "strict": true, "schema": map[string]any{"type": "object"}}},
		"tools":           []any{map[string]any{"type": "function", "function": map[string]any{"name": "f", "description": "d", "parameters": map[string]any{"type": "object"}}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if auth != "Bearer secret" || path != "/v1/chat/completions" {
		t.Errorf("auth %q, path %q", auth, path)
	}
}

func TestEnvironment(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		want llm.Config
		err  error
	}{
		"own":             {map[string]string{"CAIRN_LLM_BASE_URL": "http://h/v1", "CAIRN_LLM_MODEL": "m", "CAIRN_LLM_API_KEY": "k"}, llm.Config{BaseURL: "http://h/v1", Model: "m", Key: "k"}, nil},
		"fallbacks":       {map[string]string{"OPENAI_BASE_URL": "http://o/v1", "OPENAI_MODEL": "m", "OPENAI_API_KEY": "k"}, llm.Config{BaseURL: "http://o/v1", Model: "m", Key: "k"}, nil},
		"key stays home":  {map[string]string{"CAIRN_LLM_BASE_URL": "http://h/v1", "CAIRN_LLM_MODEL": "m", "OPENAI_API_KEY": "k"}, llm.Config{BaseURL: "http://h/v1", Model: "m"}, nil},
		"no model":        {map[string]string{"OPENAI_API_KEY": "k"}, llm.Config{}, llm.ErrNotConfigured},
		"nothing at all":  {nil, llm.Config{}, llm.ErrNotConfigured},
		"spaces are none": {map[string]string{"CAIRN_LLM_MODEL": "  "}, llm.Config{}, llm.ErrNotConfigured},
	} {
		got, err := llm.FromEnv(func(k string) string { return tc.env[k] })
		if !errors.Is(err, tc.err) || !cmp.Equal(got, tc.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := llm.New(llm.Config{Model: "m", BaseURL: "host/v1"}); err == nil || !strings.Contains(err.Error(), "CAIRN_LLM_BASE_URL") {
		t.Errorf("bad URL: %v", err)
	}
}

func TestCancelledCallIsNotRepeated(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		calls++
		cancel()
		<-r.Context().Done()
	}))
	defer srv.Close()
	if _, err := client(t, http.DefaultTransport, func(c *llm.Config) { c.BaseURL = srv.URL }).Chat(ctx, llm.Request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

func FuzzStreamNeverPanics(f *testing.F) {
	f.Add([]byte(stream(`{"choices":[{"index":0,"delta":{"content":"a\ud83d","tool_calls":[{"index":3,"id":"x","function":{"arguments":{}}}]}}]}`, `[DONE]`)))
	f.Add([]byte("data: \r\rdata:[DONE]"))
	f.Fuzz(func(t *testing.T, body []byte) {
		c := client(t, &canned{status: 200, contentType: "text/event-stream", body: string(bytes.Clone(body))}, func(c *llm.Config) { c.MaxCalls = 1 })
		_, _ = c.Chat(t.Context(), llm.Request{OnText: func(string) {}})
	})
}
