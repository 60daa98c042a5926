// Package schema holds the published JSON Schema of the policy file. It is
// generated from the policy types; see internal/policy/schemagen.
package schema

import _ "embed"

//go:generate go run github.com/bailey-sandbox/bailey/internal/policy/schemagen bailey.schema.json

// JSON is the schema, draft 2020-12.
//
//go:embed bailey.schema.json
var JSON []byte
