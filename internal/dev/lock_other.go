//go:build !unix

package dev

import "os"

// tryLock always succeeds where the system has no file locks: there two processes on one folder are not noticed.
func tryLock(*os.File, bool) (bool, error) { return true, nil }
