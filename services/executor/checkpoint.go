package executor

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/eventlog"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// checkpointTimeout bounds the writing of one.
const checkpointTimeout = 2 * time.Minute

// checkpoint writes what is in the log, as of now, in the background. States never change, so marks are all it takes.
func (o *owner) checkpoint(ctx context.Context) {
	if o.checkpointing || o.commitsSince == 0 {
		return
	}
	marks := make([]mark, 0, len(o.runs))
	for _, ru := range o.runs {
		// Runs that are held back are folded again by whoever understands them, so the place before them must stay.
		if ru.held != "" {
			return
		}
		if ru.acked.state.Revision() > 0 {
			marks = append(marks, ru.acked)
		}
	}
	ended := slices.Clone(o.ended.order)
	head := &runv1.Checkpoint{
		Partition: int32(o.partition), GroupNumber: o.chain.Number, LogSequence: o.chain.Sequence, GroupHash: o.chain.Hash, Epoch: o.chain.Epoch,
	}
	o.checkpointing, o.commitsSince, o.checkpointed = true, 0, time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkpointTimeout)
		defer cancel()
		o.checkpointDone <- eventlog.SaveCheckpoint(ctx, o.checkpoints, chunks(head, marks, ended))
	}()
}

// chunks yields a checkpoint in pieces of bounded size; the first one comes also when there is nothing.
func chunks(head *runv1.Checkpoint, marks []mark, ended []*endedRun) func() *runv1.Checkpoint {
	started := false
	return func() *runv1.Checkpoint {
		if started && len(marks) == 0 && len(ended) == 0 {
			return nil
		}
		started = true
		c := &runv1.Checkpoint{
			Partition: head.GetPartition(), GroupNumber: head.GetGroupNumber(), LogSequence: head.GetLogSequence(),
			GroupHash: head.GetGroupHash(), Epoch: head.GetEpoch(),
		}
		n := min(eventlog.ChunkRuns, len(marks))
		for _, m := range marks[:n] {
			c.Runs = append(c.Runs, &runv1.CheckpointRun{State: m.state.Snapshot(), CommitHash: m.hash, LastTime: timestamppb.New(m.time)})
		}
		marks = marks[n:]
		if n > 0 {
			return c
		}
		n = min(64*eventlog.ChunkRuns, len(ended))
		for _, e := range ended[:n] {
			c.Ended = append(c.Ended, e.proto())
		}
		ended = ended[n:]
		return c
	}
}
