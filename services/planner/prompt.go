package planner

import (
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/pkg/llm"
	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

//go:embed prompts/*.md
var prompts embed.FS

// Versions of the prompts in use: the file names. A changed prompt is a new file, so that a run tells what it was asked with.
const (
	planPrompt   = "plan.v1"
	replanPrompt = "replan.v1"
)

func prompt(version string) string {
	text, err := prompts.ReadFile("prompts/" + version + ".md")
	if err != nil {
		// The files are part of the program.
		panic(err)
	}
	return string(text)
}

// promptTooLargeError: the prompt is over Config.MaxPromptBytes.
type promptTooLargeError struct{ bytes, limit int }

func (e *promptTooLargeError) Error() string {
	return fmt.Sprintf("the prompt has %d bytes, over the limit of %d (max_prompt_bytes); allow the run fewer tools, or pass large input as artifacts", e.bytes, e.limit)
}

// writer puts a prompt together.
type writer struct {
	strings.Builder
	maxFact int
}

// data writes a block that the model must take as data. Angle brackets in it are escaped as JSON allows, so that nothing in
// it can end the block.
func (w *writer) data(name, json string) {
	if json == "" {
		return
	}
	json = strings.NewReplacer("<", `\u003c`, ">", `\u003e`).Replace(json)
	fmt.Fprintf(w, "<data name=%q>\n%s\n</data>\n", name, json)
}

// words writes text that is not JSON as data.
func (w *writer) words(name, text string) {
	if text != "" {
		w.data(name, string(plan.StringValue(text).Append(nil)))
	}
}

func (w *writer) message(name string, m *runv1.Error) {
	if m == nil {
		return
	}
	if text, err := exactjson.Marshal(m); err == nil {
		w.data(name, string(text))
	}
}

// fact shortens a long value and says so.
func (w *writer) fact(v *runv1.Value) json.RawMessage {
	if a := v.GetArtifact(); a != nil {
		return json.RawMessage(fmt.Sprintf(`{"artifact":%q,"bytes":%d}`, a.GetSha256(), a.GetSize()))
	}
	text := v.GetInline().GetText()
	if text == "" {
		return nil
	}
	if len(text) > w.maxFact {
		short, _ := json.Marshal(clip(text, w.maxFact))
		return json.RawMessage(fmt.Sprintf(`{"shortened":%s,"bytes":%d}`, short, len(text)))
	}
	return json.RawMessage(text)
}

// tools lists the tools that the run may use, by name.
func (w *writer) tools(spec *runv1.RunSpec, tools map[string]*planv1.ToolDefinition) {
	type shownTool struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Risk        string          `json:"risk,omitempty"`
		Input       json.RawMessage `json:"input_schema,omitempty"`
		Output      json.RawMessage `json:"output_schema,omitempty"`
	}
	var list []shownTool
	for _, d := range tools {
		if allowed := spec.GetAllowedTools(); len(allowed) > 0 && !slices.Contains(allowed, d.GetName()) {
			continue
		}
		if p := d.GetPermission(); p != "" && !slices.Contains(spec.GetPermissions(), p) {
			continue
		}
		t := shownTool{Name: d.GetName(), Description: d.GetDescription(), Input: raw(d.GetInputSchema()), Output: raw(d.GetOutputSchema())}
		if d.GetRisk() == planv1.Risk_RISK_HIGH {
			t.Risk = "high"
		}
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b shownTool) int { return strings.Compare(a.Name, b.Name) })
	text, err := json.Marshal(list)
	if err != nil || list == nil {
		text = []byte("[]")
	}
	w.data("tools", string(text))
}

func raw(t *planv1.JsonText) json.RawMessage {
	if t.GetText() == "" || !json.Valid([]byte(t.GetText())) {
		return nil
	}
	return json.RawMessage(t.GetText())
}

// corrections tells what was wrong with the answer before.
func (w *writer) corrections(findings []*planv1.Finding, rejected string) {
	if len(findings) == 0 {
		return
	}
	truncated := false
	type shownFinding struct {
		Code    string          `json:"code"`
		Pointer string          `json:"pointer,omitempty"`
		Message string          `json:"message"`
		Hint    string          `json:"hint,omitempty"`
		Values  json.RawMessage `json:"values,omitempty"`
	}
	var list []shownFinding
	for _, f := range findings {
		if f.GetSeverity() == planv1.Severity_SEVERITY_NOTE {
			continue
		}
		truncated = truncated || f.GetCode() == codePlanTruncated
		list = append(list, shownFinding{f.GetCode(), f.GetPointer(), f.GetMessage(), f.GetHint(), raw(f.GetValues())})
	}
	w.WriteString("\nYour answer before was refused.")
	if truncated {
		w.WriteString(" It was truncated: it ended before the document did. Answer with a shorter document.")
	}
	w.WriteString(" What was wrong with it:\n")
	if text, err := json.Marshal(list); err == nil {
		w.data("findings", string(text))
	}
	w.words("refused answer", clip(rejected, 4*w.maxFact))
	w.WriteString("Answer again, with all of this mended.\n")
}

func (w *writer) messages(version string, limit int) ([]llm.Message, error) {
	system := prompt(version)
	if n := len(system) + w.Len(); n > limit {
		return nil, &promptTooLargeError{n, limit}
	}
	return []llm.Message{{Role: llm.RoleSystem, Content: system}, {Role: llm.RoleUser, Content: w.String()}}, nil
}

func (c Config) planMessages(r planRequest) ([]llm.Message, error) {
	w := &writer{maxFact: c.MaxFactBytes}
	w.WriteString("Make a plan for this goal.\n")
	w.words("goal", r.GetSpec().GetGoal())
	w.data("input of the run", r.GetSpec().GetInput().GetText())
	w.tools(r.GetSpec(), r.tools)
	w.corrections(r.GetFindings(), r.GetRejectedText())
	return w.messages(planPrompt, c.MaxPromptBytes)
}

func (c Config) replanMessages(r replanRequest) ([]llm.Message, error) {
	w := &writer{maxFact: c.MaxFactBytes}
	fmt.Fprintf(w, "The plan is at version %d.", r.GetPlan().GetVersion())
	switch r.GetScope() {
	case runv1.ReplanScope_REPLAN_SCOPE_STEP:
		w.WriteString(" Change only the step that failed, and what has to change with it.\n")
	default:
		w.WriteString(" Everything that has not started may change.\n")
	}
	w.words("goal", r.GetSpec().GetGoal())
	w.data("input of the run", r.GetSpec().GetInput().GetText())
	w.data("plan", plan.Document(r.GetPlan()).GetText())
	w.words("step that asked for it", r.GetStepId())
	w.message("failure", r.GetError())
	if f := r.GetFalsifiedAssumptions(); len(f) > 0 {
		if text, err := json.Marshal(f); err == nil {
			w.data("assumptions that turned out false", string(text))
		}
	}
	w.states(r.GetSteps())
	w.tools(r.GetSpec(), r.tools)
	w.corrections(r.GetFindings(), r.GetRejectedText())
	return w.messages(replanPrompt, c.MaxPromptBytes)
}

// states lists how far each step came and what it found out.
func (w *writer) states(steps []*runv1.StepState) {
	type shownStep struct {
		ID     string          `json:"id"`
		Status string          `json:"status"`
		Error  string          `json:"error,omitempty"`
		Result json.RawMessage `json:"result,omitempty"`
	}
	var list []shownStep
	for _, s := range steps {
		status := strings.ToLower(strings.TrimPrefix(s.GetStatus().String(), "STEP_STATUS_"))
		list = append(list, shownStep{s.GetStepId(), status, s.GetError().GetCode(), w.fact(s.GetResult())})
	}
	if text, err := json.Marshal(list); err == nil && len(list) > 0 {
		w.data("steps so far", string(text))
	}
}
