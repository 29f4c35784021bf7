package runstore

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// writer holds the prepared statements of the transactions that write.
type writer struct {
	db         *sql.DB
	chunkBytes int

	known, insert, update, term, chunk, extend, position *sql.Stmt
}

func newWriter(ctx context.Context, db *sql.DB, chunkBytes int) (*writer, error) {
	w := &writer{db: db, chunkBytes: chunkBytes}
	for _, s := range []struct {
		to   **sql.Stmt
		text string
	}{
		{&w.known, `SELECT goal, tools, submitted_at, chunk, chunk_bytes FROM runs WHERE run_id = ?`},
		{&w.insert, `INSERT INTO runs (tenant, partition, status, phase, goal, labels, tools, plan_version, error_code, revision,
			submitted_at, updated_at, ended_revision, snapshot_revision, chunk, chunk_bytes, run_id)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`},
		{&w.update, `UPDATE runs SET status = ?, phase = ?, goal = ?, tools = ?, plan_version = max(plan_version, ?),
			error_code = CASE ? WHEN '' THEN error_code ELSE ?6 END, revision = max(revision, ?), updated_at = max(updated_at, ?),
			ended_revision = CASE ended_revision WHEN 0 THEN ? ELSE ended_revision END, snapshot_revision = max(snapshot_revision, ?),
			chunk = ?, chunk_bytes = ? WHERE run_id = ?`},
		{&w.term, `INSERT OR IGNORE INTO run_terms (term, submitted_at, run_id) VALUES (?, ?, ?)`},
		{&w.chunk, `INSERT INTO commits (run_id, chunk, first_revision, last_revision, entries) VALUES (?, ?, ?, ?, ?)`},
		// || joins bytes but calls the outcome text.
		{&w.extend, `UPDATE commits SET last_revision = ?, entries = CAST(entries || ? AS BLOB) WHERE run_id = ? AND chunk = ?`},
		{&w.position, `INSERT INTO positions (partition, sequence, group_number, epoch, group_hash) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (partition) DO UPDATE SET sequence = excluded.sequence, group_number = excluded.group_number,
			epoch = excluded.epoch, group_hash = excluded.group_hash`},
	} {
		st, err := db.PrepareContext(ctx, s.text)
		if err != nil {
			return nil, err
		}
		*s.to = st
	}
	return w, nil
}

// write stores a batch in one transaction, its log positions with it.
func (w *writer) write(ctx context.Context, b *batch) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	t := &transaction{ctx: ctx, tx: tx, w: w}
	t.known = tx.StmtContext(ctx, w.known)
	for _, id := range b.order {
		if err := t.run(b.runs[id]); err != nil {
			return err
		}
	}
	for p, at := range b.positions {
		t.exec(w.position, p, int64(at.Sequence), at.Number, at.Epoch, at.Hash)
	}
	if t.err != nil {
		return t.err
	}
	return tx.Commit()
}

type transaction struct {
	ctx   context.Context
	tx    *sql.Tx
	w     *writer
	known *sql.Stmt
	stmts map[*sql.Stmt]*sql.Stmt
	err   error
}

// exec runs a prepared statement unless one before it has failed.
func (t *transaction) exec(st *sql.Stmt, args ...any) {
	if t.err != nil {
		return
	}
	own := t.stmts[st]
	if own == nil {
		if t.stmts == nil {
			t.stmts = map[*sql.Stmt]*sql.Stmt{}
		}
		own = t.tx.StmtContext(t.ctx, st)
		t.stmts[st] = own
	}
	_, t.err = own.ExecContext(t.ctx, args...)
}

// row is what the table already says about a run.
type row struct {
	exists     bool
	goal       string
	tools      []string
	submitted  int64
	chunk      int64
	chunkBytes int
}

func (t *transaction) run(r *batchRun) error {
	s := &r.sum
	var old row
	// A run that begins here has no row: no need to ask.
	if r.entries[0].Entry.GetFirstRevision() != 1 {
		var tools string
		err := t.known.QueryRowContext(t.ctx, s.RunID).Scan(&old.goal, &tools, &old.submitted, &old.chunk, &old.chunkBytes)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		old.exists, old.tools = err == nil, strings.Fields(tools)
	}
	if !old.exists {
		old.chunk = -1
		old.chunkBytes = t.w.chunkBytes
	}
	chunk, size := t.commits(r, old)
	t.summary(s, old, chunk, size)
	return t.err
}

// commits stores a run's entries: in its newest row until that is full, then in new ones. Where rows end depends on the
// entries alone. It returns the newest row and its length.
func (t *transaction) commits(r *batchRun, old row) (chunk int64, size int) {
	chunk, size = old.chunk, old.chunkBytes
	var buf []byte
	var first, last int64
	extend := true
	put := func() {
		switch {
		case len(buf) == 0:
		case extend:
			t.exec(t.w.extend, last, buf, r.sum.RunID, chunk)
		default:
			t.exec(t.w.chunk, r.sum.RunID, chunk, first, last, buf)
		}
		buf, extend = nil, false
	}
	for _, e := range r.entries {
		if size >= t.w.chunkBytes {
			put()
			chunk, size, extend = chunk+1, 0, false
			first = e.Entry.GetFirstRevision()
		}
		n := len(buf)
		buf = appendEntry(buf, e.Sequence, e.Entry)
		size += len(buf) - n
		last = e.Entry.GetLastRevision()
	}
	put()
	return chunk, size
}

func (t *transaction) summary(s *summary, old row, chunk int64, size int) {
	goal := old.goal
	if goal == "" {
		goal = s.Goal
	}
	if goal == "" {
		goal = s.PlanGoal
	}
	tools, submitted := old.tools, old.submitted
	if submitted == 0 {
		submitted = s.Submitted
	}
	for _, name := range s.Tools {
		if i, found := slices.BinarySearch(tools, name); !found {
			tools = slices.Insert(tools, i, name)
			t.exec(t.w.term, toolTerm(name), submitted, s.RunID)
		}
	}
	joined := strings.Join(tools, " ")
	if old.exists {
		t.exec(t.w.update, int64(s.Status), int64(s.Phase), goal, joined, s.PlanVersion, s.ErrorCode, s.Revision, s.Updated,
			s.EndedRevision, s.SnapshotRevision, chunk, size, s.RunID)
		return
	}
	for _, l := range s.Labels {
		t.exec(t.w.term, labelTerm(l.GetKey(), l.GetValue()), submitted, s.RunID)
	}
	labels, err := proto.MarshalOptions{Deterministic: true}.Marshal(&runv1.RunSpec{Labels: s.Labels})
	if err != nil && t.err == nil {
		t.err = err
	}
	t.exec(t.w.insert, s.Tenant, s.Partition, int64(s.Status), int64(s.Phase), goal, labels, joined, s.PlanVersion, s.ErrorCode,
		s.Revision, submitted, s.Updated, s.EndedRevision, s.SnapshotRevision, chunk, size, s.RunID)
}

func toolTerm(name string) string { return "tool=" + name }

func labelTerm(key, value string) string { return "label." + key + "=" + value }
