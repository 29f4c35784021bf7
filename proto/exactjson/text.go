package exactjson

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxDepth bounds the nesting of JSON text that is read.
const MaxDepth = 512

// Error says what is wrong with JSON text, and where.
type Error struct {
	// Pointer is the JSON pointer (RFC 6901) of the value, "" for the whole text.
	Pointer string
	// Offset in bytes into the text, -1 where the text is well formed and only its meaning is wrong.
	Offset  int
	Message string
}

func (e *Error) Error() string {
	at := e.Pointer
	if at == "" {
		at = "/"
	}
	if e.Offset >= 0 {
		return fmt.Sprintf("%s (byte %d): %s", at, e.Offset, e.Message)
	}
	return at + ": " + e.Message
}

// Text reads one JSON value and returns its exact text without insignificant white space. Number text, key order and
// string escapes stay as they are, but for escaped lone surrogates, which become \ufffd. It refuses what is not JSON
// or not UTF-8, a duplicate key, and nesting beyond MaxDepth, with a *Error.
func Text(data []byte) (string, error) {
	s := scanner{in: data, out: make([]byte, 0, len(data))}
	s.space()
	if err := s.value(0); err != nil {
		return "", err
	}
	s.space()
	if s.pos != len(s.in) {
		return "", s.fail("something follows the JSON value")
	}
	return string(s.out), nil
}

type scanner struct {
	in, out []byte
	pos     int
	path    []string
}

func (s *scanner) fail(format string, args ...any) error {
	return &Error{Pointer: strings.Join(s.path, ""), Offset: s.pos, Message: fmt.Sprintf(format, args...)}
}

func (s *scanner) space() {
	for s.pos < len(s.in) {
		switch s.in[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) peek() byte {
	if s.pos < len(s.in) {
		return s.in[s.pos]
	}
	return 0
}

func (s *scanner) take(n int) {
	s.out = append(s.out, s.in[s.pos:s.pos+n]...)
	s.pos += n
}

func (s *scanner) value(depth int) error {
	if depth > MaxDepth {
		return s.fail("nested deeper than %d", MaxDepth)
	}
	switch c := s.peek(); {
	case s.pos >= len(s.in):
		return s.fail("the JSON text ends where a value is expected")
	case c == '{':
		return s.object(depth)
	case c == '[':
		return s.array(depth)
	case c == '"':
		return s.str()
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	}
	for _, lit := range []string{"true", "false", "null"} {
		if strings.HasPrefix(string(s.in[s.pos:min(len(s.in), s.pos+5)]), lit) {
			s.take(len(lit))
			return nil
		}
	}
	r, _ := utf8.DecodeRune(s.in[s.pos:])
	return s.fail("%q does not begin a JSON value", r)
}

func (s *scanner) object(depth int) error {
	seen := map[string]bool{}
	s.take(1)
	s.space()
	if s.peek() == '}' {
		s.take(1)
		return nil
	}
	for {
		if s.peek() != '"' {
			return s.fail("a key in double quotes is expected")
		}
		begin, at := len(s.out), s.pos
		if err := s.str(); err != nil {
			return err
		}
		var key string
		if err := json.Unmarshal(s.out[begin:], &key); err != nil {
			s.pos = at
			return s.fail("the key is not a JSON string")
		}
		if seen[key] {
			s.pos = at
			return s.fail("the key %q stands twice in one object", key)
		}
		seen[key] = true
		s.space()
		if s.peek() != ':' {
			return s.fail("a colon is expected after the key %q", key)
		}
		s.take(1)
		s.space()
		s.path = append(s.path, "/"+Escape(key))
		if err := s.value(depth + 1); err != nil {
			return err
		}
		s.path = s.path[:len(s.path)-1]
		s.space()
		switch s.peek() {
		case ',':
			s.take(1)
			s.space()
		case '}':
			s.take(1)
			return nil
		default:
			return s.fail("a comma or the end of the object is expected")
		}
	}
}

func (s *scanner) array(depth int) error {
	s.take(1)
	s.space()
	if s.peek() == ']' {
		s.take(1)
		return nil
	}
	for i := 0; ; i++ {
		s.path = append(s.path, "/"+strconv.Itoa(i))
		if err := s.value(depth + 1); err != nil {
			return err
		}
		s.path = s.path[:len(s.path)-1]
		s.space()
		switch s.peek() {
		case ',':
			s.take(1)
			s.space()
		case ']':
			s.take(1)
			return nil
		default:
			return s.fail("a comma or the end of the array is expected")
		}
	}
}

func (s *scanner) number() error {
	i := s.pos
	digits := func() bool {
		begin := i
		for i < len(s.in) && s.in[i] >= '0' && s.in[i] <= '9' {
			i++
		}
		return i > begin
	}
	if s.in[i] == '-' {
		i++
	}
	switch {
	case i < len(s.in) && s.in[i] == '0':
		i++
	case !digits():
		return s.fail("not a JSON number")
	}
	if i < len(s.in) && s.in[i] == '.' {
		i++
		if !digits() {
			return s.fail("not a JSON number: digits are expected after the point")
		}
	}
	if i < len(s.in) && (s.in[i] == 'e' || s.in[i] == 'E') {
		i++
		if i < len(s.in) && (s.in[i] == '+' || s.in[i] == '-') {
			i++
		}
		if !digits() {
			return s.fail("not a JSON number: digits are expected in the exponent")
		}
	}
	if i < len(s.in) && s.in[i] >= '0' && s.in[i] <= '9' {
		return s.fail("not a JSON number: a leading zero")
	}
	s.take(i - s.pos)
	return nil
}

func (s *scanner) str() error {
	s.take(1)
	for {
		if s.pos >= len(s.in) {
			return s.fail("the JSON text ends inside a string")
		}
		c := s.in[s.pos]
		switch {
		case c == '"':
			s.take(1)
			return nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		case c < 0x20:
			return s.fail("a control character inside a string must be escaped")
		case c < utf8.RuneSelf:
			s.take(1)
		default:
			r, n := utf8.DecodeRune(s.in[s.pos:])
			if r == utf8.RuneError && n == 1 {
				return s.fail("not UTF-8")
			}
			s.take(n)
		}
	}
}

func (s *scanner) escape() error {
	if s.pos+1 >= len(s.in) {
		return s.fail("the JSON text ends inside a string")
	}
	switch s.in[s.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.take(2)
		return nil
	case 'u':
		u, ok := s.hex(s.pos)
		if !ok {
			return s.fail("four hexadecimal digits are expected after \\u")
		}
		if u < 0xd800 || u > 0xdfff {
			s.take(6)
			return nil
		}
		if u < 0xdc00 {
			if low, ok := s.hex(s.pos + 6); ok && low >= 0xdc00 && low <= 0xdfff {
				s.take(12)
				return nil
			}
		}
		s.out = append(s.out, `\ufffd`...)
		s.pos += 6
		return nil
	}
	return s.fail("an unknown escape in a string")
}

// hex reads \uXXXX at i.
func (s *scanner) hex(i int) (uint64, bool) {
	if i+6 > len(s.in) || s.in[i] != '\\' || s.in[i+1] != 'u' {
		return 0, false
	}
	u, err := strconv.ParseUint(string(s.in[i+2:i+6]), 16, 32)
	return u, err == nil
}

// Escape makes a JSON pointer token of a key (RFC 6901).
func Escape(key string) string {
	if !strings.ContainsAny(key, "~/") {
		return key
	}
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}
