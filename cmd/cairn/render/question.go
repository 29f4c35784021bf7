package render

import (
	"encoding/json"
	"strings"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

// answerSchema is as much of a JSON Schema as an example of an answer needs.
type answerSchema struct {
	Type       any                     `json:"type"`
	Enum       []json.RawMessage       `json:"enum"`
	Properties map[string]answerSchema `json:"properties"`
	Required   []string                `json:"required"`
}

// AnswerForm is an answer that a question's schema takes, as it is typed, and what else it takes in words.
func AnswerForm(schema *planv1.JsonText) (value, note string) {
	var s answerSchema
	if text := schema.GetText(); text == "" || json.Unmarshal([]byte(text), &s) != nil {
		return "TEXT", "any text, or JSON"
	}
	if s.Type == "object" && len(s.Properties) > 0 {
		return s.object(schema.GetText())
	}
	example, choice := s.scalar()
	switch {
	case example != "":
		return typed(example), choice
	case s.Type == "string":
		return "TEXT", ""
	case s.Type == "number", s.Type == "integer":
		return "NUMBER", ""
	case s.Type == nil && schema.GetText() == "{}":
		return "TEXT", "any text, or JSON"
	}
	return "JSON", "its schema is " + Line(schema.GetText())
}

// scalar is the first value of a choice and the choice in words; empty where the schema leaves it open.
func (s answerSchema) scalar() (example, choice string) {
	switch {
	case len(s.Enum) > 0:
		words := make([]string, len(s.Enum))
		for i, e := range s.Enum {
			words[i] = Value(&planv1.JsonText{Text: string(e)})
		}
		return string(s.Enum[0]), alternatives(words)
	case s.Type == "boolean":
		return "true", "true or false"
	}
	return "", ""
}

// object is an example with the properties that must be there.
func (s answerSchema) object(text string) (value, note string) {
	var fields, notes []string
	for _, name := range s.Required {
		p := s.Properties[name]
		example, choice := p.scalar()
		switch {
		case choice != "":
			notes = append(notes, name+": "+choice)
		case p.Type == "string":
			example = `"TEXT"`
		case p.Type == "number", p.Type == "integer":
			example = "NUMBER"
		default:
			example = "JSON"
		}
		key, err := json.Marshal(name)
		if err != nil {
			return "JSON", "its schema is " + Line(text)
		}
		fields = append(fields, string(key)+": "+example)
	}
	if len(fields) == 0 || len(fields) < len(s.Properties) {
		notes = append(notes, "its schema is "+Line(text))
	}
	return "{" + strings.Join(fields, ", ") + "}", strings.Join(notes, "; ")
}

// typed is a JSON value as "cairn answer" takes it: text needs no quotes where it cannot be mistaken for JSON.
func typed(value string) string {
	var s string
	if json.Unmarshal([]byte(value), &s) != nil || MustBeJSON(s) {
		return value
	}
	if _, err := exactjson.Text([]byte(s)); err == nil {
		return value
	}
	return s
}

// MustBeJSON says that what a person typed is meant as JSON, so that it is no text when it cannot be read as that.
func MustBeJSON(s string) bool {
	s = strings.TrimSpace(s)
	return s == "" || strings.ContainsRune(`{["`, rune(s[0]))
}

func alternatives(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return strings.Join(words, "")
}

// AnswerLine is the command that answers a question, and what it takes. command makes a command line of words.
func AnswerLine(command func(...string) string, runID, requestID string, schema *planv1.JsonText) string {
	value, note := AnswerForm(schema)
	line := command("answer", runID, requestID, value)
	if note != "" {
		line += "   (" + note + ")"
	}
	return line
}
