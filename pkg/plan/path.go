package plan

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// A path is a list of parts: a part of digits is an index of an array and a key of an object, any other part is a key.
// It is written data.items.0.id; a part with a dot, a bracket or nothing in it is written ["a.b"], and [0] is the
// same as .0.

// parsePath reads a path. start tells that it stands alone ("data.items") rather than after something (".data").
func parsePath(text string, start bool) ([]string, error) {
	var parts []string
	rest := text
	for rest != "" {
		switch {
		case rest[0] == '[':
			part, after, err := bracketPart(rest)
			if err != nil {
				return nil, err
			}
			parts, rest, start = append(parts, part), after, false
			continue
		case rest[0] == '.' && !start:
			rest = rest[1:]
		case !start:
			return nil, fmt.Errorf("a dot is expected before %s", quote(rest))
		}
		start = false
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return nil, fmt.Errorf("the path %s has an empty part", quote(text))
		}
		if strings.IndexByte(rest[:end], ']') >= 0 {
			return nil, fmt.Errorf("the path %s has a ] too many", quote(text))
		}
		parts, rest = append(parts, rest[:end]), rest[end:]
	}
	return parts, nil
}

// bracketPart reads [0] or ["key"] at the start of text.
func bracketPart(text string) (part, rest string, err error) {
	if len(text) > 1 && text[1] == '"' {
		p := jsonParser{text: text, pos: 1, limits: DefaultLimits()}
		part, ok := p.str()
		if !ok || p.pos >= len(text) || text[p.pos] != ']' {
			return "", "", fmt.Errorf("%s is not closed by \"]", quote(text))
		}
		return part, text[p.pos+1:], nil
	}
	end := strings.IndexByte(text, ']')
	if end < 0 {
		return "", "", fmt.Errorf("%s is not closed by ]", quote(text))
	}
	if _, ok := arrayIndex(text[1:end]); !ok {
		return "", "", fmt.Errorf("%s is neither an index like [0] nor a key like [\"name\"]", quote(text[:end+1]))
	}
	return text[1:end], text[end+1:], nil
}

// formatPath writes parts the way that parsePath reads them after something.
func formatPath(parts []string) string {
	var b strings.Builder
	for _, part := range parts {
		if part == "" || strings.ContainsAny(part, `.[]"`) || !utf8.ValidString(part) {
			b.WriteByte('[')
			b.Write(appendString(nil, part))
			b.WriteByte(']')
			continue
		}
		b.WriteByte('.')
		b.WriteString(part)
	}
	return b.String()
}

// arrayIndex reads a part as an index: digits without a leading zero.
func arrayIndex(part string) (int, bool) {
	if part == "" || len(part) > 9 || len(part) > 1 && part[0] == '0' {
		return 0, false
	}
	for i := 0; i < len(part); i++ {
		if part[i] < '0' || part[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.Atoi(part)
	return n, err == nil
}

// At returns what stands at a path of a value, and whether anything does.
func (v Value) At(path []string) (Value, bool) {
	for _, part := range path {
		switch v.kind {
		case Object:
			member, ok := v.Get(part)
			if !ok {
				return Value{}, false
			}
			v = member
		case Array:
			i, ok := arrayIndex(part)
			if !ok || i >= len(v.items) {
				return Value{}, false
			}
			v = v.items[i]
		default:
			return Value{}, false
		}
	}
	return v, v.kind != Invalid
}

// textAt returns the exact text at a path of a JSON text without building the values around it. What is not valid JSON
// has nothing at any path.
func textAt(text string, path []string) (string, bool) {
	s := scanner{text: text}
	s.space()
	for _, part := range path {
		if s.pos >= len(text) || !s.enter(part) {
			return "", false
		}
	}
	start := s.pos
	if !s.skip() {
		return "", false
	}
	return text[start:s.pos], true
}

// AtPath returns what stands at a path ("data.items.0") of a JSON text, with its exact text. It reports false where
// nothing does and where the path is not one.
func AtPath(t *planv1.JsonText, path string) (*planv1.JsonText, bool) {
	if t == nil {
		return nil, false
	}
	parts, err := parsePath(path, true)
	if err != nil {
		return nil, false
	}
	text, ok := textAt(t.GetText(), parts)
	if !ok {
		return nil, false
	}
	return &planv1.JsonText{Text: text}, true
}

// scanner walks over JSON text that is taken to be valid.
type scanner struct {
	text string
	pos  int
}

func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// skip moves behind the value at pos.
func (s *scanner) skip() bool {
	if s.pos >= len(s.text) {
		return false
	}
	switch s.text[s.pos] {
	case '"':
		return s.skipString()
	case '{', '[':
		depth := 0
		for s.pos < len(s.text) {
			switch s.text[s.pos] {
			case '"':
				if !s.skipString() {
					return false
				}
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			s.pos++
			if depth == 0 {
				return true
			}
		}
		return false
	}
	start := s.pos
	for s.pos < len(s.text) && strings.IndexByte(",]} \t\r\n:", s.text[s.pos]) < 0 {
		s.pos++
	}
	return s.pos > start
}

func (s *scanner) skipString() bool {
	s.pos++
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case '\\':
			s.pos++
		case '"':
			s.pos++
			return true
		}
		s.pos++
	}
	s.pos = len(s.text)
	return false
}

// enter moves to the element or member named by part of the value at pos.
func (s *scanner) enter(part string) bool {
	switch s.text[s.pos] {
	case '{':
		return s.enterObject(part)
	case '[':
		i, ok := arrayIndex(part)
		return ok && s.enterArray(i)
	}
	return false
}

func (s *scanner) enterArray(index int) bool {
	s.pos++
	for n := 0; ; n++ {
		s.space()
		if s.pos >= len(s.text) || s.text[s.pos] == ']' {
			return false
		}
		if n == index {
			return true
		}
		if !s.skip() {
			return false
		}
		s.space()
		if s.pos >= len(s.text) || s.text[s.pos] != ',' {
			return false
		}
		s.pos++
	}
}

func (s *scanner) enterObject(name string) bool {
	s.pos++
	for {
		s.space()
		if s.pos >= len(s.text) || s.text[s.pos] != '"' {
			return false
		}
		start := s.pos
		if !s.skipString() {
			return false
		}
		key := s.text[start+1 : s.pos-1]
		matches := key == name
		if !matches && strings.IndexByte(key, '\\') >= 0 {
			p := jsonParser{text: s.text[start:s.pos], limits: DefaultLimits()}
			decoded, ok := p.str()
			matches = ok && decoded == name
		}
		s.space()
		if s.pos >= len(s.text) || s.text[s.pos] != ':' {
			return false
		}
		s.pos++
		s.space()
		if matches {
			return s.pos < len(s.text)
		}
		if !s.skip() {
			return false
		}
		s.space()
		if s.pos >= len(s.text) || s.text[s.pos] != ',' {
			return false
		}
		s.pos++
	}
}
