package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// comments are the leading comments of a set of .proto files, by full name. Generated code has dropped them, and the
// files keep one plain form (buf format), so that reading them line by line is enough.
type comments map[protoreflect.FullName]string

var (
	packageLine = regexp.MustCompile(`^package ([\w.]+);`)
	blockLine   = regexp.MustCompile(`^(message|enum|oneof) (\w+) \{`)
	fieldLine   = regexp.MustCompile(`^(?:repeated |optional )?[\w.]+ (\w+) = \d+[; ]`)
	valueLine   = regexp.MustCompile(`^([A-Z][A-Z0-9_]*) = \d+[; ]`)
)

// readComments reads files below dir, by their import paths.
func readComments(dir string, files ...string) (comments, error) {
	out := comments{}
	for _, f := range files {
		if err := out.read(filepath.Join(dir, filepath.FromSlash(f))); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c comments) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var pkg string
	// stack holds the enclosing names; a oneof does not scope its fields, an enum does not scope its values.
	var stack []string
	var text []string
	full := func(name string) protoreflect.FullName {
		parts := []string{pkg}
		for _, s := range stack {
			if s != "" {
				parts = append(parts, s)
			}
		}
		return protoreflect.FullName(strings.Join(append(parts, name), "."))
	}
	in := bufio.NewScanner(f)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if rest, ok := strings.CutPrefix(line, "//"); ok {
			text = append(text, strings.TrimSpace(rest))
			continue
		}
		comment := strings.Join(text, " ")
		text = nil
		switch m := blockLine.FindStringSubmatch(line); {
		case m != nil:
			if m[1] != "oneof" {
				c[full(m[2])] = comment
			}
			// Values of an enum are named beside it, fields of a oneof as fields of its message.
			if m[1] == "message" {
				stack = append(stack, m[2])
			} else {
				stack = append(stack, "")
			}
			if strings.HasSuffix(line, "}") {
				stack = stack[:len(stack)-1]
			}
		case line == "}":
			if len(stack) == 0 {
				return fmt.Errorf("%s:%d: an end without a beginning", path, n)
			}
			stack = stack[:len(stack)-1]
		default:
			if m := packageLine.FindStringSubmatch(line); m != nil {
				pkg = m[1]
			} else if m := valueLine.FindStringSubmatch(line); m != nil {
				c[full(m[1])] = comment
			} else if m := fieldLine.FindStringSubmatch(line); m != nil {
				c[full(m[1])] = comment
			}
		}
	}
	return in.Err()
}
