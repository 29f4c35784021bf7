package plan

import (
	"errors"
	"fmt"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// ExtractError tells that an output does not have what a step's result extracts.
type ExtractError struct {
	// Name is the name in the result's object, empty where the result is one path.
	Name string
	Path string
}

func (e *ExtractError) Error() string {
	if e.Name != "" {
		return fmt.Sprintf("the output has nothing at %s, which the result takes as %s", quote(e.Path), quote(e.Name))
	}
	return fmt.Sprintf("the output has nothing at %s, which the result takes", quote(e.Path))
}

// errResultSpec is what is wrong with a step's result field.
var errResultSpec = errors.New("result is neither a path like \"data.items\" nor an object of names and paths")

// resultSpec is a step's result field, read: one path, or names and paths.
type resultSpec struct {
	whole bool
	names []string
	paths [][]string
	texts []string
}

func readResultSpec(v Value) (resultSpec, error) {
	switch v.kind {
	case Invalid, Null:
		return resultSpec{whole: true}, nil
	case String:
		path, err := parsePath(v.text, true)
		if err != nil {
			return resultSpec{}, err
		}
		return resultSpec{paths: [][]string{path}, texts: []string{v.text}}, nil
	case Object:
		spec := resultSpec{}
		for _, m := range v.sorted() {
			if m.Value.kind != String {
				return resultSpec{}, errResultSpec
			}
			path, err := parsePath(m.Value.text, true)
			if err != nil {
				return resultSpec{}, err
			}
			spec.names = append(spec.names, m.Name)
			spec.paths = append(spec.paths, path)
			spec.texts = append(spec.texts, m.Value.text)
		}
		if len(spec.names) == 0 {
			return resultSpec{}, errResultSpec
		}
		return spec, nil
	}
	return resultSpec{}, errResultSpec
}

// Extract returns a step's result: what its result field takes from the output, with exact text. An absent spec takes
// the whole output, "a.b" what stands at that path, {"x": "a.b"} an object of such. It fails with *ExtractError
// where the output has nothing there, and with an error that says so where the spec is not one.
func Extract(spec, output *planv1.JsonText) (*planv1.JsonText, error) {
	v, problems := valueOf(spec, DefaultLimits())
	if len(problems) > 0 {
		return nil, errResultSpec
	}
	read, err := readResultSpec(v)
	if err != nil {
		return nil, err
	}
	if read.whole {
		return output, nil
	}
	if read.names == nil {
		text, ok := textAt(output.GetText(), read.paths[0])
		if !ok {
			return nil, &ExtractError{Path: read.texts[0]}
		}
		return &planv1.JsonText{Text: text}, nil
	}
	out := []byte{'{'}
	for i, name := range read.names {
		text, ok := textAt(output.GetText(), read.paths[i])
		if !ok {
			return nil, &ExtractError{Name: name, Path: read.texts[i]}
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(appendString(out, name), ':')
		out = append(out, text...)
	}
	return &planv1.JsonText{Text: string(append(out, '}'))}, nil
}
