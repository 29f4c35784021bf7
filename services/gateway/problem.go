package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// errorDomain stands in every ErrorInfo.
const errorDomain = "cairn.run"

// Reasons of ErrorInfo: stable, for programs. Refusals of the core keep the core's code as their reason.
const (
	reasonInvalidID       = "invalid_id"
	reasonInvalidArgument = "invalid_argument"
	reasonInvalidJSON     = "invalid_json"
	reasonMissing         = "missing_field"
	reasonPlanTooLarge    = "plan_too_large"
	reasonTooLarge        = "request_too_large"
	reasonFieldTooLarge   = "field_too_large"
	reasonTooMany         = "too_many"
	reasonPatchRejected   = "patch_rejected"
	reasonVersionConflict = "version_conflict"
	reasonKeyReused       = "key_reused"
	reasonRunClosed       = "run_closed"
	reasonUnknownRun      = "unknown_run"
	reasonSchemaInvalid   = "schema_invalid"
	reasonUnknownTool     = "unknown_tool"
	reasonUnknownArtifact = "unknown_artifact"
	reasonNotReady        = "not_ready"
	reasonNoAnswer        = "no_answer"
	reasonBusAway         = "bus_unavailable"
	reasonStoreAway       = "run_store_unavailable"
	reasonDraining        = "shutting_down"
	reasonTooManyWatchers = "too_many_watchers"
	reasonUnauthenticated = "unauthenticated"
	reasonForbidden       = "tenant_not_permitted"
	reasonForbiddenOrigin = "origin_not_permitted"
	reasonNotFound        = "unknown_path"
	reasonMethod          = "method_not_allowed"
	reasonInternal        = "internal"
)

// retryPause is what RetryInfo advises where nothing better is known.
const retryPause = time.Second

// httpStatuses are the reasons whose HTTP status is not that of their gRPC code.
var httpStatuses = map[string]int{
	reasonPlanTooLarge:  http.StatusRequestEntityTooLarge,
	reasonTooLarge:      http.StatusRequestEntityTooLarge,
	reasonFieldTooLarge: http.StatusRequestEntityTooLarge,
	reasonRunClosed:     http.StatusConflict,
	reasonMethod:        http.StatusMethodNotAllowed,
}

// violation is one field that is wrong; the path is that of the request message, or a JSON pointer into a document.
type violation struct {
	field, reason, text string
}

// problem is an answer that says no, with all that a client needs to branch on.
type problem struct {
	code       codes.Code
	reason     string
	message    string
	metadata   map[string]string
	violations []violation
	// retry over 0 tells the client that the same request may be sent again after it.
	retry time.Duration
}

func (p *problem) Error() string { return p.message }

// GRPCStatus makes a problem an answer of gRPC, details included.
func (p *problem) GRPCStatus() *status.Status {
	s := status.New(p.code, p.message)
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Domain: errorDomain, Reason: p.reason, Metadata: p.metadata}}
	if len(p.violations) > 0 {
		bad := &errdetails.BadRequest{}
		for _, v := range p.violations {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: v.field, Reason: v.reason, Description: v.text,
			})
		}
		details = append(details, bad)
	}
	if p.retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(p.retry)})
	}
	if with, err := s.WithDetails(details...); err == nil {
		return with
	}
	return s
}

func (p *problem) with(key, value string) *problem {
	if p.metadata == nil {
		p.metadata = map[string]string{}
	}
	p.metadata[key] = value
	return p
}

func newProblem(code codes.Code, reason, format string, args ...any) *problem {
	return &problem{code: code, reason: reason, message: fmt.Sprintf(format, args...)}
}

// unavailable is a problem that the same request may meet no more after a pause.
func unavailable(reason, format string, args ...any) *problem {
	p := newProblem(codes.Unavailable, reason, format, args...)
	p.retry = retryPause
	return p
}

// invalid makes one answer of all violations; the first gives the reason. No violation: nil.
func invalid(violations []violation) error {
	if len(violations) == 0 {
		return nil
	}
	first := violations[0]
	p := newProblem(codes.InvalidArgument, first.reason, "%s: %s", first.field, first.text)
	switch {
	case httpStatuses[first.reason] == http.StatusRequestEntityTooLarge:
		p.code = codes.ResourceExhausted
	case len(violations) > 1:
		p.message += fmt.Sprintf(" (and %d more)", len(violations)-1)
	}
	p.violations = violations
	return p
}

// fromFindings shows what the validator said of a document: each error as a violation at its JSON pointer.
func fromFindings(field string, findings []*planv1.Finding) []violation {
	var vs []violation
	for _, f := range findings {
		if f.GetSeverity() != planv1.Severity_SEVERITY_ERROR {
			continue
		}
		text := f.GetMessage()
		if f.GetHint() != "" {
			text = strings.TrimRight(text, ".") + "; " + f.GetHint()
		}
		vs = append(vs, violation{field: field + f.GetPointer(), reason: f.GetCode(), text: text})
	}
	return vs
}

// reasonOf returns the ErrorInfo reason of an error, "" where it has none.
func reasonOf(err error) string {
	var p *problem
	if errors.As(err, &p) {
		return p.reason
	}
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// retryOf returns the RetryInfo delay of an error, 0 where it has none.
func retryOf(s *status.Status) time.Duration {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}
