package main

import (
	"reflect"
	"testing"
	"time"
)

func TestSeedsPass(t *testing.T) {
	total, done, failed := sweep(1, 150, 0, 2)
	if failed != nil {
		t.Fatalf("seed %d: %v", failed.seed, failed.broken)
	}
	if done != 150 {
		t.Errorf("%d seeds ran", done)
	}
	// A world in which nothing goes wrong proves nothing.
	for i, n := range total.fields() {
		if *n == 0 {
			t.Errorf("field %d of the statistics is 0 after %d seeds:\n%s", i, done, total)
		}
	}
}

// TestASeedTellsTheSameStory: a seed decides everything, byte by byte.
func TestASeedTellsTheSameStory(t *testing.T) {
	for seed := uint64(1); seed <= 30; seed++ {
		a, b := simulate(seed, false), simulate(seed, false)
		if a.stats != b.stats || !a.now.Equal(b.now) {
			t.Fatalf("seed %d tells two stories:\n%s\n%s", seed, a.stats, b.stats)
		}
		if len(a.log.groups) != len(b.log.groups) {
			t.Fatalf("seed %d makes a log of %d groups, and of %d", seed, len(a.log.groups), len(b.log.groups))
		}
		for i, g := range a.log.groups {
			if !g.equal(b.log.groups[i]) {
				t.Fatalf("seed %d: group %d of the log is another one the second time", seed, i)
			}
		}
	}
}

func TestSweepStopsInTime(t *testing.T) {
	begin := time.Now()
	if _, done, failed := sweep(1, 1<<40, 200*time.Millisecond, 2); failed != nil || done == 0 {
		t.Errorf("%d seeds passed, and failed: %v", done, failed)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestABrokenInvariantHasItsName: the table of mutants reads it.
func TestABrokenInvariantHasItsName(t *testing.T) {
	w := &world{}
	w.breaks("time", "run%d is %s", 0, "late")
	if want := []string{"[time] run0 is late"}; !reflect.DeepEqual(w.broken, want) {
		t.Errorf("it reads %q", w.broken)
	}
}
