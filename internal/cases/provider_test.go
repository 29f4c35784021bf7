package cases

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// provider is a chat completion endpoint. A run's goal names the script that answers it.
type provider struct {
	server *httptest.Server

	mu      sync.Mutex
	scripts map[string]*script
}

// script answers one after the other; the last answer repeats.
type script struct {
	answers []string
	prompts []string
}

func startProvider() *provider {
	p := &provider{scripts: map[string]*script{}}
	p.server = httptest.NewServer(http.HandlerFunc(p.serve))
	return p
}

// script registers the answers for goals that hold the mark, which no other goal may.
func (p *provider) script(mark string, answers ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scripts[mark] = &script{answers: answers}
}

// prompts are the questions that were asked under a mark.
func (p *provider) prompts(mark string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.scripts[mark].prompts...)
}

func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var req struct {
		Messages []struct{ Content string } `json:"messages"`
	}
	_ = json.Unmarshal(body, &req)
	asked := req.Messages[len(req.Messages)-1].Content
	answer, ok := p.next(asked)
	w.Header().Set("Content-Type", "application/json")
	if !ok {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprint(w, `{"error":{"message":"no script for this goal"}}`)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": answer}, "finish_reason": "stop"}},
		"usage":   map[string]any{"prompt_tokens": 100, "completion_tokens": 10},
	})
}

func (p *provider) next(asked string) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for mark, s := range p.scripts {
		if strings.Contains(asked, mark) {
			answer := s.answers[min(len(s.prompts), len(s.answers)-1)]
			s.prompts = append(s.prompts, asked)
			return answer, true
		}
	}
	return "", false
}
