// Package openapi holds the OpenAPI 2.0 document of the HTTP paths, made by internal/generate.
package openapi

import _ "embed"

// Document is JSON.
//
//go:embed openapi.json
var Document []byte
