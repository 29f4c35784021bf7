package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is the provider's refusal of a request, in its own words.
type Error struct {
	// Status of HTTP; 0 for an error inside a stream.
	Status int
	// Code and Type are the provider's: invalid_api_key, context_length_exceeded, ….
	Code, Type, Param string
	Message           string
	// RetryAfter is how long the provider asks to wait; 0 where it did not say.
	RetryAfter time.Duration
	// Calls made over HTTP, repeats included.
	Calls int
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("the model's provider answered")
	if e.Status != 0 {
		fmt.Fprintf(&b, " %d", e.Status)
	}
	if e.Code != "" {
		fmt.Fprintf(&b, " (%s)", e.Code)
	}
	b.WriteString(": " + e.Message)
	return b.String()
}

// Retryable tells whether the same request may succeed later: rate limits and trouble of the provider, not a quota that is
// used up and not a request that it refuses.
func (e *Error) Retryable() bool {
	switch {
	case e.Code == "insufficient_quota" || e.Type == "insufficient_quota":
		return false
	case e.Status == http.StatusRequestTimeout, e.Status == http.StatusTooEarly, e.Status == http.StatusTooManyRequests:
		return true
	case e.Status == http.StatusNotImplemented:
		return false
	case e.Status == 0:
		// An error inside a stream that began with 200 is the server's.
		return true
	}
	return e.Status >= 500
}

// maxErrorText bounds an error message that is no JSON, in bytes.
const maxErrorText = 1 << 10

// readError makes an Error of a body, in the shapes that servers use: {"error": {…}}, {"error": "text"}, a list of one,
// {"message": …}, {"detail": …}, plain text.
func readError(status int, header http.Header, body []byte, now time.Time) *Error {
	e := &Error{Status: status, RetryAfter: retryAfter(header, now)}
	e.fill(body)
	if e.Message == "" {
		e.Message = strings.TrimSpace(strings.ToValidUTF8(string(body[:min(len(body), maxErrorText)]), ""))
	}
	if e.Message == "" {
		e.Message = http.StatusText(status)
	}
	return e
}

func (e *Error) fill(body []byte) {
	body = bytes.TrimSpace(body)
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	var outer struct {
		Error   json.RawMessage `json:"error"`
		Message json.RawMessage `json:"message"`
		Detail  json.RawMessage `json:"detail"`
		Code    json.RawMessage `json:"code"`
		Type    json.RawMessage `json:"type"`
		Param   json.RawMessage `json:"param"`
	}
	if json.Unmarshal(body, &outer) != nil {
		var text string
		if json.Unmarshal(body, &text) == nil {
			e.Message = text
		}
		return
	}
	if len(outer.Error) > 0 && string(outer.Error) != "null" {
		e.fill(outer.Error)
		return
	}
	e.Code, e.Type, e.Param = plain(outer.Code), plain(outer.Type), plain(outer.Param)
	if e.Message = plain(outer.Message); e.Message == "" {
		e.Message = plain(outer.Detail)
	}
}

// plain is a string's value, or a number's or another value's text; empty for null.
func plain(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	if string(raw) == "null" {
		return ""
	}
	return string(raw)
}

func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e9 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 && s < 1e6 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}
