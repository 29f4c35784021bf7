package llm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// ErrTooLarge says that the answer is over MaxResponseBytes.
var ErrTooLarge = errors.New("the model's answer is too large")

// ErrInterrupted says that the stream ended before the answer did.
var ErrInterrupted = errors.New("the model's stream ended before its answer")

// events reads server-sent events. Lines end at CR, LF or CRLF and at nothing else: U+0085 and U+2028 are text.
type events struct {
	r        *bufio.Reader
	lastCR   bool
	maxBytes int64
	read     int64
}

func newEvents(r io.Reader, maxBytes int64) *events {
	e := &events{r: bufio.NewReader(r), maxBytes: maxBytes}
	if bom, err := e.r.Peek(3); err == nil && string(bom) == "\xef\xbb\xbf" {
		_, _ = e.r.Discard(3)
	}
	return e
}

// next returns the data of the next event that has some, and io.EOF after the last. Bytes after the last blank line are an
// event too: some servers forget it.
func (e *events) next() ([]byte, error) {
	var data []byte
	has := false
	for {
		line, err := e.line()
		if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
			if errors.Is(err, io.EOF) && has {
				return data, nil
			}
			return nil, err
		}
		switch {
		case len(line) == 0:
			if has {
				return data, nil
			}
		case bytes.HasPrefix(line, []byte("data:")):
			if has {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(line[len("data:"):], []byte(" "))...)
			has = true
		}
	}
}

func (e *events) line() ([]byte, error) {
	var line []byte
	for {
		b, err := e.r.ReadByte()
		if err != nil {
			return line, err
		}
		if e.read++; e.read > e.maxBytes {
			return nil, fmt.Errorf("%w: over %d bytes", ErrTooLarge, e.maxBytes)
		}
		afterCR := e.lastCR
		e.lastCR = b == '\r'
		switch {
		case b == '\n' && afterCR:
		case b == '\n', b == '\r':
			return line, nil
		default:
			line = append(line, b)
		}
	}
}

// text gathers a JSON string that comes in pieces, each a JSON string of its own. Joined before unquoting, so that a
// character split into two surrogate escapes is whole again.
type text struct {
	raw []byte
	// told is how much of raw has been given to the listener.
	told int
}

func (t *text) add(piece json.RawMessage) error {
	if len(piece) == 0 || string(piece) == "null" {
		return nil
	}
	if piece[0] != '"' {
		s, err := contentText(piece)
		if err != nil {
			return err
		}
		piece, _ = json.Marshal(s)
	}
	t.raw = append(t.raw, piece[1:len(piece)-1]...)
	return nil
}

func (t *text) String() string { return unquote(t.raw) }

// fresh returns what has come since the last call, but for a first half of a surrogate pair at its end.
func (t *text) fresh() string {
	end := len(t.raw)
	if n := len(t.raw) - 6; n >= t.told && isHighSurrogate(t.raw[n:]) && !escaped(t.raw[:n]) {
		end = n
	}
	s := unquote(t.raw[t.told:end])
	t.told = end
	return s
}

func isHighSurrogate(b []byte) bool {
	return len(b) == 6 && b[0] == '\\' && b[1] == 'u' && (b[2] == 'd' || b[2] == 'D') && bytes.IndexByte([]byte("89abAB"), b[3]) >= 0
}

// escaped tells whether the next character of b would be escaped: b ends with an odd number of backslashes.
func escaped(b []byte) bool {
	n := 0
	for n < len(b) && b[len(b)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

func unquote(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	var s string
	if json.Unmarshal(append(append([]byte{'"'}, raw...), '"'), &s) != nil {
		// The pieces were valid each, so this cannot be; the bytes are still better than nothing.
		s = string(bytes.ToValidUTF8(raw, []byte(string(utf8.RuneError))))
	}
	return s
}

// contentText reads content that is a string, null, or a list of parts.
func contentText(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", fmt.Errorf("content is neither text nor parts: %w", err)
	}
	for _, p := range parts {
		s += p.Text
	}
	return s, nil
}

// call gathers a tool call that comes in pieces.
type call struct {
	ToolCall
	args text
}

func (c *call) add(f wireFunction) error {
	c.Name += f.Name
	if len(f.Arguments) > 0 && f.Arguments[0] != '"' && string(f.Arguments) != "null" {
		c.Arguments += string(f.Arguments)
		return nil
	}
	return c.args.add(f.Arguments)
}

func (c *call) whole() ToolCall {
	t := c.ToolCall
	t.Arguments += c.args.String()
	return t
}

// readStream gathers the answer of a stream.
func readStream(r io.Reader, maxBytes int64, onText func(string)) (*Response, error) {
	var out Response
	var content, refusal text
	var calls []*call
	var old *call
	byIndex := map[int]*call{}
	ev := newEvents(r, maxBytes)
	done := false
	for !done {
		data, err := ev.next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if string(bytes.TrimSpace(data)) == "[DONE]" {
			done = true
			continue
		}
		var a wireAnswer
		if err := json.Unmarshal(data, &a); err != nil {
			return nil, fmt.Errorf("event of the model's stream is not JSON: %w", err)
		}
		if len(a.Error) > 0 && string(a.Error) != "null" {
			e := &Error{}
			e.fill(a.Error)
			return nil, e
		}
		if a.ID != "" {
			out.ID = a.ID
		}
		if a.Model != "" {
			out.Model = a.Model
		}
		if a.Usage != nil {
			out.Usage = Usage{InputTokens: a.Usage.PromptTokens, OutputTokens: a.Usage.CompletionTokens}
		}
		for _, c := range a.Choices {
			if c.Index != 0 {
				continue
			}
			if c.FinishReason != "" {
				out.FinishReason = c.FinishReason
			}
			if err := content.add(c.Delta.Content); err != nil {
				return nil, err
			}
			if err := refusal.add(c.Delta.Refusal); err != nil {
				return nil, err
			}
			if f := c.Delta.FunctionCall; f != nil {
				if old == nil {
					old = &call{}
				}
				if err := old.add(*f); err != nil {
					return nil, err
				}
			}
			for _, d := range c.Delta.ToolCalls {
				tc := byIndex[d.Index]
				if tc == nil || (d.ID != "" && tc.ID != "" && d.ID != tc.ID) {
					tc = &call{}
					byIndex[d.Index] = tc
					calls = append(calls, tc)
				}
				if d.ID != "" {
					tc.ID = d.ID
				}
				if err := tc.add(d.Function); err != nil {
					return nil, err
				}
			}
		}
		if s := content.fresh(); s != "" && onText != nil {
			onText(s)
		}
	}
	if !done && out.FinishReason == "" {
		return nil, ErrInterrupted
	}
	out.Text, out.Refusal = content.String(), refusal.String()
	for _, c := range calls {
		out.ToolCalls = append(out.ToolCalls, c.whole())
	}
	if old != nil {
		f := old.whole()
		out.FunctionCall = &f
	}
	return &out, nil
}

// readAnswer reads an answer that did not stream.
func readAnswer(r io.Reader, maxBytes int64) (*Response, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the model's answer: %w", err)
	}
	if int64(len(body)) > maxBytes {
		return nil, fmt.Errorf("%w: over %d bytes", ErrTooLarge, maxBytes)
	}
	var a wireAnswer
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, fmt.Errorf("the model's answer is not JSON: %w", err)
	}
	if len(a.Error) > 0 && string(a.Error) != "null" {
		// Some gateways answer 200 with an error inside.
		e := &Error{}
		e.fill(a.Error)
		return nil, e
	}
	if len(a.Choices) == 0 {
		return nil, errors.New("the model's answer has no choices")
	}
	c := a.Choices[0]
	out := &Response{ID: a.ID, Model: a.Model, FinishReason: c.FinishReason}
	if a.Usage != nil {
		out.Usage = Usage{InputTokens: a.Usage.PromptTokens, OutputTokens: a.Usage.CompletionTokens}
	}
	if out.Text, err = contentText(c.Message.Content); err != nil {
		return nil, err
	}
	if out.Refusal, err = contentText(c.Message.Refusal); err != nil {
		return nil, err
	}
	for _, tc := range c.Message.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, tc.whole())
	}
	if f := c.Message.FunctionCall; f != nil {
		t := wireToolCall{Function: *f}.whole()
		out.FunctionCall = &t
	}
	return out, nil
}

func (c wireToolCall) whole() ToolCall {
	var args string
	if json.Unmarshal(c.Function.Arguments, &args) != nil {
		args = string(c.Function.Arguments)
	}
	return ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: args}
}
