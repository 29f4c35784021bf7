package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// raw is a small document as protoc-gen-openapiv2 writes it.
const raw = `{
  "swagger": "2.0",
  "info": {"title": "cairn/api/v1/position.proto", "version": "version not set"},
  "paths": {
    "/v1/runs/{run_id}:export": {"get": {"responses": {"200": {"schema": {"type": "object", "properties": {"result": {}, "error": {}}}}}}},
    "/v1/tools/{name}": {"get": {"parameters": [{"name": "name"}]}},
    "/v1/tools/{tool.name}": {"put": {"parameters": [{"name": "tool.name", "in": "path"}, {"name": "n", "type": "string", "format": "uint64"}]}}
  },
  "definitions": {
    "protobufAny": {"type": "object"},
    "rpcStatus": {"type": "object"},
    "v1JsonText": {"type": "object", "properties": {"text": {"type": "string"}}},
    "v1ActionKind": {"type": "string", "enum": ["ACTION_KIND_UNSPECIFIED", "ACTION_KIND_TOOL", "ACTION_KIND_LLM"], "default": "ACTION_KIND_UNSPECIFIED", "description": " - ACTION_KIND_TOOL: A tool of the registry <x>."},
    "v1Action": {"type": "object", "properties": {"kind": {"$ref": "#/definitions/v1ActionKind"}, "size": {"type": "string", "format": "int64"}, "name": {"type": "string"}}}
  }
}`

func TestOpenAPI(t *testing.T) {
	text, err := openAPI([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	var doc object
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	get := func(path ...string) any {
		var v any = doc
		for _, p := range path {
			o, ok := v.(object)
			if !ok {
				return nil
			}
			v = o[p]
		}
		return v
	}
	show := func(v any) string {
		b, _ := json.Marshal(v)
		return string(b)
	}
	for _, c := range []struct {
		path []string
		want string
	}{
		{[]string{"definitions", "v1JsonText", "type"}, `null`},
		{[]string{"definitions", "v1JsonText", "properties"}, `null`},
		{[]string{"definitions", "v1ActionKind", "enum"}, `["tool","llm"]`},
		{[]string{"definitions", "v1ActionKind", "default"}, `null`},
		{[]string{"definitions", "v1ActionKind", "description"}, `" - tool: A tool of the registry \u003cx\u003e."`},
		{[]string{"definitions", "v1Action", "properties", "size", "type"}, `"integer"`},
		{[]string{"definitions", "v1Action", "properties", "name", "type"}, `"string"`},
		{[]string{"definitions", "rpcStatus", "properties", "status", "type"}, `"string"`},
		{[]string{"definitions", "protobufAny"}, `null`},
		{[]string{"paths", "/v1/tools/{tool.name}"}, `null`},
		{[]string{"paths", "/v1/tools/{name}", "put", "parameters"}, `[{"in":"path","name":"name"},{"format":"uint64","name":"n","type":"integer"}]`},
		{[]string{"paths", "/v1/runs/{run_id}:export", "get", "produces"}, `["application/x-ndjson"]`},
		{[]string{"paths", "/v1/runs/{run_id}:export", "get", "responses", "200", "schema"}, `{"$ref":"#/definitions/v1ExportRunResponse"}`},
		{[]string{"paths", "/v1/runs/{run_id}/watch", "get", "operationId"}, `"WatchRun"`},
		{[]string{"info", "title"}, `"Cairn"`},
	} {
		if got := show(get(c.path...)); got != c.want {
			t.Errorf("%s is %s, want %s", strings.Join(c.path, " "), got, c.want)
		}
	}
	again, err := openAPI([]byte(raw))
	if err != nil || string(again) != string(text) {
		t.Errorf("the same input gives another document: %v", err)
	}
	for _, missing := range []string{"v1JsonText", "/v1/runs/{run_id}:export", "/v1/tools/{tool.name}"} {
		if _, err := openAPI([]byte(strings.ReplaceAll(raw, missing, "gone"))); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: %v", missing, err)
		}
	}
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCompareFindsWhatIsOutOfDateAndApplyMendsIt(t *testing.T) {
	fresh, root := t.TempDir(), t.TempDir()
	write(t, fresh, map[string]string{"a/same.pb.go": "1\n2\n", "a/sub/changed.pb.go": "1\n2\n3\n", "a/new.pb.go": "n"})
	write(t, root, map[string]string{"a/same.pb.go": "1\n2\n", "a/sub/changed.pb.go": "1\n2\nx\n", "a/old.pb.go": "o", "a/by_hand.go": "h"})
	outputs := map[string][]string{"a": {".pb.go"}}
	changes, err := compare(fresh, root, outputs)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range changes {
		lines = append(lines, c.String())
	}
	want := "a/new.pb.go: missing\na/old.pb.go: stale\na/sub/changed.pb.go: differs from line 3 on"
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := apply(changes, fresh, root); err != nil {
		t.Fatal(err)
	}
	if changes, err = compare(fresh, root, outputs); err != nil || len(changes) > 0 {
		t.Errorf("after apply: %v, %v", changes, err)
	}
	if _, err := os.Stat(filepath.Join(root, "a/by_hand.go")); err != nil {
		t.Errorf("a file that is not generated: %v", err)
	}
	if _, err := compare(t.TempDir(), root, outputs); err == nil {
		t.Error("a generator that wrote nothing would have removed everything")
	}
}
