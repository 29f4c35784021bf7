package executor

import (
	"log/slog"
	"time"
)

// Clock is where an owner takes the time from.
type Clock interface {
	Now() time.Time
	// After is time.After on this clock.
	After(d time.Duration) <-chan time.Time
}

// stepAlarm is by how much the system's clock may move against the monotonic one before that is reported.
const stepAlarm = 5 * time.Second

// steadyClock starts at the system's time and goes on by the monotonic clock, so that a step of the system's clock moves no
// deadline.
type steadyClock struct{ start time.Time }

func newSteadyClock() *steadyClock { return &steadyClock{start: time.Now()} }

func (c *steadyClock) Now() time.Time {
	// Round drops the monotonic reading: what is compared with stored times must be wall time.
	return c.start.Add(time.Since(c.start)).Round(0).UTC()
}

func (c *steadyClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// drift is how far the system's clock is from this one.
func (c *steadyClock) drift() time.Duration { return time.Now().Round(0).Sub(c.Now()) }

// watchClock logs when the system's clock has stepped, once a step.
func watchClock(c Clock, log *slog.Logger) func() {
	steady, ok := c.(*steadyClock)
	if !ok {
		return func() {}
	}
	known := time.Duration(0)
	return func() {
		if d := steady.drift(); (d - known).Abs() > stepAlarm {
			log.Warn("the system's clock has stepped; commits keep to the time before, restart the executor to follow it", "step", d-known)
			known = d
		}
	}
}
