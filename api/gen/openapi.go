package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

type object = map[string]any

const (
	octets = "application/octet-stream"
	lines  = "application/x-ndjson"
	plain  = "application/json"
)

// openAPI returns the document.
func (d *description) openAPI() ([]byte, error) {
	paths := object{}
	for _, s := range d.services {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			for n, b := range bindings(m) {
				at, ok := paths[b.path].(object)
				if !ok {
					at = object{}
					paths[b.path] = at
				}
				at[strings.ToLower(b.verb)] = operation(s, m, b, n)
			}
		}
	}
	schemas := object{"Error": errorSchema()}
	for _, m := range d.messages {
		schemas[string(m.Name())] = messageSchema(m, nil)
	}
	for _, e := range d.enums {
		schemas[string(e.Name())] = enumSchema(e)
	}
	return encode(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Bailey", "version": "v1", "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "Sandboxes as a service. The same methods are there for Connect, gRPC and gRPC-Web, at /bailey.v1.SERVICE/METHOD.",
		},
		"servers":    []any{object{"url": "/"}},
		"security":   []any{object{"bearer": []any{}}},
		"paths":      paths,
		"components": object{"schemas": schemas, "securitySchemes": object{"bearer": object{"type": "http", "scheme": "bearer"}}},
	})
}

func operation(s protoreflect.ServiceDescriptor, m protoreflect.MethodDescriptor, b binding, n int) object {
	id := string(m.Name())
	if n > 0 {
		id = fmt.Sprintf("%s%d", id, n+1)
	}
	op := object{
		"operationId": id,
		"tags":        []any{strings.TrimSuffix(string(s.Name()), "Service")},
		"description": comment(m),
		"responses": object{
			"200":     object{"description": "It is done.", "content": answer(m, b)},
			"default": object{"description": "It is not.", "content": object{plain: object{"schema": reference("Error")}}},
		},
	}
	var parameters []any
	for _, name := range b.parameters() {
		parameters = append(parameters, object{"name": name, "in": "path", "required": true, "schema": object{"type": "string", "minLength": 1}})
	}
	if b.body != "*" {
		for _, f := range b.fields(m.Input()) {
			if schema := fieldSchema(f); !f.IsMap() && (f.Message() == nil || isScalar(f.Message())) {
				parameters = append(parameters, object{"name": string(f.Name()), "in": "query", "description": comment(f), "schema": schema})
			}
		}
	}
	if parameters != nil {
		op["parameters"] = parameters
	}
	switch b.body {
	case "":
	case "*":
		schema := messageSchema(m.Input(), b.parameters())
		op["requestBody"] = object{"required": true, "content": object{plain: object{"schema": schema}}}
	default:
		op["requestBody"] = object{"required": true, "content": object{octets: object{"schema": object{"type": "string", "format": "binary"}}}}
	}
	return op
}

func answer(m protoreflect.MethodDescriptor, b binding) object {
	switch {
	case m.Output().FullName() == "google.api.HttpBody":
		return object{octets: object{"schema": object{"type": "string", "format": "binary"}}}
	case b.lines:
		return object{lines: object{"schema": reference(string(m.Output().Name()))}, "text/event-stream": object{"schema": object{"type": "string"}}}
	case m.Output().FullName() == "google.protobuf.Empty":
		return object{plain: object{"schema": object{"type": "object"}}}
	}
	return object{plain: object{"schema": reference(string(m.Output().Name()))}}
}

func reference(name string) object { return object{"$ref": "#/components/schemas/" + name} }

func messageSchema(m protoreflect.MessageDescriptor, without []string) object {
	properties := object{}
	for _, f := range (binding{path: "{" + strings.Join(without, "}{") + "}"}).fields(m) {
		schema := fieldSchema(f)
		if text := comment(f); text != "" && schema["$ref"] == nil {
			schema["description"] = text
		}
		properties[f.JSONName()] = schema
	}
	schema := object{"type": "object", "properties": properties, "additionalProperties": false}
	if text := comment(m); text != "" {
		schema["description"] = text
	}
	return schema
}

func enumSchema(e protoreflect.EnumDescriptor) object {
	var names []any
	for i := range e.Values().Len() {
		names = append(names, string(e.Values().Get(i).Name()))
	}
	return object{"type": "string", "enum": names, "description": comment(e)}
}

func fieldSchema(f protoreflect.FieldDescriptor) object {
	if f.IsMap() {
		return object{"type": "object", "additionalProperties": valueSchema(f.MapValue())}
	}
	if f.IsList() {
		return object{"type": "array", "items": valueSchema(f)}
	}
	return valueSchema(f)
}

func valueSchema(f protoreflect.FieldDescriptor) object {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.Int32Kind:
		return object{"type": "integer", "format": "int32", "minimum": -1 << 31, "maximum": 1<<31 - 1}
	case protoreflect.Uint32Kind:
		return object{"type": "integer", "minimum": 0, "maximum": 1<<32 - 1}
	case protoreflect.Int64Kind:
		// JSON's numbers lose the last digits in many languages.
		return object{"type": "string", "format": "int64", "pattern": "^-?[0-9]{1,18}$"}
	case protoreflect.DoubleKind:
		return object{"type": "number", "format": "double"}
	case protoreflect.BytesKind:
		return object{"type": "string", "format": "byte", "contentEncoding": "base64", "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"}
	case protoreflect.EnumKind:
		return reference(string(f.Enum().Name()))
	case protoreflect.MessageKind:
		return knownSchema(f.Message())
	}
	return object{"type": "string"}
}

// isScalar tells whether JSON has a message as a single value.
func isScalar(m protoreflect.MessageDescriptor) bool {
	return m.FullName() == "google.protobuf.Duration" || m.FullName() == "google.protobuf.Timestamp"
}

func knownSchema(m protoreflect.MessageDescriptor) object {
	switch m.FullName() {
	case "google.protobuf.Duration":
		return object{"type": "string", "pattern": `^[0-9]{1,9}(\.[0-9]{1,9})?s$`, "examples": []any{"1.5s"}}
	case "google.protobuf.Timestamp":
		return object{"type": "string", "format": "date-time"}
	case "google.protobuf.Struct":
		return object{"type": "object"}
	case "google.api.HttpBody":
		return object{"type": "object", "properties": object{"contentType": object{"type": "string"}, "data": object{"type": "string", "format": "byte"}}}
	}
	return reference(string(m.Name()))
}

func errorSchema() object {
	return object{
		"type":        "object",
		"description": "What went wrong: a code of google.rpc.Code, a message for people, and a bailey.v1.Problem among the details.",
		"properties": object{
			"code":    object{"type": "integer"},
			"message": object{"type": "string"},
			"details": object{"type": "array", "items": object{"type": "object", "properties": object{"@type": object{"type": "string"}}}},
		},
	}
}
