package runfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/yamldoc"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

func merge(into, from *runv1.RunSpec) { proto.Merge(into, from) }

// Overrides are what a command line changes about a file.
type Overrides struct {
	// Input replaces the whole input: JSON or YAML text, or @path.
	Input string
	// Vars are key=value pairs, each replacing one key of the input; a value that is no JSON is text.
	Vars []string
	// Labels are key=value pairs, added or replacing one of the same key.
	Labels    []string
	RequestID string
}

// Apply changes f.
func (o Overrides) Apply(f *File) error {
	if o.Input != "" {
		text, err := inputText(o.Input)
		if err != nil {
			return err
		}
		f.Spec.Input = &planv1.JsonText{Text: text}
	}
	for _, v := range o.Vars {
		key, value, ok := strings.Cut(v, "=")
		if !ok || key == "" {
			return fmt.Errorf("--var %s: write it as key=value", v)
		}
		if err := setInput(f.Spec, key, value); err != nil {
			return err
		}
	}
	for _, l := range o.Labels {
		key, value, ok := strings.Cut(l, "=")
		if !ok || key == "" {
			return fmt.Errorf("--label %s: write it as key=value", l)
		}
		f.Spec.Labels = slices.DeleteFunc(f.Spec.Labels, func(l *runv1.Label) bool { return l.GetKey() == key })
		f.Spec.Labels = append(f.Spec.Labels, &runv1.Label{Key: key, Value: value})
	}
	if o.RequestID != "" {
		f.RequestID = o.RequestID
	}
	return nil
}

func inputText(arg string) (string, error) {
	data, place := []byte(arg), "--input"
	if path, isFile := strings.CutPrefix(arg, "@"); isFile {
		var err error
		if data, err = os.ReadFile(path); err != nil {
			return "", fmt.Errorf("--input: read %s: %w", path, err)
		}
		place = path
	}
	text, err := yamldoc.ToJSON(data)
	if err != nil {
		return "", fmt.Errorf("%s: %w", place, err)
	}
	if !bytes.HasPrefix(text, []byte("{")) {
		return "", fmt.Errorf("%s: the input must be a mapping of names to values, as '{\"city\": \"上海\"}'", place)
	}
	return string(text), nil
}

// setInput replaces one key of the input, and keeps the exact text of the others.
func setInput(spec *runv1.RunSpec, key, value string) error {
	fields := map[string]json.RawMessage{}
	if t := spec.GetInput().GetText(); t != "" {
		if err := json.Unmarshal([]byte(t), &fields); err != nil {
			return fmt.Errorf("input: %w", err)
		}
	}
	text, err := exactjson.Text([]byte(value))
	if err != nil {
		if text, err = encode(value); err != nil {
			return fmt.Errorf("--var %s: %w", key, err)
		}
	}
	fields[key] = json.RawMessage(text)
	whole, err := encode(fields)
	if err != nil {
		return fmt.Errorf("--var %s: %w", key, err)
	}
	spec.Input = &planv1.JsonText{Text: whole}
	return nil
}

// encode is json.Marshal that does not rewrite < and > in values that nobody asked to change.
func encode(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return strings.TrimSpace(b.String()), err
}
