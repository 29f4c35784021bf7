//go:build unix

// Command chaos runs the whole system as processes of their own, with the log synced to disk, and meanwhile kills, stops
// and restarts them, the NATS server included. At the end it checks what must hold whatever happens: no accepted run is lost
// or open, no effect is doubled, no run stood still for long, every run replays to the same events and hashes, and the run
// store equals one that is made anew from the log.
//
//	go run ./internal/chaos --for 10s --spare-tools    a short look, less than a minute
//	go run ./internal/chaos --runs 2000                as many runs as that, however long they take
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"
)

type options struct {
	duration, every, stuck time.Duration
	runs, parallel         int
	seed                   uint64
	keep, spareTools       bool
}

func main() {
	// The bus and the tools are processes of this binary.
	if len(os.Args) == 4 && os.Args[1] == "nats" {
		exit(serveNATS(os.Args[2], os.Args[3]))
	}
	if len(os.Args) == 4 && os.Args[1] == "tools" {
		exit(serveTools(os.Args[2], os.Args[3]))
	}
	var o options
	flag.DurationVar(&o.duration, "for", time.Minute, "how long runs are submitted while faults go on")
	flag.IntVar(&o.runs, "runs", 0, "submit exactly so many runs, however long it takes; 0: as many as --for allows")
	flag.IntVar(&o.parallel, "parallel", 16, "runs under way at once")
	flag.DurationVar(&o.every, "every", 2*time.Second, "time between two kills")
	flag.DurationVar(&o.stuck, "stuck", time.Minute, "a run in which nothing happens for that long is stuck")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of the order of faults")
	flag.BoolVar(&o.keep, "keep", false, "keep the folder with logs, database and effects; it is kept after a violation too")
	flag.BoolVar(&o.spareTools, "spare-tools", false, "leave the tool service alone: a start whose outcome stays unknown is waited for for half a minute")
	flag.Parse()
	exit(chaos(o))
}

func exit(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func chaos(o options) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "cairn-chaos-")
	if err != nil {
		return err
	}
	began := time.Now()
	s := &system{dir: dir}
	defer func() {
		s.kill()
		if err == nil && !o.keep {
			_ = os.RemoveAll(dir)
			return
		}
		fmt.Fprintln(os.Stderr, "logs, database and effects are in", dir)
	}()
	if err := s.start(ctx); err != nil {
		return err
	}
	runs, err := newRuns(ctx, s, o)
	if err != nil {
		return err
	}
	faults, calm := context.WithCancel(ctx)
	counts := make(chan faultCounts, 1)
	littered := make(chan int, 1)
	go func() { counts <- s.break_(faults, o, rand.New(rand.NewPCG(o.seed, 1))) }()
	go func() {
		littered <- litter(faults, runs.js, runs.partitions, rand.New(rand.NewPCG(o.seed, 2)), runs.current)
	}()
	runs.submitAll(ctx, o)
	calm()
	broken, rubbish := <-counts, <-littered
	if err := s.readyAll(ctx); err != nil {
		return err
	}
	runs.await(ctx, o.stuck)
	if err := ctx.Err(); err != nil {
		return err
	}
	v := &verdict{}
	runs.check(ctx, v, o.stuck)
	checkEffects(s.effects(), v)
	s.checkStore(ctx, v)
	all, completed := runs.longest()
	fmt.Printf("seed %d: %d runs in %s, %s; %d kills, %d stops, %d bus restarts, %d forged messages; %d effects, %d repeats of a key; longest standstill %s, of runs that completed %s; violations %d\n",
		o.seed, len(runs.all), time.Since(began).Round(time.Second), runs.outcomes(), broken.kills, broken.stops, broken.bus, rubbish,
		v.effects, v.repeats, all, completed, len(v.violations))
	return v.err()
}
