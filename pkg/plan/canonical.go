package plan

import (
	"math"
	"slices"
	"strings"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Canonical returns the one text that stands for a JSON value: keys sorted by their bytes, no white space, numbers with
// the text they came with, no HTML escaping. It is "" for an absent value. Text that is not valid JSON stands for
// itself, as a JSON string, so that hashing never fails.
func Canonical(t *planv1.JsonText) string {
	if t == nil {
		return ""
	}
	v, problems := parseJSON(t.GetText(), lenient(len(t.GetText())))
	if len(problems) > 0 {
		return string(appendString(nil, t.GetText()))
	}
	return string(v.AppendCanonical(nil))
}

// lenient are the limits of rewriting a text of so many bytes. What a document may hold is not what a result may hold;
// only nesting stays bounded.
func lenient(size int) Limits {
	return Limits{MaxDepth: deepest, MaxNumberDigits: size, MaxNumberExponent: math.MaxInt}
}

// deepest bounds the nesting of values that are only rewritten: the stack's protection, not a rule for documents.
const deepest = 10_000

// AppendCanonical appends the text that Canonical describes.
func (v Value) AppendCanonical(dst []byte) []byte {
	switch v.kind {
	case Array:
		dst = append(dst, '[')
		for i := range v.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.items[i].AppendCanonical(dst)
		}
		return append(dst, ']')
	case Object:
		dst = append(dst, '{')
		for i, m := range v.sorted() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendString(dst, m.Name)
			dst = append(dst, ':')
			dst = m.Value.AppendCanonical(dst)
		}
		return append(dst, '}')
	default:
		return v.Append(dst)
	}
}

// sorted returns an object's members by name.
func (v Value) sorted() []Member {
	if slices.IsSortedFunc(v.members, compareMembers) {
		return v.members
	}
	members := slices.Clone(v.members)
	slices.SortFunc(members, compareMembers)
	return members
}

func compareMembers(a, b Member) int { return strings.Compare(a.Name, b.Name) }
