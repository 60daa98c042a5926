package main

import (
	"net/http"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// binding is one way to call a method over REST.
type binding struct {
	verb, path string
	body       string // "*", the name of a field, or empty
	lines      bool   // the answer is lines of JSON
}

// streams are the methods whose answers are streams, which protobuf's options
// cannot say; package transport has the same paths.
var streams = map[protoreflect.Name]binding{
	"WatchEvents":   {http.MethodGet, "/v1/sandboxes/{sandbox_id}/events", "", true},
	"WatchFiles":    {http.MethodGet, "/v1/sandboxes/{sandbox_id}/files:watch", "", true},
	"AttachExec":    {http.MethodGet, "/v1/sandboxes/{sandbox_id}/execs/{exec_id}/output", "", true},
	"StreamExec":    {http.MethodPost, "/v1/sandboxes/{sandbox_id}/execs:stream", "*", true},
	"StreamSession": {http.MethodPost, "/v1/sandboxes/{sandbox_id}/sessions/{session_id}:stream", "*", true},
}

func bindings(m protoreflect.MethodDescriptor) []binding {
	if b, ok := streams[m.Name()]; ok {
		return []binding{b}
	}
	rule, ok := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	if !ok || rule == nil {
		return nil
	}
	all := []binding{bindingOf(rule)}
	for _, more := range rule.GetAdditionalBindings() {
		all = append(all, bindingOf(more))
	}
	return all
}

func bindingOf(r *annotations.HttpRule) binding {
	b := binding{body: r.GetBody()}
	switch p := r.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		b.verb, b.path = http.MethodGet, p.Get
	case *annotations.HttpRule_Put:
		b.verb, b.path = http.MethodPut, p.Put
	case *annotations.HttpRule_Post:
		b.verb, b.path = http.MethodPost, p.Post
	case *annotations.HttpRule_Delete:
		b.verb, b.path = http.MethodDelete, p.Delete
	case *annotations.HttpRule_Patch:
		b.verb, b.path = http.MethodPatch, p.Patch
	}
	return b
}

// parameters are the names in a path.
func (b binding) parameters() []string {
	var names []string
	for part := range strings.SplitSeq(b.path, "{") {
		if name, _, ok := strings.Cut(part, "}"); ok {
			names = append(names, name)
		}
	}
	return names
}

// fields are those of a request that are neither in the path nor, but for a body
// of the whole request, in the body.
func (b binding) fields(m protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	var all []protoreflect.FieldDescriptor
	inPath := b.parameters()
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if slices.Contains(inPath, string(f.Name())) || string(f.Name()) == b.body {
			continue
		}
		all = append(all, f)
	}
	return all
}
