package runstore

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"
)

//go:embed schema.sql
var schema string

// schemaVersion is kept in the database as user_version. Another one is never migrated: the log has everything.
const schemaVersion = 1

// ErrDatabase is wrapped by what keeps a database file from being opened.
var ErrDatabase = errors.New("run store database")

// store is the SQLite file: one connection that writes and a few that read.
type store struct {
	path  string
	write *sql.DB
	read  *sql.DB
	lock  *sql.DB
}

// openStore opens or creates the file. The caller closes the store.
func openStore(ctx context.Context, path string, c Config) (*store, error) {
	lock, err := lockDatabase(ctx, path, c.BusyTimeout)
	if err != nil {
		return nil, err
	}
	s := &store{path: path, lock: lock}
	// NORMAL: a power cut may take the newest transactions, each whole; they are projected again from the log.
	if s.write, err = openSQLite(path, c.BusyTimeout, "journal_mode(WAL)", "synchronous(NORMAL)", "cache_size(-65536)", "wal_autocheckpoint(4000)"); err == nil {
		s.write.SetMaxOpenConns(1)
		err = s.prepare(ctx)
	}
	if err == nil {
		if s.read, err = openSQLite(path, c.BusyTimeout, "query_only(1)"); err == nil {
			s.read.SetMaxOpenConns(c.Readers)
			s.read.SetMaxIdleConns(c.Readers)
			err = s.read.PingContext(ctx)
		}
	}
	if err != nil {
		s.Close()
		return nil, databaseError(path, err)
	}
	return s, nil
}

func openSQLite(path string, busy time.Duration, pragmas ...string) (*sql.DB, error) {
	q := url.Values{"_pragma": append([]string{fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds())}, pragmas...)}
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath(), RawQuery: q.Encode()}
	return sql.Open("sqlite", u.String())
}

// lockDatabase keeps the file for this process as long as the returned handle is open: an exclusive transaction in a
// file beside it, which the operating system gives up when the process dies.
func lockDatabase(ctx context.Context, path string, busy time.Duration) (*sql.DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, databaseError(path, err)
	}
	lock, err := openSQLite(path+".lock", busy)
	if err == nil {
		lock.SetMaxOpenConns(1)
		lock.SetConnMaxLifetime(0)
		_, err = lock.ExecContext(ctx, "BEGIN EXCLUSIVE")
	}
	if err != nil {
		if lock != nil {
			_ = lock.Close()
		}
		return nil, databaseError(path, err)
	}
	return lock, nil
}

// prepare creates the tables in an empty file and refuses a file that is not ours.
func (s *store) prepare(ctx context.Context) error {
	var version, tables int
	if err := s.write.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if err := s.write.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master").Scan(&tables); err != nil {
		return err
	}
	switch {
	case version == schemaVersion:
		return nil
	case version == 0 && tables == 0:
	case version == 0:
		return errNotOurs
	default:
		return errSchema
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, schema); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion)); err != nil {
		return err
	}
	return tx.Commit()
}

var (
	errNotOurs = errors.New("it is a SQLite file of something else; choose another with --db")
	errSchema  = errors.New("it was written by another version of cairn; build it again from the log with: cairn runstore --rebuild")
)

// databaseError is one sentence with the file, what is wrong and what to do.
func databaseError(path string, err error) error {
	var e *sqlite.Error
	hint := ""
	if errors.As(err, &e) {
		switch e.Code() & 0xff {
		case sqlitelib.SQLITE_BUSY, sqlitelib.SQLITE_LOCKED:
			hint = "; another run store has it open: stop that one, or choose another file with --db"
		case sqlitelib.SQLITE_CANTOPEN, sqlitelib.SQLITE_READONLY, sqlitelib.SQLITE_PERM:
			hint = "; the folder or the file cannot be written: choose another with --db"
		case sqlitelib.SQLITE_NOTADB, sqlitelib.SQLITE_CORRUPT:
			hint = "; the file is damaged or not a database: build it again from the log with: cairn runstore --rebuild"
		case sqlitelib.SQLITE_FULL:
			hint = "; the disk is full: make room, the projection goes on by itself"
		}
	} else if errors.Is(err, os.ErrPermission) {
		hint = "; choose another with --db"
	}
	return fmt.Errorf("%w %s: %w%s", ErrDatabase, path, err, hint)
}

// position is how far a partition is projected.
type position struct {
	Sequence uint64
	Number   int64
	Epoch    int64
	Hash     []byte
}

// positions returns those of partitions that have any.
func (s *store) positions(ctx context.Context) (map[int]position, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT partition, sequence, group_number, epoch, group_hash FROM positions")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	m := map[int]position{}
	for rows.Next() {
		var p int
		var at position
		if err := rows.Scan(&p, &at.Sequence, &at.Number, &at.Epoch, &at.Hash); err != nil {
			return nil, err
		}
		m[p] = at
	}
	return m, rows.Err()
}

// Close gives up the file. It may be called on a store that was opened in part.
func (s *store) Close() {
	for _, db := range []*sql.DB{s.read, s.write, s.lock} {
		if db != nil {
			_ = db.Close()
		}
	}
}
