package executor

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/cairnrun/cairn/pkg/bus"
)

// membership knows the live members and says which partitions this one should hold.
type membership struct {
	cfg        *Config
	log        *slog.Logger
	js         jetstream.JetStream
	keys       keys
	partitions int
	// hold serves a partition until its lease is lost or release is closed; it returns when everything is done.
	hold func(ctx context.Context, h *holding, partition int, release <-chan struct{})

	mu      sync.Mutex
	members map[string]time.Time // when each was last seen, by this process's clock
	owners  map[int]time.Time    // when each key that is held, by anybody, was last renewed, by this process's clock
	changed time.Time            // when the set of members last changed
	held    map[int]*tenure
	working sync.WaitGroup
	wake    chan struct{}
}

// tenure is a partition that this member holds.
type tenure struct {
	release  chan struct{}
	released bool
}

const memberPrefix = "member."

func newMembership(cfg *Config, js jetstream.JetStream, partitions int) *membership {
	return &membership{
		cfg: cfg, log: cfg.Logger, js: js, keys: keys{js, cfg.Lease}, partitions: partitions,
		members: map[string]time.Time{}, owners: map[int]time.Time{}, held: map[int]*tenure{}, wake: make(chan struct{}, 1), changed: time.Now(),
	}
}

// run is a member until ctx ends; then it gives its partitions away and leaves.
func (m *membership) run(ctx context.Context) {
	// Holding goes on while draining.
	holding, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go m.watch(ctx)
	beat := time.NewTicker(m.cfg.Lease / 3)
	defer beat.Stop()
	m.beat(ctx)
	for ctx.Err() == nil {
		m.balance(holding)
		select {
		case <-ctx.Done():
		case <-beat.C:
			m.beat(ctx)
		case <-m.wake:
		}
	}
	limit := time.AfterFunc(m.cfg.DrainTimeout, func() {
		m.log.Warn("partitions were not finished in time; what is not in the log is left to their next owners")
		stop()
	})
	defer limit.Stop()
	m.leave()
}

// beat renews this member's key.
func (m *membership) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Lease/3)
	defer cancel()
	if err := m.keys.set(ctx, memberPrefix+m.cfg.Name, []byte(m.cfg.Name)); err != nil && ctx.Err() == nil {
		m.log.Warn("membership was not renewed", "error", err)
	}
}

// leave tells the others first, so that they take what is given away next.
func (m *membership) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), m.cfg.Lease)
	defer cancel()
	if err := m.keys.remove(ctx, memberPrefix+m.cfg.Name, 0); err != nil {
		m.log.Info("membership was not ended, it runs out", "error", err)
	}
	m.mu.Lock()
	for _, t := range m.held {
		t.end()
	}
	m.mu.Unlock()
	m.working.Wait()
}

func (t *tenure) end() {
	if !t.released {
		t.released = true
		close(t.release)
	}
}

// watch follows the bucket and starts again when that breaks.
func (m *membership) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if err := m.watchOnce(ctx); err != nil && ctx.Err() == nil {
			m.log.Warn("ownership cannot be watched, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(m.cfg.Lease / 3):
		}
	}
}

func (m *membership) watchOnce(ctx context.Context) error {
	kv, err := m.js.KeyValue(ctx, bus.BucketOwners)
	if err != nil {
		return err
	}
	w, err := kv.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = w.Stop() }()
	// This member's own key is renewed three times a lease. A watch that shows not even that shows nothing: its bucket may
	// have been deleted and made anew, which ends no watch.
	silence := time.NewTimer(2 * m.cfg.Lease)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-silence.C:
			return errors.New("the watch has shown nothing for two leases")
		case e, ok := <-w.Updates():
			if !ok {
				return errors.New("the watch ended")
			}
			silence.Reset(2 * m.cfg.Lease)
			if e != nil {
				m.seen(e.Key(), e.Operation() == jetstream.KeyValuePut)
			}
			m.nudge()
		}
	}
}

func (m *membership) seen(key string, there bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name, ok := strings.CutPrefix(key, memberPrefix); ok {
		_, was := m.members[name]
		if there {
			m.members[name] = time.Now()
		} else {
			delete(m.members, name)
		}
		if was != there {
			m.changed = time.Now()
		}
		return
	}
	if p, err := strconv.Atoi(strings.TrimPrefix(key, "owner.")); err == nil {
		delete(m.owners, p)
		if there {
			m.owners[p] = time.Now()
		}
	}
}

func (m *membership) nudge() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// balance tries for partitions that should be here and that nobody holds, and gives away those that should not.
func (m *membership) balance(ctx context.Context) {
	m.mu.Lock()
	names := []string{m.cfg.Name}
	for name, seen := range m.members {
		switch {
		case name == m.cfg.Name:
		case time.Since(seen) > 2*m.cfg.Lease:
			// Its end was not seen, and neither was it.
			delete(m.members, name)
			m.changed = time.Now()
		default:
			names = append(names, name)
		}
	}
	// Members that come and go within a lease make nobody give anything away.
	settled := time.Since(m.changed) > m.cfg.Lease
	var try []int
	for p, name := range assign(names, m.partitions) {
		t := m.held[p]
		switch {
		case name == m.cfg.Name && t == nil && time.Since(m.owners[p]) > 2*m.cfg.Lease:
			// Nobody holds it, or nothing was seen of whoever did: taking it asks the server.
			try = append(try, p)
		case name != m.cfg.Name && t != nil && settled && !t.released:
			m.log.Info("partition is given to another member", "partition", p, "to", name)
			t.end()
		}
	}
	m.mu.Unlock()
	for _, p := range try {
		m.try(ctx, p)
	}
}

// try takes a partition that nobody holds.
func (m *membership) try(ctx context.Context, partition int) {
	short, cancel := context.WithTimeout(ctx, m.cfg.Lease/2)
	defer cancel()
	h, err := acquire(short, m.keys, partition, m.cfg.Name, nuid.Next())
	if err != nil {
		if !errors.Is(err, errHeld) {
			m.log.Warn("partition cannot be taken, trying again", "partition", partition, "error", err)
		}
		return
	}
	t := &tenure{release: make(chan struct{})}
	m.mu.Lock()
	m.held[partition] = t
	m.mu.Unlock()
	m.working.Add(1)
	go func() {
		defer m.working.Done()
		renewing, stop := context.WithCancel(ctx)
		go h.renew(renewing)
		m.hold(ctx, h, partition, t.release)
		stop()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.cfg.Lease/2)
		defer cancel()
		if err := h.release(end); err != nil {
			m.log.Info("partition was not given away, its key runs out", "partition", partition, "error", err)
		}
		m.mu.Lock()
		delete(m.held, partition)
		m.mu.Unlock()
		m.nudge()
	}()
}

// assign gives each partition to the member that scores highest for it among those that have room: rendezvous hashing, so
// that little moves when members change, with a bound, so that nobody has more than a fair share.
func assign(members []string, partitions int) []string {
	members = append([]string(nil), members...)
	sort.Strings(members)
	room := make(map[string]int, len(members))
	for i, name := range members {
		// The first members take what does not divide.
		room[name] = partitions / len(members)
		if i < partitions%len(members) {
			room[name]++
		}
	}
	out := make([]string, partitions)
	for p := range out {
		best := uint64(0)
		for _, name := range members {
			if s := score(name, p); room[name] > 0 && (out[p] == "" || s > best) {
				out[p], best = name, s
			}
		}
		room[out[p]]--
	}
	return out
}

func score(member string, partition int) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(member))
	_, _ = h.Write([]byte{0, byte(partition), byte(partition >> 8)})
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}
