package spec

import (
	"slices"
	"strings"
	"testing"
)

// What Bailey starts outside must not be what a sandbox wrote.
func TestProgramsThatBaileyStartsAreProtected(t *testing.T) {
	f := newSystem("/home/u/p/bin/bailey", "/home/u/p/bin/bailey-gate", "/usr/lib/bailey/baileyd", "/home/u/p/real/gate", "/home/u/p/tools/gate -> ../real/gate")
	f.host.Self = "/home/u/p/bin/bailey"
	f.host.Companions = []string{"/home/u/p/bin/bailey-gate", "/home/u/p/bin/baileyd", "/usr/lib/bailey/baileyd", "/usr/lib/bailey/bailey-gate"}
	s := mustCompile(t, basicPolicy(), f)
	wantAccess(t, s, AccessRead, "/home/u/p/bin/bailey", "/home/u/p/bin/bailey-gate")
	wantAccess(t, s, AccessWrite, "/home/u/p/bin/other")
	denied := func(p string) bool {
		return slices.ContainsFunc(s.Broker.Layers[0], func(r PathRule) bool { return r.Pattern == p && r.Write == Denied })
	}
	if !denied("/home/u/p/bin/baileyd") {
		t.Error("a program that does not exist can be made")
	}
	if denied("/usr/lib/bailey/bailey-gate") {
		t.Error("what cannot be made is asked for")
	}

	f.host.Companions = []string{"/home/u/p/tools/gate"}
	_, err := Compile(basicPolicy(), f, Command{Argv: []string{"true"}})
	if err == nil || !strings.Contains(err.Error(), "which the sandbox can replace") {
		t.Errorf("a link that can be replaced leads to a program: got %v", err)
	}
}
