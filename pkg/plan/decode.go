package plan

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
)

// decoder turns JSON values into messages and gathers what does not fit. A null stands for an absent field.
type decoder struct {
	fs     *findings
	limits Limits
}

// problems reports what is wrong with a JSON text. Pointers are put behind prefix, for JSON within a string.
func (d *decoder) problems(problems []*jsonProblem, prefix string) {
	for _, p := range problems {
		f := found{layer: layerSchema, code: p.code, pointer: prefix + p.pointer, message: p.Error()}
		place := []any{"line", intValue(p.line), "column", intValue(p.column)}
		switch p.code {
		case codeInvalidJSON:
			place = append(place, "at_end", boolValue(p.atEnd))
			f.hint = "write one JSON object (RFC 8259), without comments, code fences or text around it"
			if p.atEnd {
				f.hint = "the document seems to be cut off: write it whole"
			}
		case codeDuplicateKey:
			f.hint = "keep one of the two"
		case codeTooDeep:
			place = append(place, "limit", StringValue("max_depth"), "maximum", intValue(p.max))
		case codeNumberOutOfRange:
			place = append(place, "maximum", intValue(p.max))
			f.hint = "write such a number as a string"
		}
		f.values = values(place...)
		d.fs.error(f)
	}
}

func (d *decoder) wrongType(v Value, at *pointerPart, want string) {
	what := "the document"
	if at != nil {
		what = quote(at.label())
	}
	d.fs.error(found{layer: layerSchema, code: codeWrongType, pointer: at.String(),
		message: fmt.Sprintf("%s is %s, should be %s", what, article(v.kind.String()), want),
		values:  values("got", StringValue(v.kind.String()), "want", StringValue(want))})
}

// label is the name that a place goes by in messages.
func (p *pointerPart) label() string {
	if p.index < 0 {
		return p.name
	}
	if p.up != nil {
		return p.up.label() + "[" + strconv.Itoa(p.index) + "]"
	}
	return strconv.Itoa(p.index)
}

func (d *decoder) unknownField(at *pointerPart, name string, known []string) {
	near := d.fs.nearest(name, known)
	d.fs.error(found{layer: layerSchema, code: codeUnknownField, pointer: at.String(),
		message: "there is no field " + quote(name) + " here",
		hint:    didYouMean(near, "leave it out; there are: "+strings.Join(known, ", ")),
		values:  values("name", StringValue(name), "nearest", stringList(near))})
}

func (d *decoder) missing(at *pointerPart, name, hint string) {
	d.fs.error(found{layer: layerSchema, code: codeMissingField, pointer: at.String() + "/" + name,
		message: quote(name) + " is missing", hint: hint})
}

func (d *decoder) object(v Value, at *pointerPart) bool {
	switch v.kind {
	case Object:
		return true
	case Null:
		return false
	}
	d.wrongType(v, at, "an object")
	return false
}

func (d *decoder) list(v Value, at *pointerPart) []Value {
	switch v.kind {
	case Array:
		return v.items
	case Null:
		return nil
	}
	d.wrongType(v, at, "an array")
	return nil
}

func (d *decoder) text(v Value, at *pointerPart) string {
	switch v.kind {
	case String:
		return v.text
	case Null:
		return ""
	}
	d.wrongType(v, at, "a string")
	return ""
}

func (d *decoder) texts(v Value, at *pointerPart) []string {
	items := d.list(v, at)
	if len(items) == 0 {
		return nil
	}
	list := make([]string, 0, len(items))
	for i := range items {
		if items[i].kind != String {
			d.wrongType(items[i], &pointerPart{up: at, index: i}, "a string")
			continue
		}
		list = append(list, items[i].text)
	}
	return list
}

func (d *decoder) bool(v Value, at *pointerPart) bool {
	switch v.kind {
	case Bool:
		return v.text == "true"
	case Null:
		return false
	}
	d.wrongType(v, at, "true or false")
	return false
}

func (d *decoder) int32(v Value, at *pointerPart) int32 {
	switch v.kind {
	case Null:
		return 0
	case Number:
		if n, err := strconv.ParseInt(v.text, 10, 32); err == nil {
			return int32(n)
		}
		// 3.0 and 3e0 are whole numbers too.
		if r, ok := new(big.Rat).SetString(v.text); ok && r.IsInt() {
			if n := r.Num(); n.IsInt64() && n.Int64() >= math.MinInt32 && n.Int64() <= math.MaxInt32 {
				return int32(n.Int64())
			}
		}
	}
	d.wrongType(v, at, "a whole number of 32 bits")
	return 0
}

func (d *decoder) float(v Value, at *pointerPart) float64 {
	switch v.kind {
	case Null:
		return 0
	case Number:
		if f, err := strconv.ParseFloat(v.text, 64); err == nil {
			return f
		}
	}
	d.wrongType(v, at, "a number")
	return 0
}

func (d *decoder) duration(v Value, at *pointerPart) *durationpb.Duration {
	switch v.kind {
	case Null:
		return nil
	case String:
		t, ok := parseDuration(v.text)
		if !ok {
			d.fs.error(found{layer: layerSchema, code: codeInvalidDuration, pointer: at.String(),
				message: quote(v.text) + " is not a duration", hint: "write it like 90s, 1m30s, 250ms or 2h"})
			return nil
		}
		return durationpb.New(t)
	}
	d.wrongType(v, at, "a duration like \"90s\"")
	return nil
}

// parseDuration reads 90s, 1m30s, 250ms: numbers with units, no sign.
func parseDuration(text string) (time.Duration, bool) {
	if text == "" || strings.ContainsAny(text[:1], "+-") || strings.ContainsAny(text[len(text)-1:], "0123456789") {
		return 0, false
	}
	t, err := time.ParseDuration(text)
	return t, err == nil
}

// enumNames are the short names of an enumeration, in order, the first for number 1.
type enumNames []string

var (
	createdByNames = enumNames{"planner", "replanner", "human", "template"}
	kindNames      = enumNames{"tool", "llm", "control", "run"}
	policyNames    = enumNames{"fail", "replan_step", "replan_remaining", "ask_user", "skip", "compensate"}
	riskNames      = enumNames{"low", "medium", "high"}
)

func (names enumNames) name(number int32) string {
	if number < 1 || int(number) > len(names) {
		return ""
	}
	return names[number-1]
}

func (d *decoder) enum(v Value, at *pointerPart, names enumNames) int32 {
	switch v.kind {
	case Null:
		return 0
	case String:
		for i, name := range names {
			if v.text == name {
				return int32(i + 1)
			}
		}
		near := d.fs.nearest(v.text, names)
		d.fs.error(found{layer: layerSchema, code: codeInvalidValue, pointer: at.String(),
			message: fmt.Sprintf("%s is not a value of %s", quote(v.text), quote(at.label())),
			hint:    didYouMean(near, "write one of "+strings.Join(names, ", ")),
			values:  values("allowed", stringList(names), "nearest", stringList(near))})
		return 0
	}
	d.wrongType(v, at, "one of "+strings.Join(names, ", "))
	return 0
}
