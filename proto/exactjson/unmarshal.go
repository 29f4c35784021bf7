package exactjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Unmarshal reads what Marshal writes; it also takes full enum names, 64-bit numbers in quotes, and durations such as
// "1m30s". A null is an absent field, but inside JsonText, where it is a value. Unknown fields, wrong types and
// duplicate keys are refused with a *Error that names the place; of several, the first.
func Unmarshal(data []byte, m proto.Message) error {
	text, err := Text(data)
	if err != nil {
		return err
	}
	proto.Reset(m)
	return decodeMessage([]byte(text), m.ProtoReflect(), "")
}

func wrong(pointer, format string, args ...any) error {
	return &Error{Pointer: pointer, Offset: -1, Message: fmt.Sprintf(format, args...)}
}

func decodeMessage(raw []byte, m protoreflect.Message, at string) error {
	switch v := m.Interface().(type) {
	case *planv1.JsonText:
		v.Text = string(raw)
		return nil
	case *timestamppb.Timestamp:
		s, err := decodeString(raw, at, "a time such as 2026-01-02T15:04:05Z")
		if err != nil {
			return err
		}
		t, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			return wrong(at, "%q is not a time such as 2026-01-02T15:04:05Z", s)
		}
		proto.Merge(v, timestamppb.New(t))
		return nil
	case *durationpb.Duration:
		s, err := decodeString(raw, at, "a duration such as 90s or 1m30s")
		if err != nil {
			return err
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			return wrong(at, "%q is not a duration such as 90s or 1m30s", shorten(s))
		}
		proto.Merge(v, durationpb.New(d))
		return nil
	}
	name := m.Descriptor().FullName()
	if strings.HasPrefix(string(name), "google.protobuf.") {
		if err := protojson.Unmarshal(raw, m.Interface()); err != nil {
			return wrong(at, "not a %s", name)
		}
		return nil
	}
	if len(raw) == 0 || raw[0] != '{' {
		return wrong(at, "an object is expected, not %s", kindOf(raw))
	}
	return eachField(raw, func(key string, value []byte) error {
		here := at + "/" + Escape(key)
		f := m.Descriptor().Fields().ByTextName(key)
		if f == nil {
			if f = m.Descriptor().Fields().ByJSONName(key); f == nil {
				return wrong(here, "unknown field %q", key)
			}
		}
		return decodeField(value, m, f, here)
	})
}

func decodeField(raw []byte, m protoreflect.Message, f protoreflect.FieldDescriptor, at string) error {
	isText := f.Message() != nil && f.Message().FullName() == (*planv1.JsonText)(nil).ProtoReflect().Descriptor().FullName()
	if string(raw) == "null" && (!isText || f.IsList()) {
		return nil
	}
	if o := f.ContainingOneof(); o != nil && m.WhichOneof(o) != nil {
		return wrong(at, "only one of %s may be given", o.Name())
	}
	switch {
	case f.IsList():
		if raw[0] != '[' {
			return wrong(at, "an array is expected, not %s", kindOf(raw))
		}
		list := m.Mutable(f).List()
		i := 0
		return eachItem(raw, func(item []byte) error {
			v, err := decodeScalar(item, f, list.NewElement, at+"/"+strconv.Itoa(i))
			if err != nil {
				return err
			}
			i++
			list.Append(v)
			return nil
		})
	case f.IsMap():
		if raw[0] != '{' {
			return wrong(at, "an object is expected, not %s", kindOf(raw))
		}
		mp := m.Mutable(f).Map()
		return eachField(raw, func(key string, value []byte) error {
			v, err := decodeScalar(value, f.MapValue(), mp.NewValue, at+"/"+Escape(key))
			if err == nil {
				mp.Set(protoreflect.ValueOfString(key).MapKey(), v)
			}
			return err
		})
	}
	v, err := decodeScalar(raw, f, func() protoreflect.Value { return m.NewField(f) }, at)
	if err != nil {
		return err
	}
	m.Set(f, v)
	return nil
}

func decodeScalar(raw []byte, f protoreflect.FieldDescriptor, fresh func() protoreflect.Value, at string) (protoreflect.Value, error) {
	none := protoreflect.Value{}
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		v := fresh()
		return v, decodeMessage(raw, v.Message(), at)
	case protoreflect.StringKind:
		s, err := decodeString(raw, at, "a string")
		return protoreflect.ValueOfString(s), err
	case protoreflect.BytesKind:
		s, err := decodeString(raw, at, "base64 text")
		if err != nil {
			return none, err
		}
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return none, wrong(at, "not base64 text")
		}
		return protoreflect.ValueOfBytes(b), nil
	case protoreflect.BoolKind:
		switch string(raw) {
		case "true":
			return protoreflect.ValueOfBool(true), nil
		case "false":
			return protoreflect.ValueOfBool(false), nil
		}
		return none, wrong(at, "true or false is expected, not %s", kindOf(raw))
	case protoreflect.EnumKind:
		return decodeEnum(raw, f.Enum(), at)
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		x, err := strconv.ParseFloat(unquote(raw), 64)
		if err != nil {
			return none, wrong(at, "a number is expected, not %s", kindOf(raw))
		}
		if f.Kind() == protoreflect.FloatKind {
			return protoreflect.ValueOfFloat32(float32(x)), nil
		}
		return protoreflect.ValueOfFloat64(x), nil
	}
	return decodeInteger(raw, f.Kind(), at)
}

func decodeInteger(raw []byte, kind protoreflect.Kind, at string) (protoreflect.Value, error) {
	text := unquote(raw)
	none := protoreflect.Value{}
	switch kind {
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return none, wrong(at, "a whole number from 0 to 4294967295 is expected, not %s", shorten(string(raw)))
		}
		return protoreflect.ValueOfUint32(uint32(n)), nil
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return none, wrong(at, "a whole number from 0 on is expected, not %s", shorten(string(raw)))
		}
		return protoreflect.ValueOfUint64(n), nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return none, wrong(at, "a whole number of 32 bits is expected, not %s", shorten(string(raw)))
		}
		return protoreflect.ValueOfInt32(int32(n)), nil
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return none, wrong(at, "a whole number is expected, not %s", shorten(string(raw)))
		}
		return protoreflect.ValueOfInt64(n), nil
	}
}

func decodeEnum(raw []byte, e protoreflect.EnumDescriptor, at string) (protoreflect.Value, error) {
	if s, err := decodeString(raw, at, ""); err == nil {
		for i := range e.Values().Len() {
			d := e.Values().Get(i)
			if string(d.Name()) == s || ShortName(d) == s {
				return protoreflect.ValueOfEnum(d.Number()), nil
			}
		}
		var names []string
		for i := range e.Values().Len() {
			if d := e.Values().Get(i); d.Number() != 0 {
				names = append(names, ShortName(d))
			}
		}
		return protoreflect.Value{}, wrong(at, "%q is not one of %s", shorten(s), strings.Join(names, ", "))
	}
	n, err := strconv.ParseInt(string(raw), 10, 32)
	if err != nil {
		return protoreflect.Value{}, wrong(at, "a name is expected, not %s", kindOf(raw))
	}
	return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n)), nil
}

func decodeString(raw []byte, at, want string) (string, error) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", wrong(at, "%s is expected, not %s", want, kindOf(raw))
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", wrong(at, "%s is expected", want)
	}
	return s, nil
}

func unquote(raw []byte) string { return strings.Trim(string(raw), `"`) }

func kindOf(raw []byte) string {
	switch {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "an array"
	case raw[0] == '"':
		return "a string"
	case raw[0] == 't', raw[0] == 'f':
		return "true or false"
	case raw[0] == 'n':
		return "null"
	}
	return "a number"
}

// eachField calls fn for each member of an object, given as compact valid JSON.
func eachField(raw []byte, fn func(key string, value []byte) error) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return err
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		if err := fn(t.(string), value); err != nil {
			return err
		}
	}
	return nil
}

// eachItem calls fn for each element of an array, given as compact valid JSON.
func eachItem(raw []byte, fn func(item []byte) error) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return err
	}
	for dec.More() {
		var item json.RawMessage
		if err := dec.Decode(&item); err != nil {
			return err
		}
		if err := fn(item); err != nil {
			return err
		}
	}
	return nil
}
