package runstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"time"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// history reads what is known of runs: the database first, then what the tail has beyond it.
type history struct {
	db   *sql.DB
	tail *tail
}

// head is what a run's newest commit says.
type head struct {
	partition int
	revision  int64
	// endedRevision is 0 while the run is open.
	endedRevision    int64
	snapshotRevision int64
}

// errNoRun: nothing is known of a run.
var errNoRun = errors.New("no such run")

// head looks a run up; errNoRun where there is none.
func (h *history) head(ctx context.Context, runID string) (head, error) {
	pending, endedRevision := h.tail.pending(runID)
	var out head
	err := h.db.QueryRowContext(ctx, "SELECT partition, revision, ended_revision, snapshot_revision FROM runs WHERE run_id = ?", runID).
		Scan(&out.partition, &out.revision, &out.endedRevision, &out.snapshotRevision)
	if errors.Is(err, sql.ErrNoRows) {
		if len(pending) == 0 {
			return head{}, errNoRun
		}
		err = nil
		out.partition = -1
	}
	if err != nil {
		return head{}, err
	}
	for _, e := range pending {
		out.revision = max(out.revision, e.Entry.GetLastRevision())
	}
	if out.endedRevision == 0 {
		out.endedRevision = endedRevision
	}
	return out, nil
}

// read calls fn for the run's stored commits that go beyond revision after, oldest first, until it returns false or an
// error. after -1 gives every commit, those without events too.
func (h *history) read(ctx context.Context, runID string, after int64, fn func(storedEntry) (bool, error)) error {
	// The tail before the database: what is in neither by then is new.
	pending, _ := h.tail.pending(runID)
	var sequence uint64
	var chunk int64
	var first sql.NullInt64
	err := h.db.QueryRowContext(ctx, "SELECT min(chunk) FROM commits WHERE run_id = ? AND last_revision > ?", runID, after).Scan(&first)
	if err != nil {
		return err
	}
	for chunk = first.Int64; first.Valid; chunk++ {
		// One row at a time: a reader that takes its time must not hold a transaction.
		var rest []byte
		err := h.db.QueryRowContext(ctx, "SELECT entries FROM commits WHERE run_id = ? AND chunk = ?", runID, chunk).Scan(&rest)
		if errors.Is(err, sql.ErrNoRows) {
			break
		}
		if err != nil {
			return err
		}
		for len(rest) > 0 {
			var e storedEntry
			if e, rest, err = readEntry(rest); err != nil {
				return err
			}
			sequence = e.Sequence
			if e.Entry.GetLastRevision() <= after {
				continue
			}
			if more, err := fn(e); err != nil || !more {
				return err
			}
		}
	}
	for _, e := range pending {
		if e.Sequence <= sequence || e.Entry.GetLastRevision() <= after {
			continue
		}
		if more, err := fn(e); err != nil || !more {
			return err
		}
	}
	return nil
}

// list returns one page of runs, newest first, and whether there are more.
func (h *history) list(ctx context.Context, f filter, after *runKey, limit int) ([]*apiv1.RunSummary, bool, error) {
	query, args := f.query(after, limit+1)
	rows, err := h.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = rows.Close() }()
	var out []*apiv1.RunSummary
	for rows.Next() {
		r, err := scanSummary(rows)
		if err != nil {
			return nil, false, err
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, false, err
	}
	if len(out) > limit {
		return out[:limit], true, nil
	}
	return out, false, nil
}

// summaryColumns are what scanSummary reads.
const summaryColumns = `r.run_id, r.tenant, r.status, r.phase, r.goal, r.labels, r.tools, r.plan_version, r.error_code, r.revision,
	r.submitted_at, r.updated_at`

func scanSummary(rows *sql.Rows) (*apiv1.RunSummary, error) {
	r := &apiv1.RunSummary{}
	var status, phase int32
	var labels []byte
	var tools string
	var submitted, updated int64
	if err := rows.Scan(&r.RunId, &r.Tenant, &status, &phase, &r.Goal, &labels, &tools, &r.PlanVersion, &r.ErrorCode, &r.Revision,
		&submitted, &updated); err != nil {
		return nil, err
	}
	spec := &runv1.RunSpec{}
	if err := proto.Unmarshal(labels, spec); err != nil {
		return nil, fmt.Errorf("labels of run %s: %w", r.RunId, err)
	}
	r.Status, r.Phase, r.Labels = runv1.RunStatus(status), runv1.RunPhase(phase), spec.GetLabels()
	r.Tools = strings.Fields(tools)
	r.SubmittedAt, r.UpdatedAt = timestamp(submitted), timestamp(updated)
	return r, nil
}

func timestamp(ns int64) *timestamppb.Timestamp {
	if ns == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, ns))
}
