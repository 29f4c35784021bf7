package planner

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// reading is what a model's text holds: a JSON object with notes of what had to be removed around it or mended in it, or
// a finding that says why there is none.
type reading struct {
	doc      []byte
	findings []*planv1.Finding
}

// read finds the JSON object in a model's answer. What is valid JSON is never changed; an answer that was cut off is never
// completed. truncated tells that the provider cut it at its token limit.
func read(text string, truncated bool) reading {
	text = strings.TrimSpace(strings.TrimPrefix(strings.ToValidUTF8(text, "\uFFFD"), "\ufeff"))
	if truncated {
		return reading{findings: []*planv1.Finding{readingError(codePlanTruncated, "the answer was truncated at the model's token limit",
			"answer with a shorter document, or allow longer answers")}}
	}
	if isObject(text) {
		return reading{doc: []byte(text)}
	}
	var notes []*planv1.Finding
	body, outside, fenced := unfence(text)
	if fenced {
		notes = append(notes, readingNote(noteFence, "the document stood in a code fence"))
		if strings.TrimSpace(outside) != "" {
			notes = append(notes, readingNote(noteProse, "text around the document was left out"))
		}
		if isObject(body) {
			return reading{doc: []byte(body), findings: notes}
		}
		if r, ok := readLoose(body, notes); ok {
			return r
		}
		return unreadable(body)
	}
	if r, ok := readLoose(text, nil); ok {
		return r
	}
	return unreadable(text)
}

// readLoose looks for an object in text with other text around it, or written with another language's literals.
func readLoose(text string, notes []*planv1.Finding) (reading, bool) {
	prose := func(obj string) []*planv1.Finding {
		out := append([]*planv1.Finding(nil), notes...)
		if strings.TrimSpace(strings.Replace(text, obj, "", 1)) != "" && !hasNote(out, noteProse) {
			out = append(out, readingNote(noteProse, "text around the document was left out"))
		}
		return out
	}
	objects := candidates(text)
	for _, valid := range []bool{true, false} {
		best := ""
		for _, obj := range objects {
			doc := obj
			if !valid {
				doc = repair(obj)
			}
			if isObject(doc) && (best == "" || (!isDocument(best, valid) && isDocument(obj, valid))) {
				best = obj
			}
		}
		switch {
		case best == "":
		case valid:
			return reading{doc: []byte(best), findings: prose(best)}, true
		default:
			return reading{doc: []byte(repair(best)), findings: append(prose(best), readingNote(noteRepaired,
				"literals of another language were written as JSON: quotes, true, false, null"))}, true
		}
	}
	return reading{}, false
}

func unreadable(text string) reading {
	if cutOff(text) {
		return reading{findings: []*planv1.Finding{readingError(codePlanTruncated, "the answer ends in the middle of the document: it was truncated",
			"answer with a shorter document")}}
	}
	return reading{findings: []*planv1.Finding{readingError(codePlanUnparseable, "the answer holds no JSON object that can be read", hintWholeJSON)}}
}

func hasNote(findings []*planv1.Finding, code string) bool {
	for _, f := range findings {
		if f.GetCode() == code {
			return true
		}
	}
	return false
}

func isObject(s string) bool { return strings.HasPrefix(s, "{") && json.Valid([]byte(s)) }

// documentKeys tell a plan, a patch or an answer from an object that the prose mentions.
var documentKeys = []string{"steps", "add", "update", "remove", "base_version", "patch", "answer", "plan"}

func isDocument(obj string, valid bool) bool {
	if !valid {
		obj = repair(obj)
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal([]byte(obj), &keys) != nil {
		return false
	}
	for _, k := range documentKeys {
		if _, ok := keys[k]; ok {
			return true
		}
	}
	return false
}

const fence = "```"

// opening is a fence, perhaps with a language's name, before an object.
var opening = regexp.MustCompile("```[A-Za-z0-9_+-]*\\s*\\{")

// unfence returns the content of the first code fence that opens an object, and what stands around it. A fence that is
// not closed goes to the end.
func unfence(text string) (body, outside string, ok bool) {
	at := opening.FindStringIndex(text)
	if at == nil {
		return "", "", false
	}
	start := at[1] - 1
	inner := text[start:]
	end, closed := closingFence(inner)
	after := ""
	if closed {
		after = inner[end+len(fence):]
	}
	return strings.TrimSpace(inner[:end]), text[:at[0]] + after, true
}

// closingFence finds the fence's end outside JSON strings: a value may hold one.
func closingFence(s string) (int, bool) {
	inString := false
	for i := 0; i < len(s); i++ {
		switch {
		case inString && s[i] == '\\':
			i++
		case s[i] == '"':
			inString = !inString
		case !inString && strings.HasPrefix(s[i:], fence):
			return i, true
		}
	}
	// Quotes that do not pair up: the last fence will be it.
	if i := strings.LastIndex(s, fence); i > 0 {
		return i, true
	}
	return len(s), false
}

// maxCandidates bounds the braces at which an object is looked for in one answer: each look may read all of it.
const maxCandidates = 64

// candidates are the parts of text with balanced braces, outermost first in order. An object that does not end hides
// what is in it: a part of a document is not the document.
func candidates(text string) []string {
	var out []string
	for i, looks := 0, 0; i < len(text) && looks < maxCandidates; i++ {
		if text[i] != '{' {
			continue
		}
		looks++
		if end := balanced(text[i:]); end > 0 {
			out = append(out, text[i:i+end])
			i += end - 1
		} else if beginsObject(text[i:]) {
			break
		}
	}
	return out
}

// beginsObject tells an object from a brace in prose: a key or the end must follow.
func beginsObject(s string) bool {
	rest := strings.TrimLeft(s[1:], " \t\r\n")
	return rest == "" || rest[0] == '"' || rest[0] == '\'' || rest[0] == '}'
}

// balanced returns the length of the object at the start of s, 0 where it does not end.
func balanced(s string) int {
	depth := 0
	var quote byte
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"', c == '\'' && opensString(s, i):
			quote = c
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// opensString tells a quote that begins a value or a key from an apostrophe.
func opensString(s string, i int) bool {
	for i--; i >= 0; i-- {
		switch s[i] {
		case ' ', '\t', '\r', '\n':
			continue
		case '{', '[', ',', ':':
			return true
		}
		return false
	}
	return true
}

// cutOff tells whether an object begins in text and does not end.
func cutOff(text string) bool {
	for i, looks := 0, 0; i < len(text) && looks < maxCandidates; i++ {
		if text[i] != '{' {
			continue
		}
		looks++
		end := balanced(text[i:])
		if end == 0 && beginsObject(text[i:]) {
			return true
		}
		i += max(end-1, 0)
	}
	return false
}

// repair writes the literals of Python as JSON outside strings: True, False, None and single-quoted strings. Everything
// else, and every string's content, stays as it is; whether the outcome is JSON is for the caller to see.
func repair(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"':
			end := endOfString(s, i)
			b.WriteString(s[i:end])
			i = end
		case c == '\'':
			end := endOfString(s, i)
			if end-i < 2 || s[end-1] != '\'' {
				b.WriteString(s[i:end])
			} else {
				b.WriteString(requote(s[i+1 : end-1]))
			}
			i = end
		case isWord(c):
			end := i
			for end < len(s) && isWord(s[end]) {
				end++
			}
			word := s[i:end]
			if json, ok := map[string]string{"True": "true", "False": "false", "None": "null"}[word]; ok {
				word = json
			}
			b.WriteString(word)
			i = end
		default:
			_, n := utf8.DecodeRuneInString(s[i:])
			b.WriteString(s[i : i+n])
			i += n
		}
	}
	return b.String()
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// endOfString returns the place after the string that begins at i, or the end of s.
func endOfString(s string, i int) int {
	quote := s[i]
	for j := i + 1; j < len(s); j++ {
		switch s[j] {
		case '\\':
			j++
		case quote:
			return j + 1
		}
	}
	return len(s)
}

// requote writes the content of a single-quoted string between double quotes, with the same meaning.
func requote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == '\'':
			b.WriteByte('\'')
			i++
		case s[i] == '\\' && i+1 < len(s):
			b.WriteString(s[i : i+2])
			i++
		case s[i] == '"':
			b.WriteString(`\"`)
		default:
			b.WriteByte(s[i])
		}
	}
	b.WriteByte('"')
	return b.String()
}
