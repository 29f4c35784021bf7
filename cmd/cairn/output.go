package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/cmd/cairn/render"
	"github.com/cairnrun/cairn/proto/exactjson"
)

// printMessage prints a message as JSON: indented, or on one line with -o jsonl.
func (a *app) printMessage(m proto.Message) error {
	var text []byte
	var err error
	if a.output == outputJSONL {
		text, err = exactjson.Marshal(m)
	} else {
		text, err = exactjson.MarshalIndent(m, "  ")
	}
	if err != nil {
		return fmt.Errorf("show as JSON: %w", err)
	}
	_, err = fmt.Fprintf(a.out, "%s\n", text)
	return err
}

// printLine prints a message as JSON on one line.
func (a *app) printLine(m proto.Message) error {
	text, err := exactjson.Marshal(m)
	if err != nil {
		return fmt.Errorf("show as JSON: %w", err)
	}
	_, err = fmt.Fprintf(a.out, "%s\n", text)
	return err
}

func (a *app) asJSON() bool { return a.output != outputText }

// table prints columns as wide as what they hold; the last one runs on.
func (a *app) table(header []string, rows [][]string) {
	wide := make([]int, len(header))
	for _, r := range append([][]string{header}, rows...) {
		for i, c := range r {
			wide[i] = max(wide[i], render.Width(c))
		}
	}
	width, _ := terminalSize(a.out)
	for _, r := range append([][]string{header}, rows...) {
		var b strings.Builder
		for i, c := range r {
			if i == len(r)-1 {
				b.WriteString(c)
			} else {
				b.WriteString(render.Pad(c, wide[i]) + "  ")
			}
		}
		line := strings.TrimRight(b.String(), " ")
		if width > 0 {
			line = render.Cut(line, width)
		}
		fmt.Fprintln(a.out, line)
	}
}

// clock is a time in UTC, in the form that filters take.
func clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format("2006-01-02T15:04:05Z")
}

func clockMillis(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format("2006-01-02T15:04:05.000Z")
}
