package main

import (
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
