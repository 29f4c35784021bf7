package tool

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Schema infers the JSON Schema (2020-12) of a Go type as encoding/json writes it: structs are objects without further
// properties, fields without omitempty or omitzero that are not pointers are required, the tag `jsonschema:"…"` is a
// field's description and `enum:"a,b"` its allowed strings. json.RawMessage and interfaces are anything, json.Number a
// number. Recursive types, channels and functions have none.
func Schema[T any]() (json.RawMessage, error) { return inputSchema(reflect.TypeFor[T]()) }

var (
	rawType    = reflect.TypeFor[json.RawMessage]()
	numberType = reflect.TypeFor[json.Number]()
	timeType   = reflect.TypeFor[time.Time]()
	marshaler  = reflect.TypeFor[json.Marshaler]()
	textType   = reflect.TypeFor[encoding.TextMarshaler]()
)

// schema is an ordered JSON object: definitions should read as they were written.
type schema []member

type member struct {
	name  string
	value any
}

func (s schema) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i, m := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := encode(m.name)
		if err != nil {
			return nil, err
		}
		value, err := encode(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

func inputSchema(t reflect.Type) (json.RawMessage, error) {
	if t == rawType || t.Kind() == reflect.Interface {
		return json.RawMessage(`{"type":"object"}`), nil
	}
	s, err := inference{}.of(t)
	if err != nil {
		return nil, err
	}
	if k := t.Kind(); k != reflect.Struct && k != reflect.Map {
		return nil, fmt.Errorf("%s is not an object: use a struct, a map or json.RawMessage", t)
	}
	return encode(s)
}

// outputSchema is nil where anything goes.
func outputSchema(t reflect.Type) (json.RawMessage, error) {
	if t == rawType || t.Kind() == reflect.Interface {
		return nil, nil
	}
	s, err := inference{output: true}.of(t)
	if err != nil || len(s) == 0 {
		return nil, err
	}
	return encode(s)
}

type inference struct {
	// output: a nil slice or map is written as null, so null must be allowed.
	output bool
	seen   []reflect.Type
}

func (f inference) of(t reflect.Type) (schema, error) {
	if slices.Contains(f.seen, t) {
		return nil, fmt.Errorf("%s contains itself: give the schema as text", t)
	}
	switch {
	case t == rawType:
		return nil, nil
	case t == numberType:
		return schema{{"type", "number"}}, nil
	case t == timeType:
		return schema{{"type", "string"}, {"format", "date-time"}}, nil
	case t.Kind() != reflect.Pointer && (t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)):
		return nil, nil
	case t.Kind() != reflect.Pointer && (t.Implements(textType) || reflect.PointerTo(t).Implements(textType)):
		return schema{{"type", "string"}}, nil
	}
	f.seen = append(slices.Clip(f.seen), t)
	switch t.Kind() {
	case reflect.String:
		return schema{{"type", "string"}}, nil
	case reflect.Bool:
		return schema{{"type", "boolean"}}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return schema{{"type", "integer"}}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return schema{{"type", "integer"}, {"minimum", 0}}, nil
	case reflect.Float32, reflect.Float64:
		return schema{{"type", "number"}}, nil
	case reflect.Interface:
		return nil, nil
	case reflect.Pointer:
		s, err := f.of(t.Elem())
		return nullable(s), err
	case reflect.Slice, reflect.Array:
		return f.list(t)
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return nil, fmt.Errorf("%s: keys must be strings", t)
		}
		elem, err := f.of(t.Elem())
		if err != nil {
			return nil, err
		}
		return f.nilable(schema{{"type", "object"}, {"additionalProperties", elem}}), nil
	case reflect.Struct:
		return f.object(t)
	}
	return nil, fmt.Errorf("%s has no JSON Schema", t)
}

func (f inference) list(t reflect.Type) (schema, error) {
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		return f.nilable(schema{{"type", "string"}, {"contentEncoding", "base64"}}), nil
	}
	elem, err := f.of(t.Elem())
	if err != nil {
		return nil, err
	}
	s := schema{{"type", "array"}, {"items", elem}}
	if t.Kind() == reflect.Array {
		return append(s, member{"minItems", t.Len()}, member{"maxItems", t.Len()}), nil
	}
	return f.nilable(s), nil
}

func (f inference) nilable(s schema) schema {
	if f.output {
		return nullable(s)
	}
	return s
}

// nullable allows null besides. A schema without a type allows it anyway.
func nullable(s schema) schema {
	for i, m := range s {
		if name, ok := m.value.(string); ok && m.name == "type" {
			c := slices.Clone(s)
			c[i].value = []string{name, "null"}
			return c
		}
	}
	return s
}

func (f inference) object(t reflect.Type) (schema, error) {
	properties, required := schema{}, []string{}
	for _, field := range reflect.VisibleFields(t) {
		if !field.IsExported() || field.Anonymous && field.Tag.Get("json") == "" && embedded(field.Type) {
			continue
		}
		name, rest, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" && rest == "" || throughNamed(t, field) {
			continue
		}
		if name == "" {
			name = field.Name
		}
		s, err := f.of(field.Type)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", field.Name, err)
		}
		if text := field.Tag.Get("enum"); text != "" {
			s = append(s, member{"enum", strings.Split(text, ",")})
		}
		if text := field.Tag.Get("jsonschema"); text != "" {
			s = append(s, member{"description", text})
		}
		properties = append(properties, member{name, s})
		opts := strings.Split(rest, ",")
		if !slices.Contains(opts, "omitempty") && !slices.Contains(opts, "omitzero") && field.Type.Kind() != reflect.Pointer {
			required = append(required, name)
		}
	}
	s := schema{{"type", "object"}, {"properties", properties}}
	if len(required) > 0 {
		s = append(s, member{"required", required})
	}
	return append(s, member{"additionalProperties", false}), nil
}

func embedded(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}

// throughNamed says whether a promoted field lies in an embedded struct that has a JSON name of its own.
func throughNamed(t reflect.Type, field reflect.StructField) bool {
	for _, i := range field.Index[:len(field.Index)-1] {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		outer := t.Field(i)
		if outer.Tag.Get("json") != "" {
			return true
		}
		t = outer.Type
	}
	return false
}

// usableSchema refuses what is plainly no JSON Schema. Whoever validates with it compiles it and sees the rest.
func usableSchema(text json.RawMessage) error {
	switch string(text) {
	case "", "true", "false":
		return nil
	}
	var top struct {
		Type any `json:"type"`
	}
	if text[0] != '{' {
		return fmt.Errorf("a JSON Schema is an object, true or false, not %s", text)
	}
	if err := json.Unmarshal(text, &top); err != nil {
		return err
	}
	types, isList := top.Type.([]any)
	if !isList && top.Type != nil {
		types = []any{top.Type}
	}
	for _, t := range types {
		if name, _ := t.(string); !slices.Contains(schemaTypes, name) {
			return fmt.Errorf("type %v is none of %s", t, strings.Join(schemaTypes, ", "))
		}
	}
	return nil
}

var schemaTypes = []string{"array", "boolean", "integer", "null", "number", "object", "string"}
