package llm

import "encoding/json"

// Roles of messages.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// Message of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Schema asks for an answer in this JSON Schema.
type Schema struct {
	// Name of [A-Za-z0-9_-]{1,64}.
	Name string
	// JSON is the schema's text.
	JSON string
	// Strict makes the provider guarantee it; then every property must be required and no other be allowed.
	Strict bool
}

// Tool is a function that the model may ask for.
type Tool struct {
	Name, Description string
	// Parameters is the JSON Schema's text.
	Parameters string
}

// Request for one answer.
type Request struct {
	// Model; empty: the client's.
	Model    string
	Messages []Message
	Schema   *Schema
	Tools    []Tool
	// Temperature; nil: the provider's default, which some models insist on.
	Temperature *float64
	// MaxTokens of the answer; 0: the provider's default.
	MaxTokens int
	// OnText makes the answer stream and is called with each piece, whole runes, in order. A call that has yielded text
	// is not repeated.
	OnText func(string)
}

// ToolCall is what the model asks a tool for.
type ToolCall struct {
	ID, Name string
	// Arguments as the model wrote them: meant to be a JSON object, and not always one.
	Arguments string
}

// Usage in tokens, 0 where the provider told none.
type Usage struct {
	InputTokens, OutputTokens int64
}

// Finish reasons that callers branch on; providers know more.
const (
	FinishStop          = "stop"
	FinishLength        = "length"
	FinishToolCalls     = "tool_calls"
	FinishContentFilter = "content_filter"
)

// Response is one answer.
type Response struct {
	ID, Model string
	Text      string
	// Refusal is the model's own words where it refused; then Text is empty.
	Refusal      string
	FinishReason string
	ToolCalls    []ToolCall
	// FunctionCall is the form that came before tool calls; it has no id.
	FunctionCall *ToolCall
	Usage        Usage
	// Calls made over HTTP, repeats included.
	Calls int
}

type wireRequest struct {
	Model          string         `json:"model"`
	Messages       []Message      `json:"messages"`
	ResponseFormat *wireFormat    `json:"response_format,omitempty"`
	Tools          []wireTool     `json:"tools,omitempty"`
	Temperature    *float64       `json:"temperature,omitempty"`
	MaxTokens      int            `json:"max_completion_tokens,omitempty"`
	Stream         bool           `json:"stream,omitempty"`
	StreamOptions  *streamOptions `json:"stream_options,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type wireFormat struct {
	Type       string     `json:"type"`
	JSONSchema wireSchema `json:"json_schema"`
}

type wireSchema struct {
	Name   string          `json:"name"`
	Strict bool            `json:"strict"`
	Schema json.RawMessage `json:"schema"`
}

type wireTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	} `json:"function"`
}

// wireAnswer is a whole answer or one event of a stream.
type wireAnswer struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Choices []wireChoice    `json:"choices"`
	Usage   *wireUsage      `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type wireChoice struct {
	Index        int         `json:"index"`
	Message      wireMessage `json:"message"`
	Delta        wireMessage `json:"delta"`
	FinishReason string      `json:"finish_reason"`
}

// wireMessage keeps texts as raw JSON: a character may be split over two events as its two surrogate escapes.
type wireMessage struct {
	Content      json.RawMessage `json:"content"`
	Refusal      json.RawMessage `json:"refusal"`
	ToolCalls    []wireToolCall  `json:"tool_calls"`
	FunctionCall *wireFunction   `json:"function_call"`
}

type wireToolCall struct {
	Index    int          `json:"index"`
	ID       string       `json:"id"`
	Function wireFunction `json:"function"`
}

type wireFunction struct {
	Name string `json:"name"`
	// Arguments is a string holding JSON; some servers put the object itself.
	Arguments json.RawMessage `json:"arguments"`
}

type wireUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
}

func (r Request) wire(model string) wireRequest {
	w := wireRequest{Model: r.Model, Messages: r.Messages, Temperature: r.Temperature, MaxTokens: r.MaxTokens}
	if w.Model == "" {
		w.Model = model
	}
	if r.Schema != nil {
		w.ResponseFormat = &wireFormat{Type: "json_schema", JSONSchema: wireSchema{Name: r.Schema.Name, Strict: r.Schema.Strict, Schema: json.RawMessage(r.Schema.JSON)}}
	}
	for _, t := range r.Tools {
		wt := wireTool{Type: "function"}
		wt.Function.Name, wt.Function.Description = t.Name, t.Description
		if t.Parameters != "" {
			wt.Function.Parameters = json.RawMessage(t.Parameters)
		}
		w.Tools = append(w.Tools, wt)
	}
	if r.OnText != nil {
		w.Stream, w.StreamOptions = true, &streamOptions{IncludeUsage: true}
	}
	return w
}
