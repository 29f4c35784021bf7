package toolrouter

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/cairnrun/cairn/pkg/tool"
)

// Bounds of a search.
const (
	defaultSearchResults = 100
	maxSearchResults     = 1000
	maxSearchEntries     = 200_000
	// maxLineBytes is how much of a line is shown.
	maxLineBytes = 400
)

type searchInput struct {
	Pattern    string `json:"pattern,omitempty" jsonschema:"Name pattern such as *.md, or a path pattern such as docs/**/*.md; everything where empty"`
	Text       string `json:"text,omitempty" jsonschema:"What a line must hold"`
	MaxResults int    `json:"max_results,omitempty"`
}

type searchMatch struct {
	Path string `json:"path"`
	// Line counts from 1; 0 where no text was asked for.
	Line int    `json:"line,omitempty"`
	Text string `json:"text,omitempty"`
}

type searchOutput struct {
	Matches []searchMatch `json:"matches"`
	// Truncated: there may be more.
	Truncated bool `json:"truncated"`
}

var errEnough = errors.New("enough found")

func (f *files) search(ctx context.Context, in searchInput) (searchOutput, error) {
	out := searchOutput{Matches: []searchMatch{}}
	limit := in.MaxResults
	switch {
	case limit == 0:
		limit = defaultSearchResults
	case limit < 0 || limit > maxSearchResults:
		return out, tool.Errorf(tool.CodeInvalidArguments, "max_results %d is outside 1 to %d", limit, maxSearchResults)
	}
	if _, err := path.Match(strings.ReplaceAll(in.Pattern, "**", "*"), ""); err != nil {
		return out, tool.Errorf(tool.CodeInvalidArguments, "pattern %q: %w", in.Pattern, err)
	}
	entries := 0
	// Links to folders are not followed: the walk ends.
	err := fs.WalkDir(f.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		entries++
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case entries > maxSearchEntries:
			return errEnough
		case err != nil, !d.Type().IsRegular(), !matches(in.Pattern, name):
			return nil
		}
		if in.Text == "" {
			out.Matches = append(out.Matches, searchMatch{Path: name})
		} else {
			out.Matches = f.lines(out.Matches, name, in.Text, limit+1)
		}
		if len(out.Matches) > limit {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		out.Truncated, err = true, nil
	}
	if len(out.Matches) > limit {
		out.Matches = out.Matches[:limit]
	}
	return out, err
}

// lines adds the lines of a text file that hold the text, as long as there are fewer than most matches. Files that
// cannot be read, are too large or are not text have none.
func (f *files) lines(found []searchMatch, name, text string, most int) []searchMatch {
	data, err := f.content(name)
	if err != nil || !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return found
	}
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		if strings.Contains(line, text) {
			found = append(found, searchMatch{Path: name, Line: number, Text: clip(strings.TrimRight(line, "\r\n"), maxLineBytes)})
			if len(found) >= most {
				break
			}
		}
	}
	return found
}

// matches says whether a path fits a pattern: without a slash its last part must, else the whole, where ** stands for
// any number of parts.
func matches(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	if !strings.Contains(pattern, "/") {
		ok, _ := path.Match(pattern, path.Base(name))
		return ok || pattern == "**"
	}
	return matchParts(strings.Split(pattern, "/"), strings.Split(name, "/"))
}

func matchParts(pattern, name []string) bool {
	if len(pattern) == 0 {
		return len(name) == 0
	}
	if pattern[0] == "**" {
		for i := range len(name) + 1 {
			if matchParts(pattern[1:], name[i:]) {
				return true
			}
		}
		return false
	}
	if len(name) == 0 {
		return false
	}
	ok, _ := path.Match(pattern[0], name[0])
	return ok && matchParts(pattern[1:], name[1:])
}
