package seatbelt

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// machine is a Mac in memory, as spec.Compile sees it.
type machine struct {
	host  spec.Host
	files map[string]spec.FileInfo
	links map[string]string
	texts map[string]string
}

// The place has what the conformance suite's has: a project below a home directory
// with a secret, and something outside that nobody is granted.
const (
	home    = "/Users/u"
	project = home + "/project"
	outside = "/Users/Shared/outside"
	scratch = "/private/var/folders/zz/T/bailey-1"
)

func newMachine(more ...string) *machine {
	m := &machine{
		host: spec.Host{
			UID: 501, GID: 20, Home: home, Dir: project,
			Environ: []string{"HOME=" + home, "PATH=/usr/bin:/bin", "TMPDIR=/var/folders/zz/T", "GITHUB_TOKEN=x"},
		},
		files: make(map[string]spec.FileInfo), links: make(map[string]string), texts: make(map[string]string),
	}
	m.link("/etc", "private/etc")
	m.link("/tmp", "private/tmp")
	m.link("/var", "private/var")
	for _, p := range append([]string{
		"/bin/", "/sbin/", "/usr/bin/", "/usr/lib/", "/System/Library/", "/opt/homebrew/bin/", "/private/etc/passwd", "/private/etc/sudoers",
		"/private/tmp/", "/private/var/tmp/", "/private/var/folders/zz/T/", "/dev/null", "/Users/Shared/outside/file",
		home + "/.ssh/id_ed25519", home + "/.gitconfig", project + "/file", project + "/sub/file", project + "/sub/kept",
		project + "/.git/HEAD", project + "/.git/config", project + "/.git/hooks/pre-commit", project + "/.git/objects/", project + "/.git/refs/",
	}, more...) {
		m.add(p)
	}
	m.texts[project+"/.git/HEAD"] = "ref: refs/heads/main\n"
	m.texts[project+"/.git/config"] = "[core]\n\tbare = false\n"
	return m
}

// add makes a file, or if the path ends in a slash a directory, with those above.
func (m *machine) add(p string) {
	info := spec.FileInfo{Type: spec.TypeRegular, Mode: 0o644, UID: m.host.UID}
	if dir, ok := strings.CutSuffix(p, "/"); ok {
		p, info.Type, info.Mode = dir, spec.TypeDirectory, 0o755
	}
	if strings.HasSuffix(p, ".sock") {
		info.Type = spec.TypeSocket
	}
	m.put(p, info)
}

func (m *machine) link(p, text string) {
	m.links[p] = text
	m.put(p, spec.FileInfo{Type: spec.TypeLink, Mode: 0o777, UID: m.host.UID})
}

func (m *machine) put(p string, info spec.FileInfo) {
	info.Nlink = 1
	m.files[p] = info
	for dir := path.Dir(p); ; dir = path.Dir(dir) {
		if _, ok := m.files[dir]; !ok {
			m.files[dir] = spec.FileInfo{Type: spec.TypeDirectory, Mode: 0o755, UID: m.host.UID, Nlink: 1}
		}
		if dir == "/" {
			return
		}
	}
}

func (m *machine) Host() spec.Host { return m.host }

func (m *machine) Lstat(p string) (spec.FileInfo, error) {
	if info, ok := m.files[p]; ok {
		return info, nil
	}
	return spec.FileInfo{}, fs.ErrNotExist
}

func (m *machine) Readlink(p string) (string, error) { return m.links[p], nil }

func (m *machine) ReadDir(p string, _ int) (names []string, err error) {
	for name := range m.files {
		if name != "/" && path.Dir(name) == p {
			names = append(names, path.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (m *machine) ReadFile(p string) ([]byte, error) {
	if text, ok := m.texts[p]; ok {
		return []byte(text), nil
	}
	return nil, fs.ErrNotExist
}

func (m *machine) Readable(string) bool { return true }

func (m *machine) Mounts() ([]spec.MountPoint, error) { return nil, nil }

// compile is what a policy means on a machine.
func compile(t testing.TB, m *machine, text string) (*spec.Spec, error) {
	t.Helper()
	loaded, err := policy.Inline(policy.Options{Dir: m.host.Dir, Home: m.host.Home, ConfigHome: home + "/.config", StateHome: home + "/.local/state"}, "test", text)
	if err != nil {
		t.Fatal(err)
	}
	return spec.Compile(loaded.Policy, m, spec.Command{Argv: []string{"true"}})
}

func mustCompile(t testing.TB, m *machine, text string) *spec.Spec {
	t.Helper()
	s, err := compile(t, m, text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
