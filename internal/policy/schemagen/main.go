// Command schemagen writes the JSON Schema of the policy file, from the tags of
// the policy types.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: schemagen FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], generate(), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

// object is one JSON Schema. Keys are written in alphabetical order, which
// keeps the file stable.
type object map[string]any

func generate() []byte {
	root := objectSchema(reflect.TypeFor[policy.Policy](), false)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Bailey policy"
	root["description"] = "What a command run by Bailey is granted. See docs/policy.md."
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(root); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// objectSchema describes a struct. Inside a rule nothing is inherited, so no
// entry of a list can be taken back there.
func objectSchema(t reflect.Type, inRule bool) object {
	properties := object{}
	var required []string
	for i := range t.NumField() {
		f := t.Field(i)
		key, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "-" {
			continue
		}
		s := valueSchema(f.Type, f.Tag, inRule)
		s["description"] = f.Tag.Get("doc")
		properties[key] = s
		if option == "" {
			required = append(required, key)
		}
	}
	s := object{"type": "object", "properties": properties, "additionalProperties": false}
	if required != nil {
		s["required"] = required
	}
	if t == reflect.TypeFor[policy.Injection]() {
		has := func(key string) object { return object{"required": []string{key}} }
		bearer := has("bearer")
		bearer["properties"] = object{"bearer": object{"const": true}}
		s["allOf"] = []object{
			{"oneOf": []object{has("fromEnv"), has("fromFile"), has("fromCommand")}},
			{"oneOf": []object{bearer, has("basic"), has("header"), has("query")}},
		}
	}
	return s
}

func valueSchema(t reflect.Type, tag reflect.StructTag, inRule bool) object {
	switch t {
	case reflect.TypeFor[policy.StringList]():
		one := object{"type": "string", "minLength": 1}
		return object{"oneOf": []object{one, {"type": "array", "items": one, "minItems": 1}}}
	case reflect.TypeFor[policy.Size]():
		return object{"oneOf": []object{
			{"type": "integer", "minimum": 1},
			{"type": "string", "pattern": "^0*[1-9][0-9]*([KMGT](iB)?)?$"},
		}}
	case reflect.TypeFor[policy.Duration]():
		return object{"oneOf": []object{
			{"type": "integer", "minimum": 1},
			{"type": "string", "pattern": `^([0-9]+|\+?([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h))+)$`},
		}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return valueSchema(t.Elem(), tag, inRule)
	case reflect.Struct:
		return objectSchema(t, inRule)
	case reflect.Slice:
		return listSchema(t.Elem(), tag, inRule)
	case reflect.Map:
		return object{"type": "object", "additionalProperties": object{"type": "string"}}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return stringSchema(tag)
	case reflect.Int:
		return numberSchema("integer", tag)
	case reflect.Float64:
		return numberSchema("number", tag)
	}
	panic("schemagen: no schema for " + t.String())
}

func listSchema(elem reflect.Type, tag reflect.StructTag, inRule bool) object {
	if elem.Kind() == reflect.Struct {
		return object{"type": "array", "items": objectSchema(elem, true)}
	}
	items := stringSchema(tag)
	if values, ok := items["enum"].([]string); ok && !inRule {
		for _, v := range values {
			values = append(values, "!"+v)
		}
		items["enum"] = values
	}
	if kind := tag.Get("check"); kind == "port" || kind == "exposure" {
		items = object{"oneOf": []object{items, {"type": "integer", "minimum": 1, "maximum": 65535}}}
	}
	return object{"type": "array", "items": items}
}

func stringSchema(tag reflect.StructTag) object {
	if values := tag.Get("enum"); values != "" {
		return object{"type": "string", "enum": strings.Split(values, ",")}
	}
	return object{"type": "string", "minLength": 1}
}

func numberSchema(kind string, tag reflect.StructTag) object {
	s := object{"type": kind, "minimum": 0.0}
	for key, name := range map[string]string{"min": "minimum", "max": "maximum"} {
		if n, err := strconv.ParseFloat(tag.Get(key), 64); err == nil {
			s[name] = n
		}
	}
	return s
}
