// Command conformance runs external workloads with gold answers through the real services: embedded NATS, gateway,
// planner, executor, tool router and run store.
//
//	go run ./internal/conformance --workloads DIR [--sets nestful,taubench] [--short]
//
// It prints one line a set, "name passed/total", names the folders that it does not know, says on stderr what failed, and
// exits 1 unless all that it ran passed. Any folder of the same shape will do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// set is a kind of workload: a folder's name and how to run what is in it.
type set struct {
	name string
	run  func(ctx context.Context, folder string, o options) (*tally, error)
}

var sets = []set{
	{"nestful", runNestful},
	{"taubench", runTaubench},
	{"asynchow", runAsynchow},
	{"wfinstances", runWfinstances},
}

type options struct {
	// short runs a part of the largest sets.
	short bool
}

// tally counts cases; it may be told from several goroutines.
type tally struct {
	mu            sync.Mutex
	passed, total int
	failures      []string
}

func (t *tally) add(name string, problems ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total++
	if len(problems) == 0 {
		t.passed++
		return
	}
	t.failures = append(t.failures, name+": "+strings.Join(problems, "; "))
}

func main() {
	workloads := flag.String("workloads", "", "folder with one folder a set")
	only := flag.String("sets", "", "comma-separated names; empty: all that are known")
	short := flag.Bool("short", false, "a part of the largest sets")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := runAll(ctx, *workloads, *only, options{short: *short})
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func runAll(ctx context.Context, workloads, only string, o options) (bool, error) {
	if workloads == "" {
		return false, errors.New("say where the workloads are with --workloads DIR")
	}
	entries, err := os.ReadDir(workloads)
	if err != nil {
		return false, err
	}
	var want []string
	if only != "" {
		want = strings.Split(only, ",")
	}
	for _, name := range want {
		if !slices.ContainsFunc(sets, func(s set) bool { return s.name == name }) {
			return false, fmt.Errorf("set %q is not known; known are nestful, taubench, asynchow, wfinstances", name)
		}
	}
	ok, ran := true, 0
	var unknown []string
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		i := slices.IndexFunc(sets, func(s set) bool { return s.name == e.Name() })
		if i < 0 {
			unknown = append(unknown, e.Name())
			continue
		}
		if want != nil && !slices.Contains(want, e.Name()) {
			continue
		}
		begin := time.Now()
		t, err := sets[i].run(ctx, filepath.Join(workloads, e.Name()), o)
		if err != nil {
			return false, fmt.Errorf("%s: %w", e.Name(), err)
		}
		ran++
		fmt.Printf("%s %d/%d\n", e.Name(), t.passed, t.total)
		fmt.Fprintf(os.Stderr, "%s took %.1f s\n", e.Name(), time.Since(begin).Seconds())
		for i, f := range t.failures {
			if i == 20 {
				fmt.Fprintf(os.Stderr, "%s: %d more\n", e.Name(), len(t.failures)-i)
				break
			}
			fmt.Fprintf(os.Stderr, "%s: %s\n", e.Name(), f)
		}
		ok = ok && t.passed == t.total && t.total > 0
	}
	if len(unknown) > 0 {
		fmt.Printf("not known here: %s\n", strings.Join(unknown, ", "))
	}
	if ran == 0 {
		return false, fmt.Errorf("%s holds none of the sets asked for", workloads)
	}
	return ok, nil
}
