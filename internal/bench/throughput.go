package main

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/bench/responder"
)

// chains measures runs of five steps one after the other, by so many clients that each wait for the end of their run.
func chains(ctx context.Context, o options, clients int) ([]row, error) {
	s, err := newStack(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.serve(ctx, responder.Config{}); err != nil {
		return nil, err
	}
	s.watch(ctx)
	runFor := func(d time.Duration, prefix string) ([]time.Duration, time.Duration, error) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var all []time.Duration
		var failed atomic.Pointer[error]
		began := time.Now()
		for c := range clients {
			wg.Add(1)
			go func() {
				defer wg.Done()
				var mine []time.Duration
				for i := 0; time.Since(began) < d; i++ {
					start := time.Now()
					done, err := s.submit(fmt.Sprintf("%s-%d-%d", prefix, c, i), "chain 5")
					if err == nil {
						err = await(ctx, done)
					}
					if err != nil {
						failed.Store(&err)
						return
					}
					mine = append(mine, time.Since(start))
				}
				mu.Lock()
				all = append(all, mine...)
				mu.Unlock()
			}()
		}
		wg.Wait()
		if e := failed.Load(); e != nil {
			return nil, 0, *e
		}
		return all, time.Since(began), nil
	}
	if _, _, err := runFor(o.duration/5, "warm"); err != nil {
		return nil, err
	}
	before := cpuTime()
	all, took, err := runFor(o.duration, "run")
	if err != nil {
		return nil, err
	}
	return []row{{
		fmt.Sprintf("chain of 5 steps, %d clients", clients),
		fmt.Sprintf("%.0f runs/s", float64(len(all))/took.Seconds()),
		// The processor time of all parts together tells more than the rate does where other programs run beside.
		fmt.Sprintf("%s, %s CPU a run, %.1f commits a group", percentiles(all),
			((cpuTime() - before) / time.Duration(max(1, len(all)))).Round(time.Microsecond), float64(s.commits.Load())/float64(max(1, s.groups.Load()))),
	}}, nil
}

func percentiles(all []time.Duration) string {
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	at := func(p float64) time.Duration {
		return all[min(len(all)-1, int(p*float64(len(all))))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %s, p99 %s, max %s", at(.5), at(.99), all[len(all)-1].Round(10*time.Microsecond))
}

// fan measures 100 steps of one run that complete together.
func fan(ctx context.Context, o options) ([]row, error) {
	s, err := newStack(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.serve(ctx, responder.Config{}); err != nil {
		return nil, err
	}
	s.watch(ctx)
	var all []time.Duration
	for i := range 50 {
		start := time.Now()
		done, err := s.submit(fmt.Sprintf("fan-%d", i), "fan 100")
		if err == nil {
			err = await(ctx, done)
		}
		if err != nil {
			return nil, err
		}
		if i >= 5 {
			all = append(all, time.Since(start))
		}
	}
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	return []row{{"100 parallel completions of one run", fmt.Sprintf("%.0f steps/s", 100*float64(len(all))/sum.Seconds()), percentiles(all)}}, nil
}

// small measures many runs of one step that are submitted at once.
func small(ctx context.Context, o options) ([]row, error) {
	s, err := newStack(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.serve(ctx, responder.Config{}); err != nil {
		return nil, err
	}
	s.watch(ctx)
	n := 10_000 / o.scale
	began := time.Now()
	waits := make([]<-chan struct{}, 0, n)
	for i := range n {
		done, err := s.submit(fmt.Sprintf("small-%d", i), "chain 1")
		if err != nil {
			return nil, err
		}
		waits = append(waits, done)
	}
	submitted := time.Since(began)
	for _, w := range waits {
		if err := await(ctx, w); err != nil {
			return nil, err
		}
	}
	took := time.Since(began)
	return []row{{
		fmt.Sprintf("%d small runs at once", n), fmt.Sprintf("%.0f runs/s", float64(n)/took.Seconds()),
		fmt.Sprintf("all within %s, submitted within %s", took.Round(time.Millisecond), submitted.Round(time.Millisecond)),
	}}, nil
}
