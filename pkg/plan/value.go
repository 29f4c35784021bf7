package plan

import (
	"errors"
	"strings"
	"unicode/utf8"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Kind is the kind of a JSON value.
type Kind uint8

// The kinds of JSON values. Invalid is the zero Value's kind: no value at all, which is not null.
const (
	Invalid Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

func (k Kind) String() string {
	return [...]string{"nothing", "null", "boolean", "number", "string", "array", "object"}[k]
}

// Value is one JSON value. Numbers keep their text, objects keep the order of their members. Values are immutable.
type Value struct {
	kind Kind
	// A number's text, a string's content, "true" or "false".
	text    string
	items   []Value
	members []Member
}

// Member is one name and value of an object.
type Member struct {
	Name  string
	Value Value
}

// Kind returns the value's kind, Invalid for the zero Value.
func (v Value) Kind() Kind { return v.kind }

// Text returns a string's content, a number's text, "true" or "false"; empty for other kinds.
func (v Value) Text() string { return v.text }

// Items returns an array's elements, in order.
func (v Value) Items() []Value { return v.items }

// Members returns an object's members, in document order.
func (v Value) Members() []Member { return v.members }

func (v Value) isContainer() bool { return v.kind == Array || v.kind == Object }

// Get returns the member of an object, and whether it is there.
func (v Value) Get(name string) (Value, bool) {
	for i := range v.members {
		if v.members[i].Name == name {
			return v.members[i].Value, true
		}
	}
	return Value{}, false
}

// StringValue returns a JSON string.
func StringValue(s string) Value {
	return Value{kind: String, text: strings.ToValidUTF8(s, "\uFFFD")}
}

func boolValue(b bool) Value {
	if b {
		return Value{kind: Bool, text: "true"}
	}
	return Value{kind: Bool, text: "false"}
}

// Append appends the value's JSON text without white space, members in document order.
func (v Value) Append(dst []byte) []byte {
	switch v.kind {
	case Null, Invalid:
		return append(dst, "null"...)
	case Bool, Number:
		return append(dst, v.text...)
	case String:
		return appendString(dst, v.text)
	case Array:
		dst = append(dst, '[')
		for i := range v.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.items[i].Append(dst)
		}
		return append(dst, ']')
	default:
		dst = append(dst, '{')
		for i := range v.members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendString(dst, v.members[i].Name)
			dst = append(dst, ':')
			dst = v.members[i].Value.Append(dst)
		}
		return append(dst, '}')
	}
}

// JSON returns the value as exact JSON text; nil for the zero Value.
func (v Value) JSON() *planv1.JsonText {
	if v.kind == Invalid {
		return nil
	}
	return &planv1.JsonText{Text: string(v.Append(nil))}
}

// ErrInvalidJSON is matched by every error of ParseValue.
var ErrInvalidJSON = errors.New("invalid JSON")

// ParseValue reads one JSON value within the default limits. Duplicate keys, numbers out of range, invalid UTF-8 and
// anything after the value are refused; a lone surrogate becomes U+FFFD. Errors match ErrInvalidJSON.
func ParseValue(text string) (Value, error) { return DefaultLimits().ParseValue(text) }

// ParseValue is the function ParseValue within these limits.
func (l Limits) ParseValue(text string) (Value, error) {
	v, problems := parseJSON(text, l.withDefaults())
	if len(problems) > 0 {
		return Value{}, problems[0]
	}
	return v, nil
}

// valueOf reads a message's JSON text. Absent text is the zero Value.
func valueOf(t *planv1.JsonText, l Limits) (Value, []*jsonProblem) {
	if t == nil {
		return Value{}, nil
	}
	return parseJSON(t.GetText(), l)
}

const hexDigits = "0123456789abcdef"

// appendString appends a JSON string. Only what must be escaped is; text is otherwise kept as it is, without the
// escaping of <, > and & that HTML wants. Invalid UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, s[start:i]...)
				dst = append(dst, "\uFFFD"...)
				i++
				start = i
				continue
			}
			if r == '\u2028' || r == '\u2029' || r == '\u0085' {
				// Line ends to some readers: escaped, so that a value is one line for everybody.
				dst = append(dst, s[start:i]...)
				dst = append(dst, '\\', 'u', hexDigits[r>>12], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
				i += size
				start = i
				continue
			}
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
