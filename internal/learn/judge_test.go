package learn

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// host is a file tree: a directory ends in a slash, and a link has its target
// after an arrow.
type host map[string]File

func newHost(paths ...string) host {
	h := host{"/": {Real: "/", Dir: true}}
	for _, p := range paths {
		name, real, isLink := strings.Cut(p, " -> ")
		dir := strings.HasSuffix(p, "/")
		name = path.Clean(name)
		for above := path.Dir(name); above != "/"; above = path.Dir(above) {
			if _, ok := h[above]; !ok {
				h[above] = File{Real: above, Dir: true}
			}
		}
		if !isLink {
			real = name
		}
		h[name] = File{Real: path.Clean(real), Dir: dir}
	}
	return h
}

func (h host) Look(p string) (File, bool) {
	f, ok := h[p]
	return f, ok
}

func (h host) Names(dir string) []string {
	var names []string
	for p := range h {
		if path.Dir(p) == dir && p != dir {
			names = append(names, path.Base(p))
		}
	}
	return slices.Sorted(slices.Values(names))
}

// Interpreter finds the scripts of the tests by their names.
// May refuses what is the administrator's.
func (host) May(p string, write bool) bool { return !strings.HasSuffix(p, "/etc/passwd") || !write }

func (host) Interpreter(p string) string {
	_, interpreter, _ := strings.Cut(p, "#!")
	return strings.ReplaceAll(interpreter, ":", "/")
}

var _ Files = host{}

// testSpec is like that of the default policy for the user u in ~/app.
func testSpec() *spec.Spec {
	return &spec.Spec{
		Mounts: []spec.Mount{
			{Kind: spec.Proc, Target: "/proc"},
			{Kind: spec.Dev, Target: "/dev"},
			{Kind: spec.Symlink, Target: "/bin", Source: "usr/bin"},
			{Kind: spec.Bind, Target: "/etc", Why: "filesystem.allowRead /etc"},
			{Kind: spec.Hide, Target: "/etc/shadow", Why: "filesystem.denyRead /etc/shadow"},
			{Kind: spec.Tmpfs, Target: "/home/u"},
			{Kind: spec.Bind, Target: "/home/u/.nvm", Why: "filesystem.allowRead ~/.nvm"},
			{Kind: spec.Private, Target: "/home/u/.cache/go-build"},
			{Kind: spec.Bind, Target: "/home/u/app", Write: true, Why: "filesystem.allowWrite ."},
			{Kind: spec.Bind, Target: "/home/u/app/.git/hooks", Why: "protected .git/hooks"},
			{Kind: spec.Tmpfs, Target: "/tmp"},
			{Kind: spec.Bind, Target: "/usr", Why: "filesystem.allowRead /usr"},
		},
		Broker: &spec.Broker{Layers: [][]spec.PathRule{{
			{Pattern: "/home/u/app/.envrc", Write: spec.Denied, Why: "protected .envrc"},
			{Pattern: "/home/u/app/**/*.key", Read: spec.Denied, Why: "filesystem.denyRead **/*.key"},
		}}},
	}
}

var testHost = newHost(
	"/bin/ -> /usr/bin", "/bin/sh -> /usr/bin/dash", "/usr/bin/dash", "/etc/passwd", "/etc/shadow", "/etc/ld.so.cache", "/proc/self/maps",
	"/home/u/.nvm/node", "/home/u/.npmrc", "/home/u/.cache/go-build/x", "/home/u/data/a", "/home/u/data/sub/",
	"/home/u/link -> /home/u/data/a", "/home/u/to-usr -> /usr/bin/dash",
	"/home/u/app/main.go", "/home/u/app/.envrc", "/home/u/app/out -> /srv/out", "/home/u/app/.git/hooks/pre-commit", "/home/u/app/x.key",
	"/home/u/app/script#!:home:u:run", "/home/u/run#!:usr:bin:dash", "/home/u/run -> /home/u/run#!:usr:bin:dash", "/home/u/app/odd#!none",
	"/srv/out", "/tmp/host/", "/tmp/host/file", "/opt/tool/bin/run",
)

func TestNeedsAreWhatTheHostHasAndTheSandboxLacks(t *testing.T) {
	for _, c := range []struct {
		op, path string
		write    bool
		want     []string // as describe has it
	}{
		{"open", "/etc/passwd", false, nil},
		{"exec", "/bin/sh", false, nil},
		{"open", "/etc/ld.so.cache", false, nil},
		{"open", "/proc/self/maps", false, nil},
		{"open", "/nothing/here", false, nil},
		{"stat", "/", false, nil},
		{"stat", "/home", false, nil},
		{"open", "/home/u", false, nil},
		{"open", "/home/u/.nvm/node", false, nil},
		{"open", "/home/u/.npmrc", false, []string{"read /home/u/.npmrc: not granted"}},
		{"stat", "/home/u/.npmrc", false, []string{"read /home/u/.npmrc: not granted"}},
		{"exec", "/opt/tool/bin/run", false, []string{"read /opt/tool/bin/run: not granted"}},
		{"exec", "/home/u/app/script#!:home:u:run", false, []string{"read /home/u/run: not granted", "read /home/u/run#!:usr:bin:dash: not granted"}},
		{"exec", "/home/u/app/odd#!none", false, nil},
		{"open", "/home/u/app/script#!:home:u:run", false, nil},
		{"open", "/home/u/link", false, []string{"read /home/u/link: not granted", "read /home/u/data/a: not granted"}},
		{"open", "/home/u/to-usr", false, []string{"read /home/u/to-usr: not granted"}},
		{"open", "/home/u/app/out", false, []string{"read /srv/out: not granted"}},
		{"open", "/etc/shadow", false, []string{"read /etc/shadow: filesystem.denyRead /etc/shadow"}},
		{"stat", "/etc/shadow", false, nil},
		{"open", "/home/u/app/x.key", false, []string{"read /home/u/app/x.key: filesystem.denyRead **/*.key, by the broker"}},
		{"stat", "/home/u/app/x.key", false, nil},

		{"open", "/home/u/app/main.go", true, nil},
		{"create", "/home/u/app/new", true, nil},
		{"rename", "/home/u/app/main.go", true, nil},
		{"create", "/home/u/.cache/go-build/y", true, nil},
		{"create", "/etc/passwd", true, []string{"write /etc/passwd: only reading is granted, in vain"}},
		{"create", "/etc/new/er", true, []string{"write /etc/: only reading is granted"}},
		{"rename", "/etc/passwd", true, []string{"write /etc/: only reading is granted"}},
		{"remove", "/etc/passwd", true, []string{"write /etc/: only reading is granted"}},
		{"remove", "/etc/nothing", true, nil},
		{"open", "/etc/nothing", true, nil},
		{"create", "/home/u/app/.git/hooks/new", true, []string{"write /home/u/app/.git/hooks/: protected .git/hooks"}},
		{"create", "/home/u/app/.envrc", true, []string{"write /home/u/app/.envrc: protected .envrc, by the broker"}},
		{"truncate", "/home/u/app/out", true, []string{"write /srv/out: not granted"}},
		{"mkdir", "/etc", true, nil},
		{"mkdir", "/opt/tool", true, []string{"read /opt/tool/: not granted"}},
		{"mkdir", "/opt/tool/new", true, []string{"write /opt/tool/: not granted"}},
		{"create", "/etc/passwd/new", true, nil},

		// In memory.
		{"create", "/home/u/.rc", true, nil},
		{"create", "/home/u/.npmrc", true, nil},
		{"open", "/home/u/.npmrc", true, []string{"write /home/u/.npmrc: not granted"}},
		{"create", "/home/u/data/new", true, []string{"write /home/u/data/: not granted"}},
		{"create", "/tmp/a/b", true, nil},
		{"open", "/tmp/host/file", false, []string{"read /tmp/host/file: not granted"}},
		{"remove", "/tmp/host/file", true, []string{"write /tmp/host/: not granted"}},
		{"remove", "/home/u/data/a", true, []string{"write /home/u/data/: not granted"}},
		{"change", "/home/u/data/a", true, []string{"write /home/u/data/a: not granted"}},

		// Of what is there.
		{"change", "/etc/passwd", true, []string{"write /etc/passwd: only reading is granted, in vain"}},
		{"change", "/home/u/app/main.go", true, nil},
		{"change", "/home/u/app/.git/hooks/pre-commit", true, []string{"write /home/u/app/.git/hooks/pre-commit: protected .git/hooks"}},
		{"change", "/home/u/app/.envrc", true, nil},
		{"remove", "/home/u/app/.envrc", true, nil},
		{"remove", "/home/u/app/main.go", true, nil},
	} {
		j, err := NewJudge(testSpec())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range j.Needs(Call{Op: c.op, Path: c.path, Write: c.write}, testHost) {
			got = append(got, describe(&n))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s %s: got %q, want %q", c.op, c.path, got, c.want)
		}
	}
}

func TestWhatIsRenamedMustBeThere(t *testing.T) {
	j, err := NewJudge(testSpec())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		want []string
	}{
		{"/home/u/app/main.go", nil},
		{"/home/u/.cache/go-build/x", nil},
		{"/home/u/nothing", nil},
		{"/etc/passwd", []string{"write /etc/: only reading is granted"}},
		{"/home/u/data/a", []string{"write /home/u/data/: not granted"}},
		{"/home/u/link", []string{"write /home/u/: not granted"}},
		{"/home/u/.npmrc", []string{"write /home/u/: not granted"}},
		{"/home/u/app/.git/hooks/pre-commit", []string{"write /home/u/app/.git/hooks/: protected .git/hooks"}},
	} {
		var got []string
		for _, n := range j.Needs(Call{Op: "rename", Path: c.path, Write: true, Gone: true}, testHost) {
			got = append(got, describe(&n))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.path, got, c.want)
		}
	}
	// What the command made itself it finds.
	for _, path := range []string{"/home/u/.npmrc", "/tmp/host/file"} {
		j.Needs(Call{Op: "mkdir", Path: "/tmp/host", Write: true}, testHost)
		j.Needs(Call{Op: "create", Path: path, Write: true}, testHost)
		if got := j.Needs(Call{Op: "rename", Path: path, Write: true, Gone: true}, testHost); got != nil {
			t.Errorf("%s, made in memory: got %v", path, got)
		}
		for _, op := range []string{"change", "remove"} {
			if got := j.Needs(Call{Op: op, Path: path, Write: true}, testHost); got != nil {
				t.Errorf("%s of %s, made in memory: got %v", op, path, got)
			}
		}
	}
}

func TestDenialIsToldWhereNothingIsGranted(t *testing.T) {
	s := testSpec()
	s.Denials = []spec.Denial{{Path: "/etc", Why: "filesystem.denyWrite /etc"}, {Path: "/srv", Read: true, Why: "filesystem.denyRead /srv"}}
	j, err := NewJudge(s)
	if err != nil {
		t.Fatal(err)
	}
	if needs := j.Needs(Call{Op: "open", Path: "/srv/out"}, testHost); len(needs) != 1 || needs[0].Denied != "filesystem.denyRead /srv" {
		t.Errorf("reading what is neither granted nor may be: got %+v", needs)
	}
	if needs := j.Needs(Call{Op: "open", Path: "/srv/out", Write: true}, testHost); len(needs) != 1 || needs[0].Denied != "filesystem.denyRead /srv" {
		t.Errorf("writing it: got %+v", needs)
	}
	needs := j.Needs(Call{Op: "create", Path: "/etc/new", Write: true}, testHost)
	if len(needs) != 1 || needs[0].Denied != "filesystem.denyWrite /etc" {
		t.Errorf("got %+v", needs)
	}
	if needs := j.Needs(Call{Op: "create", Path: "/usr/bin/new", Write: true}, testHost); len(needs) != 1 || needs[0].Denied != "" {
		t.Errorf("elsewhere: got %+v", needs)
	}
}

func describe(n *Need) string {
	kind, slash, by := "read", "", ""
	if n.Change {
		kind = "write"
	}
	if n.Dir {
		slash = "/"
	}
	if n.Brokered {
		by = ", by the broker"
	}
	if n.Vain {
		by += ", in vain"
	}
	return fmt.Sprintf("%s %s%s: %s%s", kind, n.Grant, slash, n.Rule(), by)
}

func TestADirectoryMadeInMemoryCanBeWritten(t *testing.T) {
	j, err := NewJudge(testSpec())
	if err != nil {
		t.Fatal(err)
	}
	write := Call{Op: "create", Path: "/tmp/host/new", Write: true}
	if got := j.Needs(write, testHost); len(got) != 1 {
		t.Errorf("before: got %v, want one need", got)
	}
	if got := j.Needs(Call{Op: "mkdir", Path: "/tmp/host", Write: true}, testHost); got != nil {
		t.Errorf("mkdir: got %v", got)
	}
	if got := j.Needs(write, testHost); got != nil {
		t.Errorf("after: got %v, want nothing", got)
	}
	read := Call{Op: "open", Path: "/tmp/host/file"}
	if got := j.Needs(read, testHost); len(got) != 1 {
		t.Errorf("a file of the host in it: got %v, want one need", got)
	}
}

func TestWhatIsMadeInAHomeOfMemoryIsForgotten(t *testing.T) {
	j, err := NewJudge(testSpec())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []Call{
		{Op: "create", Path: "/home/u/new", Write: true},
		{Op: "mkdir", Path: "/home/u/.config", Write: true},
		{Op: "mkdir", Path: "/home/u/.config/tool", Write: true},
		{Op: "create", Path: "/home/u/.config/tool/a", Write: true},
		{Op: "create", Path: "/home/u/.cache/tool/a", Write: true},
		{Op: "create", Path: "/home/u/lock", Write: true},
		{Op: "remove", Path: "/home/u/lock", Write: true, Gone: true},
		{Op: "create", Path: "/home/u/app/kept", Write: true},
		{Op: "create", Path: "/tmp/other", Write: true},
	} {
		if needs := j.Needs(c, testHost); needs != nil {
			t.Errorf("%+v: got %+v", c, needs)
		}
	}
	if got, want := j.Forgotten("/home/u"), []string{"/home/u/.config/tool", "/home/u/new"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSecretsAreKnownByPlaceAndName(t *testing.T) {
	for p, want := range map[string]bool{
		"/home/u/.ssh/config":                    true,
		"/home/u/.aws/credentials":               true,
		"/home/u/.npmrc":                         true,
		"/home/u/.config/gh/hosts.yml":           true,
		"/srv/app/.env":                          true,
		"/srv/app/.env.production":               true,
		"/srv/app/.env.example":                  false,
		"/srv/id_ed25519":                        true,
		"/srv/id_ed25519.pub":                    true,
		"/srv/tls/server.key":                    true,
		"/srv/tls/privkey.pem":                   true,
		"/srv/tls/ca-bundle.pem":                 false,
		"/srv/tls/cert.pem":                      false,
		"/srv/db_password.txt":                   true,
		"/srv/secrets/x":                         true,
		"/srv/api-token":                         true,
		"/srv/node_modules/js-tokens/index.js":   false,
		"/srv/node_modules/tokenizer/token.js":   false,
		"/srv/keyboard/layout":                   false,
		"/home/u/.config/nvim/init.lua":          false,
		"/home/u/.sshfs":                         false,
		"/home/other/.gnupg/private-keys-v1.d/x": true,
	} {
		if got := isSecret("/home/u", p); got != want {
			t.Errorf("%s: got %v, want %v", p, got, want)
		}
	}
}

func TestCachesAndManagersAreFoundByTheirRoot(t *testing.T) {
	for p, want := range map[string][2]string{
		"/home/u/.cache/pip/http/a/b":         {"/home/u/.cache/pip", ""},
		"/home/u/.cache":                      {"", ""},
		"/home/u/.npm/_logs/x":                {"/home/u/.npm", ""},
		"/home/u/.nvm/versions/node/bin/node": {"", "/home/u/.nvm"},
		"/home/u/.local/share/mise/x":         {"", "/home/u/.local/share/mise"},
		"/home/u/data":                        {"", ""},
		"/root/.npm":                          {"", ""},
	} {
		manager, _ := managerOf("/home/u", p)
		if got := [2]string{cacheOf("/home/u", p), manager}; got != want {
			t.Errorf("%s: got %q, want %q", p, got, want)
		}
	}
}

func TestManagersAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range homeManagers {
		if seen[m.dir] {
			t.Errorf("%s twice", m.dir)
		}
		seen[m.dir] = true
	}
}
