package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// change is one generated file that is not as it should be.
type change struct {
	// path below the module's root.
	path string
	// what: missing, differs or stale.
	what string
	// line is the first that differs.
	line int
}

func (c change) String() string {
	if c.what == "differs" {
		return fmt.Sprintf("%s: %s from line %d on", c.path, c.what, c.line)
	}
	return c.path + ": " + c.what
}

// compare lists the differences between the files just generated and those of the module, sorted by path. Files of the
// module that end like generated ones and were not generated now are stale.
func compare(fresh, root string, outputs map[string][]string) ([]change, error) {
	var changes []change
	for dir, endings := range outputs {
		generated, err := list(filepath.Join(fresh, dir), endings)
		if err != nil {
			return nil, err
		}
		if len(generated) == 0 {
			return nil, fmt.Errorf("nothing was generated into %s", dir)
		}
		for _, rel := range generated {
			want, err := os.ReadFile(filepath.Join(fresh, dir, rel))
			if err != nil {
				return nil, err
			}
			path := filepath.Join(dir, rel)
			got, err := os.ReadFile(filepath.Join(root, path))
			switch {
			case errors.Is(err, fs.ErrNotExist):
				changes = append(changes, change{path: path, what: "missing"})
			case err != nil:
				return nil, err
			case !bytes.Equal(want, got):
				changes = append(changes, change{path: path, what: "differs", line: firstDifference(want, got)})
			}
		}
		present, err := list(filepath.Join(root, dir), endings)
		if err != nil {
			return nil, err
		}
		for _, rel := range present {
			if !slices.Contains(generated, rel) {
				changes = append(changes, change{path: filepath.Join(dir, rel), what: "stale"})
			}
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return strings.Compare(a.path, b.path) })
	return changes, nil
}

// apply brings the module's files up to date.
func apply(changes []change, fresh, root string) error {
	for _, c := range changes {
		to := filepath.Join(root, c.path)
		if c.what == "stale" {
			if err := os.Remove(to); err != nil {
				return err
			}
			continue
		}
		text, err := os.ReadFile(filepath.Join(fresh, c.path))
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// list returns the files below dir with one of the endings, relative to dir; a missing dir has none.
func list(dir string, endings []string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path == dir:
			return fs.SkipAll
		case err != nil:
			return err
		case d.IsDir() || !slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(path, e) }):
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		found = append(found, rel)
		return err
	})
	return found, err
}

func firstDifference(a, b []byte) int {
	x, y := bytes.Split(a, []byte("\n")), bytes.Split(b, []byte("\n"))
	for i := range min(len(x), len(y)) {
		if !bytes.Equal(x[i], y[i]) {
			return i + 1
		}
	}
	return min(len(x), len(y)) + 1
}
