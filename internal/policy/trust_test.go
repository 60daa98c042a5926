package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestUntrustedFileOnlyTakesAway(t *testing.T) {
	w := newWorld(t)
	w.write("config/bailey/bailey.jsonc", `{"network": {"allowedDomains": ["*.a.com"]}, "resources": {"pids": 100}}`)
	path := w.write("project/bailey.jsonc", `{
		"network": {"allowedDomains": ["x.a.com", "evil.com"]},
		"filesystem": {"allowRead": ["/"], "allowWrite": ["~"]},
		"resources": {"pids": 1000}
	}`)
	l := w.load()
	if want := []string{"x.a.com"}; !reflect.DeepEqual(l.Policy.Network.AllowedDomains, want) {
		t.Errorf("domains: got %v, want %v", l.Policy.Network.AllowedDomains, want)
	}
	if got := *l.Policy.Resources.Pids; got != 100 {
		t.Errorf("pids: got %d, want the user's 100", got)
	}
	if !reflect.DeepEqual(l.Policy.Filesystem, Default().Filesystem) || len(l.Policy.Bounds) != 1 {
		t.Errorf("file system: got %v within %v", l.Policy.Filesystem, l.Policy.Bounds)
	}
	if l.Status != NeverTrusted || l.Project != path || l.Root != w.Dir {
		t.Errorf("status %q, project %s, root %s", l.Status, l.Project, l.Root)
	}
	if got, want := w.chain(), "default config/bailey/bailey.jsonc (default) (project/bailey.jsonc)"; got != want {
		t.Errorf("chain: got %s, want %s", got, want)
	}
}

func TestUntrustedFileAboveDoesNotMoveTheRoot(t *testing.T) {
	w := newWorld(t)
	path := w.write("bailey.jsonc", `{}`)
	if got := w.load().Root; got != w.Dir {
		t.Errorf("untrusted: got %s, want %s", got, w.Dir)
	}
	w.trust(path)
	if got := w.load().Root; got != w.Home {
		t.Errorf("trusted: got %s, want %s", got, w.Home)
	}
}

func TestFlagsHoldWithAnUntrustedFile(t *testing.T) {
	w := newWorld(t)
	w.write("project/bailey.jsonc", `{}`)
	w.Overrides = Policy{Filesystem: Filesystem{AllowWrite: []string{"/data"}}, Env: Env{Allow: []string{"TOKEN"}}}
	p := w.load().Policy
	if !slices.Contains(p.Filesystem.AllowWrite, "/data") || !slices.Contains(p.Env.Allow, "TOKEN") {
		t.Errorf("got %v and %v", p.Filesystem.AllowWrite, p.Env.Allow)
	}
	for _, b := range p.Bounds {
		if !slices.Contains(b.AllowWrite, "/data") {
			t.Errorf("bound refuses what the flag grants: %v", b.AllowWrite)
		}
	}
}

func TestKeysThatAreNoGrantsAreRefusedUntilTrusted(t *testing.T) {
	for name, text := range map[string]string{
		"network.httpProxyPort":  `{"network": {"httpProxyPort": 1}}`,
		"network.socksProxyPort": `{"network": {"socksProxyPort": 1}}`,
		"network.upstreamProxy":  `{"network": {"upstreamProxy": "http://p:1"}}`,
		"network.inject":         `{"network": {"inject": [{"hosts": ["a.com"], "bearer": true, "fromCommand": ["evil"]}]}}`,
		"runtime":                `{"runtime": "docker"}`,
		"env.set":                `{"env": {"set": {"LD_PRELOAD": "x"}}}`,
	} {
		for _, where := range []string{"bailey.jsonc", "base.jsonc"} {
			t.Run(name+" in "+where, func(t *testing.T) {
				w := newWorld(t)
				path := w.write("project/bailey.jsonc", `{"extends": "./base.jsonc"}`)
				w.write("project/base.jsonc", `{}`)
				w.write("project/"+where, text)
				w.refuses(fmt.Sprintf("project/%s:1:%d: %s is refused in a file that is not trusted; look at it and pin it with: bailey trust project/bailey.jsonc",
					where, place(text, name), name))
				w.trust(path)
				w.load()
			})
		}
	}
}

// place finds the column of what a key says.
func place(text, key string) int {
	switch key {
	case "env.set":
		return strings.Index(text, `"LD_PRELOAD"`) + 1
	case "network.inject":
		return strings.Index(text, `{"hosts"`) + 1
	}
	last := key[strings.LastIndexByte(key, '.')+1:]
	return strings.Index(text, `"`+last+`": `) + len(last) + 5
}

func TestUntrustedFileCannotReachOutOfItsDirectory(t *testing.T) {
	w := newWorld(t)
	w.write("secret.jsonc", `{"password hunter2": 1}`)
	const want = `project/bailey.jsonc:1:13: extends "secret.jsonc", outside its own directory; look at it`
	w.write("project/bailey.jsonc", `{"extends": "../secret.jsonc"}`)
	w.refuses(want)
	w.write("project/bailey.jsonc", `{"extends": "`+w.Home+`/secret.jsonc"}`)
	w.refuses(want)
	if err := os.Symlink("../secret.jsonc", filepath.Join(w.Dir, "in.jsonc")); err != nil {
		t.Fatal(err)
	}
	w.write("project/bailey.jsonc", `{"extends": "./in.jsonc"}`)
	w.refuses(`project/bailey.jsonc:1:13: extends "project/in.jsonc", outside its own directory`)
	if err := os.Remove(filepath.Join(w.Dir, "bailey.jsonc")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../secret.jsonc", filepath.Join(w.Dir, "bailey.jsonc")); err != nil {
		t.Fatal(err)
	}
	w.refuses("leads out of its directory")
}

func TestTrustedFileMayExtendOutside(t *testing.T) {
	w := newWorld(t)
	w.write("team.jsonc", `{"env": {"allow": ["TEAM"]}}`)
	path := w.write("project/bailey.jsonc", `{"extends": "../team.jsonc"}`)
	w.trust(path)
	if got := w.load().Policy.Env.Allow; !slices.Equal(got, []string{"TEAM"}) {
		t.Errorf("got %v", got)
	}
	// What lies in the directory must be pinned, by whatever way it is reached.
	w.write("project/late.jsonc", `{"env": {"allow": ["LATE"]}}`)
	w.write("team.jsonc", `{"extends": "./project/late.jsonc"}`)
	w.refuses("project/late.jsonc cannot be pinned")
}

func TestChangedFileIsUntrustedAgain(t *testing.T) {
	w := newWorld(t)
	w.write("project/base.jsonc", `{"env": {"allow": ["A"]}}`)
	path := w.write("project/bailey.jsonc", `{"extends": "base.jsonc"}`)
	w.trust(path)
	if l := w.load(); l.Status != Trusted || !slices.Contains(l.Policy.Env.Allow, "A") {
		t.Fatalf("status %q, env %v", l.Status, l.Policy.Env.Allow)
	}
	w.write("project/base.jsonc", `{"env": {"allow": ["A", "SECRET"]}}`)
	if l := w.load(); l.Status != Changed || len(l.Policy.Env.Allow) != 0 {
		t.Errorf("changed base: status %q, env %v", l.Status, l.Policy.Env.Allow)
	}
	p, err := Inspect(w.Options, path)
	if err != nil {
		t.Fatal(err)
	}
	old, err := NewStore(w.StateHome).Pinned(p.Bundle.Path)
	if err != nil {
		t.Fatal(err)
	}
	diff := Diff(old, p.Bundle.Text())
	if !strings.Contains(diff, `- {"env": {"allow": ["A"]}}`) || !strings.Contains(diff, `+ {"env": {"allow": ["A", "SECRET"]}}`) {
		t.Errorf("diff:\n%s", diff)
	}
	w.write("project/base.jsonc", `{"env": {"allow": ["A"]}}`)
	if l := w.load(); l.Status != Trusted {
		t.Errorf("changed back: status %q", l.Status)
	}
}

func TestPinIsForOnePath(t *testing.T) {
	w := newWorld(t)
	w.trust(w.write("project/bailey.jsonc", `{}`))
	w.write("copy/bailey.jsonc", `{}`)
	w.Dir = filepath.Join(w.Home, "copy")
	if l := w.load(); l.Status != NeverTrusted {
		t.Errorf("got %q", l.Status)
	}
}

func TestRevokedFileIsUntrusted(t *testing.T) {
	w := newWorld(t)
	path := w.write("project/bailey.jsonc", `{}`)
	w.trust(path)
	s := NewStore(w.StateHome)
	if pins, err := s.List(); err != nil || len(pins) != 1 || pins[0].Path != path {
		t.Fatalf("pins: %v, %v", pins, err)
	}
	if found, err := s.Revoke(path); !found || err != nil {
		t.Fatalf("revoke: %v, %v", found, err)
	}
	if found, err := s.Revoke(path); found || err != nil {
		t.Fatalf("second revoke: %v, %v", found, err)
	}
	if l := w.load(); l.Status != NeverTrusted {
		t.Errorf("got %q", l.Status)
	}
	left, err := filepath.Glob(filepath.Join(w.StateHome, "bailey", "trusted-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("copies left: %v, %v", left, err)
	}
}

func TestWorldWritableFileIsRefusedEvenIfTrusted(t *testing.T) {
	w := newWorld(t)
	path := w.write("project/bailey.jsonc", `{}`)
	w.trust(path)
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	w.refuses("project/bailey.jsonc can be written by everyone")
}

func TestFileOfAnotherUserIsRefusedEvenIfTrusted(t *testing.T) {
	testenv.Requires(t, testenv.Root)
	w := newWorld(t)
	path := w.write("project/bailey.jsonc", `{}`)
	w.trust(path)
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	w.refuses("project/bailey.jsonc belongs to another user (uid 12345)")
}

func TestSpecialFileIsRefusedWithoutWaiting(t *testing.T) {
	w := newWorld(t)
	if err := os.Mkdir(filepath.Join(w.Dir, "bailey.jsonc"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.refuses("bailey.jsonc is not a regular file")
}

func TestUnsafeStoreIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string) error
		want  string
	}{
		"damaged": {func(_ *testing.T, dir string) error {
			return os.WriteFile(filepath.Join(dir, "trust.json"), []byte("{"), 0o600)
		}, "trust.json is damaged: unexpected EOF; remove it"},
		"empty":         {func(_ *testing.T, dir string) error { return os.Truncate(filepath.Join(dir, "trust.json"), 0) }, "trust.json is damaged"},
		"more":          {spoiled(`{"version": 1, "pins": []} {}`), "trust.json is damaged: more data after the pins; remove it"},
		"version":       {spoiled(`{"version": 2, "pins": []}`), "trust.json is damaged: version is 2, want 1; remove it"},
		"relative":      {spoiled(`{"version": 1, "pins": [{"path": "a"}]}`), `trust.json is damaged: path "a" is not absolute and clean; remove it`},
		"twice":         {spoiled(`{"version": 1, "pins": [` + pinned + `, ` + pinned + `]}`), `trust.json is damaged: path "/a" is pinned twice; remove it`},
		"sum":           {spoiled(`{"version": 1, "pins": [{"path": "/a", "sha256": "x"}]}`), `trust.json is damaged: bad sha256 "x"; remove it`},
		"writable":      {func(_ *testing.T, dir string) error { return os.Chmod(filepath.Join(dir, "trust.json"), 0o666) }, "trust.json can be written by others"},
		"writable dir":  {func(_ *testing.T, dir string) error { return os.Chmod(dir, 0o777) }, "state/bailey can be written by others"},
		"symbolic link": {func(_ *testing.T, dir string) error { return link(filepath.Join(dir, "trust.json")) }, "trust.json is a symbolic link"},
		"linked dir":    {func(_ *testing.T, dir string) error { return link(dir) }, "state/bailey is a symbolic link"},
		"foreign": {func(t *testing.T, dir string) error {
			testenv.Requires(t, testenv.Root)
			return os.Chown(filepath.Join(dir, "trust.json"), 12345, 12345)
		}, "trust.json belongs to another user (uid 12345)"},
		"foreign dir": {func(t *testing.T, dir string) error {
			testenv.Requires(t, testenv.Root)
			return os.Chown(dir, 12345, 12345)
		}, "state/bailey belongs to another user (uid 12345)"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.trust(w.write("project/bailey.jsonc", `{}`))
			if err := c.spoil(t, filepath.Join(w.StateHome, "bailey")); err != nil {
				t.Fatal(err)
			}
			w.refuses(c.want)
			p := Bundle{Path: filepath.Join(w.Dir, "other")}
			if err := NewStore(w.StateHome).Trust(p); err == nil {
				t.Error("pinned in an unsafe store")
			}
			// What the message says.
			if strings.Contains(c.want, "; remove it") {
				if err := os.Remove(filepath.Join(w.StateHome, "bailey", "trust.json")); err != nil {
					t.Fatal(err)
				}
				w.trust(filepath.Join(w.Dir, "bailey.jsonc"))
				w.load()
			}
		})
	}
}

// pinned is a pin as the store has it.
var pinned = `{"path": "/a", "sha256": "` + strings.Repeat("0", 64) + `"}`

// spoiled writes something else into the store.
func spoiled(text string) func(*testing.T, string) error {
	return func(_ *testing.T, dir string) error {
		return os.WriteFile(filepath.Join(dir, "trust.json"), []byte(text), 0o600)
	}
}

// link moves a path away and leaves a symbolic link to it.
func link(path string) error {
	if err := os.Rename(path, path+".moved"); err != nil {
		return err
	}
	return os.Symlink(path+".moved", path)
}

func TestStoreIsPrivate(t *testing.T) {
	w := newWorld(t)
	w.trust(w.write("project/bailey.jsonc", `{}`))
	for name, want := range map[string]os.FileMode{"bailey": os.ModeDir | 0o700, "bailey/trust.json": 0o600} {
		info, err := os.Lstat(filepath.Join(w.StateHome, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s: got %v, want %v", name, info.Mode(), want)
		}
	}
}

func TestConcurrentWritersKeepEachOthersPins(t *testing.T) {
	dir := t.TempDir()
	var wait sync.WaitGroup
	for i := range 20 {
		wait.Go(func() {
			if err := NewStore(dir).Trust(Bundle{Path: fmt.Sprintf("/p%02d", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	pins, err := NewStore(dir).List()
	if err != nil || len(pins) != 20 {
		t.Errorf("got %d pins, %v; want 20", len(pins), err)
	}
}

func TestBundlesAreEncodedUnambiguously(t *testing.T) {
	hash := func(parts ...string) string {
		b := Bundle{Path: "/p"}
		for i := 0; i < len(parts); i += 2 {
			b.files = append(b.files, bundled{parts[i], []byte(parts[i+1])})
		}
		return b.Hash()
	}
	seen := map[string]bool{}
	for _, parts := range [][]string{{}, {"a", "b"}, {"ab", ""}, {"", "ab"}, {"a", "", "b", ""}, {"b", "", "a", ""}} {
		h := hash(parts...)
		if seen[h] {
			t.Errorf("%q has the hash of another bundle", parts)
		}
		seen[h] = true
	}
}

func TestDiffShowsChangedLinesOnly(t *testing.T) {
	lines := func(s string) string { return strings.ReplaceAll(s, " ", "\n") + "\n" }
	for _, c := range []struct{ old, new, want string }{
		{lines("a b c"), lines("a b c"), ""},
		{lines("1 2 3 4 5 6 7"), lines("1 2 3 x 5 6 7"), "...\n  2\n  3\n- 4\n+ x\n  5\n  6\n"},
		{"", lines("a"), "+ a\n  \n"},
		{lines("a b"), lines("b c"), "- a\n  b\n+ c\n  \n"},
		{"a", "\x1b[2J", "- a\n+ \\x1b[2J\n"},
		{"\ta", "\t\x9b2J", "- \ta\n+ \t\\x9b2J\n"},
	} {
		if got := Diff(c.old, c.new); got != c.want {
			t.Errorf("%q to %q\ngot\n%swant\n%s", c.old, c.new, got, c.want)
		}
	}
}

func TestDescribeNamesEveryGrant(t *testing.T) {
	if got := Describe(Default(), Default()); got != nil {
		t.Errorf("the default is described: %q", got)
	}
	p := parse(t, `{
		"filesystem": {"allowRead": ["~/.ssh\u2028x"], "allowWrite": ["/data"], "defaultDenyRead": false},
		"network": {"allowedDomains": ["*"], "upstreamProxy": "http://u:hush@[::1]:3128", "inject": [{"hosts": ["a.com"], "bearer": true, "fromCommand": ["cat", "x"]}]},
		"env": {"set": {"B": "2", "A": "1"}}, "runtime": "docker", "devices": {"mode": "host"}
	}`)
	got := strings.Join(Describe(Merge(Default(), p), Default()), "\n")
	want := `can write: /data
can read: ~/.ssh\u2028x
can read every file that is not denied
can reach every host
sends its traffic through http://[::1]:3128
sends a credential from the output of cat x, run outside the sandbox to a.com
sees every device of the host
sets the environment variable A to "1"
sets the environment variable B to "2"
runs under the runtime docker`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestEveryKeyThatWidensIsDescribed has, for every key, two values of which the second
// allows more than the first; nothing stands for a key that is not given. Keys that
// allow nothing have no second one.
func TestEveryKeyThatWidensIsDescribed(t *testing.T) {
	widen := map[string][2]string{
		"filesystem.allowRead":       {``, `["/a"]`},
		"filesystem.denyRead":        {`["/a"]`, ``},
		"filesystem.allowWrite":      {``, `["/a"]`},
		"filesystem.denyWrite":       {`["/a"]`, `["/b"]`},
		"filesystem.privateWrite":    {``, `["/a"]`},
		"filesystem.allowExecute":    {`["/a"]`, `["/a", "/b"]`},
		"filesystem.defaultDenyRead": {``, `false`},
		"filesystem.strictDenyRead":  {`true`, ``},
		"filesystem.protectMissing":  {``, `false`},
		"filesystem.allowGitConfig":  {`false`, `true`},

		"network.allowedDomains":          {`["a.com"]`, `["*"]`},
		"network.deniedDomains":           {`["a.com"]`, ``},
		"network.allowLocalBinding":       {``, `true`},
		"network.exposePorts":             {``, `["80"]`},
		"network.allowLocalOutbound":      {``, `true`},
		"network.allowLocalOutboundPorts": {`["80"]`, `["80", "81"]`},
		"network.allowUnixSockets":        {``, `["/a"]`},
		"network.allowAllUnixSockets":     {``, `true`},
		"network.httpProxyPort":           {``, `1`},
		"network.socksProxyPort":          {``, `1`},
		"network.upstreamProxy":           {`"http://a.com:1"`, ``},
		"network.defaultAction":           {`"deny"`, `"ask"`},
		"network.rules":                   {`[{"host": "a.com", "action": "deny"}]`, ``},
		"network.allowedCIDRs":            {``, `["10.0.0.0/8"]`},
		"network.egress":                  {},
		"network.transparent":             {},
		"network.inject":                  {``, `[{"hosts": ["a.com"], "bearer": true, "fromEnv": "A"}]`},
		"network.limits":                  {`{"connections": 1}`, ``},

		"command.deny":                                {`["git push"]`, ``},
		"command.allow":                               {``, `["git push"]`},
		"command.useDefaults":                         {`true`, ``},
		"command.runtimeExecPolicy":                   {``, `"off"`},
		"command.acceptSharedBinaryCannotRuntimeDeny": {},

		"ssh.allowedHosts":     {``, `["a.com"]`},
		"ssh.deniedHosts":      {`["a.com"]`, ``},
		"ssh.allowedCommands":  {``, `["ls"]`},
		"ssh.deniedCommands":   {`["ls"]`, ``},
		"ssh.allowAllCommands": {``, `true`},
		"ssh.inheritDeny":      {`true`, ``},

		"devices.mode":  {`"minimal"`, `"host"`},
		"devices.allow": {``, `["/dev/kvm"]`},
		"allowPty":      {`false`, ``},

		"macos.mach":                      {``, `{"lookup": ["a"]}`},
		"macos.allowTrustd":               {``, `true`},
		"macos.enableWeakerNestedSandbox": {``, `true`},
		"macos.allowAppleEvents":          {``, `true`},

		"env.allow": {``, `["A"]`},
		"env.deny":  {`["A"]`, ``},
		"env.set":   {`{"A": "1"}`, `{"A": "2"}`},

		"resources.memory":    {`"1G"`, `"2G"`},
		"resources.cpu":       {`1`, ``},
		"resources.pids":      {`1`, `2`},
		"resources.disk":      {`"1G"`, ``},
		"resources.openFiles": {`1`, ``},
		"resources.timeout":   {`"1s"`, `"2s"`},

		"workspace.mode":  {`"overlay"`, ``},
		"workspace.rules": {`[{"pattern": "a", "permission": "none"}]`, ``},

		"runtime": {`"gvisor"`, ``},
		"image":   {``, `"./a"`},
		"require": {`["landlock"]`, ``},
		"$schema": {},
		"extends": {}, // what it brings is described
	}
	for _, key := range keysOf(reflect.TypeFor[Policy]()) {
		values, ok := widen[key]
		if !ok {
			t.Errorf("%s: does it widen anything?", key)
			continue
		}
		if values == [2]string{} {
			continue
		}
		without, p := Merge(Default(), policyOf(t, key, values[0])), Merge(Default(), policyOf(t, key, values[1]))
		if got := Describe(p, without); len(got) == 0 {
			t.Errorf("%s: %s instead of %s is not described", key, values[1], values[0])
		}
		if got := Describe(without, without); len(got) > 0 {
			t.Errorf("%s: what holds anyway is described: %q", key, got)
		}
	}
}

// keysOf are the keys of a policy, those in groups with their group's.
func keysOf(t reflect.Type) (keys []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case t == reflect.TypeFor[Policy]() && f.Type.Kind() == reflect.Struct:
			for _, key := range keysOf(f.Type) {
				keys = append(keys, name+"."+key)
			}
		default:
			keys = append(keys, name)
		}
	}
	return keys
}

func policyOf(t *testing.T, key, value string) Policy {
	if value == "" {
		return Policy{}
	}
	text := strconv.Quote(key) + ": " + value
	if group, inner, ok := strings.Cut(key, "."); ok {
		text = strconv.Quote(group) + ": {" + strconv.Quote(inner) + ": " + value + "}"
	}
	return parse(t, "{"+text+"}")
}

func FuzzTrustStore(f *testing.F) {
	f.Add(encodePins(nil))
	f.Add(encodePins([]Pin{{Path: "/a", SHA256: Bundle{}.Hash()}}))
	f.Add([]byte(`{"version":1,"pins":[{"path":"/a/../b","sha256":""}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		pins, err := decodePins(data)
		if err != nil {
			return
		}
		for _, p := range pins {
			if !filepath.IsAbs(p.Path) || len(p.SHA256) != 64 {
				t.Fatalf("accepted %+v", p)
			}
		}
		again, err := decodePins(encodePins(pins))
		if err != nil || len(again) != len(pins) {
			t.Fatalf("written pins are refused: %v", err)
		}
	})
}
