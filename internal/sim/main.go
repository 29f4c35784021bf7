// Command sim runs Cairn's core inside a simulated world: bus, log, clocks, owners that crash or pause, planner, tools and
// people, all driven by one seed on one goroutine, and compares what is in the log with a small independent model.
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
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	seeds := flag.Uint64("seeds", 1000, "how many seeds to run")
	first := flag.Uint64("first", 1, "the first seed")
	one := flag.Uint64("seed", 0, "run only this seed")
	limit := flag.Duration("for", 0, "stop after this time; overrides --seeds")
	workers := flag.Int("workers", runtime.GOMAXPROCS(0), "how many seeds to run at once")
	verbose := flag.Bool("v", false, "print what happens")
	flag.Parse()
	debug.SetGCPercent(400) // worlds are small and short

	if *one != 0 {
		os.Exit(report(*one, simulate(*one, *verbose)))
	}
	begin := time.Now()
	total, done, failed := sweep(*first, *seeds, *limit, max(*workers, 1))
	if failed != nil {
		fmt.Printf("sim: %d seeds passed before\n", done)
		os.Exit(report(failed.seed, failed))
	}
	fmt.Printf("sim: %d seeds passed, %.0f seeds/s\n%s\n", done, float64(done)/time.Since(begin).Seconds(), total)
	if done == 0 {
		fmt.Println("sim: no seed ran")
		os.Exit(1)
	}
}

// sweep runs seeds, each in a world of its own, until enough have passed, time is up or one fails: the smallest of those
// that do.
func sweep(first, seeds uint64, limit time.Duration, workers int) (total stats, done uint64, failed *world) {
	begin := time.Now()
	var next atomic.Uint64
	var stop atomic.Bool
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for !stop.Load() {
				n := next.Add(1) - 1
				if limit > 0 && time.Since(begin) >= limit || limit == 0 && n >= seeds {
					return
				}
				w := simulate(first+n, false)
				mu.Lock()
				if len(w.broken) == 0 {
					total.add(w.stats)
					done++
				} else {
					stop.Store(true)
					if failed == nil || w.seed < failed.seed {
						failed = w
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return total, done, failed
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
	runs, completed, failed, cancelled                  int
	commits, events, snapshots                          int
	crashes, pauses, deposed, openAppends, lostAcks     int
	checkpoints, redelivered, duplicates, forged        int
	executions, unknown, replans, patches, undone, late int
	refused                                             int
}

func (s *stats) add(o stats) {
	for i, p := range s.fields() {
		*p += *o.fields()[i]
	}
}

func (s *stats) fields() []*int {
	return []*int{&s.runs, &s.completed, &s.failed, &s.cancelled, &s.commits, &s.events, &s.snapshots, &s.crashes, &s.pauses,
		&s.deposed, &s.openAppends, &s.lostAcks, &s.checkpoints, &s.redelivered, &s.duplicates, &s.forged, &s.executions,
		&s.unknown, &s.replans, &s.patches, &s.undone, &s.late, &s.refused}
}

func (s stats) String() string {
	return fmt.Sprintf("runs %d: completed %d, failed %d, cancelled %d; commits %d, events %d, snapshots %d\n"+
		"crashes %d, pauses %d, deposed %d, appends of open outcome %d, checkpoints used %d, lost acknowledgements %d\n"+
		"redelivered %d, duplicates %d, forged %d, refused %d, late results %d\n"+
		"executions %d, outcomes unknown %d, replans %d, patches by people %d, undone %d",
		s.runs, s.completed, s.failed, s.cancelled, s.commits, s.events, s.snapshots,
		s.crashes, s.pauses, s.deposed, s.openAppends, s.checkpoints, s.lostAcks,
		s.redelivered, s.duplicates, s.forged, s.refused, s.late,
		s.executions, s.unknown, s.replans, s.patches, s.undone)
}
