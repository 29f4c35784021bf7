// Command mutants tests the simulator: it builds it with one planted fault after the other, runs it until it notices, and
// prints what noticed what.
//
//	go run ./internal/sim/mutants                  all of them, a minute each at most
//	go run ./internal/sim/mutants --for 10s NAME…  some of them
//
// The exit code is 1 where fewer are caught than must be, or where a fault cannot be planted.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"
)

// mustCatch is how many of all mutants the simulator has to notice.
const mustCatch = 28

func main() {
	limit := flag.Duration("for", time.Minute, "how long a mutant may live")
	list := flag.Bool("list", false, "only list them")
	flag.Parse()
	if err := all(*limit, *list, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func all(limit time.Duration, list bool, names []string) error {
	chosen := slices.DeleteFunc(mutants(), func(m mutant) bool { return len(names) > 0 && !slices.Contains(names, m.name) })
	if len(chosen) == 0 || len(names) > len(chosen) {
		return fmt.Errorf("not all of %v are in the list; --list shows it", names)
	}
	if list {
		for _, m := range chosen {
			fmt.Printf("%-32s %s\n", m.name, m.breaks)
		}
		return nil
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var problems []error
	caught := 0
	fmt.Printf("%-32s %-22s %8s %7s  %s\n", "mutant", "caught by", "seeds", "seconds", "what it breaks")
	for _, m := range chosen {
		binary, err := build(root, dir, m)
		if err != nil {
			problems = append(problems, err)
			fmt.Printf("%-32s %-22s\n", m.name, "NOT PLANTED")
			continue
		}
		f, err := hunt(binary, limit)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", m.name, err))
			fmt.Printf("%-32s %-22s\n", m.name, "NOT RUN")
			continue
		}
		by := f.invariant
		if by == "" {
			by = "NOT CAUGHT"
		} else {
			caught++
		}
		fmt.Printf("%-32s %-22s %8d %7.1f  %s\n", m.name, by, f.seeds, f.took.Seconds(), m.breaks)
	}
	fmt.Printf("%d of %d caught\n", caught, len(chosen))
	if need := min(mustCatch, len(chosen)); caught < need {
		problems = append(problems, fmt.Errorf("%d caught, %d must be", caught, need))
	}
	return errors.Join(problems...)
}
