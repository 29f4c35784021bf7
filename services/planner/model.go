package planner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/llm"
	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// modelStrategy asks a model, once for each attempt of a request: attempts are counted by the run.
type modelStrategy struct {
	config    Config
	client    *llm.Client
	artifacts *bus.Artifacts
	tools     *catalogue
}

func (*modelStrategy) name() string { return sourceModel }

func (m *modelStrategy) plan(ctx context.Context, r planRequest) (*proposal, error) {
	// Tool services may just be starting, and a model that is shown no tool plans without any.
	m.tools.await(ctx, m.config.ToolWait, func(tools map[string]*planv1.ToolDefinition) bool { return len(tools) > 0 })
	r.tools = m.tools.now()
	messages, err := m.config.planMessages(r)
	p, err := m.ask(ctx, messages, err, planPrompt, llm.Schema{Name: "plan", JSON: string(plan.StrictSchema()), Strict: true},
		fmt.Sprintf("%s-%d", r.GetRequestId(), r.GetAttempt()))
	if p != nil {
		p.createdBy, p.tools = planv1.CreatedBy_CREATED_BY_PLANNER, r.tools
	}
	return p, err
}

func (m *modelStrategy) replan(ctx context.Context, r replanRequest) (*proposal, error) {
	messages, err := m.config.replanMessages(r)
	p, err := m.ask(ctx, messages, err, replanPrompt, llm.Schema{Name: "replan", JSON: replanSchema(), Strict: true},
		fmt.Sprintf("%s-%d", r.GetRequestId(), r.GetAttempt()))
	if p == nil || err != nil {
		return p, err
	}
	p.createdBy = planv1.CreatedBy_CREATED_BY_REPLANNER
	p.unwrap()
	return p, nil
}

// unwrap takes the patch, or the answer, out of a replanner's object. A bare patch and a whole plan stay as they are.
func (p *proposal) unwrap() {
	v, err := plan.ParseValue(string(p.doc))
	if p.doc == nil || err != nil {
		// Reading it as a patch will say what is wrong with it.
		return
	}
	reason, _ := v.Get("reason")
	if patch, ok := v.Get("patch"); ok && patch.Kind() != plan.Null {
		p.doc = patch.Append(nil)
		return
	}
	answer, has := v.Get("answer")
	for _, k := range []string{"steps", "base_version", "add", "update", "remove"} {
		if _, bare := v.Get(k); bare && (!has || answer.Kind() == plan.Null) {
			return
		}
	}
	p.doc, p.decline, p.reason = nil, true, reason.Text()
	if p.reason == "" {
		p.reason = "the model has no patch"
	}
	if has && answer.Kind() != plan.Null {
		p.answer = answer.JSON()
		// Strict output knows no free form, so the answer is JSON in a text; words that are no JSON are a text.
		if inner, err := plan.ParseValue(answer.Text()); answer.Kind() == plan.String && err == nil {
			p.answer = inner.JSON()
		}
	}
}

// ask makes one request to the model and reads its answer.
func (m *modelStrategy) ask(ctx context.Context, messages []llm.Message, err error, version string, schema llm.Schema, name string) (*proposal, error) {
	t := &runv1.PlannerTrace{Source: sourceModel, Name: m.client.Model(), PromptVersion: version}
	if err != nil {
		return &proposal{trace: t, giveUp: planFault(codePromptTooLarge, err.Error())}, nil
	}
	req := llm.Request{Messages: messages}
	if m.config.Structured == StructuredStrict {
		req.Schema = &schema
	}
	resp, err := m.client.Chat(ctx, req)
	if err != nil {
		return m.failed(err, t)
	}
	t.InputTokens, t.OutputTokens, t.Calls = resp.Usage.InputTokens, resp.Usage.OutputTokens, int32(resp.Calls)
	raw := resp.Text
	if raw == "" {
		raw = resp.Refusal
	}
	ref, err := m.artifacts.Put(ctx, name, "text/plain; charset=utf-8", []byte(raw))
	if err != nil {
		return nil, fmt.Errorf("keep the model's answer: %w", err)
	}
	t.Raw = append(t.Raw, ref)
	if resp.Refusal != "" || resp.FinishReason == llm.FinishContentFilter {
		words := resp.Refusal
		if words == "" {
			words = "the provider's content filter ended the answer"
		}
		return &proposal{trace: t, text: raw, giveUp: planFault(codeRefusedByModel, "the model refused: "+clip(words, maxReasonBytes))}, nil
	}
	r := read(resp.Text, resp.FinishReason == llm.FinishLength)
	return &proposal{trace: t, text: resp.Text, doc: r.doc, findings: r.findings}, nil
}

// maxReasonBytes bounds a provider's words in an error's message.
const maxReasonBytes = 2 << 10

// failed tells errors that a later delivery may cure from those that it will not.
func (m *modelStrategy) failed(err error, t *runv1.PlannerTrace) (*proposal, error) {
	var e *llm.Error
	if !errors.As(err, &e) || e.Retryable() {
		return nil, err
	}
	t.Calls = int32(e.Calls)
	code, hint := codeRejectedRequest, ""
	if rejectsSchema(e) {
		code, hint = codeRejectedSchema, "; where the endpoint has no strict structured output set CAIRN_LLM_STRUCTURED=off"
	}
	return &proposal{trace: t, giveUp: planFault(code, clip(e.Error(), maxReasonBytes)+hint)}, nil
}

// rejectsSchema tells a refused schema from another refused request.
func rejectsSchema(e *llm.Error) bool {
	if e.Status != http.StatusBadRequest && e.Status != http.StatusUnprocessableEntity {
		return false
	}
	for _, s := range []string{e.Param, e.Code, e.Message} {
		s = strings.ToLower(s)
		if strings.Contains(s, "response_format") || strings.Contains(s, "json_schema") || strings.Contains(s, "schema") {
			return true
		}
	}
	return false
}

// replanSchema is the strict schema of a replanner's object: a patch, or an answer.
var replanSchema = sync.OnceValue(func() string {
	patch, err := plan.ParseValue(string(plan.StrictPatchSchema()))
	if err != nil {
		// The text is part of the program.
		panic(err)
	}
	// References in it point to the document's definitions, so these move up.
	var body, defs []byte
	for _, member := range patch.Members() {
		if member.Name == "$defs" {
			defs = member.Value.Append(nil)
			continue
		}
		if body != nil {
			body = append(body, ',')
		}
		body = append(append(plan.StringValue(member.Name).Append(body), ':'), member.Value.Append(nil)...)
	}
	return `{"type":"object","additionalProperties":false,"required":["patch","answer","reason"],"properties":{` +
		`"patch":{"anyOf":[{"$ref":"#/$defs/patch"},{"type":"null"}],"description":"The change of the plan; null where there is none."},` +
		`"answer":{"type":["string","null"],"description":"Where no change can reach the goal: the final answer, as JSON text."},` +
		`"reason":{"type":"string","description":"Why, in a sentence."}},` +
		`"$defs":` + strings.Replace(string(defs), "{", `{"patch":{`+string(body)+`},`, 1) + `}`
})
