package runstore

import "time"

// batch is what one transaction writes: whole groups of any partitions, gathered by run.
type batch struct {
	runs map[string]*batchRun
	// order of first appearance, so that the same batch is always written in the same order.
	order     []string
	positions map[int]position
	bytes     int
	// newest is when the log got the newest group.
	newest time.Time
}

type batchRun struct {
	sum     summary
	entries []storedEntry
}

func newBatch() *batch {
	return &batch{runs: map[string]*batchRun{}, positions: map[int]position{}}
}

func (b *batch) empty() bool { return len(b.positions) == 0 }

// add takes a group in.
func (b *batch) add(g *liveGroup) {
	for _, c := range g.commits {
		id := c.Entry.GetRunId()
		r := b.runs[id]
		if r == nil {
			r = &batchRun{sum: summary{Partition: g.partition}}
			b.runs[id] = r
			b.order = append(b.order, id)
		}
		r.sum.add(c.commit, c.events)
		r.entries = append(r.entries, c.storedEntry)
	}
	b.positions[g.partition] = g.at
	b.bytes += g.bytes
	if g.written.After(b.newest) {
		b.newest = g.written
	}
}
