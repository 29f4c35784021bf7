package plan

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonProblem is one thing wrong with a JSON text. Problems of code invalid_json and too_deep end the reading.
type jsonProblem struct {
	code    string
	pointer string
	message string
	// Byte offset in the text.
	offset int
	// The text ended before the value did.
	atEnd  bool
	line   int
	column int
	max    int
}

func (p *jsonProblem) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", p.line, p.column, p.message)
}

func (p *jsonProblem) Is(target error) bool { return target == ErrInvalidJSON }

// maxProblems bounds what is reported of one text.
const maxProblems = 100

// place is one step of the way to the value being read.
type place struct {
	name  string
	index int
}

type jsonParser struct {
	text     string
	pos      int
	limits   Limits
	path     []place
	problems []*jsonProblem
	stopped  bool
}

// parseJSON reads exactly one value. It returns the value as far as it could be read, and all problems.
func parseJSON(text string, limits Limits) (Value, []*jsonProblem) {
	p := jsonParser{text: text, limits: limits}
	p.space()
	v := p.value(0)
	if !p.stopped {
		p.space()
		if p.pos < len(p.text) {
			p.fail("something follows the JSON value")
		}
	}
	if p.stopped {
		return Value{}, p.problems
	}
	return v, p.problems
}

func (p *jsonParser) report(code, message string, offset int) *jsonProblem {
	problem := &jsonProblem{code: code, message: message, offset: offset, pointer: p.pointer()}
	problem.line, problem.column = lineAndColumn(p.text, offset)
	if len(p.problems) < maxProblems {
		p.problems = append(p.problems, problem)
	}
	return problem
}

func (p *jsonParser) fail(message string) {
	if p.stopped {
		return
	}
	atEnd := p.pos >= len(p.text)
	if atEnd {
		message = "the text ends inside a value"
		if strings.TrimSpace(p.text) == "" {
			message = "the text is empty"
		}
	}
	p.report(codeInvalidJSON, message, min(p.pos, len(p.text))).atEnd = atEnd
	p.stopped = true
}

func (p *jsonParser) pointer() string {
	var b strings.Builder
	for _, s := range p.path {
		b.WriteByte('/')
		if s.index >= 0 {
			b.WriteString(strconv.Itoa(s.index))
		} else {
			b.WriteString(escapePointer(s.name))
		}
	}
	return b.String()
}

func lineAndColumn(text string, offset int) (line, column int) {
	before := text[:offset]
	line = strings.Count(before, "\n") + 1
	if i := strings.LastIndexByte(before, '\n'); i >= 0 {
		before = before[i+1:]
	}
	return line, utf8.RuneCountInString(before) + 1
}

func (p *jsonParser) space() {
	for p.pos < len(p.text) {
		switch p.text[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *jsonParser) value(depth int) Value {
	if p.pos >= len(p.text) {
		p.fail("")
		return Value{}
	}
	switch c := p.text[p.pos]; {
	case c == '{':
		return p.object(depth + 1)
	case c == '[':
		return p.array(depth + 1)
	case c == '"':
		s, ok := p.str()
		if !ok {
			return Value{}
		}
		return Value{kind: String, text: s}
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	case strings.HasPrefix(p.text[p.pos:], "true"):
		return p.word("true", Value{kind: Bool, text: "true"})
	case strings.HasPrefix(p.text[p.pos:], "false"):
		return p.word("false", Value{kind: Bool, text: "false"})
	case strings.HasPrefix(p.text[p.pos:], "null"):
		return p.word("null", Value{kind: Null})
	case strings.HasPrefix("true", p.text[p.pos:]), strings.HasPrefix("false", p.text[p.pos:]), strings.HasPrefix("null", p.text[p.pos:]):
		p.pos = len(p.text)
		p.fail("")
		return Value{}
	}
	p.fail("a JSON value is expected here")
	return Value{}
}

func (p *jsonParser) word(word string, v Value) Value {
	end := p.pos + len(word)
	if end < len(p.text) && isWordByte(p.text[end]) {
		p.fail("a JSON value is expected here")
		return Value{}
	}
	p.pos = end
	return v
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

func (p *jsonParser) tooDeep(depth int) bool {
	if depth <= p.limits.MaxDepth {
		return false
	}
	p.report(codeTooDeep, fmt.Sprintf("arrays and objects are nested more than %d deep", p.limits.MaxDepth), p.pos).max = p.limits.MaxDepth
	p.stopped = true
	return true
}

// manyMembers is where looking for duplicate keys changes from comparing to a set.
const manyMembers = 16

func (p *jsonParser) object(depth int) Value {
	v := Value{kind: Object}
	if p.tooDeep(depth) {
		return v
	}
	p.pos++
	p.space()
	if p.pos < len(p.text) && p.text[p.pos] == '}' {
		p.pos++
		return v
	}
	var seen map[string]bool
	p.path = append(p.path, place{index: -1})
	for {
		p.space()
		if p.pos >= len(p.text) || p.text[p.pos] != '"' {
			p.path = p.path[:len(p.path)-1]
			p.fail("an object key in double quotes is expected here")
			return v
		}
		at := p.pos
		name, ok := p.str()
		if !ok {
			return v
		}
		p.path[len(p.path)-1].name = name
		duplicate := false
		switch {
		case seen != nil:
			duplicate = seen[name]
			seen[name] = true
		default:
			_, duplicate = v.Get(name)
			if len(v.members) == manyMembers {
				seen = make(map[string]bool, 2*manyMembers)
				for i := range v.members {
					seen[v.members[i].Name] = true
				}
				seen[name] = true
			}
		}
		if duplicate {
			_ = p.report(codeDuplicateKey, "the key "+quote(name)+" stands twice in one object", at)
		}
		p.space()
		if p.pos >= len(p.text) || p.text[p.pos] != ':' {
			p.fail("a colon is expected after the key " + quote(name))
			return v
		}
		p.pos++
		p.space()
		member := p.value(depth)
		if p.stopped {
			return v
		}
		if !duplicate {
			v.members = append(v.members, Member{Name: name, Value: member})
		}
		p.space()
		if p.pos < len(p.text) {
			switch p.text[p.pos] {
			case ',':
				p.pos++
				continue
			case '}':
				p.pos++
				p.path = p.path[:len(p.path)-1]
				return v
			}
		}
		p.fail("a comma or } is expected here")
		return v
	}
}

func (p *jsonParser) array(depth int) Value {
	v := Value{kind: Array}
	if p.tooDeep(depth) {
		return v
	}
	p.pos++
	p.space()
	if p.pos < len(p.text) && p.text[p.pos] == ']' {
		p.pos++
		return v
	}
	p.path = append(p.path, place{})
	for {
		p.space()
		p.path[len(p.path)-1].index = len(v.items)
		item := p.value(depth)
		if p.stopped {
			return v
		}
		v.items = append(v.items, item)
		p.space()
		if p.pos < len(p.text) {
			switch p.text[p.pos] {
			case ',':
				p.pos++
				continue
			case ']':
				p.pos++
				p.path = p.path[:len(p.path)-1]
				return v
			}
		}
		p.fail("a comma or ] is expected here")
		return v
	}
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func escapePointer(s string) string {
	if strings.IndexByte(s, '~') < 0 && strings.IndexByte(s, '/') < 0 {
		return s
	}
	return pointerEscapes.Replace(s)
}

// quote puts a name into a message, shortened where it is long.
func quote(s string) string {
	const longest = 80
	if len(s) > longest {
		cut := longest
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		return string(appendString(nil, s[:cut])) + "…"
	}
	return string(appendString(nil, s))
}
