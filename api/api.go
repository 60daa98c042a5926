// Package api holds the contract of the server: protobuf files, the Go code made
// from them, and the OpenAPI document of their REST form. scripts/generate-api
// makes the latter two.
package api

import _ "embed"

// OpenAPI describes the REST form of the API, in JSON.
//
//go:embed openapi.json
var OpenAPI []byte
