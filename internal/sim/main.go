// Command sim runs Cairn's core inside a simulated world: bus, log, clocks, owners that crash or pause, planner and tools,
// all driven by one seed on one goroutine.
//
//	go run ./internal/sim --seeds 1000       seeds 1 to 1000
//	go run ./internal/sim --for 60s          as many as fit
//	go run ./internal/sim --seed 42 -v       one seed, with its story
//
// It prints seeds a second. A seed that breaks an invariant is printed with the line that repeats it, and the exit code is 1.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	seeds := flag.Uint64("seeds", 1000, "how many seeds to run")
	first := flag.Uint64("first", 1, "the first seed")
	one := flag.Uint64("seed", 0, "run only this seed")
	limit := flag.Duration("for", 0, "stop after this time; overrides --seeds")
	verbose := flag.Bool("v", false, "print what happens")
	flag.Parse()

	if *one != 0 {
		os.Exit(report(*one, simulate(*one, *verbose)))
	}
	begin := time.Now()
	var done uint64
	var total stats
	for seed := *first; ; seed++ {
		if *limit > 0 && time.Since(begin) >= *limit || *limit == 0 && done >= *seeds {
			break
		}
		w := simulate(seed, false)
		if len(w.broken) > 0 {
			os.Exit(report(seed, w))
		}
		total.add(w.stats)
		done++
	}
	took := time.Since(begin).Seconds()
	fmt.Printf("sim: %d seeds passed, %.0f seeds/s\n", done, float64(done)/took)
	fmt.Println(total)
	if done == 0 {
		fmt.Println("sim: no seed ran")
		os.Exit(1)
	}
}

func report(seed uint64, w *world) int {
	if len(w.broken) == 0 {
		fmt.Printf("sim: seed %d passed\n%s\n", seed, w.stats)
		return 0
	}
	for _, b := range w.broken {
		fmt.Printf("sim: seed %d: %s\n", seed, b)
	}
	fmt.Printf("repeat with: go run ./internal/sim --seed %d -v\n", seed)
	return 1
}

// stats counts what happened, so that a simulation in which nothing goes wrong is noticed.
type stats struct {
	runs, completed, failed, cancelled                    int
	commits, events, crashes, pauses, conflicts, lostAcks int
	redelivered, duplicates, executions, replans          int
}

func (s *stats) add(o stats) {
	s.runs += o.runs
	s.completed += o.completed
	s.failed += o.failed
	s.cancelled += o.cancelled
	s.commits += o.commits
	s.events += o.events
	s.crashes += o.crashes
	s.pauses += o.pauses
	s.conflicts += o.conflicts
	s.lostAcks += o.lostAcks
	s.redelivered += o.redelivered
	s.duplicates += o.duplicates
	s.executions += o.executions
	s.replans += o.replans
}

func (s stats) String() string {
	return fmt.Sprintf("runs %d: completed %d, failed %d, cancelled %d; commits %d, events %d, replans %d, executions %d\n"+
		"crashes %d, pauses %d, conflicts %d, lost acknowledgements %d, redelivered %d, duplicates %d",
		s.runs, s.completed, s.failed, s.cancelled, s.commits, s.events, s.replans, s.executions,
		s.crashes, s.pauses, s.conflicts, s.lostAcks, s.redelivered, s.duplicates)
}
