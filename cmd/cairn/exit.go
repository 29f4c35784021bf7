package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Exit codes, the same for every command; "cairn help exit-codes" explains them.
const (
	exitCompleted   = 0
	exitFailed      = 1
	exitBadInput    = 2
	exitCancelled   = 3
	exitUnavailable = 4
	// exitInterrupted is what a shell says of a command that SIGINT ended.
	exitInterrupted = 130
)

const exitCodesHelp = `Exit codes of every command:

    0  done; for run, submit --wait and watch: the run completed
    1  the run failed, replay --verify found a difference, or something unexpected happened
    2  bad input: a flag, a file, a plan that is refused, an unknown run, an answer that does not fit
    3  the run was cancelled
    4  unavailable: no server answers, a port or the kept folder is taken, a folder cannot be written
  130  interrupted (Ctrl-C, SIGTERM) before it was done; a run that was submitted goes on
`

// exit is an error with its exit code. Without err there is nothing more to say.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

func badInput(err error) error {
	if err == nil {
		return nil
	}
	return &exit{exitBadInput, err}
}

func badInputf(format string, args ...any) error { return badInput(fmt.Errorf(format, args...)) }

func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &exit{exitUnavailable, err}
}

// exitCode of what a command returned.
func exitCode(err error) int {
	var e *exit
	switch {
	case err == nil:
		return exitCompleted
	case errors.As(err, &e):
		return e.code
	case errors.Is(err, client.ErrUnavailable):
		return exitUnavailable
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	if s, ok := status.FromError(err); ok {
		switch s.Code() {
		case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.AlreadyExists, codes.OutOfRange,
			codes.PermissionDenied, codes.Unauthenticated, codes.Aborted:
			return exitBadInput
		case codes.ResourceExhausted:
			// Too large is the caller's matter; what can be tried again later is not.
			if slices.ContainsFunc(s.Details(), func(d any) bool { _, later := d.(*errdetails.RetryInfo); return later }) {
				return exitUnavailable
			}
			return exitBadInput
		case codes.Unavailable, codes.DeadlineExceeded:
			return exitUnavailable
		case codes.Canceled:
			return exitInterrupted
		}
	}
	return exitFailed
}

// ended is what a command that waited for a run returns.
func ended(e *runv1.Event) error {
	switch {
	case e.GetRunFailed() != nil:
		return &exit{code: exitFailed}
	case e.GetRunCancelled() != nil:
		return &exit{code: exitCancelled}
	}
	return nil
}
