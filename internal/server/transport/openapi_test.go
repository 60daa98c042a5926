package transport

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

func TestOpenAPIDescribesEveryMethod(t *testing.T) {
	f := start(t)
	res, body := f.do(t, "GET", "/openapi.json", "", nil)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%d %.200s", res.StatusCode, body)
	}
	var document struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
		} `json:"paths"`
	}
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for path, verbs := range document.Paths {
		for verb, operation := range verbs {
			described[strings.ToUpper(verb)+" "+path+" "+operation.OperationID] = true
		}
	}
	for _, want := range restMethods(t) {
		if !described[want] {
			t.Errorf("not described: %s; run scripts/generate-api", want)
		}
	}
}

// restMethods returns every method as VERB PATH NAME.
func restMethods(t *testing.T) []string {
	t.Helper()
	all := []string{
		"GET /v1/sandboxes/{sandbox_id}/events WatchEvents",
		"GET /v1/sandboxes/{sandbox_id}/files:watch WatchFiles",
		"GET /v1/sandboxes/{sandbox_id}/execs/{exec_id}/output AttachExec",
		"POST /v1/sandboxes/{sandbox_id}/execs:stream StreamExec",
		"POST /v1/sandboxes/{sandbox_id}/sessions/{session_id}:stream StreamSession",
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("bailey.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			for j := range file.Services().Get(i).Methods().Len() {
				m := file.Services().Get(i).Methods().Get(j)
				rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
				for n, r := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
					if r != nil {
						all = append(all, verbAndPath(r)+" "+string(m.Name())+suffix(n))
					}
				}
			}
		}
		return true
	})
	return all
}

func suffix(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n + 1)
}

func verbAndPath(r *annotations.HttpRule) string {
	for verb, path := range map[string]string{"GET": r.GetGet(), "PUT": r.GetPut(), "POST": r.GetPost(), "DELETE": r.GetDelete(), "PATCH": r.GetPatch()} {
		if path != "" {
			return verb + " " + path
		}
	}
	return ""
}
