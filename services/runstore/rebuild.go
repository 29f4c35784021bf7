package runstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cairnrun/cairn/pkg/eventlog"
)

// rebuild projects the whole log into a new file and puts it in the place of the old one.
func rebuild(ctx context.Context, c Config, log eventlog.Log, partitions int, now func() time.Time) (err error) {
	begin := now()
	// Held over the exchange: nobody may open the old file meanwhile.
	lock, err := lockDatabase(ctx, c.Database, c.BusyTimeout)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	fresh := c.Database + ".rebuild"
	if err := removeDatabase(fresh); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, removeDatabase(fresh), removeDatabase(fresh+".lock"))
	}()
	groups, err := projectAll(ctx, c, log, fresh, partitions)
	if err != nil {
		return fmt.Errorf("rebuild of %s, which stays as it was: %w", c.Database, err)
	}
	// The old file's side files would be applied to the new one.
	if err := removeDatabase(c.Database); err != nil {
		return err
	}
	if err := os.Rename(fresh, c.Database); err != nil {
		return databaseError(c.Database, err)
	}
	c.Logger.Info("run store built again from the log", "database", c.Database, "groups", groups, "took", now().Sub(begin))
	return nil
}

// projectAll fills an empty file with all that the log holds now.
func projectAll(ctx context.Context, c Config, log eventlog.Log, path string, partitions int) (groups int64, err error) {
	s, err := openStore(ctx, path, c)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	w, err := newWriter(ctx, s.write, c.ChunkBytes)
	if err != nil {
		return 0, databaseError(path, err)
	}
	b := newBatch()
	flush := func() error {
		if b.empty() {
			return nil
		}
		if err := w.write(ctx, b); err != nil {
			return databaseError(path, err)
		}
		b = newBatch()
		return nil
	}
	for p := range partitions {
		chain := &eventlog.Chain{Partition: p}
		err := log.Read(ctx, p, 0, func(m eventlog.Message) error {
			g, err := decode(chain, m)
			if errors.Is(err, eventlog.ErrFork) {
				c.Logger.Warn("skipped a group", "error", err)
				return nil
			}
			if err != nil {
				return err
			}
			groups++
			b.add(g)
			if b.bytes >= c.FlushBytes {
				return flush()
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	if err := flush(); err != nil {
		return 0, err
	}
	// Nothing may be left in the side file when the file is moved.
	if _, err := s.write.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return 0, databaseError(path, err)
	}
	return groups, nil
}

// removeDatabase removes a database with its side files; none is fine.
func removeDatabase(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return databaseError(path, err)
		}
	}
	return nil
}
