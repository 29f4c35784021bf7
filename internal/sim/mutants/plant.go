package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// moduleRoot is the folder of the module that this command is of.
func moduleRoot() (string, error) {
	out, err := exec.CommandContext(context.Background(), "go", "list", "-f", "{{.Module.Dir}}", "github.com/cairnrun/cairn/internal/sim").Output()
	if err != nil {
		return "", fmt.Errorf("find the module's folder (run this inside it): %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// planted returns the changed text of every file that a mutant changes.
func planted(root string, m mutant) (map[string]string, error) {
	texts := map[string]string{}
	for _, e := range m.edits {
		text, ok := texts[e.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, fmt.Errorf("mutant %s: %w", m.name, err)
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("mutant %s: its snippet stands %d times in %s and must stand once; let mutants.go follow the source: %q", m.name, n, e.file, e.old)
		}
		texts[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	return texts, nil
}

// build makes the simulator with a planted fault. The source stays as it is: the compiler is shown other files in its place.
func build(root, dir string, m mutant) (binary string, err error) {
	texts, err := planted(root, m)
	if err != nil {
		return "", err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range texts {
		changed := filepath.Join(dir, m.name+"_"+strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(root, file)] = changed
	}
	raw, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	shown := filepath.Join(dir, m.name+".json")
	if err := os.WriteFile(shown, raw, 0o600); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "sim")
	cmd := exec.CommandContext(context.Background(), "go", "build", "-overlay", shown, "-o", binary, "./internal/sim")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mutant %s does not build: %w\n%s", m.name, err, out)
	}
	return binary, nil
}

// find is how a mutant was noticed; invariant is empty where it was not.
type find struct {
	invariant string
	seed      uint64
	seeds     int
	took      time.Duration
}

var (
	brokenLine = regexp.MustCompile(`(?m)^sim: seed (\d+): \[(\w+)\]`)
	passedLine = regexp.MustCompile(`(?m)^sim: (\d+) seeds passed`)
)

// patience is how long after its time a simulator may still be at its last seed.
const patience = time.Minute

// hunt runs a simulator until it notices something or its time is up. One that does not end is noticed by that.
func hunt(binary string, limit time.Duration) (find, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit+patience)
	defer cancel()
	begin := time.Now()
	out, err := exec.CommandContext(ctx, binary, "--for", limit.String()).CombinedOutput()
	f := find{took: time.Since(begin)}
	if ctx.Err() != nil {
		f.invariant = "does_not_end"
		return f, nil
	}
	if m := passedLine.FindSubmatch(out); m != nil {
		f.seeds, _ = strconv.Atoi(string(m[1]))
	}
	if m := brokenLine.FindSubmatch(out); m != nil {
		f.seed, _ = strconv.ParseUint(string(m[1]), 10, 64)
		f.invariant = string(m[2])
		f.seeds++
		return f, nil
	}
	if err != nil {
		return f, fmt.Errorf("the simulator ends without a word: %w\n%s", err, out)
	}
	return f, nil
}
