package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cairnrun/cairn/internal/dev"
)

// shown is one command of the README and what it prints there.
type shown struct {
	command    string
	output     []string
	background bool
}

// consoles are the README's console blocks.
func consoles(t *testing.T) [][]shown {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks [][]shown
	for i, part := range strings.Split(string(text), "```") {
		if i%2 == 0 || !strings.HasPrefix(part, "console\n") {
			continue
		}
		var block []shown
		for _, line := range strings.Split(strings.TrimSuffix(strings.TrimPrefix(part, "console\n"), "\n"), "\n") {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				command, background := strings.CutSuffix(command, " &")
				block = append(block, shown{command: command, background: background})
			} else if len(block) > 0 {
				last := &block[len(block)-1]
				last.output = append(last.output, line)
			}
		}
		blocks = append(blocks, block)
	}
	return blocks
}

// What differs from run to run is replaced.
var varying = []struct {
	pattern *regexp.Regexp
	with    string
}{
	// The test calls the binary by its name.
	{regexp.MustCompile(`go run \./cmd/cairn `), "cairn "},
	{regexp.MustCompile(`\br[a-z2-7]{20}\b`), "RUN"},
	{regexp.MustCompile(`\b([AP])-[0-9a-f]{8}\b`), "$1-ID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z`), "TIME"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(` +$`), ""},
}

func normal(lines []string) []string {
	out := slices.Clone(lines)
	for i := range out {
		for _, v := range varying {
			out[i] = v.pattern.ReplaceAllString(out[i], v.with)
		}
	}
	for len(out) > 0 && out[len(out)-1] == "" {
		out = out[:len(out)-1]
	}
	return out
}

// The README's commands are run in the order in which they stand there, and print what stands there.
func TestReadme(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	if err := os.Symlink(filepath.Join(root, "examples"), filepath.Join(work, "examples")); err != nil {
		t.Fatal(err)
	}
	nats := natsServer(t)
	addresses := strings.NewReplacer(
		"go run ./cmd/cairn", "cairn",
		"cairn dev ", "cairn dev --nats-listen 127.0.0.1:0 --listen 127.0.0.1:0 ",
		"nats://127.0.0.1:4222", nats,
		"127.0.0.1:7070", freeAddress(t), "127.0.0.1:7071", freeAddress(t), "127.0.0.1:9090", freeAddress(t),
	)
	commands := 0
	for _, block := range consoles(t) {
		var servers []*background
		for _, c := range block {
			commands++
			line := addresses.Replace(c.command)
			if c.background {
				servers = append(servers, runInBackground(t, work, line))
				if strings.HasPrefix(line, "cairn dev") {
					until(t, line+" serves", func() bool {
						h, held, err := dev.Held(filepath.Join(work, ".cairn"))
						return err == nil && held && h.Gateway != ""
					})
				}
				continue
			}
			for _, s := range servers {
				s.ready(t)
			}
			cmd := shell(t, work, line)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("$ %s\n%v\n%s", c.command, err, out)
			}
			compare(t, c, strings.Split(string(out), "\n"))
		}
		for _, s := range servers {
			s.stop(t)
		}
	}
	if commands < 15 {
		t.Fatalf("found only %d commands in the README", commands)
	}
}

func shell(t *testing.T, dir, line string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CAIRN_DIR=.cairn")
	return cmd
}

type background struct {
	cmd  *exec.Cmd
	line string
	log  *buffer
	done chan error
}

func runInBackground(t *testing.T, dir, line string) *background {
	ctx, cancel := context.WithCancel(context.Background())
	b := &background{cmd: shell(t, dir, "exec "+line), line: line, log: &buffer{}, done: make(chan error, 1)}
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		b.done <- b.cmd.Wait()
		cancel()
	}()
	t.Cleanup(func() {
		_ = b.cmd.Process.Kill()
		<-ctx.Done()
	})
	return b
}

// ready waits until a server says so, or has ended.
func (b *background) ready(t *testing.T) {
	t.Helper()
	until(t, b.line+" is ready", func() bool {
		return strings.Contains(b.log.String(), `"ready"`) || strings.Contains(b.log.String(), "ready; Ctrl-C stops") || len(b.done) > 0
	})
}

// stop wants a server that still runs, is ready, and ends well when it is asked to.
func (b *background) stop(t *testing.T) {
	t.Helper()
	b.ready(t)
	if err := b.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Errorf("$ %s: ended by itself: %v\n%s", b.line, err, b.log)
		return
	}
	if err := <-b.done; err != nil {
		t.Errorf("$ %s: %v\n%s", b.line, err, b.log)
	}
}

// compare wants the lines that the README shows. With … among them they must come in that order, others may stand
// between; without, they must be all, but steps that run side by side may come in any order.
func compare(t *testing.T, c shown, printed []string) {
	t.Helper()
	want, got := normal(c.output), normal(printed)
	if len(want) == 0 {
		return
	}
	if !slices.Contains(want, "…") {
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("$ %s (-README +printed)\n%s", c.command, diff)
		}
		return
	}
	rest := got
	for _, w := range want {
		if w == "…" {
			continue
		}
		i := slices.Index(rest, w)
		if i < 0 {
			t.Errorf("$ %s: not printed, or not in this order: %q\nprinted:\n%s", c.command, w, strings.Join(got, "\n"))
			return
		}
		rest = rest[i+1:]
	}
}
