// Command gen writes what people and programs read about the API: the OpenAPI
// document of its REST form, and the reference. It reads a descriptor set with
// comments, as scripts/generate-api makes it.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	_ "google.golang.org/genproto/googleapis/api/annotations" // the options of methods
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gen: "+err.Error())
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: gen DESCRIPTORS OPENAPI REFERENCE")
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	api, err := read(data)
	if err != nil {
		return err
	}
	document, err := api.openAPI()
	if err != nil {
		return err
	}
	if err := os.WriteFile(args[1], document, 0o644); err != nil {
		return err
	}
	return os.WriteFile(args[2], api.reference(), 0o644)
}

// description is the API as it was read.
type description struct {
	services []protoreflect.ServiceDescriptor
	messages []protoreflect.MessageDescriptor
	enums    []protoreflect.EnumDescriptor
}

func read(data []byte) (*description, error) {
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(data, set); err != nil {
		return nil, err
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, err
	}
	d := &description{}
	files.RangeFilesByPackage("bailey.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			d.services = append(d.services, f.Services().Get(i))
		}
		for i := range f.Messages().Len() {
			d.messages = append(d.messages, f.Messages().Get(i))
		}
		for i := range f.Enums().Len() {
			d.enums = append(d.enums, f.Enums().Get(i))
		}
		return true
	})
	sort.Slice(d.services, func(i, j int) bool { return rank(d.services[i]) < rank(d.services[j]) })
	sort.Slice(d.messages, func(i, j int) bool { return d.messages[i].Name() < d.messages[j].Name() })
	sort.Slice(d.enums, func(i, j int) bool { return d.enums[i].Name() < d.enums[j].Name() })
	return d, nil
}

// rank puts services into the order in which a reader meets them.
func rank(s protoreflect.ServiceDescriptor) int {
	for i, name := range []protoreflect.Name{"SandboxService", "ExecService", "SessionService", "FileService", "CodebaseService", "ServerService"} {
		if s.Name() == name {
			return i
		}
	}
	return 99
}

// comment is what the protobuf file says about something, without line breaks.
func comment(d protoreflect.Descriptor) string {
	text := d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
	var paragraphs []string
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		paragraphs = append(paragraphs, strings.Join(strings.Fields(paragraph), " "))
	}
	return strings.TrimSpace(strings.Join(paragraphs, "\n\n"))
}

// encode writes JSON as the repository has it.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}
