package plan

import "strings"

// A schema that refers to itself can make a validator visit a small value more often than there are atoms: two
// alternatives at each of a hundred levels are enough. The number of visits is therefore bounded before the validator
// runs. Counting is cheap because a part of the schema at a part of the value is counted once and remembered.

// affordable tells whether checking a value takes at most so many visits of subschemas. It counts every alternative,
// so it may refuse what the validator would have left early, never the other way round.
func (cs *compiledSchema) affordable(v Value, maximum int) bool {
	c := costCounter{root: &cs.doc, maximum: maximum, known: map[costKey]int{}}
	return c.visits(&cs.doc, &v) <= maximum
}

type costKey struct{ schema, value *Value }

type costCounter struct {
	root    *Value
	maximum int
	known   map[costKey]int
}

// underWay marks a pair that is being counted: the validator ends such a circle itself.
const underWay = -1

func (c *costCounter) visits(schema, value *Value) int {
	if schema.kind != Object {
		return 1
	}
	key := costKey{schema, value}
	if n, ok := c.known[key]; ok {
		if n == underWay {
			return 1
		}
		return n
	}
	if len(c.known) > c.maximum {
		return c.maximum + 1
	}
	c.known[key] = underWay
	n := 1
	if t, ok := schema.member("type"); !ok || typeMatches(t, value) {
		n = c.inside(schema, value)
	}
	c.known[key] = n
	return n
}

func (v *Value) member(name string) (*Value, bool) {
	for i := range v.members {
		if v.members[i].Name == name {
			return &v.members[i].Value, true
		}
	}
	return nil, false
}

func typeMatches(t, value *Value) bool {
	if t.kind == String {
		return schemaTypes(*t)&kindType(*value) != 0
	}
	return t.kind != Array || schemaTypes(*t)&kindType(*value) != 0
}

func (c *costCounter) inside(schema, value *Value) int {
	n := 1
	add := func(more int) {
		if n += more; n > c.maximum {
			n = c.maximum + 1
		}
	}
	for i := range schema.members {
		if n > c.maximum {
			return n
		}
		sub := &schema.members[i].Value
		switch schema.members[i].Name {
		case "$ref":
			if target := c.resolve(sub); target != nil {
				add(c.visits(target, value))
			}
		case "allOf", "anyOf", "oneOf":
			for k := range sub.items {
				add(c.visits(&sub.items[k], value))
			}
		case "not", "if", "then", "else":
			add(c.visits(sub, value))
		case "dependentSchemas", "dependencies":
			for k := range sub.members {
				add(c.visits(&sub.members[k].Value, value))
			}
		case "properties":
			for k := range value.members {
				if p, ok := sub.member(value.members[k].Name); ok {
					add(c.visits(p, &value.members[k].Value))
				}
			}
		case "patternProperties":
			for k := range value.members {
				for p := range sub.members {
					add(c.visits(&sub.members[p].Value, &value.members[k].Value))
				}
			}
		case "additionalProperties", "unevaluatedProperties":
			for k := range value.members {
				add(c.visits(sub, &value.members[k].Value))
			}
		case "items", "additionalItems", "unevaluatedItems", "contains":
			for k := range value.items {
				if sub.kind == Array {
					if k < len(sub.items) {
						add(c.visits(&sub.items[k], &value.items[k]))
					}
					continue
				}
				add(c.visits(sub, &value.items[k]))
			}
		case "prefixItems":
			for k := range value.items {
				if k < len(sub.items) {
					add(c.visits(&sub.items[k], &value.items[k]))
				}
			}
		case "propertyNames":
			add(len(value.members))
		}
	}
	return n
}

// resolve finds what a reference within the schema points to, nil where there is nothing.
func (c *costCounter) resolve(ref *Value) *Value {
	if ref.kind != String {
		return nil
	}
	return localRef(c.root, ref.text)
}

var pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")

// localRef follows "#" or "#/a/b" within a schema.
func localRef(root *Value, ref string) *Value {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	at := root
	for _, part := range strings.Split(pointer, "/")[1:] {
		part = pointerUnescapes.Replace(percentDecode(part))
		switch at.kind {
		case Object:
			if at, ok = at.member(part); !ok {
				return nil
			}
		case Array:
			i, ok := arrayIndex(part)
			if !ok || i >= len(at.items) {
				return nil
			}
			at = &at.items[i]
		default:
			return nil
		}
	}
	return at
}

// percentDecode reads %2F and the like, which a reference as a URL may hold.
func percentDecode(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if r, ok := hex4("00" + s[i+1:i+3]); ok {
				b.WriteByte(byte(r))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
