package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// maxShown bounds the text made of one value, in bytes of its JSON: nobody reads further on one line.
const maxShown = 4096

// Value shows a JSON value for people on one line: an object as "key: value, …" in its own order, a string without
// quotes, anything nested as JSON.
func Value(v *planv1.JsonText) string {
	text := v.GetText()
	if len(text) > maxShown {
		return Line(strings.ToValidUTF8(text[:maxShown], ""))
	}
	var s string
	if strings.HasPrefix(text, `"`) && json.Unmarshal([]byte(text), &s) == nil {
		return Line(s)
	}
	if strings.HasPrefix(text, "{") {
		if fields, ok := objectFields(text); ok {
			return Line(fields)
		}
	}
	return Line(text)
}

func objectFields(text string) (string, bool) {
	dec := json.NewDecoder(strings.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return "", false
	}
	var parts []string
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return "", false
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return "", false
		}
		s := string(raw)
		if strings.HasPrefix(s, `"`) && json.Unmarshal(raw, &s) != nil {
			return "", false
		}
		parts = append(parts, fmt.Sprintf("%v: %s", key, s))
	}
	return strings.Join(parts, ", "), true
}

// Result shows a step's result: its value, or where the artifact is. null says nothing: it is what steps without a
// result have, such as those that wait.
func Result(v *runv1.Value) string {
	if a := v.GetArtifact(); a != nil {
		return artifact(a)
	}
	if v.GetInline().GetText() == "null" {
		return ""
	}
	return Value(v.GetInline())
}

func artifact(a *runv1.ArtifactRef) string {
	return fmt.Sprintf("artifact %s, %s", a.GetSha256()[:min(12, len(a.GetSha256()))], bytesText(a.GetSize()))
}

func bytesText(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}

// Answer shows a run's answer for people: an object of several lines, anything else as Value.
func Answer(w io.Writer, v *planv1.JsonText) error {
	var b bytes.Buffer
	if strings.HasPrefix(v.GetText(), "{") || strings.HasPrefix(v.GetText(), "[") {
		if err := json.Indent(&b, []byte(v.GetText()), "", "  "); err != nil {
			return err
		}
	} else {
		b.WriteString(Value(v))
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// ErrorText is an error's code and message on one line.
func ErrorText(e *runv1.Error) string {
	if e.GetMessage() == "" {
		return e.GetCode()
	}
	return Line(e.GetCode() + ": " + e.GetMessage())
}
