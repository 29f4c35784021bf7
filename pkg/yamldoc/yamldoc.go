// Package yamldoc reads a YAML 1.2 document as exact JSON text: numbers keep their digits, so that 9007199254740993 and
// 9011.00 arrive as they were written.
//
// What JSON cannot say is refused with its line: .inf and .nan, keys that are not scalars, several documents, tags of
// one's own, merge keys. What two readers could understand differently is refused too: keys that stand twice, and numbers
// with leading zeros. 0x1F, 0o17, 0b101 and 1_000 are whole numbers; yes, no, on and off are strings; times are strings.
package yamldoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits bounds a document. A zero field takes its default.
type Limits struct {
	// MaxBytes bounds the text, and the JSON that aliases expand to, in bytes. Default 16 MiB.
	MaxBytes int
	// MaxDepth bounds the nesting of lists and mappings. Default 100.
	MaxDepth int
	// MaxAliases bounds how often aliases are used, counting each time that an expanded alias uses another.
	// Default 10,000.
	MaxAliases int
}

func (l Limits) withDefaults() Limits {
	if l.MaxBytes == 0 {
		l.MaxBytes = 16 << 20
	}
	if l.MaxDepth == 0 {
		l.MaxDepth = 100
	}
	if l.MaxAliases == 0 {
		l.MaxAliases = 10_000
	}
	return l
}

// Error is a document that cannot be read.
type Error struct {
	// Line and Column are from 1; 0 where the place is not known.
	Line, Column int
	Message      string
}

func (e *Error) Error() string {
	switch {
	case e.Line > 0 && e.Column > 0:
		return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
	case e.Line > 0:
		return fmt.Sprintf("line %d: %s", e.Line, e.Message)
	}
	return e.Message
}

// Document is a document that was read.
type Document struct {
	// JSON is the document as JSON text, without white space between values.
	JSON []byte
	root *yaml.Node
}

// ToJSON returns a YAML or JSON document as exact JSON text. Errors are of type *Error.
func ToJSON(doc []byte) ([]byte, error) {
	d, err := Parse(doc)
	if err != nil {
		return nil, err
	}
	return d.JSON, nil
}

// Parse reads a YAML or JSON document within the default limits. Errors are of type *Error.
func Parse(doc []byte) (*Document, error) { return Limits{}.Parse(doc) }

// Parse is the function Parse within these limits.
func (l Limits) Parse(doc []byte) (*Document, error) {
	l = l.withDefaults()
	if len(doc) > l.MaxBytes {
		return nil, &Error{Message: fmt.Sprintf("the document has %d bytes, more than the %d allowed (max_bytes)", len(doc), l.MaxBytes)}
	}
	if text := bytes.TrimSpace(doc); len(text) > 0 && (text[0] == '{' || text[0] == '[') && json.Valid(text) {
		// JSON is taken as it is: not everything in it, such as \ud83d\ude00, is YAML. Its lines are known where it is.
		var compact bytes.Buffer
		if err := json.Compact(&compact, text); err == nil {
			d := &Document{JSON: compact.Bytes()}
			d.root, _ = readNode(doc)
			return d, nil
		}
	}
	root, err := readNode(doc)
	if err != nil {
		return nil, err
	}
	w := writer{limits: l}
	if err := w.node(root, 0); err != nil {
		return nil, err
	}
	return &Document{JSON: w.out, root: root}, nil
}

// readNode reads exactly one document.
func readNode(doc []byte) (root *yaml.Node, err error) {
	defer func() {
		if recover() != nil {
			root, err = nil, &Error{Message: "the document is not valid YAML"}
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(doc))
	var first, second yaml.Node
	if err := decoder.Decode(&first); err != nil {
		if strings.TrimSpace(string(doc)) == "" || err.Error() == "EOF" {
			return nil, &Error{Message: "the document is empty"}
		}
		return nil, syntaxError(err)
	}
	if err := decoder.Decode(&second); err == nil {
		return nil, &Error{Line: second.Line, Message: "a second document starts here; write one document to a file"}
	}
	if first.Kind != yaml.DocumentNode || len(first.Content) != 1 {
		return nil, &Error{Message: "the document is empty"}
	}
	return first.Content[0], nil
}

var lineOfError = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)

func syntaxError(err error) error {
	m := lineOfError.FindStringSubmatch(err.Error())
	if m == nil {
		return &Error{Message: "the document is not valid YAML: " + err.Error()}
	}
	line, _ := strconv.Atoi(m[1])
	return &Error{Line: line, Message: "the document is not valid YAML: " + m[2]}
}

// writer writes nodes as JSON.
type writer struct {
	limits  Limits
	out     []byte
	aliases int
}

func fail(n *yaml.Node, format string, args ...any) error {
	return &Error{Line: n.Line, Column: n.Column, Message: fmt.Sprintf(format, args...)}
}

func (w *writer) node(n *yaml.Node, depth int) error {
	if len(w.out) > w.limits.MaxBytes {
		return fail(n, "the document expands to more than %d bytes (max_bytes)", w.limits.MaxBytes)
	}
	switch n.Kind {
	case yaml.AliasNode:
		if w.aliases++; w.aliases > w.limits.MaxAliases {
			return fail(n, "aliases are used more than %d times (max_aliases)", w.limits.MaxAliases)
		}
		return w.node(n.Alias, depth)
	case yaml.ScalarNode:
		return w.scalar(n)
	case yaml.SequenceNode, yaml.MappingNode:
		if depth++; depth > w.limits.MaxDepth {
			return fail(n, "lists and mappings are nested more than %d deep (max_depth)", w.limits.MaxDepth)
		}
		if n.Kind == yaml.MappingNode {
			return w.mapping(n, depth)
		}
		return w.sequence(n, depth)
	}
	return fail(n, "this cannot be read as JSON")
}

func (w *writer) sequence(n *yaml.Node, depth int) error {
	if tag := n.Tag; tag != "" && n.ShortTag() != "!!seq" {
		return fail(n, "the tag %s is not known", tag)
	}
	w.out = append(w.out, '[')
	for i, item := range n.Content {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.node(item, depth); err != nil {
			return err
		}
	}
	w.out = append(w.out, ']')
	return nil
}

func (w *writer) mapping(n *yaml.Node, depth int) error {
	if tag := n.Tag; tag != "" && n.ShortTag() != "!!map" {
		return fail(n, "the tag %s is not known", tag)
	}
	w.out = append(w.out, '{')
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		name, err := keyName(key)
		if err != nil {
			return err
		}
		if line, twice := lines[name]; twice {
			return fail(key, "the key %q stands twice, first in line %d", name, line)
		}
		lines[name] = key.Line
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.string(name)
		w.out = append(w.out, ':')
		if err := w.node(n.Content[i+1], depth); err != nil {
			return err
		}
	}
	w.out = append(w.out, '}')
	return nil
}

func keyName(key *yaml.Node) (string, error) {
	at := key
	if key.Kind == yaml.AliasNode {
		key = key.Alias
	}
	if key.Kind != yaml.ScalarNode {
		return "", fail(at, "a key must be a text")
	}
	if key.Tag == "!!merge" {
		return "", fail(at, "merge keys (<<) are not supported; write the values out")
	}
	if key.ShortTag() == "!!null" && key.Value == "" {
		return "", fail(at, "a key is missing before the colon")
	}
	return key.Value, nil
}

func (w *writer) string(s string) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	// A string always encodes.
	_ = e.Encode(s)
	w.out = append(w.out, bytes.TrimRight(buf.Bytes(), "\n")...)
}

func (w *writer) scalar(n *yaml.Node) error {
	plain := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	tag := ""
	if n.Style&yaml.TaggedStyle != 0 {
		tag = n.ShortTag()
	}
	switch tag {
	case "!!str", "!":
		w.string(n.Value)
		return nil
	case "":
		if !plain {
			w.string(n.Value)
			return nil
		}
	case "!!int", "!!float", "!!bool", "!!null":
	default:
		return fail(n, "the tag %s is not known", n.Tag)
	}
	text, kind, err := plainScalar(n.Value)
	if err != nil {
		return fail(n, "%s", err.Error())
	}
	if tag != "" && tag != kind && (tag != "!!float" || kind != "!!int") {
		return fail(n, "%q is not of the type %s", n.Value, tag)
	}
	if kind == "!!str" {
		w.string(n.Value)
		return nil
	}
	w.out = append(w.out, text...)
	return nil
}

var (
	wholeNumber   = regexp.MustCompile(`^[-+]?[0-9][0-9_]*$`)
	basedNumber   = regexp.MustCompile(`^[-+]?0(x[0-9a-fA-F_]+|o[0-7_]+|b[01_]+)$`)
	decimalNumber = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
	notFinite     = regexp.MustCompile(`^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
)

var (
	errLeadingZero = errors.New("a number with leading zeros can be read in two ways: write it without them, as 0o… for octal, or in quotes")
	errNotFinite   = errors.New("JSON has no infinite numbers; write a string")
)

// plainScalar reads an unquoted scalar by the core schema of YAML 1.2, with 0b and digits grouped by _ besides.
func plainScalar(s string) (text, kind string, err error) {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return "null", "!!null", nil
	case "true", "True", "TRUE":
		return "true", "!!bool", nil
	case "false", "False", "FALSE":
		return "false", "!!bool", nil
	}
	switch {
	case basedNumber.MatchString(s):
		return basedInteger(s)
	case wholeNumber.MatchString(s), decimalNumber.MatchString(s):
		return decimal(s)
	case notFinite.MatchString(s):
		return "", "", errNotFinite
	}
	return "", "!!str", nil
}

// decimal writes a decimal number the way that JSON wants it, digit for digit.
func decimal(s string) (text, kind string, err error) {
	kind = "!!float"
	if wholeNumber.MatchString(s) {
		kind = "!!int"
	}
	s = strings.ReplaceAll(s, "_", "")
	sign := ""
	if s[0] == '-' || s[0] == '+' {
		sign, s = strings.TrimPrefix(s[:1], "+"), s[1:]
	}
	if len(s) > 1 && s[0] == '0' && s[1] >= '0' && s[1] <= '9' {
		return "", "", errLeadingZero
	}
	if s[0] == '.' {
		s = "0" + s
	}
	if i := strings.IndexByte(s, '.'); i >= 0 && (i+1 == len(s) || s[i+1] < '0' || s[i+1] > '9') {
		s = s[:i] + s[i+1:]
	}
	return sign + s, kind, nil
}

// Line returns the line of the value at a JSON pointer, or of the nearest value around it; 0 where lines are not known.
func (d *Document) Line(pointer string) int {
	n := d.root
	if n == nil {
		return 0
	}
	line := n.Line
	if pointer == "" {
		return line
	}
	for _, part := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		next := child(n, part, &line)
		if next == nil {
			return line
		}
		n = next
	}
	return line
}

// child goes down one part, and notes the line of the key or element.
func child(n *yaml.Node, part string, line *int) *yaml.Node {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == part {
				*line = n.Content[i].Line
				return n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(n.Content) {
			*line = n.Content[i].Line
			return n.Content[i]
		}
	}
	return nil
}
