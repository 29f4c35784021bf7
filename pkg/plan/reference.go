package plan

import (
	"fmt"
	"strconv"
	"strings"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Root says what a reference starts from.
type Root uint8

// The roots of references.
const (
	// RootStep is steps.<id>.result.
	RootStep Root = iota + 1
	// RootInput is run.input.
	RootInput
	// RootArtifact is artifacts.<name>.
	RootArtifact
	// RootItem is item: the element of the list that a for_each step runs over.
	RootItem
	// RootIndex is index: the element's place, from 0.
	RootIndex
)

// Reference is an object whose only keys are $ref and, optionally, default.
type Reference struct {
	// Text is the reference as written: "steps.a.result.id".
	Text string
	// Pointer is where it stands in the arguments, a JSON pointer.
	Pointer string
	Root    Root
	// Name is the step's id or the artifact's name.
	Name string
	// Path is what follows the root.
	Path []string
	// HasDefault tells that Default stands in where the reference has no value. Default may be null.
	HasDefault bool
	Default    Value
}

// ReferenceError is a reference that is not one.
type ReferenceError struct {
	Code    string
	Pointer string
	Message string
	Hint    string
	nearest []string
}

func (e *ReferenceError) Error() string {
	return fmt.Sprintf("%s at %q: %s", e.Code, e.Pointer, e.Message)
}

// References returns the references of a step's arguments or for_each, in document order. Where some are not valid it
// returns the others and the first error, a *ReferenceError; it returns an error that matches ErrInvalidJSON where the
// text is not JSON.
func References(args *planv1.JsonText) ([]Reference, error) {
	limits := DefaultLimits()
	v, problems := valueOf(args, limits)
	if len(problems) > 0 {
		return nil, problems[0]
	}
	refs, bad := scanReferences(v, limits)
	if len(bad) > 0 {
		return refs, bad[0]
	}
	return refs, nil
}

// referenceScan finds the references of a value.
type referenceScan struct {
	refs   []Reference
	bad    []*ReferenceError
	max    int
	excess bool
}

func scanReferences(v Value, limits Limits) ([]Reference, []*ReferenceError) {
	s := referenceScan{max: limits.MaxReferences}
	s.walk(v, nil)
	return s.refs, s.bad
}

// pointerPart is one part of a JSON pointer while walking down; the pointer is only built where it is needed.
type pointerPart struct {
	up    *pointerPart
	name  string
	index int
}

func (p *pointerPart) String() string {
	if p == nil {
		return ""
	}
	if p.index >= 0 {
		return p.up.String() + "/" + strconv.Itoa(p.index)
	}
	return p.up.String() + "/" + escapePointer(p.name)
}

func (s *referenceScan) walk(v Value, at *pointerPart) {
	switch v.kind {
	case Array:
		for i := range v.items {
			if v.items[i].isContainer() {
				s.walk(v.items[i], &pointerPart{up: at, index: i})
			}
		}
	case Object:
		if target, ok := v.Get("$ref"); ok {
			s.reference(v, target, at)
			return
		}
		for i := range v.members {
			if v.members[i].Value.isContainer() {
				s.walk(v.members[i].Value, &pointerPart{up: at, name: v.members[i].Name, index: -1})
			}
		}
	}
}

func (s *referenceScan) reference(v, target Value, at *pointerPart) {
	if len(s.refs)+len(s.bad) >= s.max {
		if !s.excess {
			s.excess = true
			s.bad = append(s.bad, &ReferenceError{Code: codeTooManyReferences, Pointer: at.String(),
				Message: fmt.Sprintf("there are more than %d references", s.max),
				Hint:    "refer to a whole object instead of its parts, or raise the limit max_references"})
		}
		return
	}
	ref, err := readReference(v, target, at)
	if err != nil {
		s.bad = append(s.bad, err)
		return
	}
	s.refs = append(s.refs, ref)
}

// readReference reads an object that has the key $ref.
func readReference(v, target Value, at *pointerPart) (Reference, *ReferenceError) {
	for _, m := range v.members {
		if m.Name != "$ref" && m.Name != "default" {
			return Reference{}, &ReferenceError{Code: codeRefWithSiblings, Pointer: at.String(),
				Message: fmt.Sprintf("a reference has the keys \"$ref\" and \"default\" only, not %s", quote(m.Name)),
				Hint:    "move the reference into a property of its own"}
		}
	}
	if target.kind != String {
		return Reference{}, &ReferenceError{Code: codeRefSyntax, Pointer: at.String(),
			Message: "\"$ref\" is a " + target.kind.String() + ", not a string",
			Hint:    "write {\"$ref\": \"steps.<id>.result.<path>\"}"}
	}
	ref, err := ParseReference(target.text)
	if err != nil {
		err := err.(*ReferenceError)
		err.Pointer = at.String()
		return Reference{}, err
	}
	ref.Pointer = at.String()
	if fallback, ok := v.Get("default"); ok {
		if hasReference(fallback) {
			return Reference{}, &ReferenceError{Code: codeRefInDefault, Pointer: at.String() + "/default",
				Message: "a default is a literal value and holds no references",
				Hint:    "write the value itself"}
		}
		ref.HasDefault, ref.Default = true, fallback
	}
	return ref, nil
}

func hasReference(v Value) bool {
	switch v.kind {
	case Array:
		for i := range v.items {
			if hasReference(v.items[i]) {
				return true
			}
		}
	case Object:
		if _, ok := v.Get("$ref"); ok {
			return true
		}
		for i := range v.members {
			if hasReference(v.members[i].Value) {
				return true
			}
		}
	}
	return false
}

var rootNames = []string{"steps", "run", "artifacts", "item", "index"}

// ParseReference reads the text of a reference: "steps.a.result.id". Errors are of type *ReferenceError, without a
// pointer.
func ParseReference(text string) (Reference, error) {
	ref := Reference{Text: text}
	parts, err := parsePath(text, true)
	if err != nil {
		return ref, &ReferenceError{Code: codeRefSyntax, Message: err.Error(), Hint: "write steps.<id>.result.<path>"}
	}
	if len(parts) == 0 {
		return ref, &ReferenceError{Code: codeRefSyntax, Message: "the reference is empty", Hint: "write steps.<id>.result.<path>"}
	}
	switch parts[0] {
	case "steps":
		return stepReference(ref, parts)
	case "run":
		if len(parts) < 2 || parts[1] != "input" {
			return ref, &ReferenceError{Code: codeRefSyntax, Message: fmt.Sprintf("%s is not a reference: of the run only its input can be referred to", quote(text)),
				Hint: "write run.input.<path>"}
		}
		ref.Root, ref.Path = RootInput, parts[2:]
	case "artifacts":
		if len(parts) < 2 {
			return ref, &ReferenceError{Code: codeRefSyntax, Message: fmt.Sprintf("%s names no artifact", quote(text)), Hint: "write artifacts.<name>.<path>"}
		}
		ref.Root, ref.Name, ref.Path = RootArtifact, parts[1], parts[2:]
	case "item":
		ref.Root, ref.Path = RootItem, parts[1:]
	case "index":
		if len(parts) > 1 {
			return ref, &ReferenceError{Code: codeRefSyntax, Message: fmt.Sprintf("%s is not a reference: index is a number and has no parts", quote(text)), Hint: "write index"}
		}
		ref.Root = RootIndex
	default:
		near := nearest(parts[0], rootNames)
		return ref, &ReferenceError{Code: codeRefUnknownRoot, nearest: near,
			Message: fmt.Sprintf("%s does not start with steps, run, artifacts, item or index", quote(text)),
			Hint:    didYouMean(near, "write steps.<id>.result.<path>, run.input.<path> or artifacts.<name>.<path>")}
	}
	return ref, nil
}

func stepReference(ref Reference, parts []string) (Reference, error) {
	if len(parts) < 2 || !validID(parts[1]) {
		return ref, &ReferenceError{Code: codeRefSyntax, Message: fmt.Sprintf("%s names no step", quote(ref.Text)), Hint: "write steps.<id>.result.<path>"}
	}
	if len(parts) > 2 {
		if _, ok := arrayIndex(parts[2]); ok {
			return ref, &ReferenceError{Code: codeRefSyntax,
				Message: fmt.Sprintf("%s: the items of a for_each step are elements of its result", quote(ref.Text)),
				Hint:    fmt.Sprintf("write steps.%s.result.%s", parts[1], parts[2])}
		}
	}
	if len(parts) < 3 || parts[2] != "result" {
		wanted := "steps." + parts[1] + ".result" + formatPath(parts[2:])
		if len(parts) > 2 && (parts[2] == "output" || len(nearest(parts[2], []string{"result"})) > 0) {
			wanted = "steps." + parts[1] + ".result" + formatPath(parts[3:])
		}
		return ref, &ReferenceError{Code: codeRefSyntax,
			Message: fmt.Sprintf("%s: of a step only its result can be referred to", quote(ref.Text)),
			Hint:    "write " + strings.TrimSuffix(wanted, ".")}
	}
	ref.Root, ref.Name, ref.Path = RootStep, parts[1], parts[3:]
	return ref, nil
}

// validID tells whether a text is an id of a step or assumption: 1 to 64 of letters, digits, - and _.
func validID(id string) bool {
	if len(id) == 0 || len(id) > maxIDLength {
		return false
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// maxIDLength is part of the format, not a setting: ids become subject tokens and keys.
const maxIDLength = 64
