package main

import (
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/cairnrun/cairn/cmd/cairn/render"
)

// terminalSize is the columns and lines of w, zeroes where it is no terminal.
func terminalSize(w io.Writer) (columns, lines int) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0
	}
	columns, lines, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return columns, lines
}

// isTerminal says whether a drawing on w can be redrawn.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// drawing options for what w is.
func drawing(w io.Writer) render.Options {
	columns, _ := terminalSize(w)
	return render.Options{Width: columns, Color: isTerminal(w) && os.Getenv("NO_COLOR") == "", Now: time.Time{}}
}
