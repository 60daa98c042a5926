package transport

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

func TestTextsAreBounded(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	many := make(map[string]string)
	for i := range mostLabels + 1 {
		many[x(i+1)] = ""
	}
	for name, test := range map[string]struct {
		request proto.Message
		field   string // that is too large, if any
	}{
		"name":          {&baileyv1.CreateSandboxRequest{Name: x(nameText + 1)}, "name"},
		"of a codebase": {&baileyv1.CreateCodebaseRequest{Name: x(5 << 20)}, "name"},
		"label":         {&baileyv1.CreateSandboxRequest{Labels: map[string]string{"a": x(nameText + 1)}}, "labels"},
		"label's key":   {&baileyv1.ForkSandboxRequest{Labels: map[string]string{x(nameText + 1): ""}}, "labels"},
		"new labels":    {&baileyv1.UpdateSandboxRequest{Labels: &baileyv1.Labels{Labels: map[string]string{"a": x(5 << 20)}}}, "labels"},
		"many labels":   {&baileyv1.CreateSandboxRequest{Labels: many}, "labels"},
		"variable":      {&baileyv1.CreateSandboxRequest{Env: map[string]string{"A": x(valueText + 1)}}, "env"},
		"policy":        {&baileyv1.CreateSandboxRequest{Policy: x(longText + 1)}, "policy"},
		"pattern":       {&baileyv1.CreateSandboxRequest{Rules: []*baileyv1.PathRule{{Pattern: x(usualText + 1)}}}, "pattern"},
		"of a batch":    {&baileyv1.BatchCreateSandboxesRequest{Template: &baileyv1.CreateSandboxRequest{Runtime: x(usualText + 1)}}, "runtime"},
		"ports":         {&baileyv1.CreateSandboxRequest{Ports: make([]int32, mostEntries+1)}, "ports"},
		"paths":         {&baileyv1.DiffSandboxRequest{Paths: []string{"a", x(usualText + 1)}}, "paths"},
		"all of it": {&baileyv1.CreateSandboxRequest{Env: map[string]string{
			"A": x(valueText), "B": x(valueText), "C": x(valueText), "D": x(valueText), "E": x(valueText), "F": x(valueText), "G": x(valueText), "H": x(valueText), "I": x(valueText),
		}, Policy: x(longText)}, "*"},

		"much that is in order": {&baileyv1.CreateSandboxRequest{Name: x(nameText), Env: map[string]string{"A": x(valueText)}, Policy: x(longText), Labels: map[string]string{"a": x(nameText)}}, ""},
		"a label to look for":   {&baileyv1.ListSandboxesRequest{Labels: []string{x(nameText) + "=" + x(nameText)}}, ""},
		"a file":                {&baileyv1.WriteFileRequest{Path: "a", Content: make([]byte, 8<<20)}, ""},
		"a command":             {&baileyv1.RunExecRequest{Command: &baileyv1.Command{Shell: x(longText), Stdin: make([]byte, 8<<20)}}, ""},
	} {
		field := problem.Of(checkTexts(test.request)).GetMetadata()["field"]
		if field != test.field && (test.field != "*" || field == "") {
			t.Errorf("%s: got %q, want %q: %v", name, field, test.field, checkTexts(test.request))
		}
	}
}

// They hold for everything that comes, in messages of streams, too.
func TestRequestsWithTooMuchTextAreRefused(t *testing.T) {
	f := start(t)
	long := strings.Repeat("x", 5<<20)
	for _, test := range [][3]string{
		{"POST /v1/sandboxes", `{"labels": {"a": "` + long + `"}}`, "invalid_labels"},
		{"POST /v1/sandboxes:batchCreate", `{"count": 1, "template": {"name": "` + long + `"}}`, "invalid_name"},
		{"POST /v1/sandboxes/sb-1/execs:stream", `{"command": {"cwd": "` + long + `"}}`, "invalid_cwd"},
	} {
		method, path, _ := strings.Cut(test[0], " ")
		before := f.sandboxes.created.Load()
		res, answer := f.do(t, method, path, test[1], f.as("ann"))
		if res.StatusCode != http.StatusBadRequest || reasonOf(t, answer) != test[2] {
			t.Errorf("%s: %d, %.300s", test[0], res.StatusCode, answer)
		}
		if f.sandboxes.created.Load() != before {
			t.Errorf("%s: it was made", test[0])
		}
	}
}
