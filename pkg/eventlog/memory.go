package eventlog

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"
)

// Memory is a Log in this process, for tests and simulations. One sequence runs over all partitions, as in a stream.
type Memory struct {
	// MaxMessage bounds a message in bytes; 0: 8 MB.
	MaxMessage int

	mu         sync.Mutex
	sequence   uint64
	partitions map[int][]Message
	changed    chan struct{}
}

// NewMemory is an empty log.
func NewMemory() *Memory {
	return &Memory{partitions: map[int][]Message{}, changed: make(chan struct{})}
}

// Append implements Log.
func (m *Memory) Append(ctx context.Context, partition int, expected uint64, data []byte) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	limit := m.MaxMessage
	if limit == 0 {
		limit = 8 << 20
	}
	if len(data) > limit {
		return 0, fmt.Errorf("partition %d: %w: %d bytes, at most %d", partition, ErrTooLarge, len(data), limit)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.last(partition)
	if last != expected {
		for _, msg := range m.partitions[partition] {
			if msg.Sequence > expected {
				if bytes.Equal(msg.Data, data) {
					return msg.Sequence, nil
				}
				break
			}
		}
		return 0, fmt.Errorf("partition %d after sequence %d: %w", partition, expected, ErrConflict)
	}
	m.sequence++
	m.partitions[partition] = append(m.partitions[partition], Message{Sequence: m.sequence, Time: time.Now(), Data: bytes.Clone(data)})
	close(m.changed)
	m.changed = make(chan struct{})
	return m.sequence, nil
}

// Last implements Log.
func (m *Memory) Last(ctx context.Context, partition int) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last(partition), ctx.Err()
}

func (m *Memory) last(partition int) uint64 {
	msgs := m.partitions[partition]
	if len(msgs) == 0 {
		return 0
	}
	return msgs[len(msgs)-1].Sequence
}

// after returns the messages there are and a channel that is closed at the next append.
func (m *Memory) after(partition int, sequence uint64) ([]Message, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	msgs := m.partitions[partition]
	for i, msg := range msgs {
		if msg.Sequence > sequence {
			return msgs[i:len(msgs):len(msgs)], m.changed
		}
	}
	return nil, m.changed
}

// Read implements Log.
func (m *Memory) Read(ctx context.Context, partition int, after uint64, fn func(Message) error) error {
	msgs, _ := m.after(partition, after)
	return deliver(ctx, msgs, fn)
}

// Follow implements Log.
func (m *Memory) Follow(ctx context.Context, partition int, after uint64, fn func(Message) error) error {
	for {
		msgs, changed := m.after(partition, after)
		if err := deliver(ctx, msgs, fn); err != nil {
			return err
		}
		if len(msgs) > 0 {
			after = msgs[len(msgs)-1].Sequence
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func deliver(ctx context.Context, msgs []Message, fn func(Message) error) error {
	for _, msg := range msgs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(msg); err != nil {
			return err
		}
	}
	return nil
}
