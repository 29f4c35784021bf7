package planner

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cairnrun/cairn/pkg/plan"
)

// Forms in templates and rules: objects with this one key are replaced.
const (
	// formSlot is a slot's value: {"$slot": "quantity"}.
	formSlot = "$slot"
	// formText is a text with slots and facts: {"$text": "Order {model} for {run.input.name}"}.
	formText = "$text"
	// formFact is a value of now: {"$fact": "steps.stock.result.left"}, with an optional default.
	formFact = "$fact"
)

// errNoFact: a fact that a rule names is not there, so the rule does not apply.
var errNoFact = errors.New("a fact is not there")

// factsFunc returns the exact JSON text of a fact.
type factsFunc func(path string) (string, bool)

// fill replaces the forms of v and returns its JSON text. A slot without a value is absent: the member or element that
// it stands for is left out.
func fill(v plan.Value, slots slotValues, facts factsFunc) ([]byte, error) {
	out, present, err := filler{slots, facts}.value(nil, v)
	if err == nil && !present {
		return []byte("null"), nil
	}
	return out, err
}

type filler struct {
	slots slotValues
	facts factsFunc
}

// formOf returns the form that an object is, "" for plain data.
func formOf(v plan.Value) (form string, argument plan.Value) {
	for _, f := range []string{formSlot, formText, formFact} {
		if a, ok := v.Get(f); ok {
			return f, a
		}
	}
	return "", plan.Value{}
}

func (f filler) value(dst []byte, v plan.Value) (out []byte, present bool, err error) {
	switch v.Kind() {
	case plan.Array:
		dst = append(dst, '[')
		first := true
		for _, item := range v.Items() {
			mark := len(dst)
			if !first {
				dst = append(dst, ',')
			}
			next, present, err := f.value(dst, item)
			if err != nil {
				return nil, false, err
			}
			if dst = next; !present {
				dst = dst[:mark]
				continue
			}
			first = false
		}
		return append(dst, ']'), true, nil
	case plan.Object:
		if form, arg := formOf(v); form != "" {
			return f.form(dst, form, arg, v)
		}
		dst = append(dst, '{')
		first := true
		for _, m := range v.Members() {
			mark := len(dst)
			if !first {
				dst = append(dst, ',')
			}
			dst = plan.StringValue(m.Name).Append(dst)
			dst = append(dst, ':')
			next, present, err := f.value(dst, m.Value)
			if err != nil {
				return nil, false, err
			}
			if dst = next; !present {
				dst = dst[:mark]
				continue
			}
			first = false
		}
		return append(dst, '}'), true, nil
	}
	return v.Append(dst), true, nil
}

func (f filler) form(dst []byte, form string, arg, whole plan.Value) ([]byte, bool, error) {
	switch form {
	case formSlot:
		json, ok := f.slots[arg.Text()]
		return append(dst, json...), ok, nil
	case formFact:
		if json, ok := f.facts(arg.Text()); ok {
			return append(dst, json...), true, nil
		}
		if def, ok := whole.Get("default"); ok {
			return def.Append(dst), true, nil
		}
		return nil, false, fmt.Errorf("%w: %s", errNoFact, arg.Text())
	}
	var b strings.Builder
	for _, p := range placeholders(arg.Text()) {
		switch {
		case !p.named:
			b.WriteString(p.text)
		case strings.Contains(p.text, "."):
			json, ok := f.facts(p.text)
			if !ok {
				return nil, false, fmt.Errorf("%w: %s", errNoFact, p.text)
			}
			b.WriteString(shown(json))
		default:
			b.WriteString(shown(f.slots[p.text]))
		}
	}
	return plan.StringValue(b.String()).Append(dst), true, nil
}

// shown is a value inside a text: a string's content, anything else as JSON.
func shown(json string) string {
	if v, err := plan.ParseValue(json); err == nil && v.Kind() == plan.String {
		return v.Text()
	}
	return json
}

type piece struct {
	text  string
	named bool
}

// placeholders splits "a {b} {{c}}" into texts and names; doubled braces are braces.
func placeholders(s string) []piece {
	var out []piece
	var text strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], "{{"), strings.HasPrefix(s[i:], "}}"):
			text.WriteByte(s[i])
			i++
		case s[i] == '{':
			end := strings.IndexByte(s[i:], '}')
			if end < 0 {
				text.WriteString(s[i:])
				i = len(s)
				continue
			}
			out = append(out, piece{text: text.String()}, piece{text: strings.TrimSpace(s[i+1 : i+end]), named: true})
			text.Reset()
			i += end
		default:
			text.WriteByte(s[i])
		}
	}
	return append(out, piece{text: text.String()})
}

// checkForms says what is wrong with the forms in v before anybody needs them.
func checkForms(v plan.Value, slots map[string]bool, facts bool) error {
	for _, item := range v.Items() {
		if err := checkForms(item, slots, facts); err != nil {
			return err
		}
	}
	if v.Kind() != plan.Object {
		return nil
	}
	form, arg := formOf(v)
	if form == "" {
		for _, m := range v.Members() {
			if err := checkForms(m.Value, slots, facts); err != nil {
				return err
			}
		}
		return nil
	}
	for _, m := range v.Members() {
		if m.Name != form && (form != formFact || m.Name != "default") {
			return fmt.Errorf("%s stands beside %s: a form is an object with one key", m.Name, form)
		}
	}
	if arg.Kind() != plan.String {
		return fmt.Errorf("%s: want a text", form)
	}
	switch form {
	case formSlot:
		return checkSlot(arg.Text(), slots)
	case formFact:
		return checkFact(arg.Text(), facts)
	}
	for _, p := range placeholders(arg.Text()) {
		var err error
		switch {
		case !p.named:
		case strings.Contains(p.text, "."):
			err = checkFact(p.text, facts)
		default:
			err = checkSlot(p.text, slots)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func checkSlot(name string, slots map[string]bool) error {
	if !slots[name] {
		return fmt.Errorf("there is no slot %q: name it in a pattern as (?<%s>…), or give it a default under slots", name, name)
	}
	return nil
}

func checkFact(path string, allowed bool) error {
	if !allowed {
		return fmt.Errorf("fact %s: a template knows no facts; refer to it with {\"$ref\": …}", path)
	}
	return checkFactPath(path)
}
