package runstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cairnrun/cairn/pkg/run"
)

// domain of every ErrorInfo, the same as the gateway's.
const domain = "cairn.run"

// Reasons of ErrorInfo; stable.
const (
	reasonUnknownRun        = "unknown_run"
	reasonUnknownEvent      = "unknown_event"
	reasonUnknownStep       = "unknown_step"
	reasonInvalidArgument   = "invalid_argument"
	reasonRevisionAhead     = "revision_ahead"
	reasonHeadMissing       = "log_head_missing"
	reasonNotProjected      = "not_projected"
	reasonProjectionStopped = "projection_stopped"
	reasonShuttingDown      = "shutting_down"
	reasonUnknownEventType  = "unknown_event_type"
	reasonTooLarge          = "response_too_large"
	reasonInternal          = "internal"
)

// failure makes an error with ErrorInfo and further details.
func failure(code codes.Code, reason, text string, meta map[string]string, details ...protoadapt.MessageV1) error {
	st := status.New(code, text)
	details = append([]protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: domain, Metadata: meta}}, details...)
	if with, err := st.WithDetails(details...); err == nil {
		st = with
	}
	return st.Err()
}

func runNotFound(runID string) error {
	return failure(codes.NotFound, reasonUnknownRun, fmt.Sprintf("run %q is not known; after a submit, ask with the position that it answered", shorten(runID, 80)),
		map[string]string{"run_id": shorten(runID, 80)})
}

// invalid names the field of the request that is wrong.
func invalid(field, text string) error {
	return failure(codes.InvalidArgument, reasonInvalidArgument, field+": "+text, map[string]string{"field": field},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: text, Reason: reasonInvalidArgument}}})
}

// tryAgain says when to ask again.
func tryAgain(reason, text string, after time.Duration) error {
	return failure(codes.Unavailable, reason, text, nil, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
}

func shuttingDown() error {
	return tryAgain(reasonShuttingDown, "the run store is shutting down; ask again, a watch from the revision it has", time.Second)
}

// asStatus turns what reading gave into an answer.
func asStatus(runID string, err error) error {
	var stopped *stoppedError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNoRun):
		return runNotFound(runID)
	case errors.As(err, &stopped):
		return failure(codes.Unavailable, reasonProjectionStopped, stopped.Error(), map[string]string{"partition": fmt.Sprint(stopped.partition)})
	case errors.Is(err, run.ErrUnknownEvent):
		return failure(codes.FailedPrecondition, reasonUnknownEventType, fmt.Sprintf("run %s: %v; start a newer run store", runID, err), map[string]string{"run_id": runID})
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return failure(codes.Internal, reasonInternal, fmt.Sprintf("run %s: %v", runID, err), nil)
}
