// Package llm calls OpenAI-compatible chat completions over net/http: structured output, streams, tool calls, typed
// errors, and retries that know which errors a repeat may cure.
package llm

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// DefaultBaseURL is used where a model but no base URL is configured.
const DefaultBaseURL = "https://api.openai.com/v1"

// ErrNotConfigured says that the environment names no model.
var ErrNotConfigured = errors.New("no model is configured; set CAIRN_LLM_BASE_URL, CAIRN_LLM_MODEL and, where the endpoint wants one, CAIRN_LLM_API_KEY")

// Config of a Client. Model is required; every other zero value means the default.
type Config struct {
	// BaseURL up to and without /chat/completions. Default DefaultBaseURL.
	BaseURL string
	// Model that requests without one are for.
	Model string
	// Key is sent as bearer token; empty: none.
	Key string
	// HTTP makes the requests. Default: a client of its own without a time limit, since calls have theirs.
	HTTP *http.Client
	// CallTimeout bounds one HTTP call, a stream to its end. Default 5 min.
	CallTimeout time.Duration
	// MaxCalls for one request, repeats included. Default 4.
	MaxCalls int
	// RetryBudget bounds the time from a request's first call to the start of its last; a server that asks for a longer
	// wait than is left ends it. Default 1 min.
	RetryBudget time.Duration
	// RetryWait before the second call, doubled for each further one where the server names no time. Default 500 ms.
	RetryWait time.Duration
	// MaxResponseBytes bounds an answer, streamed or not. Default 16 MiB.
	MaxResponseBytes int64
}

func (c Config) withDefaults() Config {
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	if c.HTTP == nil {
		c.HTTP = &http.Client{}
	}
	if c.CallTimeout == 0 {
		c.CallTimeout = 5 * time.Minute
	}
	if c.MaxCalls == 0 {
		c.MaxCalls = 4
	}
	if c.RetryBudget == 0 {
		c.RetryBudget = time.Minute
	}
	if c.RetryWait == 0 {
		c.RetryWait = 500 * time.Millisecond
	}
	if c.MaxResponseBytes == 0 {
		c.MaxResponseBytes = 16 << 20
	}
	return c
}

// FromEnv reads CAIRN_LLM_BASE_URL, CAIRN_LLM_MODEL and CAIRN_LLM_API_KEY, and where one is unset OPENAI_BASE_URL,
// OPENAI_MODEL and OPENAI_API_KEY. The key of one family is never sent to the base URL of the other. Without a model the
// error is ErrNotConfigured.
func FromEnv(getenv func(string) string) (Config, error) {
	get := func(name string) string { return strings.TrimSpace(getenv(name)) }
	c := Config{BaseURL: get("CAIRN_LLM_BASE_URL"), Model: get("CAIRN_LLM_MODEL"), Key: get("CAIRN_LLM_API_KEY")}
	if c.Model == "" {
		c.Model = get("OPENAI_MODEL")
	}
	if c.BaseURL == "" {
		c.BaseURL = get("OPENAI_BASE_URL")
		if c.Key == "" {
			c.Key = get("OPENAI_API_KEY")
		}
	}
	if c.Model == "" {
		return Config{}, ErrNotConfigured
	}
	return c, nil
}

// New checks the configuration.
func New(c Config) (*Client, error) {
	if c.Model == "" {
		return nil, ErrNotConfigured
	}
	c = c.withDefaults()
	u, err := url.Parse(c.BaseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("model endpoint %q is not an http or https URL; set CAIRN_LLM_BASE_URL as https://host/v1", c.BaseURL)
	}
	return &Client{config: c, host: u}, nil
}
