package spec

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

func TestLimits(t *testing.T) {
	p := basicPolicy()
	p.Filesystem.AllowWrite, p.Filesystem.PrivateWrite = nil, []string{"."}
	p.Resources = policy.Resources{
		OpenFiles: new(100), Pids: new(50), Timeout: new(policy.Duration(1500*time.Millisecond + 1)),
		Memory: new(policy.Size(64 << 20)), CPU: new(0.1), Disk: new(policy.Size(8 << 20)),
	}
	user, err := Compile(p, newSystem("/home/u/p/"), Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []Rlimit{{"core", 1}, {"nofile", 100}, {"nproc", 51}} // and process 1
	if !slices.Equal(user.Rlimits, want) || user.TimeoutMillis != 1501 {
		t.Errorf("got %v, %d ms; want %v, 1501 ms", user.Rlimits, user.TimeoutMillis, want)
	}
	if n, ok := user.UserPids(); n != 50 || !ok {
		t.Errorf("the policy is said to give %d processes, want 50", n)
	}
	if want := (Limits{Memory: 64 << 20, CPU: 100, Disk: 8 << 20}); *user.Limits != want {
		t.Errorf("got %+v, want %+v", *user.Limits, want)
	}
	root, err := Compile(p, asRoot(in(newSystem("/root/p/"), "/root/p")), Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(root.Rlimits) != 2 || root.Limits.Pids != 50 {
		t.Errorf("root, whose processes the kernel does not count: got %v, %+v; want a group to hold 50", root.Rlimits, *root.Limits)
	}
}

func TestWhichLimitsNeedAGroup(t *testing.T) {
	for _, c := range []struct {
		limits *Limits
		want   bool
	}{
		{nil, false},
		{&Limits{Disk: 1}, false},
		{&Limits{Memory: 1}, true},
		{&Limits{CPU: 1}, true},
		{&Limits{Pids: 1}, true},
	} {
		if got := c.limits.NeedGroup(); got != c.want {
			t.Errorf("%+v: got %v, want %v", c.limits, got, c.want)
		}
	}
}

func TestWithoutLimitsThereAreNone(t *testing.T) {
	s, err := Compile(basicPolicy(), newSystem("/home/u/p/"), Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Limits != nil {
		t.Errorf("got %+v, want none", *s.Limits)
	}
}

func TestDiskIsRefusedWhereTheHostIsWritten(t *testing.T) {
	p := basicPolicy()
	p.Resources.Disk = new(policy.Size(8 << 20))
	p.Filesystem.AllowWrite = append(p.Filesystem.AllowWrite, "/srv/log", "/dev/null")
	_, err := Compile(p, newSystem("/home/u/p/sub/", "/srv/log"), Command{Argv: []string{"true"}})
	if err == nil {
		t.Fatal("a limit passed that nobody holds")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 2 || !strings.Contains(err.Error(), "resources.disk 8M: /home/u/p is written") || !strings.Contains(err.Error(), "8M: /srv/log is written") {
		t.Errorf("got %q, want the project and the file, each once", lines)
	}
}
