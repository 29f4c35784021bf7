package executor

import (
	"time"

	"github.com/cairnrun/cairn/pkg/run"
)

// recoveryPatience is how long the rest of the reports that waited at take-over may stay away before owed work is
// published without them: a run that is held back, or a lost pull, must not stop the others.
const recoveryPatience = 5 * time.Second

// recover publishes owed work once the reports that waited at take-over are in the log: what they answer is not owed.
func (o *owner) recover() {
	if o.recovered || o.sweeping || len(o.backlog) > 0 {
		return
	}
	if o.recovering > 0 && time.Since(o.lastReport) < recoveryPatience {
		return
	}
	o.recovered = true
	o.sweep(0)
}

// sweep looks for owed work of runs in which nothing has happened for that long, and has it published if nobody has it.
func (o *owner) sweep(idle time.Duration) {
	if o.sweeping {
		return
	}
	before := o.cfg.Clock.Now().Add(-idle)
	var items []*work
	for _, ru := range o.runs {
		if ru.held != "" || ru.more || ru.group > o.settled || ru.touched.After(before) {
			continue
		}
		for _, w := range run.Pending(ru.acked.state) {
			items = append(items, newWork(w, ru.acked.state.Revision()))
		}
	}
	if len(items) == 0 {
		return
	}
	o.sweeping = true
	o.out.Missing(o.partition, items, func(missing []*work, err error) {
		// The channel holds one and sweeps do not overlap, so this never waits.
		o.missing <- missingResult{missing, err}
	})
}

// resend publishes what nobody has and is still owed.
func (o *owner) resend(m missingResult) {
	o.sweeping = false
	if m.err != nil {
		o.log.Warn("owed work could not be looked for; the next sweep does", "error", m.err)
		return
	}
	sent := 0
	for _, w := range m.items {
		ru := o.runs[w.msg.GetRunId()]
		if ru == nil || ru.head.state.Revision() != w.revision || ru.group > o.settled {
			// Something has happened since: what is owed now was published with it, or is looked at by the next sweep.
			continue
		}
		o.out.Publish(w)
		ru.touched = o.cfg.Clock.Now()
		sent++
	}
	if sent > 0 {
		o.log.Info("owed work published again", "items", sent)
	}
}
