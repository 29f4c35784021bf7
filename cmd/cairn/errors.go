package main

import (
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// nextStep says, by the reason that the server gives, what to type next.
var nextStep = map[string]string{
	"key_reused":      "choose another --request-id",
	"unknown_run":     "\"cairn list\" shows the runs",
	"unknown_tool":    "\"cairn tool list\" shows those that are",
	"unknown_request": "\"cairn get RUN\" shows what is asked",
	"invalid_answer":  "\"cairn get RUN\" shows what is taken",
}

// forPrograms are the reasons whose message ends with what a caller of the API does next.
var forPrograms = []string{"unknown_run", "unknown_tool"}

// errorText is what is shown of an error: the sentence, and a line for each field that is wrong. Empty: nothing.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	s, ok := status.FromError(err)
	if !ok {
		return err.Error()
	}
	var b strings.Builder
	text := s.Message()
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && nextStep[info.GetReason()] != "" {
			if slices.Contains(forPrograms, info.GetReason()) {
				text, _, _ = strings.Cut(text, "; ")
			}
			text += "; " + nextStep[info.GetReason()]
		}
	}
	b.WriteString(text)
	for _, d := range s.Details() {
		bad, ok := d.(*errdetails.BadRequest)
		if !ok {
			continue
		}
		for _, v := range bad.GetFieldViolations() {
			if !strings.Contains(s.Message(), v.GetDescription()) {
				b.WriteString("\n  " + v.GetField() + ": " + v.GetDescription())
			}
		}
	}
	return b.String()
}

// errorJSON is an error as one line of JSON: {"error": {"exit_code", "reason", "message", "violations"}}. The reason and the
// fields that are wrong are the server's, where it was one that refused.
func errorJSON(err error) string {
	type violation struct {
		Field       string `json:"field"`
		Description string `json:"description"`
		Reason      string `json:"reason,omitempty"`
	}
	var out struct {
		Error struct {
			ExitCode   int         `json:"exit_code"`
			Reason     string      `json:"reason,omitempty"`
			Message    string      `json:"message"`
			Violations []violation `json:"violations,omitempty"`
		} `json:"error"`
	}
	e := &out.Error
	e.ExitCode, e.Message = exitCode(err), errorText(err)
	if s, ok := status.FromError(err); ok {
		for _, d := range s.Details() {
			switch d := d.(type) {
			case *errdetails.ErrorInfo:
				e.Reason = d.GetReason()
			case *errdetails.BadRequest:
				for _, v := range d.GetFieldViolations() {
					e.Violations = append(e.Violations, violation{v.GetField(), v.GetDescription(), v.GetReason()})
				}
			}
		}
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	// A struct of texts and a number has no way to fail.
	_ = enc.Encode(out)
	return strings.TrimSpace(b.String())
}
