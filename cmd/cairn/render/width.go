// Package render shows plans, runs and events on a terminal or as plain lines. It is pure: it makes text of messages.
package render

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Width is the number of terminal columns that s takes: Chinese characters and emoji take two, marks take none.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch {
	case r == 0x200d || unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r) || unicode.Is(unicode.Cf, r):
		return 0
	case unicode.IsControl(r):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Cut shortens s to at most columns, at a character border, with an ellipsis where something was cut.
func Cut(s string, columns int) string {
	if Width(s) <= columns {
		return s
	}
	if columns < 1 {
		return ""
	}
	var b strings.Builder
	left := columns - 1
	for _, r := range s {
		w := runeWidth(r)
		if w > left {
			break
		}
		left -= w
		b.WriteRune(r)
	}
	return strings.TrimRight(b.String(), " ") + "…"
}

// Pad fills s with spaces up to columns.
func Pad(s string, columns int) string {
	if n := columns - Width(s); n > 0 {
		return s + strings.Repeat(" ", n)
	}
	return s
}

// Line makes s safe for one line of a terminal: control characters, among them escape sequences and the line ends that
// Unicode knows, become spaces.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
}
