package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// object is a JSON object of the document.
type object = map[string]any

// openAPI turns what protoc-gen-openapiv2 writes into what the gateway speaks: values of JsonText stand plainly, enums
// have their short names, 64-bit numbers are numbers, errors carry a status name; and it adds the paths that gRPC has no
// form for. The result has sorted keys.
func openAPI(raw []byte) ([]byte, error) {
	var doc object
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	definitions, ok := doc["definitions"].(object)
	if !ok {
		return nil, errors.New("no definitions")
	}
	paths, ok := doc["paths"].(object)
	if !ok {
		return nil, errors.New("no paths")
	}
	if _, ok := definitions["v1JsonText"]; !ok {
		return nil, errors.New("no definition v1JsonText")
	}
	definitions["v1JsonText"] = object{
		"title":       "JSON value",
		"description": "Any JSON value, with the exact text of its numbers. null is a value; a field that is left out is none.",
	}
	definitions["rpcStatus"] = errorSchema()
	delete(definitions, "protobufAny")
	walk(doc)
	if err := exportLines(paths); err != nil {
		return nil, err
	}
	if err := onePathForTools(paths); err != nil {
		return nil, err
	}
	for path, item := range extraPaths() {
		if _, there := paths[path]; there {
			return nil, fmt.Errorf("path %s is generated and added by hand", path)
		}
		paths[path] = item
	}
	doc["info"] = object{
		"title": "Cairn", "version": "v1",
		"description": "A durable Plan-and-Solve agent runtime. Every path also takes the header cairn-tenant.",
	}
	doc["securityDefinitions"] = object{"bearer": object{
		"type": "apiKey", "in": "header", "name": "Authorization",
		"description": "Bearer TOKEN, where the gateway was started with a tokens file.",
	}}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// walk mends schemas wherever they stand.
func walk(v any) {
	switch v := v.(type) {
	case object:
		mend(v)
		for _, child := range v {
			walk(child)
		}
	case []any:
		for _, child := range v {
			walk(child)
		}
	}
}

func mend(schema object) {
	if schema["type"] != "string" {
		return
	}
	if f := schema["format"]; f == "int64" || f == "uint64" {
		schema["type"] = "integer"
	}
	values, ok := schema["enum"].([]any)
	if !ok {
		return
	}
	zero, _ := values[0].(string)
	prefix, ok := strings.CutSuffix(zero, "UNSPECIFIED")
	if !ok {
		return
	}
	short := make([]any, 0, len(values)-1)
	lines, _ := schema["description"].(string)
	for _, value := range values {
		name, _ := value.(string)
		word := strings.ToLower(strings.TrimPrefix(name, prefix))
		lines = strings.ReplaceAll(lines, " - "+name+":", " - "+word+":")
		if name != zero {
			short = append(short, word)
		}
	}
	if lines != "" {
		schema["description"] = lines
	}
	schema["enum"] = short
	delete(schema, "default")
}

// errorSchema is the body of every answer that says no.
func errorSchema() object {
	text := func(description string) object { return object{"type": "string", "description": description} }
	return object{
		"type": "object",
		"properties": object{
			"code":    object{"type": "integer", "format": "int32", "description": "The gRPC code."},
			"status":  text("The gRPC code's name, as invalid_argument."),
			"message": text("One sentence for people: what happened, where, and what to do next."),
			"details": object{
				"type":        "array",
				"description": "google.rpc.ErrorInfo with domain cairn.run and a stable reason; BadRequest with the fields that are wrong; RetryInfo where the same request may be sent again.",
				"items": object{
					"type": "object", "additionalProperties": true,
					"properties": object{"@type": text("The type of the detail.")},
				},
			},
		},
	}
}

// exportLines replaces the generated form of a stream, one object with result and error, by the lines that are sent.
func exportLines(paths object) error {
	item, _ := paths["/v1/runs/{run_id}:export"].(object)
	get, _ := item["get"].(object)
	responses, _ := get["responses"].(object)
	if responses == nil {
		return errors.New("no path /v1/runs/{run_id}:export")
	}
	get["produces"] = []any{"application/x-ndjson"}
	responses["200"] = object{
		"description": "One line of JSON a commit. A connection that is cut off has not sent all.",
		"schema":      object{"$ref": "#/definitions/v1ExportRunResponse"},
	}
	return nil
}

// onePathForTools joins the two spellings of one path.
func onePathForTools(paths object) error {
	const one, other = "/v1/tools/{name}", "/v1/tools/{tool.name}"
	to, _ := paths[one].(object)
	from, _ := paths[other].(object)
	put, _ := from["put"].(object)
	if to == nil || put == nil {
		return errors.New("no path " + other)
	}
	parameters, _ := put["parameters"].([]any)
	for _, p := range parameters {
		if p, _ := p.(object); p["name"] == "tool.name" {
			p["name"] = "name"
		}
	}
	to["put"] = put
	delete(paths, other)
	return nil
}

func extraPaths() object {
	failed := object{"description": "An unexpected error response.", "schema": object{"$ref": "#/definitions/rpcStatus"}}
	parameter := func(name, in, kind, description string, required bool) object {
		return object{"name": name, "in": in, "type": kind, "description": description, "required": required}
	}
	return object{
		"/v1/runs/{run_id}/watch": object{"get": object{
			"operationId": "WatchRun", "tags": []any{"QueryService"},
			"summary":  "Events of a run as server-sent events, live, until the run has ended.",
			"produces": []any{"text/event-stream"},
			"parameters": []any{
				parameter("run_id", "path", "string", "The run.", true),
				parameter("after", "query", "integer", "Events after this revision. Last-Event-ID wins over it.", false),
				parameter("Last-Event-ID", "header", "integer", "The revision of the last event seen.", false),
				parameter("position.partition", "query", "integer", "Of the position that a submission answered.", false),
				parameter("position.sequence", "query", "integer", "Of the position that a submission answered.", false),
			},
			"responses": object{
				"200":     object{"description": "id: the revision, event: the event's type, data: the event.", "schema": object{"$ref": "#/definitions/v1Event"}},
				"204":     object{"description": "The run has ended, and there is nothing after the revision asked for."},
				"default": failed,
			},
		}},
		"/v1/artifacts/{sha256}": object{"get": object{
			"operationId": "GetArtifact", "tags": []any{"RunService"},
			"summary":    "The bytes of an artifact.",
			"produces":   []any{"application/octet-stream"},
			"parameters": []any{parameter("sha256", "path", "string", "The sha256 of the bytes, lower-case hexadecimal.", true)},
			"responses": object{
				"200":     object{"description": "The bytes.", "schema": object{"type": "string", "format": "binary"}},
				"default": failed,
			},
		}},
	}
}
