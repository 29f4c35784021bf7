package gateway

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/proto/exactjson"
)

const contentTypeJSON = "application/json"

// marshaler is grpc-gateway's way to exactjson: values keep their exact text, unknown fields are refused.
type marshaler struct{}

var _ runtime.Marshaler = marshaler{}

func (marshaler) ContentType(any) string { return contentTypeJSON }

func (marshaler) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a message", v)
	}
	return exactjson.Marshal(m)
}

func (marshaler) Unmarshal(data []byte, v any) error {
	if m, ok := v.(proto.Message); ok {
		return exactjson.Unmarshal(data, m)
	}
	// A body that is one field of the request comes as a pointer to the field.
	field := reflect.ValueOf(v)
	if field.Kind() == reflect.Pointer && field.Elem().Kind() == reflect.Pointer {
		fresh := reflect.New(field.Elem().Type().Elem())
		if m, ok := fresh.Interface().(proto.Message); ok {
			if err := exactjson.Unmarshal(data, m); err != nil {
				return err
			}
			field.Elem().Set(fresh)
			return nil
		}
	}
	return fmt.Errorf("%T is not a message", v)
}

func (m marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if len(data) == 0 {
			return io.EOF // an empty body is an empty message
		}
		err = m.Unmarshal(data, v)
		if b, ok := r.(*body); ok {
			b.wrong = err
		}
		return err
	})
}

func (m marshaler) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		data, err := m.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
}

// body is a request's body, read already. It keeps what was wrong with it, since the generated handlers pass only the
// text on.
type body struct {
	io.Reader
	wrong error
}

func (*body) Close() error { return nil }

// problem makes the answer to a body that is not what the request wants.
func (b *body) problem() error {
	var wrong *exactjson.Error
	if !errors.As(b.wrong, &wrong) {
		return nil
	}
	at := wrong.Pointer
	if at == "" {
		at = "/"
	}
	text := wrong.Message
	if wrong.Offset >= 0 {
		text = fmt.Sprintf("%s, at byte %d of the body", text, wrong.Offset)
	}
	return invalid([]violation{{at, reasonInvalidJSON, text}})
}
