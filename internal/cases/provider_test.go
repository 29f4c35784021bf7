package cases

import (
	"encoding/json"
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
	// fault is an error of the endpoint instead of an answer; refusal is the model's "no".
	fault, refusal string
}

func startProvider() *provider {
	p := &provider{scripts: map[string]*script{}}
	p.server = httptest.NewServer(http.HandlerFunc(p.serve))
	return p
}

// script registers the answers for goals that hold the mark, which no other goal may.
func (p *provider) script(mark string, answers ...string) {
	p.put(mark, &script{answers: answers})
}

func (p *provider) put(mark string, s *script) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scripts[mark] = s
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
	answer, s := p.next(asked)
	w.Header().Set("Content-Type", "application/json")
	if s.fault != "" {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": s.fault, "type": "invalid_request_error"}})
		return
	}
	message := map[string]any{"role": "assistant", "content": answer}
	if s.refusal != "" {
		message = map[string]any{"role": "assistant", "content": nil, "refusal": s.refusal}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"choices": []any{map[string]any{"message": message, "finish_reason": "stop"}},
		"usage":   map[string]any{"prompt_tokens": 100, "completion_tokens": 10},
	})
}

func (p *provider) next(asked string) (string, *script) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for mark, s := range p.scripts {
		if strings.Contains(asked, mark) {
			s.prompts = append(s.prompts, asked)
			if len(s.answers) == 0 {
				return "", s
			}
			return s.answers[min(len(s.prompts), len(s.answers))-1], s
		}
	}
	return "", &script{fault: "no script for this goal"}
}
