package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/tailscale/hujson"

	"github.com/bailey-sandbox/bailey/docs/schema"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

func TestPublishedSchemaIsUpToDate(t *testing.T) {
	if !bytes.Equal(schema.JSON, generate()) {
		t.Error("docs/schema/bailey.schema.json is old; run: go generate ./docs/schema")
	}
}

func resolved(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(schema.JSON, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// validate reports what the schema says about a policy file.
func validate(t *testing.T, r *jsonschema.Resolved, text []byte) error {
	t.Helper()
	plain, err := hujson.Standardize(bytes.Clone(text))
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(plain, &v); err != nil {
		t.Fatal(err)
	}
	return r.Validate(v)
}

func TestPresetsFollowTheSchema(t *testing.T) {
	r := resolved(t)
	for _, name := range policy.PresetNames() {
		data, _ := policy.Preset(name)
		if err := validate(t, r, data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// examples returns the policy files in a page: its blocks marked jsonc.
func examples(page string) []string {
	var out []string
	for {
		_, rest, ok := strings.Cut(page, "\n```jsonc\n")
		if !ok {
			return out
		}
		var text string
		text, page, _ = strings.Cut(rest, "\n```")
		out = append(out, text)
	}
}

func TestDocumentedExamplesAreValid(t *testing.T) {
	page, err := os.ReadFile("../../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	r := resolved(t)
	found := examples(string(page))
	if len(found) < 5 {
		t.Fatalf("found %d examples in docs/policy.md", len(found))
	}
	for _, text := range found {
		if _, err := policy.Parse("example", []byte(text)); err != nil {
			t.Errorf("%v\n%s", err, text)
			continue
		}
		if err := validate(t, r, []byte(text)); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	var root struct{ Properties map[string]any }
	if err := json.Unmarshal(schema.JSON, &root); err != nil {
		t.Fatal(err)
	}
	var walk func(properties map[string]any)
	walk = func(properties map[string]any) {
		for key, v := range properties {
			if !bytes.Contains(page, []byte("`"+key+"`")) {
				t.Errorf("docs/policy.md does not mention `%s`", key)
			}
			s := v.(map[string]any)
			if items, ok := s["items"].(map[string]any); ok {
				s = items
			}
			if p, ok := s["properties"].(map[string]any); ok {
				walk(p)
			}
		}
	}
	walk(root.Properties)
}

// An editor that follows the schema and the command must agree.
func TestSchemaAndDecoderAgree(t *testing.T) {
	r := resolved(t)
	for _, text := range []string{
		`{}`,
		`{"extends": "code"}`, `{"extends": ["code", "./x.jsonc"]}`, `{"extends": []}`, `{"extends": 1}`,
		`{"resources": {"memory": "512M"}}`, `{"resources": {"memory": 5}}`, `{"resources": {"memory": 0}}`,
		`{"resources": {"memory": "5MB"}}`, `{"resources": {"memory": "2GiB"}}`, `{"resources": {"memory": "0"}}`,
		`{"resources": {"timeout": "1h30m"}}`, `{"resources": {"timeout": 90}}`, `{"resources": {"timeout": "soon"}}`,
		`{"resources": {"timeout": "-1s"}}`, `{"resources": {"pids": 0}}`, `{"resources": {"cpu": 0.5}}`, `{"resources": {"cpu": -1}}`,
		`{"runtime": "native"}`, `{"runtime": "nativ"}`, `{"require": ["landlock", "!seccomp"]}`, `{"require": ["x"]}`,
		`{"network": {"allowLocalOutboundPorts": [80, "81"]}}`, `{"network": {"allowLocalOutboundPorts": [0]}}`,
		`{"network": {"rules": [{"host": "a.com"}]}}`, `{"network": {"rules": [{"host": "a.com", "action": "allow", "schemes": ["!http"]}]}}`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A"}]}}`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "bearer": true}]}}`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "bearer": false}]}}`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "bearer": false, "header": "X"}]}}`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "basic": "u", "query": "q"}]}}`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "fromFile": "b"}]}}`,
		`{"network": {"inject": [{"hosts": ["a.com"]}]}}`,
		`{"filesystem": {"allowRead": [""]}}`, `{"filesystem": {"allowRead": "x"}}`, `{"filesystem": {"unknown": []}}`,
		`{"env": {"set": {"A": "1"}}}`, `{"env": {"set": {"A": 1}}}`, `{"allowPty": null}`, `{"unknown": 1}`, `[]`,
	} {
		_, decoder := policy.Parse("test", []byte(text))
		published := validate(t, r, []byte(text))
		if (decoder == nil) != (published == nil) {
			t.Errorf("%s\ndecoder: %v\nschema:  %v", text, decoder, published)
		}
	}
}
