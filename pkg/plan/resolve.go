package plan

import (
	"fmt"
	"strconv"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Target is what a reference's root stands for.
type Target struct {
	// Found tells that there is a value. A step that was skipped or failed has none.
	Found bool
	// Artifact tells that the value is kept outside the log: the reference stays in the arguments and is listed.
	Artifact bool
	// Value is the whole value at the root, exact text: the step's result, the run's input, the artifact's value, the
	// item or the index.
	Value *planv1.JsonText
}

// Lookup returns what a reference's root stands for: the caller looks at Root and Name, not at Path.
type Lookup func(Reference) Target

// Resolved is a step's arguments with every reference replaced.
type Resolved struct {
	// Arguments is a JSON object in canonical form. References to artifacts are still in it.
	Arguments *planv1.JsonText
	// Artifacts are the references that stayed, in canonical order.
	Artifacts []Reference
}

// Reasons of an UnresolvedError.
const (
	// ReasonNoValue: the root has no value, as of a skipped step.
	ReasonNoValue = "no_value"
	// ReasonNoPath: the value has nothing at the reference's path.
	ReasonNoPath = "no_path"
	// ReasonNotObject: the arguments as a whole are a reference, and its value is not an object; or they are no object
	// themselves, and Reference is empty.
	ReasonNotObject = "not_object"
)

// UnresolvedError is a reference without a value and without a default.
type UnresolvedError struct {
	Reference Reference
	Reason    string
}

func (e *UnresolvedError) Error() string {
	if e.Reference.Text == "" {
		return "the arguments are not an object"
	}
	what := map[string]string{
		ReasonNoValue:   "there is no value to refer to",
		ReasonNoPath:    "the value has nothing at this path",
		ReasonNotObject: "the value is not an object, as arguments must be",
	}[e.Reason]
	return fmt.Sprintf("%s at %q: %s", quote(e.Reference.Text), e.Reference.Pointer, what)
}

// TooLargeError tells that arguments exceed a limit after references were replaced.
type TooLargeError struct {
	// Limit is the limit's configuration name, Maximum its value in bytes.
	Limit   string
	Maximum int
	Pointer string
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the arguments exceed %d bytes (%s) at %q", e.Maximum, e.Limit, e.Pointer)
}

// Resolve replaces the references of arguments within the default limits. It fails with *UnresolvedError,
// *ReferenceError, *TooLargeError, or an error that matches ErrInvalidJSON. Absent and null arguments resolve to {}.
func Resolve(args *planv1.JsonText, lookup Lookup) (Resolved, error) {
	return DefaultLimits().Resolve(args, lookup)
}

// Resolve is the function Resolve within these limits.
func (l Limits) Resolve(args *planv1.JsonText, lookup Lookup) (Resolved, error) {
	l = l.withDefaults()
	if t := args.GetText(); t == "" || t == "null" {
		return Resolved{Arguments: &planv1.JsonText{Text: "{}"}}, nil
	}
	v, problems := valueOf(args, l)
	if len(problems) > 0 {
		return Resolved{}, problems[0]
	}
	if v.kind != Object {
		return Resolved{}, &UnresolvedError{Reason: ReasonNotObject}
	}
	r := resolver{lookup: lookup, limits: l}
	if target, ok := v.Get("$ref"); ok {
		// The arguments as a whole are a reference.
		ref, err := readReference(v, target, nil)
		if err != nil {
			return Resolved{}, err
		}
		if err := r.reference(ref, nil); err != nil {
			return Resolved{}, err
		}
		if len(r.artifacts) == 0 && (len(r.out) == 0 || r.out[0] != '{') {
			return Resolved{}, &UnresolvedError{Reference: ref, Reason: ReasonNotObject}
		}
		return r.resolved(), nil
	}
	if err := r.value(v, nil); err != nil {
		return Resolved{}, err
	}
	return r.resolved(), nil
}

// ResolveValue replaces the references of any value, such as a for_each list. It fails like Resolve.
func (l Limits) ResolveValue(value *planv1.JsonText, lookup Lookup) (Resolved, error) {
	l = l.withDefaults()
	v, problems := valueOf(value, l)
	if len(problems) > 0 {
		return Resolved{}, problems[0]
	}
	r := resolver{lookup: lookup, limits: l}
	if err := r.value(v, nil); err != nil {
		return Resolved{}, err
	}
	return r.resolved(), nil
}

type resolver struct {
	lookup    Lookup
	limits    Limits
	out       []byte
	artifacts []Reference
	count     int
}

func (r *resolver) resolved() Resolved {
	return Resolved{Arguments: &planv1.JsonText{Text: string(r.out)}, Artifacts: r.artifacts}
}

func (r *resolver) value(v Value, at *pointerPart) error {
	switch v.kind {
	case Array:
		r.out = append(r.out, '[')
		for i := range v.items {
			if i > 0 {
				r.out = append(r.out, ',')
			}
			child := at
			if v.items[i].isContainer() {
				child = &pointerPart{up: at, index: i}
			}
			if err := r.value(v.items[i], child); err != nil {
				return err
			}
		}
		r.out = append(r.out, ']')
	case Object:
		if target, ok := v.Get("$ref"); ok {
			ref, err := readReference(v, target, at)
			if err != nil {
				return err
			}
			return r.reference(ref, at)
		}
		r.out = append(r.out, '{')
		for i, m := range v.sorted() {
			if i > 0 {
				r.out = append(r.out, ',')
			}
			r.out = append(appendString(r.out, m.Name), ':')
			child := at
			if m.Value.isContainer() {
				child = &pointerPart{up: at, name: m.Name, index: -1}
			}
			if err := r.value(m.Value, child); err != nil {
				return err
			}
		}
		r.out = append(r.out, '}')
	default:
		r.out = v.Append(r.out)
	}
	return r.bounded(at)
}

func (r *resolver) bounded(at *pointerPart) error {
	if len(r.out) <= r.limits.MaxResolvedBytes {
		return nil
	}
	return &TooLargeError{Limit: "max_resolved_bytes", Maximum: r.limits.MaxResolvedBytes, Pointer: at.String()}
}

func (r *resolver) reference(ref Reference, at *pointerPart) error {
	if r.count++; r.count > r.limits.MaxReferences {
		return &ReferenceError{Code: codeTooManyReferences, Pointer: at.String(), Message: "there are more than " + strconv.Itoa(r.limits.MaxReferences) + " references"}
	}
	target := r.lookup(ref)
	if target.Found && target.Artifact {
		r.artifacts = append(r.artifacts, ref)
		r.out = appendReference(r.out, ref)
		return r.bounded(at)
	}
	reason := ReasonNoValue
	if target.Found && target.Value != nil {
		text, ok := textAt(target.Value.GetText(), ref.Path)
		if ok {
			// The bound is checked before the value is copied.
			if len(r.out)+len(text) > r.limits.MaxResolvedBytes {
				return &TooLargeError{Limit: "max_resolved_bytes", Maximum: r.limits.MaxResolvedBytes, Pointer: at.String()}
			}
			if v, problems := parseJSON(text, lenient(len(text))); len(problems) == 0 {
				r.out = v.AppendCanonical(r.out)
				return r.bounded(at)
			}
		}
		reason = ReasonNoPath
	}
	if ref.HasDefault {
		r.out = ref.Default.AppendCanonical(r.out)
		return r.bounded(at)
	}
	return &UnresolvedError{Reference: ref, Reason: reason}
}

// appendReference writes a reference back into arguments.
func appendReference(dst []byte, ref Reference) []byte {
	dst = append(dst, `{"$ref":`...)
	dst = appendString(dst, ref.Text)
	if ref.HasDefault {
		dst = append(dst, `,"default":`...)
		dst = ref.Default.AppendCanonical(dst)
	}
	return append(dst, '}')
}
