package toolrouter

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/pkg/llm"
	"github.com/cairnrun/cairn/pkg/plan"
	"github.com/cairnrun/cairn/pkg/tool"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

// modelTimeout is a model call's time where the step names none.
const modelTimeout = 2 * time.Minute

// model are the tools llm.generate, llm.classify and llm.extract. A repeat has no effect but its cost, and what came back
// is in the run's log: no recovery asks a model again.
type model struct{ client *llm.Client }

func (m *model) tools() []*tool.Tool {
	opts := func(description string) []tool.Option {
		return []tool.Option{tool.Version("1.0.0"), tool.Idempotent(), tool.Timeout(modelTimeout), tool.Description(description)}
	}
	return []*tool.Tool{
		tool.New("llm.generate", m.generate, opts("Asks a language model and returns its text.")...),
		tool.New("llm.classify", m.classify, opts("Lets a language model choose one of the labels for a text.")...),
		tool.New("llm.extract", m.extract, append(opts("Lets a language model read a value in a JSON Schema out of a text."), tool.InputSchema(extractSchema))...),
	}
}

type generateInput struct {
	Prompt      string   `json:"prompt"`
	System      string   `json:"system,omitempty"`
	Model       string   `json:"model,omitempty" jsonschema:"The configured model where empty"`
	Temperature *float64 `json:"temperature,omitempty"`
	MaxTokens   int      `json:"max_tokens,omitempty"`
}

type generateOutput struct {
	Text         string `json:"text"`
	Model        string `json:"model"`
	FinishReason string `json:"finish_reason"`
}

func (m *model) generate(ctx context.Context, in generateInput) (generateOutput, error) {
	r, err := m.ask(ctx, llm.Request{Model: in.Model, Messages: messages(in.System, in.Prompt), Temperature: in.Temperature, MaxTokens: in.MaxTokens})
	if err != nil {
		return generateOutput{}, err
	}
	return generateOutput{Text: r.Text, Model: r.Model, FinishReason: r.FinishReason}, nil
}

type classifyInput struct {
	Text         string   `json:"text"`
	Labels       []string `json:"labels"`
	Instructions string   `json:"instructions,omitempty"`
	Model        string   `json:"model,omitempty"`
}

type classifyOutput struct {
	Label string `json:"label"`
}

func (m *model) classify(ctx context.Context, in classifyInput) (classifyOutput, error) {
	var out classifyOutput
	if len(in.Labels) == 0 {
		return out, tool.Errorf(tool.CodeInvalidArguments, "there are no labels to choose from")
	}
	labels, err := json.Marshal(in.Labels)
	if err != nil {
		return out, err
	}
	schema := `{"type":"object","properties":{"label":{"type":"string","enum":` + string(labels) + `}},"required":["label"],"additionalProperties":false}`
	text, err := m.structured(ctx, in.Model, "label", schema, true,
		"Choose the one label that fits the text best. Answer as JSON with the member \"label\". Labels: "+string(labels)+"\n"+in.Instructions, in.Text)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil || !slices.Contains(in.Labels, out.Label) {
		return classifyOutput{}, tool.Retryable(tool.Errorf(tool.CodeInvalidOutput, "the model answered none of the labels: %s", clip(text, 200)), 0)
	}
	return out, nil
}

const extractSchema = `{"type":"object","properties":{
	"text":{"type":"string"},
	"schema":{"type":"object","description":"JSON Schema of what to extract"},
	"instructions":{"type":"string"},
	"model":{"type":"string"}},
	"required":["text","schema"],"additionalProperties":false}`

type extractInput struct {
	Text         string          `json:"text"`
	Schema       json.RawMessage `json:"schema"`
	Instructions string          `json:"instructions"`
	Model        string          `json:"model"`
}

func (m *model) extract(ctx context.Context, in extractInput) (json.RawMessage, error) {
	text, err := m.structured(ctx, in.Model, "extracted", string(in.Schema), false,
		"Read what the JSON Schema asks for out of the text. Answer with JSON only; take nothing that the text does not say. Schema: "+string(in.Schema)+"\n"+in.Instructions, in.Text)
	if err != nil {
		return nil, err
	}
	exact, err := exactjson.Text([]byte(text))
	if err != nil {
		return nil, tool.Retryable(tool.Errorf(tool.CodeInvalidOutput, "the model's answer is not JSON: %w", err), 0)
	}
	findings := plan.ValidateSchema(&planv1.JsonText{Text: string(in.Schema)}, &planv1.JsonText{Text: exact})
	if plan.HasErrors(findings) {
		return nil, tool.Retryable(tool.Errorf(tool.CodeInvalidOutput, "the model's answer does not fit the schema: %s", findings[0].GetMessage()), 0)
	}
	return json.RawMessage(exact), nil
}

// structured asks for JSON and takes off the fence that models like to put around it.
func (m *model) structured(ctx context.Context, name, schemaName, schema string, strict bool, system, user string) (string, error) {
	r, err := m.ask(ctx, llm.Request{Model: name, Messages: messages(system, user), Schema: &llm.Schema{Name: schemaName, JSON: schema, Strict: strict}})
	if err != nil {
		return "", err
	}
	if r.FinishReason == llm.FinishLength {
		return "", tool.Errorf(tool.CodeInvalidOutput, "the model's answer was cut off at its token limit")
	}
	text := strings.TrimSpace(r.Text)
	if inner, ok := strings.CutPrefix(text, "```"); ok {
		_, inner, _ = strings.Cut(inner, "\n")
		text = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(inner), "```"))
	}
	return text, nil
}

func messages(system, user string) []llm.Message {
	m := []llm.Message{{Role: llm.RoleUser, Content: user}}
	if system == "" {
		return m
	}
	return append([]llm.Message{{Role: llm.RoleSystem, Content: system}}, m...)
}

func (m *model) ask(ctx context.Context, r llm.Request) (*llm.Response, error) {
	out, err := m.client.Chat(ctx, r)
	if err != nil {
		return nil, modelError(ctx, err)
	}
	tool.Action(ctx).SetUsage(tool.Usage{InputTokens: out.Usage.InputTokens, OutputTokens: out.Usage.OutputTokens, Model: out.Model})
	if out.Refusal != "" {
		return nil, tool.Errorf("model_refused", "the model refused: %s", out.Refusal)
	}
	return out, nil
}

// modelError names a failed call. The client has repeated what a repeat may cure; the run's own policy goes on from there.
func modelError(ctx context.Context, err error) error {
	var provider *llm.Error
	var transport *url.Error
	switch {
	case ctx.Err() != nil:
		return err
	case errors.As(err, &provider) && provider.Status == http.StatusTooManyRequests && provider.Retryable():
		return tool.Retryable(tool.Errorf(tool.CodeRateLimited, "%w", err), provider.RetryAfter)
	case errors.As(err, &provider) && provider.Retryable():
		return tool.Retryable(tool.Errorf(tool.CodeUnavailable, "%w", err), provider.RetryAfter)
	case errors.As(err, &provider):
		return tool.Errorf("model_rejected", "%w", err)
	case errors.Is(err, llm.ErrTooLarge):
		return tool.Errorf(tool.CodeOutputTooLarge, "%w", err)
	case errors.As(err, &transport), errors.Is(err, llm.ErrInterrupted), errors.Is(err, context.DeadlineExceeded):
		return tool.Errorf(tool.CodeTransport, "%w", err)
	}
	return tool.Errorf(tool.CodeInternal, "%w", err)
}
