// Package exactjson shows Cairn's messages as JSON and reads them back. It differs from protojson in what people see:
// fields in snake_case, enums by their short lower-case names (ACTION_KIND_TOOL is "tool"), 64-bit integers as numbers,
// and cairn.plan.v1.JsonText as the plain JSON value that it holds, digit for digit.
package exactjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Marshal writes a message as one line of JSON. Unset fields and zero values are left out. It fails where a JsonText
// holds no JSON.
func Marshal(m proto.Message) ([]byte, error) {
	return marshalMessage(nil, m.ProtoReflect())
}

// MarshalIndent is Marshal with one field a line. The exact text of numbers stays.
func MarshalIndent(m proto.Message, indent string) ([]byte, error) {
	b, err := Marshal(m)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", indent); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func marshalMessage(b []byte, m protoreflect.Message) ([]byte, error) {
	switch v := m.Interface().(type) {
	case *planv1.JsonText:
		if !json.Valid([]byte(v.GetText())) {
			return nil, fmt.Errorf("%s: %q is not JSON", m.Descriptor().FullName(), shorten(v.GetText()))
		}
		return append(b, v.GetText()...), nil
	case *timestamppb.Timestamp:
		return appendString(b, v.AsTime().UTC().Format(time.RFC3339Nano)), nil
	case *durationpb.Duration:
		return appendString(b, durationText(v)), nil
	case *anypb.Any:
		return marshalAny(b, v)
	}
	if strings.HasPrefix(string(m.Descriptor().FullName()), "google.protobuf.") {
		t, err := protojson.Marshal(m.Interface())
		return append(b, t...), err
	}
	return marshalFields(append(b, '{'), m, true)
}

// marshalFields ends the object that b has begun; first says that nothing is in it yet.
func marshalFields(b []byte, m protoreflect.Message, first bool) ([]byte, error) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendString(b, f.TextName()), ':')
		var err error
		if b, err = marshalField(b, f, m.Get(f)); err != nil {
			return nil, fmt.Errorf("%s: %w", f.TextName(), err)
		}
	}
	return append(b, '}'), nil
}

func marshalAny(b []byte, a *anypb.Any) ([]byte, error) {
	m, err := a.UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("any of %s: %w", a.GetTypeUrl(), err)
	}
	b = append(b, `{"@type":`...)
	return marshalFields(appendString(b, a.GetTypeUrl()), m.ProtoReflect(), false)
}

func marshalField(b []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	var err error
	switch {
	case f.IsList():
		b = append(b, '[')
		for i := range v.List().Len() {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = marshalScalar(b, f, v.List().Get(i)); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case f.IsMap():
		// Only error details have maps; sorted, so that the same message is the same text.
		keys := make([]string, 0, v.Map().Len())
		v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			keys = append(keys, k.String())
			return true
		})
		sort.Strings(keys)
		b = append(b, '{')
		for i, k := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, k), ':')
			if b, err = marshalScalar(b, f.MapValue(), v.Map().Get(protoreflect.ValueOfString(k).MapKey())); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	}
	return marshalScalar(b, f, v)
}

func marshalScalar(b []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return marshalMessage(b, v.Message())
	case protoreflect.StringKind:
		return appendString(b, v.String()), nil
	case protoreflect.BytesKind:
		return appendString(b, base64.StdEncoding.EncodeToString(v.Bytes())), nil
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, v.Bool()), nil
	case protoreflect.EnumKind:
		if d := f.Enum().Values().ByNumber(v.Enum()); d != nil {
			return appendString(b, ShortName(d)), nil
		}
		return strconv.AppendInt(b, int64(v.Enum()), 10), nil
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		if x := v.Float(); math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("%v has no JSON form", x)
		}
		return strconv.AppendFloat(b, v.Float(), 'g', -1, 64), nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return strconv.AppendUint(b, v.Uint(), 10), nil
	default:
		return strconv.AppendInt(b, v.Int(), 10), nil
	}
}

// ShortName is an enum value's name without its enum's prefix, in lower case: ACTION_KIND_TOOL is "tool".
func ShortName(d protoreflect.EnumValueDescriptor) string {
	return strings.ToLower(strings.TrimPrefix(string(d.Name()), enumPrefix(d.Parent().(protoreflect.EnumDescriptor))))
}

// enumPrefix follows from the lint rule that every value carries it: the zero value is <PREFIX>_UNSPECIFIED.
func enumPrefix(e protoreflect.EnumDescriptor) string {
	if zero := e.Values().ByNumber(0); zero != nil {
		if p, ok := strings.CutSuffix(string(zero.Name()), "UNSPECIFIED"); ok {
			return p
		}
	}
	return ""
}

func durationText(d *durationpb.Duration) string {
	s := strconv.FormatFloat(d.AsDuration().Seconds(), 'f', -1, 64)
	return s + "s"
}

// appendString writes a JSON string that no reader can take for several lines.
func appendString(b []byte, s string) []byte {
	if plain(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes; invalid UTF-8 becomes U+FFFD
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// plain says that a string stands in JSON as it is, which most do.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func shorten(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
