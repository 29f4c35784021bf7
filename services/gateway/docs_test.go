package gateway_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/dev"
)

// example is a request of docs/api.md and what is said to come back.
type example struct {
	line         int
	method, path string
	header       http.Header
	body         string
	form, answer string
	status       int
}

// examples reads the blocks of a page: each http block is followed by the block of its answer, named by form and status.
func examples(t *testing.T, path string) []example {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []example
	var block []string
	info, begin, inside := "", 0, false
	for i, line := range strings.Split(string(data), "\n") {
		fence := strings.HasPrefix(line, "```")
		switch {
		case fence && !inside:
			info, begin, block, inside = strings.TrimPrefix(line, "```"), i+1, nil, true
		case fence:
			inside = false
			text := strings.Join(block, "\n")
			if info == "http" {
				req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.Replace(text, "\n", " HTTP/1.1\nHost: x\n", 1) + ending(text))))
				if err != nil {
					t.Fatalf("%s:%d: %v", path, begin, err)
				}
				_, body, _ := strings.Cut(text, "\n\n")
				all = append(all, example{line: begin, method: req.Method, path: req.URL.RequestURI(), header: req.Header, body: body})
				continue
			}
			last := &all[len(all)-1]
			if _, err := fmt.Sscanf(info, "%s %d", &last.form, &last.status); err != nil {
				t.Fatalf("%s:%d: block %q is neither a request nor an answer", path, begin, info)
			}
			last.answer = text
		case inside:
			block = append(block, line)
		}
	}
	return all
}

// ending completes a request that has no header.
func ending(text string) string {
	if !strings.Contains(text, "\n") {
		return " HTTP/1.1\nHost: x\n\n"
	}
	return "\n\n"
}

func TestEveryExampleOfTheAPIPage(t *testing.T) {
	d, err := dev.Start(t.Context(), dev.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	all := examples(t, "../../docs/api.md")
	if len(all) < 20 {
		t.Fatalf("only %d examples were found", len(all))
	}
	for _, e := range all {
		// What was asked for may take a moment to show.
		var wrong string
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			wrong = try(t, d.Gateway(), e)
			if wrong == "" || e.method != http.MethodGet || time.Now().After(deadline) {
				break
			}
		}
		if wrong != "" {
			t.Fatalf("docs/api.md:%d: %s %s: %s", e.line, e.method, e.path, wrong)
		}
	}
}

// try makes a request and says how the answer differs.
func try(t *testing.T, address string, e example) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), e.method, "http://"+address+e.path, strings.NewReader(e.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = e.header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != e.status {
		return fmt.Sprintf("%d %.2000s", resp.StatusCode, body)
	}
	switch e.form {
	case "json":
		return differs(parse(t, e.answer), parse(t, string(body)), "")
	case "lines":
		for line := range bytes.SplitSeq(bytes.TrimSpace(body), []byte("\n")) {
			if d := differs(parse(t, e.answer), parse(t, string(line)), ""); d != "" {
				return d
			}
		}
		return ""
	}
	// Server-sent events: the pieces stand in this order.
	rest := string(body)
	for piece := range strings.SplitSeq(e.answer, "\n") {
		piece = strings.TrimPrefix(piece, "data: ")
		_, after, ok := strings.Cut(rest, piece)
		if !ok {
			return fmt.Sprintf("no %q in the rest of\n%s", piece, body)
		}
		rest = after
	}
	return ""
}

func parse(t *testing.T, text string) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// differs compares what is documented with what came: fields may be left out of the page, "…" is any value.
func differs(want, got any, at string) string {
	if want == "…" {
		if got == nil {
			return at + " is not there"
		}
		return ""
	}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s is %v, not an object", at, got)
		}
		for k, v := range w {
			if d := differs(v, g[k], at+"."+k); d != "" {
				return d
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) < len(w) {
			return fmt.Sprintf("%s is %v, want %d elements", at, got, len(w))
		}
		for i, v := range w {
			if d := differs(v, g[i], fmt.Sprintf("%s[%d]", at, i)); d != "" {
				return d
			}
		}
		return ""
	}
	a, _ := json.Marshal(want)
	b, _ := json.Marshal(got)
	if !bytes.Equal(a, b) {
		return fmt.Sprintf("%s is %s, the page says %s", at, b, a)
	}
	return ""
}
