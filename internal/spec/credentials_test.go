package spec

import (
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

func injecting(t *testing.T, source string) policy.Policy {
	t.Helper()
	p, err := policy.Parse("x", []byte(`{"network": {"allowedDomains": ["a.example"], "inject": [{"hosts": ["a.example"], "bearer": true, `+source+`}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	out := basicPolicy()
	out.Network = p.Network
	return out
}

// credentialSystem has a gate that can be told of credentials.
func credentialSystem() *fakeFacts {
	f := newSystem("/home/u/p/token", "/home/u/.token", "/home/u/p/link -> /home/u/.token", "/home/u/p/tools/get", "/usr/bin/pass", "/home/u/p/bin/other")
	f.host.Authority = &Authority{Dir: "/home/u/ca", Bundle: "/home/u/ca/bundle"}
	f.host.Environ = append(f.host.Environ, "PATH=/home/u/p/bin:/usr/bin:/bin")
	return f
}

func compileInjecting(t *testing.T, source string) *Spec {
	t.Helper()
	s, err := Compile(injecting(t, source), credentialSystem(), Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return s
}

func TestCredentialThatTheCommandSeesIsRefused(t *testing.T) {
	for source, want := range map[string]string{
		`"fromFile": "token"`:            "can be read in the sandbox",
		`"fromFile": "/home/u/p/token"`:  "can be read in the sandbox",
		`"fromFile": "later"`:            "the sandbox could create it",
		`"fromFile": "link"`:             "which the sandbox can replace",
		`"fromCommand": ["./tools/get"]`: "is not an absolute path",
	} {
		_, err := Compile(injecting(t, source), credentialSystem(), Command{Argv: []string{"true"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", source, err, want)
		}
	}
	compileInjecting(t, `"fromFile": "~/.token"`)
}

func TestProgramThatPrintsACredentialIsProtected(t *testing.T) {
	s := compileInjecting(t, `"fromCommand": ["/home/u/p/tools/get", "/home/u/p/bin/other", "/home/u/p"]`)
	wantAccess(t, s, AccessRead, "/home/u/p/tools/get", "/home/u/p/bin/other")
	wantAccess(t, s, AccessWrite, "/home/u/p", "/home/u/p/tools/more")
	s = compileInjecting(t, `"fromCommand": ["pass", "show", "x"]`)
	made := func(r PathRule) bool { return r.Pattern == "/home/u/p/bin/pass" && r.Write == Denied }
	if !slices.ContainsFunc(s.Broker.Layers[0], made) {
		t.Errorf("another program can be put before it in PATH: %+v", s.Broker.Layers[0])
	}
}
