package main

import (
	"os"
	"sync"
)

// lazyFile is a log file that is created when the first line is written, so that nothing is left where nothing started.
type lazyFile struct {
	path string
	mu   sync.Mutex
	file *os.File
}

func (l *lazyFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
		if err != nil {
			return 0, err
		}
		l.file = f
	}
	return l.file.Write(p)
}
