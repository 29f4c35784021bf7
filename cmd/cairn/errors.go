package main

import (
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// nextStep says, by the reason that the server gives, what to type next.
var nextStep = map[string]string{
	"key_reused":  "choose another --request-id",
	"unknown_run": "\"cairn list\" shows the runs",
}

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
	b.WriteString(s.Message())
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && nextStep[info.GetReason()] != "" {
			b.WriteString("; " + nextStep[info.GetReason()])
		}
	}
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
