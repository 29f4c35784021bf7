package runstore

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/replay"
)

// queries is QueryService.
type queries struct {
	apiv1.UnimplementedQueryServiceServer
	config     Config
	partitions int
	projection *projection
	history    *history
	states     *states
	// partitionOf a run.
	partitionOf func(runID string) int
	// closing ends when the service drains: streams end so that their clients go elsewhere.
	closing context.Context
}

func newQueries(closing context.Context, c Config, p *projection, partitionOf func(string) int) *queries {
	h := &history{db: p.store.read, tail: p.tail}
	return &queries{
		config: c, partitions: len(p.tail.partitions), projection: p, history: h, states: newStates(h, c.StateCache, c.StateCacheBytes),
		partitionOf: partitionOf, closing: closing,
	}
}

// waitFor returns once a request's position is read; stored: once the database has it.
func (q *queries) waitFor(ctx context.Context, at *apiv1.LogPosition, stored bool) error {
	if at == nil || at.GetSequence() == 0 {
		return nil
	}
	partition := int(at.GetPartition())
	if partition < 0 || partition >= q.partitions {
		return invalid("position.partition", fmt.Sprintf("%d is outside 0 to %d", partition, q.partitions-1))
	}
	wait := q.projection.tail.waitSeen
	if stored {
		wait = q.projection.waitStored
	}
	bounded, cancel := context.WithTimeout(ctx, q.config.MaxWait)
	defer cancel()
	err := wait(bounded, partition, at.GetSequence())
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return tryAgain(reasonNotProjected, fmt.Sprintf("partition %d is not projected up to sequence %d yet, waited %s", partition, at.GetSequence(), q.config.MaxWait), q.config.FlushInterval)
	}
	return asStatus("", err)
}

// find checks the run id and waits for the position.
func (q *queries) find(ctx context.Context, runID string, at *apiv1.LogPosition) (head, error) {
	if runID == "" {
		return head{}, invalid("run_id", "it is empty")
	}
	if err := q.waitFor(ctx, at, false); err != nil {
		return head{}, err
	}
	h, err := q.history.head(ctx, runID)
	return h, asStatus(runID, err)
}

// GetRun folds a run's commits.
func (q *queries) GetRun(ctx context.Context, r *apiv1.GetRunRequest) (*apiv1.GetRunResponse, error) {
	if r.GetRevision() < 0 {
		return nil, invalid("revision", "it is negative")
	}
	if _, err := q.find(ctx, r.GetRunId(), r.GetPosition()); err != nil {
		return nil, err
	}
	s, err := q.states.at(ctx, r.GetRunId(), r.GetRevision())
	if err != nil {
		return nil, asStatus(r.GetRunId(), err)
	}
	return &apiv1.GetRunResponse{Run: s.Snapshot()}, nil
}

// ListRuns pages through the runs that a filter lets through, newest first.
func (q *queries) ListRuns(ctx context.Context, r *apiv1.ListRunsRequest) (*apiv1.ListRunsResponse, error) {
	size, err := pageSize(r.GetPageSize(), q.config.DefaultRunsPage, q.config.MaxRunsPage)
	if err != nil {
		return nil, err
	}
	if len(r.GetFilter()) > q.config.MaxFilterBytes {
		return nil, invalid("filter", fmt.Sprintf("it has %d bytes, at most %d", len(r.GetFilter()), q.config.MaxFilterBytes))
	}
	f, err := parseFilter(r.GetFilter(), q.config.MaxFilterTerms)
	if err != nil {
		return nil, invalid("filter", err.Error())
	}
	var after *runKey
	if r.GetPageToken() != "" {
		var t runsToken
		if err := decodeToken(r.GetPageToken(), &t); err != nil {
			return nil, err
		}
		if t.Filter != filterDigest(r.GetFilter()) {
			return nil, invalid("page_token", "it belongs to another filter")
		}
		after = &runKey{t.Submitted, t.RunID}
	}
	if r.GetPosition().GetSequence() == 0 {
		q.projection.storeSeen(ctx, q.config.MaxWait)
	} else if err := q.waitFor(ctx, r.GetPosition(), true); err != nil {
		return nil, err
	}
	runs, more, err := q.history.list(ctx, f, after, size)
	if err != nil {
		return nil, asStatus("", err)
	}
	// A page also ends by bytes: goals may be long.
	bytes := 0
	for i, run := range runs {
		if bytes += proto.Size(run); bytes > q.config.PageBytes && i > 0 {
			runs, more = runs[:i], true
			break
		}
	}
	out := &apiv1.ListRunsResponse{Runs: runs}
	if more {
		last := runs[len(runs)-1]
		out.NextPageToken = encodeToken(runsToken{Submitted: nanos(last), RunID: last.GetRunId(), Filter: filterDigest(r.GetFilter())})
	}
	return out, nil
}

func nanos(r *apiv1.RunSummary) int64 {
	if r.GetSubmittedAt() == nil {
		return 0
	}
	return r.GetSubmittedAt().AsTime().UnixNano()
}

// ListEvents pages through a run's events.
func (q *queries) ListEvents(ctx context.Context, r *apiv1.ListEventsRequest) (*apiv1.ListEventsResponse, error) {
	size, err := pageSize(r.GetPageSize(), q.config.DefaultEventsPage, q.config.MaxEventsPage)
	if err != nil {
		return nil, err
	}
	after := r.GetAfterRevision()
	if after < 0 {
		return nil, invalid("after_revision", "it is negative")
	}
	if r.GetPageToken() != "" {
		var t eventsToken
		if err := decodeToken(r.GetPageToken(), &t); err != nil {
			return nil, err
		}
		if t.RunID != r.GetRunId() {
			return nil, invalid("page_token", "it belongs to another run")
		}
		after = t.After
	}
	if _, err := q.find(ctx, r.GetRunId(), r.GetPosition()); err != nil {
		return nil, err
	}
	out := &apiv1.ListEventsResponse{}
	bytes := 0
	err = q.events(ctx, r.GetRunId(), after, func(e *runv1.Event) (bool, error) {
		bytes += proto.Size(e)
		if len(out.Events) == size || len(out.Events) > 0 && bytes > q.config.PageBytes {
			out.NextPageToken = encodeToken(eventsToken{RunID: r.GetRunId(), After: e.GetRevision() - 1})
			return false, nil
		}
		out.Events = append(out.Events, e)
		return true, nil
	})
	if err != nil {
		return nil, asStatus(r.GetRunId(), err)
	}
	return out, nil
}

// events calls fn for a run's events after a revision until it returns false or an error.
func (q *queries) events(ctx context.Context, runID string, after int64, fn func(*runv1.Event) (bool, error)) error {
	return q.history.read(ctx, runID, after, func(e storedEntry) (bool, error) {
		c, err := eventlog.DecodeCommit(e.Entry)
		if err != nil {
			return false, err
		}
		for _, ev := range c.GetEvents() {
			if ev.GetRevision() <= after {
				continue
			}
			if more, err := fn(ev); err != nil || !more {
				return false, err
			}
		}
		return true, nil
	})
}

// records returns a run's commits as replay wants them.
func (q *queries) records(ctx context.Context, runID string) ([]replay.Record, error) {
	var out []replay.Record
	partition := q.partitionOf(runID)
	err := q.history.read(ctx, runID, -1, func(e storedEntry) (bool, error) {
		r, err := replay.NewRecord(e.Entry, partition, e.Sequence)
		out = append(out, r)
		return err == nil, err
	})
	return out, err
}

// ExportRun sends a run's commits as they are stored.
func (q *queries) ExportRun(r *apiv1.ExportRunRequest, stream grpc.ServerStreamingServer[apiv1.ExportRunResponse]) error {
	ctx := stream.Context()
	if _, err := q.find(ctx, r.GetRunId(), nil); err != nil {
		return err
	}
	partition := q.partitionOf(r.GetRunId())
	err := q.history.read(ctx, r.GetRunId(), -1, func(e storedEntry) (bool, error) {
		if q.closing.Err() != nil {
			return false, shuttingDown()
		}
		rec, err := replay.NewRecord(e.Entry, partition, e.Sequence)
		if err != nil {
			return false, err
		}
		return true, stream.Send(rec.Export())
	})
	return asStatus(r.GetRunId(), err)
}

// ReplayRun folds a run again and, on request, verifies it.
func (q *queries) ReplayRun(ctx context.Context, r *apiv1.ReplayRunRequest) (*apiv1.ReplayRunResponse, error) {
	if r.GetUntilRevision() < 0 {
		return nil, invalid("until_revision", "it is negative")
	}
	if _, err := q.find(ctx, r.GetRunId(), nil); err != nil {
		return nil, err
	}
	records, err := q.records(ctx, r.GetRunId())
	if err != nil {
		return nil, asStatus(r.GetRunId(), err)
	}
	out, err := replay.Replay(records, replay.Options{Verify: r.GetVerify(), Until: r.GetUntilRevision()})
	switch {
	case errors.Is(err, replay.ErrBeyond):
		return nil, failure(codes.OutOfRange, reasonRevisionAhead, err.Error(), map[string]string{"run_id": r.GetRunId()})
	case errors.Is(err, replay.ErrHeadMissing):
		return nil, failure(codes.FailedPrecondition, reasonHeadMissing, err.Error(), map[string]string{"run_id": r.GetRunId()})
	}
	return out, asStatus(r.GetRunId(), err)
}
