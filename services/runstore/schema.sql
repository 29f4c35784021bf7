-- The projection of the log. Every row follows from the log alone, so that a rebuild gives the same rows.

-- How far each partition is projected; written in the transaction that holds the rows.
CREATE TABLE positions (
  partition    INTEGER PRIMARY KEY,
  sequence     INTEGER NOT NULL, -- of the log message
  group_number INTEGER NOT NULL,
  epoch        INTEGER NOT NULL,
  group_hash   BLOB    NOT NULL  -- what the next group must name as its previous one
);

-- One line a run: what lists show and filter by. Times are nanoseconds since 1970, UTC.
CREATE TABLE runs (
  run_id         TEXT    PRIMARY KEY,
  tenant         TEXT    NOT NULL,
  partition      INTEGER NOT NULL,
  status         INTEGER NOT NULL, -- cairn.run.v1.RunStatus
  phase          INTEGER NOT NULL, -- cairn.run.v1.RunPhase
  goal           TEXT    NOT NULL,
  labels         BLOB    NOT NULL, -- a cairn.run.v1.RunSpec that holds only the labels
  tools          TEXT    NOT NULL, -- names, sorted, joined by a space
  plan_version   INTEGER NOT NULL,
  error_code     TEXT    NOT NULL,
  revision       INTEGER NOT NULL,
  submitted_at   INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  ended_revision INTEGER NOT NULL, -- of the event that ended the run; 0: it is open
  snapshot_revision INTEGER NOT NULL, -- the newest with a whole state in the log; 0: none
  chunk          INTEGER NOT NULL, -- the newest row of commits
  chunk_bytes    INTEGER NOT NULL  -- and its length
);
CREATE INDEX runs_by_time ON runs (submitted_at, run_id);
CREATE INDEX runs_by_status ON runs (status, submitted_at, run_id);

-- What else lists filter by, in the order that lists have: "tool=order.pay", "label.team=shop".
CREATE TABLE run_terms (
  term         TEXT    NOT NULL,
  submitted_at INTEGER NOT NULL,
  run_id       TEXT    NOT NULL,
  PRIMARY KEY (term, submitted_at, run_id)
) WITHOUT ROWID;

-- A run's stored commits, many a row: see chunk.go. A row is extended until it is full, whatever the transactions were,
-- so that rows do not depend on when they were written.
CREATE TABLE commits (
  run_id         TEXT    NOT NULL,
  chunk          INTEGER NOT NULL, -- dense from 0 within a run
  first_revision INTEGER NOT NULL,
  last_revision  INTEGER NOT NULL,
  entries        BLOB    NOT NULL,
  PRIMARY KEY (run_id, chunk)
);
