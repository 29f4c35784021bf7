//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the run store's database
)

// checkStore ends the run store and compares its rows with those of one made anew from the log. Every service has ended
// before, so that the log does not grow meanwhile.
func (s *system) checkStore(ctx context.Context, v *verdict) {
	var store *process
	for _, p := range s.services {
		if p.name == "runstore" {
			store = p
			continue
		}
		<-p.signal(syscall.SIGTERM)
	}
	// What the others wrote last is read now.
	time.Sleep(time.Second)
	<-store.signal(syscall.SIGTERM)
	fresh := filepath.Join(s.dir, "fresh.db")
	if err := s.command(ctx, "runstore", "--nats", s.url, "--db", fresh, "--rebuild"); err != nil {
		v.add("rebuild: %v", err)
		return
	}
	for _, table := range []string{"positions", "runs", "run_terms", "commits"} {
		live, err := rows(ctx, s.database(), table)
		if err != nil {
			v.add("run store: %v", err)
			return
		}
		again, err := rows(ctx, fresh, table)
		if err != nil {
			v.add("rebuilt run store: %v", err)
			return
		}
		for r := range live {
			if !again[r] {
				v.add("table %s: only the live run store has %.300s", table, r)
			}
		}
		for r := range again {
			if !live[r] {
				v.add("table %s: only the rebuilt run store has %.300s", table, r)
			}
		}
	}
}

// rows reads a table's rows as text.
func rows(ctx context.Context, path, table string) (map[string]bool, error) {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	found, err := db.QueryContext(ctx, "SELECT * FROM "+table)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", table, path, err)
	}
	defer func() { _ = found.Close() }()
	columns, err := found.Columns()
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for found.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := found.Scan(values...); err != nil {
			return nil, err
		}
		text := ""
		for i := range values {
			text += fmt.Sprintf("%s=%v ", columns[i], *values[i].(*any))
		}
		all[text] = true
	}
	return all, found.Err()
}
