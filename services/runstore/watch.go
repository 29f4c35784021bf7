package runstore

import (
	"context"

	"google.golang.org/grpc"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

	"github.com/cairnrun/cairn/pkg/telemetry"
)

// WatchRun sends a run's events after a revision: what is known at once, the rest as the log gets it, until the event
// that ended the run. A run that ended at or before that revision has only what came late.
func (q *queries) WatchRun(r *apiv1.WatchRunRequest, stream grpc.ServerStreamingServer[apiv1.WatchRunResponse]) error {
	if r.GetAfterRevision() < 0 {
		return invalid("after_revision", "it is negative")
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	defer context.AfterFunc(q.closing, func() { cancel(shuttingDown()) })()
	if _, err := q.find(ctx, r.GetRunId(), r.GetPosition()); err != nil {
		return err
	}
	telemetry.Metrics().Watchers.Add(ctx, 1)
	defer telemetry.Metrics().Watchers.Add(context.WithoutCancel(ctx), -1)
	err := q.watch(ctx, r.GetRunId(), r.GetAfterRevision(), func(e *runv1.Event) error {
		return stream.Send(&apiv1.WatchRunResponse{Event: e})
	})
	if cause := context.Cause(ctx); err != nil && cause != nil && stream.Context().Err() == nil {
		err = cause
	}
	return asStatus(r.GetRunId(), err)
}

// watch calls send for each event after a revision, in order, without gap or repeat. It returns nil after the event
// that ends the run.
func (q *queries) watch(ctx context.Context, runID string, after int64, send func(*runv1.Event) error) error {
	// Registered before history is read: what history lacks is queued.
	w := q.projection.tail.watch(runID, q.partitionOf(runID), q.config.WatchBuffer)
	defer w.close()
	begin := after
	for fromHistory := true; ; {
		if fromHistory {
			over := false
			err := q.events(ctx, runID, after, func(e *runv1.Event) (bool, error) {
				if err := send(e); err != nil {
					return false, err
				}
				after = e.GetRevision()
				over = terminal(e)
				return !over, nil
			})
			if err != nil || over {
				return err
			}
			h, err := q.history.head(ctx, runID)
			if err != nil {
				return err
			}
			if h.endedRevision > 0 && h.endedRevision <= begin {
				return nil
			}
		}
		commits, missed, err := w.take(ctx)
		if err != nil {
			return err
		}
		// A queue that was full is read from history, where everything that the tail has seen is.
		fromHistory = missed
		for _, c := range commits {
			for _, e := range c.events {
				rev := e.GetRevision()
				if rev <= after {
					continue
				}
				if rev > after+1 {
					fromHistory = true
					break
				}
				if err := send(e); err != nil {
					return err
				}
				after = rev
				if terminal(e) {
					return nil
				}
			}
		}
	}
}
