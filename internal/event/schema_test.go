package event

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// document reads a file of the documentation.
func document(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testenv.ModuleRoot(t), "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func schema(t *testing.T) (*jsonschema.Schema, *jsonschema.Resolved) {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(document(t, "schema/event.schema.json"), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &s, r
}

func TestSchemaHasTheKeysAndTypesOfEvent(t *testing.T) {
	s, _ := schema(t)
	types := map[string]string{"raw": "object"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Event]()) {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		types[key] = jsonType(f.Type)
	}
	types["time"] = "string"
	for key, want := range types {
		if p := s.Properties[key]; p == nil || p.Type != want {
			t.Errorf("%s: got %+v, want type %s", key, p, want)
		}
	}
	for key, p := range s.Properties {
		if types[key] == "" {
			t.Errorf("%s is no key of an event", key)
		}
		if p.Description == "" {
			t.Errorf("%s has no description", key)
		}
	}
	if got, want := s.Properties["kind"].Enum, anys(Kinds()...); !reflect.DeepEqual(got, want) {
		t.Errorf("kinds: got %v, want %v", got, want)
	}
	ops := anys(OpOpen, OpCreate, OpRename, OpLink, OpMkdir, OpSymlink, OpMknod, OpBind, OpTruncate, OpRemove, OpChange, OpStat, OpConnect, OpAccept, OpExec, OpCall)
	if got := s.Properties["op"].Enum; !reflect.DeepEqual(got, ops) {
		t.Errorf("ops: got %v, want %v", got, ops)
	}
}

func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonType(t.Elem())
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "array"
	}
	return "string"
}

func anys[T ~string](values ...T) []any {
	var out []any
	for _, v := range values {
		out = append(out, string(v))
	}
	return out
}

func TestEventsFollowTheSchema(t *testing.T) {
	_, r := schema(t)
	for _, e := range samples() {
		if err := validate(r, e.AppendLine(nil)); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		`{}`, `[]`, `{"version":2,"time":"2026-01-02T15:04:05.000000000Z","kind":"deny"}`,
		`{"version":1,"time":"2026-01-02T15:04:05Z","kind":"deny"}`,
		`{"version":1,"time":"2026-01-02T15:04:05.000000000Z","kind":"denial"}`,
		`{"version":1,"time":"2026-01-02T15:04:05.000000000Z","kind":"deny","pid":"1"}`,
	} {
		if validate(r, []byte(bad)) == nil {
			t.Errorf("%s passes", bad)
		}
	}
}

func validate(r *jsonschema.Resolved, line []byte) error {
	var v any
	if err := json.Unmarshal(line, &v); err != nil {
		return err
	}
	return r.Validate(v)
}

func TestEveryKeyIsDocumented(t *testing.T) {
	s, _ := schema(t)
	page := string(document(t, "events.md"))
	for key := range s.Properties {
		if !strings.Contains(page, "\n| `"+key+"` |") {
			t.Errorf("docs/events.md has no row for %s", key)
		}
	}
}

func TestDocumentedExamplesAreLinesOfTheLog(t *testing.T) {
	_, r := schema(t)
	found := 0
	for line := range strings.Lines(string(document(t, "events.md"))) {
		if !strings.HasPrefix(line, lineStart) {
			continue
		}
		found++
		e, err := Decode([]byte(line))
		if err != nil {
			t.Errorf("%v: %s", err, line)
			continue
		}
		if got := string(e.AppendLine(nil)); got != line {
			t.Errorf("got  %swant %s", got, line)
		}
		if err := validate(r, []byte(line)); err != nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	if found < 5 {
		t.Errorf("found %d examples", found)
	}
}
