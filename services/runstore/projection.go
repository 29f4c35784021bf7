package runstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/telemetry"
)

// projection reads every partition of the log into the tail and, in large transactions, into the database.
//
// It reads with nats.go and not through the Watermill router that the feed uses: a router acknowledges message by message
// on a stored consumer, while the position here belongs into the database's own transaction, and a projection that is
// built again must not move anybody's consumer.
type projection struct {
	config Config
	log    eventlog.Log
	store  *store
	tail   *tail
	logger *slog.Logger
	groups chan *liveGroup
	// urge asks for the transaction now, because somebody waits for it.
	urge chan struct{}
	// report tells what keeps the projection of a part from being right; nil when it is again.
	report func(part string, err error)
	// abandon drops what is on the way when the context ends, as a kill does.
	abandon bool
}

// retryWait lies between two tries to read the log or to write the database.
const retryWait = time.Second

func newProjection(ctx context.Context, c Config, log eventlog.Log, s *store, partitions int) (*projection, error) {
	p := &projection{
		config: c, log: log, store: s, tail: newTail(partitions), logger: c.Logger,
		groups: make(chan *liveGroup, 256), urge: make(chan struct{}, 1), report: func(string, error) {},
	}
	at, err := s.positions(ctx)
	if err != nil {
		return nil, databaseError(s.path, err)
	}
	for i := range partitions {
		p.tail.begin(i, at[i].Sequence)
		delete(at, i)
	}
	for i := range at {
		return nil, fmt.Errorf("%w %s: it holds partition %d, the log has %d: it belongs to another log; build it again with: cairn runstore --rebuild", ErrDatabase, s.path, i, partitions)
	}
	return p, nil
}

// run projects until ctx ends, and writes what was read by then.
func (p *projection) run(ctx context.Context) error {
	at, err := p.store.positions(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return databaseError(p.store.path, err)
	}
	readCtx, stopReading := context.WithCancel(ctx)
	defer stopReading()
	writeCtx, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriting()
	written := make(chan error, 1)
	go func() {
		defer stopReading()
		written <- p.write(writeCtx)
	}()
	var readers sync.WaitGroup
	for i := range p.tail.partitions {
		readers.Go(func() { p.follow(readCtx, i, at[i]) })
	}
	readers.Wait()
	if p.abandon {
		stopWriting()
	}
	// What does not get into the database in time is projected again by the next start.
	defer time.AfterFunc(p.config.DrainTimeout, stopWriting).Stop()
	close(p.groups)
	return <-written
}

// follow reads one partition until ctx ends, or until the log does not hold together.
func (p *projection) follow(ctx context.Context, partition int, at position) {
	name := fmt.Sprintf("partition %d", partition)
	chain := &eventlog.Chain{Partition: partition, Number: at.Number, Hash: at.Hash, Sequence: at.Sequence, Epoch: at.Epoch}
	if err := p.belongs(ctx, partition, at); err != nil {
		p.report(name, err)
		p.tail.stop(partition, err)
		return
	}
	var broken error
	after := at.Sequence
	failing := false
	for {
		err := p.log.Follow(ctx, partition, after, func(m eventlog.Message) error {
			if failing {
				failing = false
				p.report(name, nil)
			}
			g, err := decode(chain, m)
			switch {
			case errors.Is(err, eventlog.ErrFork):
				// The writers skip it too. It stays visible until somebody has looked and started this service again.
				p.report(name+" fork", fmt.Errorf("%w; it was skipped; look at who wrote it, then restart the run store", err))
				after = m.Sequence
				return nil
			case err != nil:
				broken = fmt.Errorf("%w; the projection stopped before it; restore the log, then run: cairn runstore --rebuild", err)
				return broken
			}
			if err := p.tail.add(ctx, g, p.config.PendingBytes); err != nil {
				return err
			}
			after = m.Sequence
			select {
			case p.groups <- g:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		switch {
		case ctx.Err() != nil:
			return
		case broken != nil:
			p.logger.Error("projection stopped", "partition", partition, "error", broken)
			p.report(name, broken)
			p.tail.stop(partition, broken)
			return
		}
		failing = true
		p.logger.Warn("reading the log failed, trying again", "partition", partition, "error", err)
		p.report(name, fmt.Errorf("reading the log: %w; trying again", err))
		if !pause(ctx, retryWait) {
			return
		}
	}
}

// belongs refuses a database that knows more than the log has. It asks until the log answers.
func (p *projection) belongs(ctx context.Context, partition int, at position) error {
	for at.Sequence > 0 {
		last, err := p.log.Last(ctx, partition)
		if err == nil && last < at.Sequence {
			return fmt.Errorf("database %s is at sequence %d, the log ends at %d: they do not belong together; build it again with: cairn runstore --rebuild", p.store.path, at.Sequence, last)
		}
		if err == nil {
			return nil
		}
		p.report(fmt.Sprintf("partition %d", partition), fmt.Errorf("reading the log: %w; trying again", err))
		if !pause(ctx, retryWait) {
			return nil
		}
	}
	return nil
}

// decode checks that a message is the next group and unpacks it.
func decode(chain *eventlog.Chain, m eventlog.Message) (*liveGroup, error) {
	g, err := chain.Next(m)
	if err != nil {
		return nil, err
	}
	out := &liveGroup{
		partition: chain.Partition, bytes: len(m.Data), written: m.Time, commits: make([]liveCommit, 0, len(g.GetEntries())),
		at: position{Sequence: m.Sequence, Number: chain.Number, Epoch: chain.Epoch, Hash: chain.Hash},
	}
	for _, e := range g.GetEntries() {
		c, err := eventlog.DecodeCommit(e)
		if err != nil {
			return nil, fmt.Errorf("partition %d, log sequence %d: %w", chain.Partition, m.Sequence, err)
		}
		out.commits = append(out.commits, liveCommit{
			storedEntry: storedEntry{Sequence: m.Sequence, Entry: e}, commit: c, events: c.GetEvents(),
		})
	}
	return out, nil
}

// write gathers groups into transactions: the first one after a pause goes soon, then one an interval at most, unless
// it is full or somebody waits.
func (p *projection) write(ctx context.Context) error {
	w, err := newWriter(ctx, p.store.write, p.config.ChunkBytes)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return databaseError(p.store.path, err)
	}
	b := newBatch()
	var last time.Time
	timer := time.NewTimer(0)
	if !timer.Stop() {
		<-timer.C
	}
	defer timer.Stop()
	flush := func() error {
		timer.Stop()
		if b.empty() {
			return nil
		}
		if err := p.commit(ctx, w, b); err != nil {
			return err
		}
		b, last = newBatch(), time.Now()
		return nil
	}
	for {
		select {
		case g, ok := <-p.groups:
			if !ok {
				return flush()
			}
			if b.empty() {
				timer.Reset(max(p.config.FlushLinger, p.config.FlushInterval-time.Since(last)))
			}
			b.add(g)
			if b.bytes >= p.config.FlushBytes || p.tail.wanted() && len(p.groups) == 0 {
				err = flush()
			}
		case <-timer.C:
			err = flush()
		case <-p.urge:
			err = flush()
		case <-ctx.Done():
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// commit writes a batch and repeats it until it is in the database or ctx ends.
func (p *projection) commit(ctx context.Context, w *writer, b *batch) error {
	for failed := false; ; failed = true {
		err := w.write(ctx, b)
		if err == nil {
			if failed {
				p.report("database", nil)
			}
			p.tail.saved(b)
			if !b.newest.IsZero() {
				telemetry.Metrics().ProjectionLag.Record(ctx, time.Since(b.newest).Seconds())
			}
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		err = databaseError(p.store.path, err)
		p.logger.Warn("projecting failed, trying again", "error", err)
		p.report("database", err)
		if !pause(ctx, retryWait) {
			return nil
		}
	}
}

// waitStored returns when the database holds the partition up to sequence, and asks for the transaction meanwhile.
func (p *projection) waitStored(ctx context.Context, partition int, sequence uint64) error {
	p.tail.want(1)
	defer p.tail.want(-1)
	select {
	case p.urge <- struct{}{}:
	default:
	}
	return p.tail.waitStored(ctx, partition, sequence)
}

// storeSeen returns when the database holds what the tail has read by now, so that a list shows what get shows already.
// A list is worth more than its last second: where that takes too long, or a partition has stopped, it returns all the same.
func (p *projection) storeSeen(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for i, sequence := range p.tail.unstored() {
		if err := p.waitStored(ctx, i, sequence); err != nil {
			p.logger.Debug("a list does not show the newest yet", "partition", i, "error", err)
		}
	}
}

// caughtUp returns once all that was in the log at the call is read and in the database.
func (p *projection) caughtUp(ctx context.Context) error {
	for i := range p.tail.partitions {
		last, err := p.log.Last(ctx, i)
		if err != nil {
			return err
		}
		if err := p.tail.waitSeen(ctx, i, last); err != nil {
			return err
		}
		if err := p.waitStored(ctx, i, last); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
