package main

import (
	"bytes"
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

const preface = `# API reference

This page is made from the protobuf files in [api/bailey/v1](../api/bailey/v1) by ` + "`scripts/generate-api`" + `. [server.md](server.md) tells how the
parts belong together.

Each method can be called in four ways:

- **Connect** over HTTP, in JSON or protobuf: POST the request to ` + "`/bailey.v1.SERVICE/METHOD`" + `.
- **gRPC** and **gRPC-Web** at the same path.
- **REST** at the paths below; [openapi.json](../api/openapi.json) describes it for programs, and a server shows it at ` + "`/openapi.json`" + `. What is
  not in the path is in the query of GET and DELETE, and otherwise in the JSON body. Keys are in camel case, 64-bit numbers are strings,
  bytes are in base64, durations are like ` + "`1.5s`" + `. Streams are lines of JSON, or server-sent events with ` + "`Accept: text/event-stream`" + `; an error
  in the middle is a last line ` + "`{\"error\": …}`" + `.

Errors have a code, a message, and a [Problem](#problem). Requests that change something may have the header ` + "`Idempotency-Key`" + `: sent again with
the same key within a day, a request that succeeded is not done again, and gets the same answer.

`

// reference returns the page for people.
func (d *description) reference() []byte {
	var b bytes.Buffer
	b.WriteString(preface)
	for _, s := range d.services {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", s.Name(), comment(s))
		for i := range s.Methods().Len() {
			writeMethod(&b, s.Methods().Get(i))
		}
	}
	b.WriteString("## Messages\n\n")
	for _, m := range d.messages {
		if isRequest(m) {
			continue
		}
		fmt.Fprintf(&b, "### %s\n\n%s\n\n", m.Name(), comment(m))
		writeFields(&b, m)
	}
	b.WriteString("## Enumerations\n\n")
	for _, e := range d.enums {
		fmt.Fprintf(&b, "### %s\n\n%s\n\n", e.Name(), comment(e))
		for i := range e.Values().Len() {
			fmt.Fprintf(&b, "- %s\n", named(e.Values().Get(i)))
		}
		b.WriteString("\n")
	}
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}

// isRequest tells whether a message is shown with the method that takes it.
func isRequest(m protoreflect.MessageDescriptor) bool {
	return strings.HasSuffix(string(m.Name()), "Request") && m.Name() != "CreateSandboxRequest"
}

func writeMethod(b *bytes.Buffer, m protoreflect.MethodDescriptor) {
	fmt.Fprintf(b, "### %s\n\n%s\n\n", m.Name(), comment(m))
	for _, way := range bindings(m) {
		fmt.Fprintf(b, "    %s %s\n", way.verb, way.path)
	}
	b.WriteString("\n")
	if isRequest(m.Input()) {
		writeFields(b, m.Input())
	} else {
		fmt.Fprintf(b, "Takes %s. ", link(m.Input()))
	}
	stream := ""
	if m.IsStreamingServer() {
		stream = "a stream of "
	}
	fmt.Fprintf(b, "Answers with %s%s.\n\n", stream, link(m.Output()))
}

func writeFields(b *bytes.Buffer, m protoreflect.MessageDescriptor) {
	if m.Fields().Len() == 0 {
		return
	}
	b.WriteString("| field | type | |\n|---|---|---|\n")
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		text := strings.ReplaceAll(strings.TrimPrefix(comment(f), string(f.Name())+" "), "|", "\\|")
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", f.JSONName(), typeName(f), strings.ReplaceAll(text, "\n", " "))
	}
	b.WriteString("\n")
}

// named is a comment that begins with the name it is about.
func named(d protoreflect.Descriptor) string {
	return "`" + string(d.Name()) + "` " + strings.TrimPrefix(comment(d), string(d.Name())+" ")
}

func typeName(f protoreflect.FieldDescriptor) string {
	if f.IsMap() {
		return "map of " + typeName(f.MapValue())
	}
	name := f.Kind().String()
	switch {
	case f.Enum() != nil:
		name = fmt.Sprintf("[%s](#%s)", f.Enum().Name(), strings.ToLower(string(f.Enum().Name())))
	case f.Message() != nil:
		name = link(f.Message())
	}
	if f.IsList() {
		return "list of " + name
	}
	return name
}

func link(m protoreflect.MessageDescriptor) string {
	switch m.FullName() {
	case "google.api.HttpBody":
		return "bytes, in pieces"
	case "google.protobuf.Empty":
		return "nothing"
	case "google.protobuf.Duration":
		return "duration"
	case "google.protobuf.Timestamp":
		return "time"
	case "google.protobuf.Struct":
		return "object"
	}
	return fmt.Sprintf("[%s](#%s)", m.Name(), strings.ToLower(string(m.Name())))
}
