//go:build unix

package dev

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes the file's lock for this process; the system gives it back when the process ends, however it ends.
func tryLock(f *os.File, exclusive bool) (bool, error) {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
