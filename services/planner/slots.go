package planner

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/pkg/plan"
)

// patterns are regular expressions; named groups are slots. The first that fits counts.
type patterns []*pattern

type pattern struct {
	text string
	re   *regexp.Regexp
}

// UnmarshalJSON reads one pattern or a list.
func (p *patterns) UnmarshalJSON(raw []byte) error {
	var list texts
	if err := list.UnmarshalJSON(raw); err != nil {
		return err
	}
	for _, s := range list {
		*p = append(*p, &pattern{text: s})
	}
	return nil
}

// texts is one text or a list.
type texts []string

// UnmarshalJSON reads both forms.
func (t *texts) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*t = texts{one}
		return nil
	}
	var many []string
	if err := json.Unmarshal(raw, &many); err != nil {
		return errors.New("want a text or a list of texts")
	}
	*t = many
	return nil
}

// Types of slots.
const (
	slotString  = "string"
	slotInteger = "integer"
	slotNumber  = "number"
	slotBoolean = "boolean"
	slotJSON    = "json"
)

// slot says what the text of a named group means.
type slot struct {
	// Type of the value: string (default), integer, number, boolean, json.
	Type string `json:"type"`
	// Default stands in where the group did not take part.
	Default json.RawMessage `json:"default"`
	// Values translate texts into JSON values, whatever the type: {黑色: black}.
	Values map[string]json.RawMessage `json:"values"`
}

// slotValues are the exact JSON texts of the slots that have a value.
type slotValues map[string]string

func (p patterns) compile(slots map[string]slot) error {
	groups := map[string]bool{}
	for i, q := range p {
		re, err := regexp.Compile(q.text)
		if err != nil {
			return fmt.Errorf("goal pattern %d: %w", i+1, err)
		}
		q.re = re
		for _, n := range re.SubexpNames() {
			groups[n] = true
		}
	}
	for name, s := range slots {
		if !groups[name] && s.Default == nil {
			return fmt.Errorf("slot %s: no pattern has a group (?<%s>…) and there is no default", name, name)
		}
		if !slices.Contains([]string{"", slotString, slotInteger, slotNumber, slotBoolean, slotJSON}, s.Type) {
			return fmt.Errorf("slot %s: type %q is not string, integer, number, boolean or json", name, s.Type)
		}
		for text, v := range s.Values {
			if _, err := plan.ParseValue(string(v)); err != nil {
				return fmt.Errorf("slot %s, value of %q: %w", name, text, err)
			}
		}
	}
	return nil
}

// known names every slot: the groups of all patterns and those declared.
func (p patterns) known(slots map[string]slot) map[string]bool {
	out := map[string]bool{}
	for _, q := range p {
		for _, n := range q.re.SubexpNames() {
			if n != "" {
				out[n] = true
			}
		}
	}
	for n := range slots {
		out[n] = true
	}
	return out
}

// match returns the slots of the first pattern that fits the goal, with values that fit their types.
func (p patterns) match(goal string, slots map[string]slot) (slotValues, bool) {
	for _, q := range p {
		if v, ok := q.match(strings.TrimSpace(goal), slots); ok {
			return v, true
		}
	}
	return nil, false
}

func (q *pattern) match(goal string, slots map[string]slot) (slotValues, bool) {
	found := q.re.FindStringSubmatchIndex(goal)
	if found == nil {
		return nil, false
	}
	values := slotValues{}
	for i, name := range q.re.SubexpNames() {
		if name == "" || found[2*i] < 0 {
			continue
		}
		json, ok := slots[name].read(strings.TrimSpace(goal[found[2*i]:found[2*i+1]]))
		if !ok {
			return nil, false
		}
		values[name] = json
	}
	for name, s := range slots {
		if _, has := values[name]; !has && s.Default != nil {
			values[name] = compact(s.Default)
		}
	}
	return values, true
}

// read makes the JSON value of a slot's text, exact; false where the text is none of its type.
func (s slot) read(text string) (string, bool) {
	if v, ok := s.Values[text]; ok {
		return compact(v), true
	}
	switch s.Type {
	case "", slotString:
		return string(plan.StringValue(text).Append(nil)), true
	}
	v, err := plan.ParseValue(text)
	if err != nil {
		return "", false
	}
	switch s.Type {
	case slotInteger:
		return text, v.Kind() == plan.Number && !strings.ContainsAny(text, ".eE")
	case slotNumber:
		return text, v.Kind() == plan.Number
	case slotBoolean:
		return text, v.Kind() == plan.Bool
	}
	return string(v.Append(nil)), true
}

func compact(raw json.RawMessage) string {
	v, err := plan.ParseValue(string(raw))
	if err != nil {
		return string(raw)
	}
	return string(v.Append(nil))
}
