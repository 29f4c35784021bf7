package eventlog

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

const (
	// CompressOver is the size in bytes beyond which a commit is stored compressed.
	CompressOver = 32 << 10
	// MaxCommit bounds what a stored commit may unpack to, in bytes.
	MaxCommit = 256 << 20
)

// ErrCorrupt is wrapped by errors about stored bytes that cannot be what was written.
var ErrCorrupt = errors.New("corrupt log data")

var (
	encoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2))
		if err != nil {
			panic(fmt.Sprintf("zstd encoder with fixed options: %v", err))
		}
		return e
	})
	decoder = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(MaxCommit), zstd.WithDecoderConcurrency(2))
		if err != nil {
			panic(fmt.Sprintf("zstd decoder with fixed options: %v", err))
		}
		return d
	})
)

// Hash is sha256 over stored bytes: what the next commit or group names as the one before it.
func Hash(stored []byte) []byte {
	h := sha256.Sum256(stored)
	return h[:]
}

// EncodeCommit makes the entry that stores a commit. It leaves out of the events what follows from the commit and does
// not change c. A commit without events (a snapshot) stands at the given revision.
func EncodeCommit(c *runv1.Commit, revision int64) (*runv1.Entry, error) {
	first := revision + 1
	if len(c.GetEvents()) > 0 {
		first = c.GetEvents()[0].GetRevision()
		revision = c.GetEvents()[len(c.GetEvents())-1].GetRevision()
	}
	raw, err := proto.Marshal(lean(c))
	if err != nil {
		return nil, fmt.Errorf("encode commit of run %s at revision %d: %w", c.GetRunId(), revision, err)
	}
	return entry(c.GetRunId(), first, revision, raw), nil
}

func entry(runID string, first, last int64, raw []byte) *runv1.Entry {
	e := &runv1.Entry{RunId: runID, FirstRevision: first, LastRevision: last, Encoding: runv1.Encoding_ENCODING_RAW, Commit: raw}
	if len(raw) > CompressOver {
		if packed := encoder().EncodeAll(raw, nil); len(packed) < len(raw) {
			e.Encoding, e.Commit = runv1.Encoding_ENCODING_ZSTD, packed
		}
	}
	return e
}

// Writer encodes a commit while its events still come, each once. The zero value is empty.
type Writer struct {
	time        *timestamppb.Timestamp
	first, last int64
	events      []byte
}

// eventsField is cairn.run.v1.Commit.events. Fields of a message may come in any order and in pieces, so events are
// written between what stands before and after them.
const eventsField = 5

// Begin empties the writer for a commit of this time.
func (w *Writer) Begin(t *timestamppb.Timestamp) { *w = Writer{time: t, events: w.events[:0]} }

// Add encodes an event, without what follows from the commit. It does not change e.
func (w *Writer) Add(e *runv1.Event) error {
	slim := leanEvent(e, w.time)
	w.events = protowire.AppendTag(w.events, eventsField, protowire.BytesType)
	w.events = protowire.AppendVarint(w.events, uint64(proto.Size(slim)))
	events, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(w.events, slim)
	if err != nil {
		return fmt.Errorf("encode event %s: %w", e.GetId(), err)
	}
	w.events = events
	if w.first == 0 {
		w.first = e.GetRevision()
	}
	w.last = e.GetRevision()
	return nil
}

// Size of the events so far, in bytes before compression.
func (w *Writer) Size() int { return len(w.events) }

// Finish makes the entry of the commit whose events were added; c holds the rest.
func (w *Writer) Finish(c *runv1.Commit) (*runv1.Entry, error) {
	before := &runv1.Commit{RunId: c.GetRunId(), Tenant: c.GetTenant(), Time: w.time, RulesVersion: c.GetRulesVersion()}
	after := &runv1.Commit{
		More: c.GetMore(), StateHash: c.GetStateHash(), PreviousHash: c.GetPreviousHash(), Status: c.GetStatus(), Phase: c.GetPhase(),
		Snapshot: c.GetSnapshot(),
	}
	opts := proto.MarshalOptions{UseCachedSize: true}
	raw := make([]byte, 0, proto.Size(before)+len(w.events)+proto.Size(after))
	raw, err := opts.MarshalAppend(raw, before)
	if err == nil {
		raw, err = opts.MarshalAppend(append(raw, w.events...), after)
	}
	if err != nil {
		return nil, fmt.Errorf("encode commit of run %s at revision %d: %w", c.GetRunId(), w.last, err)
	}
	return entry(c.GetRunId(), w.first, w.last, raw), nil
}

// lean returns c itself where its events hold nothing that follows from it.
func lean(c *runv1.Commit) *runv1.Commit {
	already := true
	for _, e := range c.GetEvents() {
		already = already && e.GetId() == "" && e.GetRunId() == "" && e.GetTenant() == "" && (e.GetTime() == nil || !sameTime(e.GetTime(), c.GetTime()))
	}
	if already {
		return c
	}
	slim := &runv1.Commit{
		RunId: c.GetRunId(), Tenant: c.GetTenant(), Time: c.GetTime(), RulesVersion: c.GetRulesVersion(),
		Events: make([]*runv1.Event, len(c.GetEvents())), More: c.GetMore(), StateHash: c.GetStateHash(),
		PreviousHash: c.GetPreviousHash(), Status: c.GetStatus(), Phase: c.GetPhase(), Snapshot: c.GetSnapshot(),
	}
	for i, e := range c.GetEvents() {
		slim.Events[i] = leanEvent(e, c.GetTime())
	}
	return slim
}

func leanEvent(e *runv1.Event, commit *timestamppb.Timestamp) *runv1.Event {
	slim := &runv1.Event{
		Revision: e.GetRevision(), Kind: e.GetKind(), Cause: e.GetCause(), Trace: e.GetTrace(), Rule: e.GetRule(), Body: e.Body,
	}
	// The core lets time never go back within a run, so an event may be later than its commit began.
	if e.GetTime() != nil && !sameTime(e.GetTime(), commit) {
		slim.Time = e.GetTime()
	}
	return slim
}

func sameTime(a, b *timestamppb.Timestamp) bool {
	return a.GetSeconds() == b.GetSeconds() && a.GetNanos() == b.GetNanos()
}

// DecodeCommit unpacks an entry, with id, run, tenant and time of its events filled in.
func DecodeCommit(e *runv1.Entry) (*runv1.Commit, error) {
	raw := e.GetCommit()
	switch e.GetEncoding() {
	case runv1.Encoding_ENCODING_RAW:
	case runv1.Encoding_ENCODING_ZSTD:
		var err error
		if raw, err = decoder().DecodeAll(raw, nil); err != nil {
			return nil, fmt.Errorf("%w: commit of run %s at revision %d: %w", ErrCorrupt, e.GetRunId(), e.GetLastRevision(), err)
		}
	default:
		return nil, fmt.Errorf("%w: commit of run %s at revision %d has encoding %d, unknown here", ErrCorrupt, e.GetRunId(), e.GetLastRevision(), e.GetEncoding())
	}
	c := &runv1.Commit{}
	if err := proto.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("%w: commit of run %s at revision %d: %w", ErrCorrupt, e.GetRunId(), e.GetLastRevision(), err)
	}
	if c.GetRunId() != e.GetRunId() {
		return nil, fmt.Errorf("%w: entry of run %s holds a commit of run %s", ErrCorrupt, e.GetRunId(), c.GetRunId())
	}
	hydrate(c)
	return c, nil
}

func hydrate(c *runv1.Commit) {
	for _, e := range c.GetEvents() {
		e.RunId, e.Tenant = c.GetRunId(), c.GetTenant()
		if e.GetTime() == nil {
			e.Time = c.GetTime()
		}
		e.Id = EventID(c.GetRunId(), e.GetRevision())
	}
}

// EventID is an event's address as text.
func EventID(runID string, revision int64) string {
	return runID + "/" + strconv.FormatInt(revision, 10)
}

// EncodeGroup is the message that stores a group.
func EncodeGroup(g *runv1.Group) ([]byte, error) {
	data, err := proto.Marshal(g)
	if err != nil {
		return nil, fmt.Errorf("encode group %d of partition %d: %w", g.GetNumber(), g.GetPartition(), err)
	}
	return data, nil
}

// DecodeGroup reads a stored message.
func DecodeGroup(data []byte) (*runv1.Group, error) {
	g := &runv1.Group{}
	if err := proto.Unmarshal(data, g); err != nil {
		return nil, fmt.Errorf("%w: group: %w", ErrCorrupt, err)
	}
	return g, nil
}

// CheckCommit compares a decoded commit with what must come before it in its run: revision and stored hash of the
// commit before. A run's first commit, and one with a snapshot, may stand without them (known false).
func CheckCommit(e *runv1.Entry, c *runv1.Commit, known bool, revision int64, previous []byte) error {
	next := revision + 1
	for i, ev := range c.GetEvents() {
		if i == 0 && !known {
			next = ev.GetRevision()
		}
		if ev.GetRevision() != next {
			return fmt.Errorf("%w: run %s: revision %d comes where %d must", ErrCorrupt, c.GetRunId(), ev.GetRevision(), next)
		}
		next++
	}
	if known && string(c.GetPreviousHash()) != string(previous) {
		return fmt.Errorf("%w: run %s: the commit at revision %d does not follow the one at %d", ErrCorrupt, c.GetRunId(), e.GetLastRevision(), revision)
	}
	return nil
}
