// Package runfile reads what can be run: a run file, a plan document, or a goal as plain text.
package runfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cairnrun/cairn/pkg/yamldoc"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

// File is what a run needs: what is asked for, and, for runs in one process, the templates and tools to start with it.
type File struct {
	Spec      *runv1.RunSpec
	RequestID string
	// Templates is the path of the planner's templates, empty for none.
	Templates string
	// InlineTemplates is the same as a document, where the file holds it.
	InlineTemplates []byte
	// Tools are the names of tool services to start.
	Tools []string
}

// MaxBytes bounds a file that is read, 16 MiB: more than any document that is accepted, so that the limit which a plan
// meets is named by who has it.
const MaxBytes = 16 << 20

// fields of a run file; those of spec have the name that the contract gives them.
var fields = []string{"allowed_tools", "goal", "input", "labels", "limits", "mode", "permissions", "plan", "request_id", "templates", "tools"}

// Load reads argument: the path of a run file or plan document (YAML or JSON) where there is such a file, else a goal.
func Load(argument string) (*File, error) {
	info, err := os.Stat(argument)
	switch {
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("%s is a folder; name a run file or a plan document in it", argument)
	case err == nil && info.Size() > MaxBytes:
		return nil, fmt.Errorf("%s has %d bytes, over the limit of %d for a file; pass large values as input artifacts", argument, info.Size(), MaxBytes)
	case err == nil:
		data, err := os.ReadFile(argument)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", argument, err)
		}
		return Parse(argument, data)
	case looksLikePath(argument):
		return nil, fmt.Errorf("no file %s; name a run file, a plan document, or give a goal in words", argument)
	}
	return Goal(argument)
}

func looksLikePath(s string) bool {
	ext := strings.ToLower(filepath.Ext(s))
	return !strings.ContainsAny(s, " \t\n") && (slices.Contains([]string{".yaml", ".yml", ".json"}, ext) || strings.ContainsRune(s, os.PathSeparator))
}

// Goal is a run that the planner plans from words.
func Goal(text string) (*File, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("the goal is empty; say what is wanted, or name a run file or a plan document")
	}
	return &File{Spec: &runv1.RunSpec{Goal: text}}, nil
}

// Parse reads a document; name is for messages, and paths in the document are relative to its folder.
func Parse(name string, data []byte) (*File, error) {
	text, err := yamldoc.ToJSON(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var top map[string]json.RawMessage
	if json.Unmarshal(text, &top) != nil || top == nil {
		return nil, fmt.Errorf("%s: the document is no mapping; a run file begins with goal: or plan:, a plan document with steps:", name)
	}
	if _, isPlan := top["steps"]; isPlan {
		return &File{Spec: &runv1.RunSpec{Plan: &planv1.JsonText{Text: string(text)}}}, nil
	}
	p := parser{name: name, top: top, lines: keyLines(data)}
	return p.file()
}

type parser struct {
	name  string
	top   map[string]json.RawMessage
	lines map[string]int
}

func (p parser) errorf(key, format string, args ...any) error {
	place := p.name
	if n := p.lines[key]; n > 0 {
		place = fmt.Sprintf("%s:%d", p.name, n)
	}
	return fmt.Errorf("%s: %s", place, fmt.Sprintf(format, args...))
}

func (p parser) file() (*File, error) {
	for _, key := range sortedKeys(p.top) {
		if !slices.Contains(fields, key) {
			return nil, p.errorf(key, "unknown field %q; a run file has %s", key, strings.Join(fields, ", "))
		}
	}
	f := &File{}
	var err error
	if f.Spec, err = p.spec(); err != nil {
		return nil, err
	}
	if err := p.text("request_id", &f.RequestID); err != nil {
		return nil, err
	}
	if raw, ok := p.top["tools"]; ok && json.Unmarshal(raw, &f.Tools) != nil {
		return nil, p.errorf("tools", "tools must be a list of names, as [demo/order]")
	}
	if err := p.templates(f); err != nil {
		return nil, err
	}
	switch {
	case f.Spec.GetGoal() == "" && f.Spec.GetPlan() == nil:
		return nil, p.errorf("goal", "a run file needs either goal: (the planner makes a plan) or plan:")
	case f.Spec.GetGoal() != "" && f.Spec.GetPlan() != nil:
		return nil, p.errorf("goal", "it has both goal: (the planner makes a plan) and plan:; keep one. The goal of a plan stands in it, as plan: {goal: …}")
	}
	return f, nil
}

// spec reads the contract's own fields, so that they are checked exactly as the gateway checks them.
func (p parser) spec() (*runv1.RunSpec, error) {
	spec := &runv1.RunSpec{}
	for _, key := range sortedKeys(p.top) {
		raw := p.top[key]
		switch key {
		case "request_id", "templates", "tools":
			continue
		case "labels":
			labels, err := p.labels(raw)
			if err != nil {
				return nil, err
			}
			spec.Labels = labels
			continue
		case "input":
			if !bytes.HasPrefix(raw, []byte("{")) {
				return nil, p.errorf(key, "input must be a mapping of names to values")
			}
		case "plan":
			if !bytes.HasPrefix(raw, []byte("{")) {
				return nil, p.errorf(key, "plan must be a plan document with steps:")
			}
		}
		one := &runv1.RunSpec{}
		if err := exactjson.Unmarshal(fmt.Appendf(nil, "{%q:%s}", key, raw), one); err != nil {
			return nil, p.errorf(key, "%v", err)
		}
		merge(spec, one)
	}
	return spec, nil
}

func (p parser) labels(raw json.RawMessage) ([]*runv1.Label, error) {
	var m map[string]string
	if json.Unmarshal(raw, &m) != nil {
		return nil, p.errorf("labels", "labels must be a mapping of names to text, as {team: shop}")
	}
	var out []*runv1.Label
	for _, k := range sortedKeys(m) {
		out = append(out, &runv1.Label{Key: k, Value: m[k]})
	}
	return out, nil
}

func (p parser) text(key string, into *string) error {
	raw, ok := p.top[key]
	if ok && json.Unmarshal(raw, into) != nil {
		return p.errorf(key, "%s must be text", key)
	}
	return nil
}

func (p parser) templates(f *File) error {
	raw, ok := p.top["templates"]
	if !ok {
		return nil
	}
	if bytes.HasPrefix(raw, []byte("{")) {
		f.InlineTemplates = raw
		return nil
	}
	if err := p.text("templates", &f.Templates); err != nil || f.Templates == "" {
		return p.errorf("templates", "templates must be the path of a templates file, or the document itself")
	}
	if !filepath.IsAbs(f.Templates) {
		f.Templates = filepath.Join(filepath.Dir(p.name), f.Templates)
	}
	if _, err := os.Stat(f.Templates); err != nil {
		return p.errorf("templates", "no templates file %s; paths are relative to the run file", f.Templates)
	}
	return nil
}

// keyLines finds the line of each key of the top mapping.
func keyLines(data []byte) map[string]int {
	var doc yaml.Node
	out := map[string]int{}
	if yaml.Unmarshal(data, &doc) != nil || len(doc.Content) == 0 {
		return out
	}
	top := doc.Content[0]
	for i := 0; i+1 < len(top.Content); i += 2 {
		out[top.Content[i].Value] = top.Content[i].Line
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
