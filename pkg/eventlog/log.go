// Package eventlog is a partition's log: groups of commits, appended by one owner on condition that nobody else has
// written since. Implementations in memory and on NATS pass one conformance suite.
package eventlog

import (
	"context"
	"errors"
	"time"
)

// Message is one stored group.
type Message struct {
	// Sequence of the stream, growing but not dense within a partition.
	Sequence uint64
	Time     time.Time
	Data     []byte
}

// Errors that callers branch on.
var (
	// ErrConflict: another owner has written since; drop everything held for the partition.
	ErrConflict = errors.New("log conflict: another owner has written")
	// ErrTooLarge: the message is over the server's limit; split it.
	ErrTooLarge = errors.New("log message too large")
	// ErrStorageFull: the store takes nothing more; stop accepting.
	ErrStorageFull = errors.New("log storage full")
)

// Log holds the partitions' groups.
type Log interface {
	// Append writes after the message with sequence expected (0: the first) and returns the new sequence. It repeats an
	// append without an answer, with the same bytes and expectation, until the outcome is definite or ctx ends; a ctx
	// error leaves the outcome open.
	Append(ctx context.Context, partition int, expected uint64, data []byte) (uint64, error)
	// Read calls fn for each message after the given sequence, up to the last one there was at the call.
	Read(ctx context.Context, partition int, after uint64, fn func(Message) error) error
	// Follow is Read that goes on with new messages until ctx ends or fn fails.
	Follow(ctx context.Context, partition int, after uint64, fn func(Message) error) error
	// Last returns the sequence of the partition's last message, 0 for none.
	Last(ctx context.Context, partition int) (uint64, error)
}
