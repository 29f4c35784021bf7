package eventlog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

const (
	// ChunkRuns bounds how many runs stand in one message of a checkpoint.
	ChunkRuns = 256
	// MaxChunk bounds one message of a checkpoint, in bytes.
	MaxChunk = 256 << 20
	// KeptCheckpoints of a partition; the older one stays good when the newer one is broken.
	KeptCheckpoints = 2
)

// ErrNoCheckpoint says that there is none, or none that can be used. Fold the log from its start.
var ErrNoCheckpoint = errors.New("no usable checkpoint")

// CheckpointStore keeps named payloads. It is a cache: whatever it loses or breaks is folded again from the log.
type CheckpointStore interface {
	Put(ctx context.Context, name string, r io.Reader) error
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	List(ctx context.Context) ([]string, error)
	Delete(ctx context.Context, name string) error
}

func checkpointName(partition int, number int64) string {
	return fmt.Sprintf("p%d.%020d", partition, number)
}

// parseCheckpointName returns false for names of others.
func parseCheckpointName(name string) (partition int, number int64, ok bool) {
	p, n, found := strings.Cut(strings.TrimPrefix(name, "p"), ".")
	if !found || !strings.HasPrefix(name, "p") {
		return 0, 0, false
	}
	partition, errP := strconv.Atoi(p)
	number, errN := strconv.ParseInt(n, 10, 64)
	return partition, number, errP == nil && errN == nil
}

// SaveCheckpoint writes the chunks that next yields until it returns nil, under the place of the first one, and drops
// all but the newest kept ones of the partition.
func SaveCheckpoint(ctx context.Context, store CheckpointStore, next func() *runv1.Checkpoint) error {
	first := next()
	if first == nil {
		return errors.New("checkpoint without a chunk")
	}
	partition, number := int(first.GetPartition()), first.GetGroupNumber()
	pr, pw := io.Pipe()
	go func() {
		pw.CloseWithError(writeChunks(pw, first, next))
	}()
	err := store.Put(ctx, checkpointName(partition, number), pr)
	// The writer ends when nobody reads any more.
	_ = pr.Close()
	if err != nil {
		return fmt.Errorf("checkpoint of partition %d at group %d: %w", partition, number, err)
	}
	names, err := checkpointNames(ctx, store, partition)
	if err != nil {
		return err
	}
	for _, old := range names[min(KeptCheckpoints, len(names)):] {
		if err := store.Delete(ctx, old); err != nil {
			return fmt.Errorf("drop old checkpoint %s: %w", old, err)
		}
	}
	return nil
}

// writeChunks frames each chunk by its length; a length of 0 ends them.
func writeChunks(w io.Writer, chunk *runv1.Checkpoint, next func() *runv1.Checkpoint) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	var buf []byte
	for ; chunk != nil; chunk = next() {
		if buf, err = (proto.MarshalOptions{}).MarshalAppend(buf[:0], chunk); err != nil {
			return err
		}
		if len(buf) == 0 {
			continue
		}
		if _, err = z.Write(binary.AppendUvarint(nil, uint64(len(buf)))); err != nil {
			return err
		}
		if _, err = z.Write(buf); err != nil {
			return err
		}
	}
	if _, err = z.Write([]byte{0}); err != nil {
		return err
	}
	return z.Close()
}

// checkpointNames of a partition, newest first.
func checkpointNames(ctx context.Context, store CheckpointStore, partition int) ([]string, error) {
	all, err := store.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	names := make([]string, 0, KeptCheckpoints+1)
	for _, n := range all {
		if p, _, ok := parseCheckpointName(n); ok && p == partition {
			names = append(names, n)
		}
	}
	sort.Sort(sort.Reverse(sort.StringSlice(names)))
	return names, nil
}

// LoadCheckpoint gives the newest checkpoint of a partition to use, as chunks; where it is broken or use refuses it, the
// one before. Reasons go to warn. Without a usable one it returns ErrNoCheckpoint.
func LoadCheckpoint(ctx context.Context, store CheckpointStore, partition int, use func([]*runv1.Checkpoint) error, warn func(error)) error {
	names, err := checkpointNames(ctx, store, partition)
	if err != nil {
		warn(err)
	}
	for _, name := range names {
		chunks, err := readCheckpoint(ctx, store, name, partition)
		if err == nil {
			err = use(chunks)
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		warn(fmt.Errorf("checkpoint %s is ignored: %w", name, err))
	}
	return ErrNoCheckpoint
}

func readCheckpoint(ctx context.Context, store CheckpointStore, name string, partition int) ([]*runv1.Checkpoint, error) {
	r, err := store.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	z, err := zstd.NewReader(r, zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	in := bufio.NewReaderSize(z, 1<<20)
	var chunks []*runv1.Checkpoint
	var buf []byte
	for {
		n, err := binary.ReadUvarint(in)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: chunk %d: %w", ErrCorrupt, len(chunks), err)
		case n == 0 && len(chunks) == 0:
			return nil, fmt.Errorf("%w: it is empty", ErrCorrupt)
		case n == 0:
			return chunks, nil
		case n > MaxChunk:
			return nil, fmt.Errorf("%w: chunk %d has %d bytes", ErrCorrupt, len(chunks), n)
		}
		if uint64(cap(buf)) < n {
			buf = make([]byte, n)
		}
		buf = buf[:n]
		if _, err := io.ReadFull(in, buf); err != nil {
			return nil, fmt.Errorf("%w: chunk %d: %w", ErrCorrupt, len(chunks), err)
		}
		c := &runv1.Checkpoint{}
		if err := proto.Unmarshal(buf, c); err != nil {
			return nil, fmt.Errorf("%w: chunk %d: %w", ErrCorrupt, len(chunks), err)
		}
		if int(c.GetPartition()) != partition || c.GetGroupNumber() != first(chunks, c).GetGroupNumber() {
			return nil, fmt.Errorf("%w: chunk %d is of partition %d, group %d", ErrCorrupt, len(chunks), c.GetPartition(), c.GetGroupNumber())
		}
		chunks = append(chunks, c)
	}
}

func first(chunks []*runv1.Checkpoint, c *runv1.Checkpoint) *runv1.Checkpoint {
	if len(chunks) == 0 {
		return c
	}
	return chunks[0]
}

// MemoryCheckpoints is a CheckpointStore in this process.
type MemoryCheckpoints struct {
	mu      sync.Mutex
	objects map[string][]byte
}

// NewMemoryCheckpoints is an empty store.
func NewMemoryCheckpoints() *MemoryCheckpoints {
	return &MemoryCheckpoints{objects: map[string][]byte{}}
}

// Put implements CheckpointStore.
func (m *MemoryCheckpoints) Put(_ context.Context, name string, r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[name] = data
	return nil
}

// Get implements CheckpointStore.
func (m *MemoryCheckpoints) Get(_ context.Context, name string) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.objects[name]
	if !ok {
		return nil, fmt.Errorf("checkpoint %s: %w", name, ErrNoCheckpoint)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// List implements CheckpointStore.
func (m *MemoryCheckpoints) List(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := make([]string, 0, len(m.objects))
	for n := range m.objects {
		names = append(names, n)
	}
	sort.Strings(names)
	return names, nil
}

// Delete implements CheckpointStore.
func (m *MemoryCheckpoints) Delete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
	return nil
}
