package tool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Subjects that a tool service sees. docs/tools.md describes them for other languages.
const (
	ActionPrefix = "cairn.action."
	ResultPrefix = "cairn.result."
	// CancelPrefix and ProgressPrefix are core NATS: not stored, lost when nobody listens.
	CancelPrefix   = "cairn.signal.cancel."
	ProgressPrefix = "cairn.progress."
)

// Streams and buckets that a tool service uses. They are created by cairn init, never by a tool.
const (
	StreamActions   = "CAIRN_ACTIONS"
	StreamResults   = "CAIRN_RESULTS"
	BucketTools     = "CAIRN_TOOLS"
	BucketClaims    = "CAIRN_CLAIMS"
	BucketArtifacts = "CAIRN_ARTIFACTS"
)

// Headers of an action. HeaderAttempt and HeaderContext must stand unchanged on the result.
const (
	// HeaderNotAfter is a time in RFC 3339 with nanoseconds: an action is not started after it.
	HeaderNotAfter = "Cairn-Not-After"
	// HeaderAttempt is the attempt's token: a result with another one is not taken for this action's.
	HeaderAttempt = "Cairn-Attempt"
	// HeaderContext is what the router needs to judge the result, opaque to a tool.
	HeaderContext = "Cairn-Context"
	// HeaderIdempotencyKey is the same for every attempt and delivery of one effect.
	HeaderIdempotencyKey = "Cairn-Idempotency-Key"
	// HeaderIdempotent is "true" or "false"; with "false" the start must be claimed before the effect.
	HeaderIdempotent = "Cairn-Idempotent"
	// HeaderToolVersion is the version that the plan was validated against.
	HeaderToolVersion = "Cairn-Tool-Version"
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
)

// ActionSubject is where the router puts an action; one message a subject.
func ActionSubject(runID, actionID, tool string) string {
	return ActionPrefix + runID + "." + actionID + "." + tool
}

// ResultSubject is where its result goes.
func ResultSubject(runID, actionID, tool string) string {
	return ResultPrefix + runID + "." + actionID + "." + tool
}

// ActionFilter is what a tool's consumer listens to.
func ActionFilter(tool string) string { return ActionPrefix + "*.*." + tool }

// DurableName is the one consumer that all instances of a tool share. It is reversible, since a tool's name holds no "-".
func DurableName(tool string) string { return "tool-" + strings.ReplaceAll(tool, ".", "-") }

// ToolOfDurable is the reverse of DurableName, and "" for another consumer's name.
func ToolOfDurable(durable string) string {
	rest, ok := strings.CutPrefix(durable, "tool-")
	if !ok {
		return ""
	}
	return strings.ReplaceAll(rest, "-", ".")
}

// ClaimKey is an action's key in BucketClaims.
func ClaimKey(runID, actionID string) string { return runID + "." + actionID }

// ClaimSubject is the subject behind ClaimKey: publishing to it with the expected last subject sequence 0 is the claim.
func ClaimSubject(runID, actionID string) string {
	return "$KV." + BucketClaims + "." + ClaimKey(runID, actionID)
}

// ParseSubject splits an action or result subject. ok is false for any other subject.
func ParseSubject(subject string) (runID, actionID, tool string, ok bool) {
	rest, found := strings.CutPrefix(subject, ActionPrefix)
	if !found {
		if rest, found = strings.CutPrefix(subject, ResultPrefix); !found {
			return "", "", "", false
		}
	}
	t := strings.SplitN(rest, ".", 3)
	if len(t) != 3 || t[0] == "" || t[1] == "" || t[2] == "" {
		return "", "", "", false
	}
	return t[0], t[1], t[2], true
}

// AttemptToken is the value of HeaderAttempt.
func AttemptToken(runID, actionID, idempotencyKey string) string {
	sum := sha256.Sum256([]byte(runID + "\x00" + actionID + "\x00" + idempotencyKey))
	return hex.EncodeToString(sum[:8])
}

// maxTokenLength bounds run and action ids in subjects.
const maxTokenLength = 128

// ValidToken says whether s can be one token of a subject: letters, digits, "_", "-", "=", at most 128 bytes.
func ValidToken(s string) bool {
	if s == "" || len(s) > maxTokenLength {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '=':
		default:
			return false
		}
	}
	return true
}

// maxNameLength bounds a tool's name.
const maxNameLength = 64

// ValidName says whether s can be a tool's name: dotted tokens of lower-case letters, digits and "_", each beginning
// with a letter, at most 64 bytes.
func ValidName(s string) bool {
	if s == "" || len(s) > maxNameLength {
		return false
	}
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || token[0] < 'a' || token[0] > 'z' {
			return false
		}
		for i := range len(token) {
			c := token[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
				return false
			}
		}
	}
	return true
}

// ActionMessage is the body of an action. Arguments keeps the exact text of every number.
type ActionMessage struct {
	RunID       string          `json:"run_id"`
	StepID      string          `json:"step_id"`
	ActionID    string          `json:"action_id"`
	Attempt     int             `json:"attempt"`
	Tool        string          `json:"tool"`
	ToolVersion string          `json:"tool_version,omitempty"`
	Arguments   json.RawMessage `json:"arguments"`
}

// Statuses of a result.
const (
	StatusSuccess = "success"
	StatusError   = "error"
	// StatusPartial carries both an output and an error.
	StatusPartial = "partial"
)

// ResultMessage is the body of a result.
type ResultMessage struct {
	Status string `json:"status"`
	// Output is the exact JSON of the output; null is a legal one.
	Output json.RawMessage `json:"output,omitempty"`
	// OutputArtifact stands for an output that does not fit into a message.
	OutputArtifact *Artifact  `json:"output_artifact,omitempty"`
	Error          *WireError `json:"error,omitempty"`
	Usage          *Usage     `json:"usage,omitempty"`
	// ExecutedBy names host or instance.
	ExecutedBy string `json:"executed_by,omitempty"`
	// StartedAt is RFC 3339.
	StartedAt *time.Time `json:"started_at,omitempty"`
	Duration  Duration   `json:"duration,omitempty"`
}

// WireError is an error as it travels.
type WireError struct {
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
	// Retryable absent: the code table and the tool's definition say.
	Retryable  *bool           `json:"retryable,omitempty"`
	Details    json.RawMessage `json:"details,omitempty"`
	RetryAfter Duration        `json:"retry_after,omitempty"`
}

// Artifact is an object in BucketArtifacts, named by the lower-case hex sha256 of its bytes.
type Artifact struct {
	SHA256    string `json:"sha256"`
	Size      int64  `json:"size"`
	MediaType string `json:"media_type,omitempty"`
}

// Usage is what a model call cost.
type Usage struct {
	InputTokens  int64  `json:"input_tokens,omitempty"`
	OutputTokens int64  `json:"output_tokens,omitempty"`
	Model        string `json:"model,omitempty"`
}

// ProgressMessage is what a tool may publish on ProgressPrefix + run while it works.
type ProgressMessage struct {
	RunID    string `json:"run_id"`
	StepID   string `json:"step_id"`
	ActionID string `json:"action_id"`
	Tool     string `json:"tool"`
	// Fraction is 0 to 1; absent: not known.
	Fraction *float64        `json:"fraction,omitempty"`
	Message  string          `json:"message,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
}

// CancelMessage is the body of the cancel signal. An empty body or an empty ActionID means every action of the run.
type CancelMessage struct {
	ActionID string `json:"action_id,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// Claim states.
const (
	ClaimStarted = "started"
	// ClaimRevoked: the action was given up before its start and must not be executed.
	ClaimRevoked = "revoked"
)

// ClaimMessage is the value of a claim. Only that the key exists decides; the value is for people and for the claimer.
type ClaimMessage struct {
	State string    `json:"state"`
	By    string    `json:"by"`
	At    time.Time `json:"at"`
	// Token is unique per try, so that a claimer whose answer was lost knows its own claim again.
	Token string `json:"token,omitempty"`
}

// Duration travels as decimal seconds with an "s": "30s", "0.25s". Anything time.ParseDuration takes is read.
type Duration time.Duration

// MarshalJSON writes seconds.
func (d Duration) MarshalJSON() ([]byte, error) { return []byte(`"` + d.String() + `"`), nil }

// UnmarshalJSON reads a duration with its unit.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("duration %s: want a string as \"30s\"", b)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("duration %q: want a string as \"30s\"", s)
	}
	*d = Duration(v)
	return nil
}

// String is decimal seconds, as "1.5s".
func (d Duration) String() string {
	sign, v := "", time.Duration(d)
	if v < 0 {
		sign, v = "-", -v
	}
	s := strings.TrimRight(fmt.Sprintf("%s%d.%09d", sign, int64(v/time.Second), int64(v%time.Second)), "0")
	return strings.TrimSuffix(s, ".") + "s"
}

// encode is JSON as it should travel: compact, and without the escaping for HTML that would change the text of values.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Encode is the body of m.
func (m *ActionMessage) Encode() ([]byte, error) { return encode(m) }

// Encode is the body of m.
func (m *ResultMessage) Encode() ([]byte, error) { return encode(m) }

// Encode is the body of m.
func (m *ClaimMessage) Encode() ([]byte, error) { return encode(m) }

// Encode is the body of m.
func (m *CancelMessage) Encode() ([]byte, error) { return encode(m) }
