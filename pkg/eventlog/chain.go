package eventlog

import (
	"bytes"
	"errors"
	"fmt"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// What a chain refuses.
var (
	// ErrFork: a group with a number that is already there, by a writer that did not see it. Skip it and go on.
	ErrFork = errors.New("second group of the same number")
	// ErrGap: groups are missing. The runs of the partition cannot be folded beyond it.
	ErrGap = errors.New("groups are missing")
)

// ChainError says where a log does not hold together.
type ChainError struct {
	// Err is ErrFork, ErrGap or ErrCorrupt.
	Err       error
	Partition int
	// Sequence of the message that was refused.
	Sequence uint64
	// Number of the refused group, 0 where it could not be read, and the number that had to come.
	Number, Want int64
	Detail       string
}

func (e *ChainError) Error() string {
	return fmt.Sprintf("partition %d, log sequence %d: %v: group %d where %d must come: %s", e.Partition, e.Sequence, e.Err, e.Number, e.Want, e.Detail)
}

// Unwrap gives Err.
func (e *ChainError) Unwrap() error { return e.Err }

// Chain reads a partition's groups in order and refuses what does not follow. The zero value of all but Partition
// stands before the first group.
type Chain struct {
	Partition int
	// Of the newest group that was accepted.
	Number   int64
	Hash     []byte
	Sequence uint64
	Epoch    int64
}

// Next accepts a stored message as the next group, or says why it is none and stays where it is.
func (c *Chain) Next(m Message) (*runv1.Group, error) {
	fail := func(kind error, number int64, detail string) error {
		return &ChainError{Err: kind, Partition: c.Partition, Sequence: m.Sequence, Number: number, Want: c.Number + 1, Detail: detail}
	}
	g, err := DecodeGroup(m.Data)
	if err != nil {
		return nil, fail(ErrCorrupt, 0, err.Error())
	}
	switch {
	case int(g.GetPartition()) != c.Partition:
		return nil, fail(ErrCorrupt, g.GetNumber(), fmt.Sprintf("it says that it belongs to partition %d", g.GetPartition()))
	case g.GetNumber() <= c.Number:
		return nil, fail(ErrFork, g.GetNumber(), fmt.Sprintf("written by %q in epoch %d", g.GetOwner(), g.GetEpoch()))
	case g.GetNumber() > c.Number+1:
		return nil, fail(ErrGap, g.GetNumber(), fmt.Sprintf("%d groups before it are not there", g.GetNumber()-c.Number-1))
	case !bytes.Equal(g.GetPreviousHash(), c.Hash):
		return nil, fail(ErrCorrupt, g.GetNumber(), "the group before it is not the one that it names by hash")
	case g.GetEpoch() < c.Epoch:
		return nil, fail(ErrCorrupt, g.GetNumber(), fmt.Sprintf("epoch %d after epoch %d", g.GetEpoch(), c.Epoch))
	}
	c.Accept(g, m)
	return g, nil
}

// Accept moves the chain to a group that its owner has just written.
func (c *Chain) Accept(g *runv1.Group, m Message) {
	c.Number, c.Sequence, c.Epoch, c.Hash = g.GetNumber(), m.Sequence, g.GetEpoch(), Hash(m.Data)
}
