package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrInUse says that another process has the kept folder.
var ErrInUse = errors.New("folder in use")

// Holder is the process that has a kept folder, as it says itself in the folder's lock file.
type Holder struct {
	PID     int    `json:"pid"`
	Gateway string `json:"gateway,omitempty"`
}

type lock struct{ file *os.File }

// acquire takes the folder, or says who has it.
func acquire(dir string) (*lock, error) {
	f, err := os.OpenFile(lockPath(dir), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("folder %s cannot be written: %w; choose another with --dir", dir, err)
	}
	ok, err := tryLock(f, true)
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock folder %s: %w", dir, err)
	}
	if !ok {
		h := readHolder(f)
		_ = f.Close()
		return nil, fmt.Errorf("%w: %s belongs to process %d; stop it, or choose another with --dir", ErrInUse, dir, h.PID)
	}
	l := &lock{file: f}
	return l, l.say(Holder{PID: os.Getpid()})
}

// say writes who has the folder and where it can be asked.
func (l *lock) say(h Holder) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := l.file.Truncate(0); err != nil {
		return fmt.Errorf("write %s: %w", l.file.Name(), err)
	}
	if _, err := l.file.WriteAt(text, 0); err != nil {
		return fmt.Errorf("write %s: %w", l.file.Name(), err)
	}
	return nil
}

func (l *lock) release() {
	_ = l.file.Truncate(0)
	_ = l.file.Close()
}

// Held says whether a process has the kept folder, and which.
func Held(dir string) (Holder, bool, error) {
	f, err := os.Open(lockPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return Holder{}, false, nil
	}
	if err != nil {
		return Holder{}, false, fmt.Errorf("folder %s: %w", dir, err)
	}
	defer func() { _ = f.Close() }()
	free, err := tryLock(f, false)
	if err != nil {
		return Holder{}, false, fmt.Errorf("folder %s: %w", dir, err)
	}
	if free {
		return Holder{}, false, nil
	}
	return readHolder(f), true, nil
}

func readHolder(f *os.File) Holder {
	var h Holder
	if data, err := io.ReadAll(io.NewSectionReader(f, 0, 4096)); err == nil {
		// An empty or half-written file leaves the holder unknown.
		_ = json.Unmarshal(data, &h)
	}
	return h
}

// Exists says whether dir is a kept folder.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, busFolder))
	return err == nil
}

func lockPath(dir string) string { return filepath.Join(dir, "lock") }
