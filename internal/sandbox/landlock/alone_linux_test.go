package landlock

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// flattened is what becomes of mounts without a mount namespace.
func flattened(mounts ...spec.Mount) *Alone {
	a := &Alone{check: &check{alone: true}}
	a.flatten(&spec.Spec{Mounts: mounts})
	return a
}

func TestPrivateDirectoriesAreNotShownAlone(t *testing.T) {
	a := flattened(
		spec.Mount{Kind: spec.Tmpfs, Target: "/home/u", Mode: 0o700, Why: spec.PrivateHome},
		spec.Mount{Kind: spec.Private, Target: "/home/u/.cache/go-build", Source: "/home/u/.cache/go-build"},
		spec.Mount{Kind: spec.Bind, Target: "/home/u/.cargo", Source: "/home/u/.cargo"},
		spec.Mount{Kind: spec.Private, Target: "/home/u/.cargo/registry", Source: "/home/u/.cargo/registry", Why: "filesystem.privateWrite ~/.cargo/registry"},
		spec.Mount{Kind: spec.Bind, Target: "/home/u/p", Source: "/home/u/p", Write: true},
		spec.Mount{Kind: spec.Bind, Target: "/home/u/p/.git/hooks", Source: "/home/u/p/.git/hooks"},
		spec.Mount{Kind: spec.Tmpfs, Target: "/tmp", Mode: 0o1777, Why: "private /tmp"},
	)
	for path, want := range map[string]spec.Access{
		"/home/u/x":                 spec.AccessNone,
		"/tmp/x":                    spec.AccessNone,
		"/home/u/.cache/go-build/x": spec.AccessNone,
		"/home/u/.cargo/bin":        spec.AccessRead,
		"/home/u/.cargo/registry/x": spec.AccessRead,
		"/home/u/p/x":               spec.AccessWrite,
		"/home/u/p/.git/hooks/x":    spec.AccessRead,
	} {
		if got, _ := a.spec.Access(path); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
	if a.home != "/home/u" || !slices.Equal(a.private, []string{"/home/u/.cache/go-build"}) {
		t.Errorf("home %q, private %q", a.home, a.private)
	}
	if len(a.Warnings) != 1 || !strings.Contains(a.Warnings[0], ".cargo/registry") {
		t.Errorf("warnings %q", a.Warnings)
	}
}

// What stands in the place of mounts decides by the innermost, and about what is
// mentioned nowhere too.
func TestBrokerStandsInForMounts(t *testing.T) {
	a := flattened(
		spec.Mount{Kind: spec.Bind, Target: "/etc", Source: "/etc", Why: "filesystem.allowRead /etc"},
		spec.Mount{Kind: spec.Bind, Target: "/p", Source: "/p", Write: true},
		spec.Mount{Kind: spec.Hide, Target: "/p/.env", Source: "file", File: true},
		spec.Mount{Kind: spec.Bind, Target: "/p/sub", Source: "/p/sub", Write: true, Why: "pin"},
		spec.Mount{Kind: spec.Bind, Target: "/p/sub/kept", Source: "/p/sub/kept"},
		spec.Mount{Kind: spec.Bind, Target: "/q/file", Source: "/q/file", Write: true, File: true},
	)
	a.admit("/tmp/haven")
	b := a.spec.Broker
	if !b.Strict || b.Read || !slices.Equal(b.Areas, []string{"/p"}) {
		t.Errorf("strict %v, read %v, areas %q", b.Strict, b.Read, b.Areas)
	}
	layer := b.Layers[len(b.Layers)-1]
	for path, want := range map[string]spec.Verdict{
		"/p/x": spec.Allowed, "/p/sub/x": spec.Allowed, "/q/file": spec.Allowed, "/tmp/haven/home/x": spec.Allowed,
		"/p/.env": spec.Denied, "/p/sub/kept/x": spec.Denied, "/etc/passwd": spec.Denied, "/home/u/x": spec.Denied, "/tmp/other": spec.Denied,
	} {
		i := slices.IndexFunc(layer, func(r spec.PathRule) bool { return r.Pattern == "/**" || spec.Covers(r.Pattern, path) })
		if layer[i].Write != want {
			t.Errorf("%s: got %+v, want %s", path, layer[i], want)
		}
	}
}

func TestWhatShowsOnePathInPlaceOfAnotherIsRefusedAlone(t *testing.T) {
	a := flattened(spec.Mount{Kind: spec.Bind, Target: "/a", Source: "/b", Why: "filesystem.allowRead /a"})
	if len(a.check.reasons) != 1 || a.check.reasons[0].Key != "filesystem.allowRead" {
		t.Errorf("got %v", a.check.reasons)
	}
}

func TestLimitOfProcessesIsRefusedAsItIsWritten(t *testing.T) {
	c := &check{spec: &spec.Spec{Rlimits: []spec.Rlimit{{Name: "core", Value: 1}, {Name: "nproc", Value: 65}}}} // and process 1
	c.refuseAlone()
	if len(c.reasons) != 1 || c.reasons[0].Key != "resources.pids" || c.reasons[0].Value != "64" {
		t.Errorf("got %v", c.reasons)
	}
}

func TestCertificatesAreNamedWhereTheyAreAlone(t *testing.T) {
	a := flattened(
		spec.Mount{Kind: spec.Bind, Target: "/.bailey/ca-bundle.crt", Source: "/s/bundle.crt", File: true, Why: spec.Certificates},
		spec.Mount{Kind: spec.Bind, Target: "/etc/ssl/cert.pem", Source: "/s/bundle.crt", File: true, Why: spec.Certificates},
	)
	if len(a.check.reasons) != 0 || len(a.Warnings) != 1 || !strings.Contains(a.Warnings[0], "/etc/ssl/cert.pem") {
		t.Errorf("refused %v, warnings %q", a.check.reasons, a.Warnings)
	}
	for path, want := range map[string]spec.Access{"/s/bundle.crt": spec.AccessRead, "/s/key": spec.AccessNone, "/etc/ssl/cert.pem": spec.AccessNone} {
		if got, _ := a.spec.Access(path); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
	env := []string{"SSL_CERT_FILE=/.bailey/ca-bundle.crt", "A=/etc/ssl/cert.pem"}
	if got, want := a.rename(env), []string{"SSL_CERT_FILE=/s/bundle.crt", "A=/etc/ssl/cert.pem"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFilterLeavesNoAttributesAndNoSocketsAlone(t *testing.T) {
	c := &check{alone: true, spec: &spec.Spec{Network: spec.NetworkNone, Broker: &spec.Broker{}, Seccomp: spec.Seccomp{Families: []string{"unix", "inet", "inet6", "netlink"}}}}
	if got := c.familiesAlone(); len(got) != 0 {
		t.Errorf("families %v", got)
	}
	rules := c.filterAlone().Rules
	for _, nr := range []uint32{unix.SYS_SETXATTR, unix.SYS_FSETXATTR, unix.SYS_FILE_SETATTR} {
		if i, found := find(rules, nr); !found || rules[i].Else != seccomp.Fail(uint16(unix.EPERM)) {
			t.Errorf("call %d is not refused", nr)
		}
	}
	for _, nr := range []uint32{unix.SYS_FCHMODAT, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT, unix.SYS_UNLINKAT, unix.SYS_TRUNCATE} {
		if i, found := find(rules, nr); !found || rules[i].Else != seccomp.Notify {
			t.Errorf("call %d is not asked about", nr)
		}
	}
	i, _ := find(rules, unix.SYS_IOCTL)
	for _, check := range rules[i].Checks {
		if check.Then == seccomp.Notify {
			t.Errorf("ioctl %#x is asked about", check.Value)
		}
	}
}

func TestHavenOfNobodyIsSwept(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	left, err := newHaven()
	if err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(left.dir, "tmp", "closed")
	if err := errors.Join(os.Mkdir(closed, 0o700), os.WriteFile(filepath.Join(closed, "file"), nil, 0o600), os.Chmod(closed, 0)); err != nil {
		t.Fatal(err)
	}
	used, err := newHaven()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left.dir); err != nil {
		t.Error("one that is in use was removed")
	}
	_ = unix.Close(left.lock) // as if its owner had been killed
	another, err := newHaven()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left.dir); err == nil {
		t.Error("one of a killed owner is still there")
	}
	used.remove()
	another.remove()
	if names, _ := os.ReadDir(os.Getenv("TMPDIR")); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestHomeLeadsToWhatIsGrantedInTheRealOne(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	h, err := newHaven()
	if err != nil {
		t.Fatal(err)
	}
	defer h.remove()
	err = h.furnish("/home/u", []spec.Mount{
		{Kind: spec.Bind, Target: "/home/u/.cargo"},
		{Kind: spec.Bind, Target: "/home/u/.cargo/registry"},
		{Kind: spec.Bind, Target: "/home/u/.config/git"},
		{Kind: spec.Hide, Target: "/home/u/.ssh"},
		{Kind: spec.Bind, Target: "/usr"},
	}, []string{"/home/u/.cache/go-build"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{".cargo": "/home/u/.cargo", ".config/git": "/home/u/.config/git", ".ssh": "", ".cache/go-build": ""} {
		if got, _ := os.Readlink(filepath.Join(h.dir, "home", name)); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if info, err := os.Stat(filepath.Join(h.dir, "home/.cache/go-build")); err != nil || !info.IsDir() {
		t.Errorf("the private directory: %v", err)
	}
	env := h.environ([]string{"HOME=/elsewhere", "TMPDIR=/tmp", "A=b"}, "/home/u")
	if want := []string{"HOME=/elsewhere", "A=b", "TMPDIR=" + h.dir + "/tmp"}; !slices.Equal(env, want) {
		t.Errorf("got %q, want %q", env, want)
	}
}
