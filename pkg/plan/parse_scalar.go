package plan

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

func (p *jsonParser) number() Value {
	start := p.pos
	if p.text[p.pos] == '-' {
		p.pos++
	}
	digits := p.pos
	p.digits()
	whole := p.pos - digits
	if whole == 0 || whole > 1 && p.text[digits] == '0' {
		if whole > 0 {
			p.pos = digits
		}
		p.fail("this is not a JSON number")
		return Value{}
	}
	count := whole
	if p.pos < len(p.text) && p.text[p.pos] == '.' {
		p.pos++
		n := p.digits()
		if n == 0 {
			p.fail("this is not a JSON number")
			return Value{}
		}
		count += n
	}
	exponentTooLarge := false
	if p.pos < len(p.text) && (p.text[p.pos] == 'e' || p.text[p.pos] == 'E') {
		p.pos++
		if p.pos < len(p.text) && (p.text[p.pos] == '+' || p.text[p.pos] == '-') {
			p.pos++
		}
		from := p.pos
		if p.digits() == 0 {
			p.fail("this is not a JSON number")
			return Value{}
		}
		exponent := strings.TrimLeft(p.text[from:p.pos], "0")
		n, err := strconv.Atoi("0" + exponent)
		exponentTooLarge = err != nil || n > p.limits.MaxNumberExponent
	}
	if p.pos < len(p.text) && (isWordByte(p.text[p.pos]) || p.text[p.pos] == '.') {
		p.fail("this is not a JSON number")
		return Value{}
	}
	switch {
	case exponentTooLarge:
		p.report(codeNumberOutOfRange, fmt.Sprintf("a number's exponent may be at most %d", p.limits.MaxNumberExponent), start).max = p.limits.MaxNumberExponent
		return Value{kind: Number, text: "0"}
	case count > p.limits.MaxNumberDigits:
		p.report(codeNumberOutOfRange, fmt.Sprintf("a number may have at most %d digits", p.limits.MaxNumberDigits), start).max = p.limits.MaxNumberDigits
		return Value{kind: Number, text: "0"}
	}
	return Value{kind: Number, text: p.text[start:p.pos]}
}

func (p *jsonParser) digits() int {
	start := p.pos
	for p.pos < len(p.text) && p.text[p.pos] >= '0' && p.text[p.pos] <= '9' {
		p.pos++
	}
	return p.pos - start
}

// str reads a string; the common one without escapes is a part of the text, not a copy.
func (p *jsonParser) str() (string, bool) {
	p.pos++
	start := p.pos
	for p.pos < len(p.text) {
		c := p.text[p.pos]
		switch {
		case c == '"':
			s := p.text[start:p.pos]
			p.pos++
			return s, true
		case c == '\\':
			return p.escapedString(start)
		case c < 0x20:
			p.fail("a control character in a string must be escaped")
			return "", false
		case c < utf8.RuneSelf:
			p.pos++
		default:
			r, size := utf8.DecodeRuneInString(p.text[p.pos:])
			if r == utf8.RuneError && size == 1 {
				p.fail("the text is not valid UTF-8")
				return "", false
			}
			p.pos += size
		}
	}
	p.fail("")
	return "", false
}

func (p *jsonParser) escapedString(start int) (string, bool) {
	var b strings.Builder
	b.WriteString(p.text[start:p.pos])
	for p.pos < len(p.text) {
		c := p.text[p.pos]
		switch {
		case c == '"':
			p.pos++
			return b.String(), true
		case c == '\\':
			if !p.escape(&b) {
				return "", false
			}
		case c < 0x20:
			p.fail("a control character in a string must be escaped")
			return "", false
		case c < utf8.RuneSelf:
			b.WriteByte(c)
			p.pos++
		default:
			r, size := utf8.DecodeRuneInString(p.text[p.pos:])
			if r == utf8.RuneError && size == 1 {
				p.fail("the text is not valid UTF-8")
				return "", false
			}
			b.WriteString(p.text[p.pos : p.pos+size])
			p.pos += size
		}
	}
	p.fail("")
	return "", false
}

var simpleEscapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (p *jsonParser) escape(b *strings.Builder) bool {
	if p.pos+1 >= len(p.text) {
		p.pos = len(p.text)
		p.fail("")
		return false
	}
	c := p.text[p.pos+1]
	if e := simpleEscapes[c]; e != 0 {
		b.WriteByte(e)
		p.pos += 2
		return true
	}
	if c != 'u' {
		p.fail("this escape does not exist in JSON")
		return false
	}
	if p.pos+6 > len(p.text) {
		p.pos = len(p.text)
		p.fail("")
		return false
	}
	r, ok := hex4(p.text[p.pos+2 : p.pos+6])
	if !ok {
		p.fail("\\u needs four hexadecimal digits")
		return false
	}
	p.pos += 6
	if r >= 0xD800 && r < 0xE000 {
		// A pair makes one rune; a lone half becomes U+FFFD.
		if r < 0xDC00 && p.pos+6 <= len(p.text) && p.text[p.pos] == '\\' && p.text[p.pos+1] == 'u' {
			if low, ok := hex4(p.text[p.pos+2 : p.pos+6]); ok && low >= 0xDC00 && low < 0xE000 {
				p.pos += 6
				b.WriteRune((r-0xD800)<<10 + (low - 0xDC00) + 0x10000)
				return true
			}
		}
		r = utf8.RuneError
	}
	b.WriteRune(r)
	return true
}

func hex4(s string) (rune, bool) {
	var r rune
	for i := 0; i < 4; i++ {
		c := s[i]
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 + rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 + rune(c-'a') + 10
		case c >= 'A' && c <= 'F':
			r = r<<4 + rune(c-'A') + 10
		default:
			return 0, false
		}
	}
	return r, true
}
