package transport

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"
)

// book is an audit log in memory.
type book struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *book) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *book) entries(t *testing.T) (list []auditEntry) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		var e auditEntry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, e)
	}
	return list
}

func TestAuditLogSaysWhoDidWhat(t *testing.T) {
	log := &book{}
	f := start(t, func(c *Config) { c.Audit = log })
	for _, c := range []struct {
		name, who, http, path, body string
		method, outcome, object     string // no method for no line
	}{
		{"a change", "ann", "POST", "/v1/sandboxes", `{}`, "/bailey.v1.SandboxService/CreateSandbox", "ok", ""},
		{"a look", "ann", "GET", "/v1/sandboxes/sb-x", "", "", "", ""},
		{"a refusal", "reader", "POST", "/v1/sandboxes", `{}`, "/bailey.v1.SandboxService/CreateSandbox", "permission_denied", ""},
		{"somebody unknown", "", "POST", "/v1/sandboxes", `{}`, "POST /v1/sandboxes", "unauthenticated", ""},
		{"a defect", "ann", "POST", "/v1/sandboxes/panic:start", `{}`, "/bailey.v1.SandboxService/StartSandbox", "internal", "panic"},
		{"a failure", "ann", "DELETE", "/v1/sandboxes/sb-x", "", "/bailey.v1.SandboxService/DestroySandbox", "unimplemented", "sb-x"},
	} {
		before := len(log.entries(t))
		header := f.as(c.who, "X-Request-Id", "r1")
		if c.who == "" {
			delete(header, "Authorization")
		}
		f.do(t, c.http, c.path, c.body, header)
		got := log.entries(t)[before:]
		if c.method == "" {
			if len(got) != 0 {
				t.Errorf("%s: %+v", c.name, got)
			}
			continue
		}
		if len(got) != 1 {
			t.Errorf("%s: %d lines", c.name, len(got))
			continue
		}
		e := got[0]
		if e.Method != c.method || e.Outcome != c.outcome || e.Owner != c.who || e.Sandbox != c.object || e.Request != "r1" || e.Time.IsZero() || e.Remote == "" {
			t.Errorf("%s: %+v", c.name, e)
		}
		if (e.Token == "") != (c.who == "") || strings.Contains(e.Token, f.tokens["ann"]) {
			t.Errorf("%s: the token is %q", c.name, e.Token)
		}
	}
}
