package tool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Definition is a tool's entry in BucketTools, under its name.
type Definition struct {
	Name         string          `json:"name"`
	Version      string          `json:"version,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	Permission   string          `json:"permission,omitempty"`
	// Risk is "low", "medium", "high" or empty.
	Risk            string   `json:"risk,omitempty"`
	Timeout         Duration `json:"timeout,omitempty"`
	RetryableErrors []string `json:"retryable_errors,omitempty"`
	Idempotent      bool     `json:"idempotent,omitempty"`
	// Digest is DefinitionDigest of the others.
	Digest string `json:"digest,omitempty"`
}

// Encode is the value that is registered.
func (d Definition) Encode() ([]byte, error) { return encode(d) }

func (d *Definition) seal() error {
	text, err := d.Encode()
	if err != nil {
		return err
	}
	d.Digest, err = DefinitionDigest(text)
	return err
}

// DefinitionDigest is the digest of a definition's JSON: lower-case hex of sha256 over it without "digest" and without
// members that say nothing ("", false, null, []), keys sorted, no white space, number texts kept.
func DefinitionDigest(definition []byte) (string, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(definition, &members); err != nil {
		return "", fmt.Errorf("tool definition: want a JSON object: %w", err)
	}
	delete(members, "digest")
	for k, v := range members {
		switch string(bytes.TrimSpace(v)) {
		case `""`, "false", "null", "[]":
			delete(members, k)
		}
	}
	var b bytes.Buffer
	if err := canonicalObject(&b, members); err != nil {
		return "", fmt.Errorf("tool definition: %w", err)
	}
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:]), nil
}

func canonicalObject(b *bytes.Buffer, members map[string]json.RawMessage) error {
	keys := make([]string, 0, len(members))
	for k := range members {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := encode(k)
		if err != nil {
			return err
		}
		b.Write(name)
		b.WriteByte(':')
		if err := canonicalValue(b, members[k]); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func canonicalValue(b *bytes.Buffer, v json.RawMessage) error {
	v = bytes.TrimSpace(v)
	if len(v) == 0 {
		return errors.New("an empty value is not JSON")
	}
	switch v[0] {
	case '{':
		var members map[string]json.RawMessage
		if err := json.Unmarshal(v, &members); err != nil {
			return err
		}
		return canonicalObject(b, members)
	case '[':
		var items []json.RawMessage
		if err := json.Unmarshal(v, &items); err != nil {
			return err
		}
		b.WriteByte('[')
		for i, item := range items {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := canonicalValue(b, item); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case '"':
		var s string
		if err := json.Unmarshal(v, &s); err != nil {
			return err
		}
		text, err := encode(s)
		if err != nil {
			return err
		}
		b.Write(text)
	default:
		b.Write(v)
	}
	return nil
}

// olderVersion says whether version a is below b, comparing dotted numbers as numbers and anything else as text.
func olderVersion(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		x, y := "0", "0"
		if i < len(as) {
			x = as[i]
		}
		if i < len(bs) {
			y = bs[i]
		}
		if x == y {
			continue
		}
		nx, errX := strconv.Atoi(x)
		ny, errY := strconv.Atoi(y)
		if errX == nil && errY == nil {
			return nx < ny
		}
		return x < y
	}
	return false
}
