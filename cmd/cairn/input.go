package main

import (
	"io"

	"github.com/cairnrun/cairn/pkg/yamldoc"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

func readAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, badInputf("read the document: %w", err)
	}
	if int64(len(data)) > limit {
		return nil, badInputf("the document has more than %d bytes, the limit for a file", limit)
	}
	return data, nil
}

// readDocument reads YAML or JSON as exact JSON.
func (a *app) readDocument(path string) (*planv1.JsonText, error) {
	data, err := a.readFile(path)
	if err != nil {
		return nil, err
	}
	text, err := yamldoc.ToJSON(data)
	if err != nil {
		return nil, badInputf("%s: %w", path, err)
	}
	return &planv1.JsonText{Text: string(text)}, nil
}
