package render

import (
	"fmt"
	"io"
	"strings"
)

// Live redraws a block of lines in place on a terminal.
type Live struct {
	out   io.Writer
	drawn int
	last  string
	width int
}

// NewLive hides the cursor until Close.
func NewLive(out io.Writer) *Live {
	_, _ = io.WriteString(out, "\x1b[?25l")
	return &Live{out: out}
}

// Draw replaces what was drawn before. Lines must fit the terminal's width: a wrapped line would count twice. When the
// width has changed, what was drawn may be wrapped, and it draws anew below.
func (l *Live) Draw(lines []string, width int) error {
	if width != l.width {
		l.drawn, l.width = 0, width
	}
	text := strings.Join(lines, "\n")
	if text == l.last && l.drawn > 0 {
		return nil
	}
	var b strings.Builder
	// One write, between the marks of a synchronised update, so that no half-drawn frame is seen.
	b.WriteString("\x1b[?2026h")
	if l.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", l.drawn)
	}
	for _, line := range lines {
		b.WriteString("\r\x1b[2K" + line + "\n")
	}
	b.WriteString("\x1b[J\x1b[?2026l")
	l.drawn, l.last = len(lines), text
	_, err := io.WriteString(l.out, b.String())
	return err
}

// Close leaves the last drawing where it is.
func (l *Live) Close() {
	_, _ = io.WriteString(l.out, "\x1b[?25h")
}
