package run

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// object writes a JSON object, names in the order given.
type object struct{ b []byte }

func (o *object) name(n string) {
	if len(o.b) == 0 {
		o.b = append(o.b, '{')
	} else {
		o.b = append(o.b, ',')
	}
	o.b = appendText(o.b, n)
	o.b = append(o.b, ':')
}

func (o *object) str(n, v string) *object {
	o.name(n)
	o.b = appendText(o.b, v)
	return o
}

func (o *object) int(n string, v int64) *object {
	o.name(n)
	o.b = strconv.AppendInt(o.b, v, 10)
	return o
}

func (o *object) bool(n string, v bool) *object {
	o.name(n)
	o.b = strconv.AppendBool(o.b, v)
	return o
}

// raw takes exact JSON text.
func (o *object) raw(n, text string) *object {
	o.name(n)
	o.b = append(o.b, text...)
	return o
}

// members takes over the members of an object as it is written here.
func (o *object) members(t *planv1.JsonText) *object {
	if text := t.GetText(); len(text) > 2 && text[0] == '{' {
		o.b = append(o.b, text[:len(text)-1]...)
	}
	return o
}

func (o *object) strs(n string, list []string) *object {
	o.name(n)
	o.b = append(o.b, '[')
	for i, s := range list {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = appendText(o.b, s)
	}
	o.b = append(o.b, ']')
	return o
}

func (o *object) json() *planv1.JsonText {
	if len(o.b) == 0 {
		return &planv1.JsonText{Text: "{}"}
	}
	return &planv1.JsonText{Text: string(append(o.b, '}'))}
}

func values() *object { return &object{} }

// appendText appends a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return plan.StringValue(s).Append(b)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// valueText is a value as JSON text, where it must stand inside another one: an artifact is shown as what it is.
func valueText(v *runv1.Value) string {
	switch b := v.GetValue().(type) {
	case *runv1.Value_Inline:
		if t := b.Inline.GetText(); t != "" {
			return t
		}
	case *runv1.Value_Artifact:
		a := b.Artifact
		inner := values().str("name", a.GetName()).str("sha256", a.GetSha256()).int("size", a.GetSize()).str("media_type", a.GetMediaType()).json()
		return values().raw("artifact", inner.GetText()).json().GetText()
	}
	return "null"
}

func inline(t *planv1.JsonText) *runv1.Value {
	return &runv1.Value{Value: &runv1.Value_Inline{Inline: t}}
}

// fault makes an error of a code, with the class and retryability of the code table.
func fault(code, format string, args ...any) *runv1.Error {
	class, retryable := Classify(code)
	message := format
	if len(args) > 0 {
		message = fmt.Sprintf(format, args...)
	}
	return &runv1.Error{Code: code, Message: message, Class: class, Retryable: retryable}
}

func withDetails(e *runv1.Error, details *planv1.JsonText) *runv1.Error {
	e.Details = details
	return e
}

// withResult adds the value that was not as expected to an error's details, exact, under a name; of one that is too large
// or an artifact, its size and sha256, under that name and "_omitted".
func withResult(e *runv1.Error, name string, v *runv1.Value) *runv1.Error {
	o := values().members(e.GetDetails())
	a, text := v.GetArtifact(), v.GetInline().GetText()
	switch {
	case a != nil:
		o.raw(name+"_omitted", values().int("size", a.GetSize()).str("sha256", a.GetSha256()).json().GetText())
	case text == "":
		return e
	case len(text) <= MaxResultInDetails:
		o.raw(name, text)
	default:
		sum := sha256.Sum256([]byte(text))
		o.raw(name+"_omitted", values().int("size", int64(len(text))).str("sha256", hex.EncodeToString(sum[:])).json().GetText())
	}
	return withDetails(e, o.json())
}

// classed returns the error with its class filled in, unchanged where it has one.
func classed(e *runv1.Error) *runv1.Error {
	if e == nil {
		return fault("internal", "the tool failed and did not say why")
	}
	if e.GetClass() != runv1.FaultClass_FAULT_CLASS_UNSPECIFIED && e.GetCode() != "" {
		return e
	}
	code := e.GetCode()
	if code == "" {
		code = "internal"
	}
	class := e.GetClass()
	if class == runv1.FaultClass_FAULT_CLASS_UNSPECIFIED {
		class, _ = Classify(code)
	}
	return &runv1.Error{Code: code, Message: e.GetMessage(), Class: class, Retryable: e.GetRetryable(), Details: e.GetDetails(), RetryAfter: e.GetRetryAfter()}
}

// isApproval reads {"approved": true}.
func isApproval(answer *planv1.JsonText) bool {
	v, ok := plan.AtPath(answer, "approved")
	return ok && v.GetText() == "true"
}

// decisionOf reads {"decision": "retry"}.
func decisionOf(answer *planv1.JsonText) string {
	v, ok := plan.AtPath(answer, "decision")
	if !ok {
		return ""
	}
	s, err := plan.ParseValue(v.GetText())
	if err != nil {
		return ""
	}
	return s.Text()
}

func laterOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
