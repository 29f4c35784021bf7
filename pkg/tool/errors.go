package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Error is what a tool answers instead of, or besides, an output.
type Error struct {
	// Code is one of the code table or the tool's own: lower-case words joined by "_".
	Code    string
	Message string
	// Details is any JSON.
	Details json.RawMessage
	// RetryAfter is how long to wait before a repeat; 0: the run's policy says.
	RetryAfter time.Duration

	retryable *bool
	partial   bool
	cause     error
}

// Errorf makes an error with a code. %w wraps.
func Errorf(code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), cause: errors.Unwrap(err)}
}

// Error is code and message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Unwrap is the wrapped error, if any.
func (e *Error) Unwrap() error { return e.cause }

// WithDetails adds JSON details; what cannot be marshalled is left out.
func (e *Error) WithDetails(v any) *Error {
	c := *e
	if b, err := encode(v); err == nil {
		c.Details = b
	}
	return &c
}

// Retryable says that a repeat of the call may succeed, whatever the code table says. after is how long to wait first;
// 0: the run's policy says.
func Retryable(err error, after time.Duration) *Error { return mark(err, true, after) }

// Permanent says that a repeat of the call is of no use, whatever the code table says.
func Permanent(err error) *Error { return mark(err, false, 0) }

func mark(err error, retryable bool, after time.Duration) *Error {
	e := asError(err)
	e.retryable = &retryable
	e.RetryAfter = after
	return e
}

// Partial says that the output returned beside the error is worth keeping.
func Partial(err error) *Error {
	e := asError(err)
	e.partial = true
	return e
}

// asError copies a typed error, or makes one of the code "internal".
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		c := *e
		return &c
	}
	return &Error{Code: CodeInternal, Message: err.Error(), cause: err}
}

func (e *Error) wire() *WireError {
	code := e.Code
	if code == "" {
		code = CodeInternal
	}
	return &WireError{Code: code, Message: e.Message, Retryable: e.retryable, Details: e.Details, RetryAfter: Duration(e.RetryAfter)}
}
