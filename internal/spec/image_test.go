package spec

import (
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// inImage compiles a command for a system with an image at /img.
func inImage(t *testing.T, p policy.Policy, argv string, lines ...string) *Spec {
	t.Helper()
	f := newSystem(append(append(repository("/home/u/p/.git"), "/usr/bin/host", "/srv/data/x", "/etc/hostname=host", "/home/u/.gitconfig",
		"/img/usr/bin/tool", "/img/bin -> /usr/bin", "/img/etc/passwd", "/img/etc/resolv.conf", "/img/etc/shadow", "/img/app/main",
		"/img/home/other/x", "/img/home/u/hidden", "/img/tmp/x", "/img/run/x", "/img/var/lib/"), lines...)...)
	f.host.Environ = []string{"PATH=/usr/bin", "TERM=xterm", "GOFLAGS=-v", "LANG=de_DE", "KEEP=host"}
	s, err := Compile(p, f, Command{Argv: []string{argv}, Image: &Image{
		Name: "image", Dir: "/img", Env: []string{"PATH=/bin:/app", "LANG=C", "KEEP=image", "ONLY=image"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// shown is where what stands at a path inside comes from, or the kind of what does.
func shown(s *Spec, target string) string {
	i := slices.IndexFunc(s.Mounts, func(m Mount) bool { return m.Target == target })
	if i < 0 {
		return ""
	}
	if m := s.Mounts[i]; m.Kind == Bind && m.Write {
		return "rw " + m.Source
	} else if m.Kind == Bind || m.Kind == Symlink {
		return m.Source
	}
	return string(s.Mounts[i].Kind)
}

func TestImageStandsInThePlaceOfTheSystem(t *testing.T) {
	s := inImage(t, policy.Default(), "tool")
	for target, want := range map[string]string{
		"/usr": "/img/usr", "/etc": "/img/etc", "/app": "/img/app", "/var": "/img/var", "/bin": "/usr/bin", "/home/other": "/img/home/other",
		"/home/u": "tmpfs", "/home/u/p": "rw /home/u/p", "/home/u/p/.git/hooks": "/home/u/p/.git/hooks", "/home/u/.gitconfig": "/home/u/.gitconfig",
		"/tmp": "tmpfs", "/run": "dir", "/opt": "", "/home": "", "/etc/shadow": "hide", "/srv": "",
	} {
		if got := shown(s, target); got != want {
			t.Errorf("%s: got %q, want %q", target, got, want)
		}
	}
	if want := []string{"/bin/tool"}; !slices.Equal(s.Exec, want) {
		t.Errorf("programs %q, want %q", s.Exec, want)
	}
	if s.Image == nil || s.Image.Dir != "/img" || s.Dir != "/home/u/p" {
		t.Errorf("image %+v, directory %s", s.Image, s.Dir)
	}
}

func TestNothingOfTheHostIsShownBesideAnImage(t *testing.T) {
	p := policy.Default()
	p.Filesystem.DefaultDenyRead = new(false)
	for _, m := range inImage(t, p, "tool").Mounts {
		if m.Kind == Bind && !Covers("/img", m.Source) && !Covers("/home/u", m.Source) && !Covers("/sys", m.Source) {
			t.Errorf("%s shows %s", m.Target, m.Source)
		}
	}
}

func TestGrantsByNameAreTheHosts(t *testing.T) {
	p := policy.Default()
	p.Filesystem.AllowRead = append(p.Filesystem.AllowRead, "/srv/data")
	p.Filesystem.AllowWrite = append(p.Filesystem.AllowWrite, "/app/cache")
	s := inImage(t, p, "tool", "/app/cache/")
	for target, want := range map[string]string{"/srv/data": "/srv/data", "/app": "", "/app/main": "/img/app/main", "/app/cache": "rw /app/cache"} {
		if got := shown(s, target); got != want {
			t.Errorf("%s: got %q, want %q", target, got, want)
		}
	}
}

func TestHostsNamesAreFoundWithANetwork(t *testing.T) {
	p := policy.Default()
	if got := shown(inImage(t, p, "tool"), "/etc/resolv.conf"); got != "" {
		t.Errorf("without a network: %q", got)
	}
	p.Network.AllowedDomains = []string{"*"}
	if got := shown(inImage(t, p, "tool"), "/etc/resolv.conf"); got != "/etc/resolv.conf" {
		t.Errorf("with a network: %q", got)
	}
}

func TestImagesVariablesWin(t *testing.T) {
	p := policy.Default()
	p.Env.Allow = []string{"KEEP"}
	p.Env.Set = map[string]string{"ONLY": "policy"}
	s := inImage(t, p, "tool")
	env := "\n" + strings.Join(s.Env, "\n") + "\n"
	for _, want := range []string{"PATH=/bin:/app", "LANG=C", "KEEP=host", "ONLY=policy", "TERM=xterm", "HOME=/home/u"} {
		if !strings.Contains(env, "\n"+want+"\n") {
			t.Errorf("%s is missing in %q", want, s.Env)
		}
	}
	if strings.Contains(env, "GOFLAGS") {
		t.Errorf("a variable about the host's tools came in: %q", s.Env)
	}
}

func TestExplainNamesTheImage(t *testing.T) {
	var b strings.Builder
	if err := Explain(&b, inImage(t, policy.Default(), "tool")); err != nil || !strings.Contains(b.String(), "image  image\n") || !strings.Contains(b.String(), "at     /img\n") {
		t.Errorf("%v:\n%s", err, &b)
	}
}

func TestUserOfAnImageIsShownWhereThatCanBe(t *testing.T) {
	ordinary, root := Identity{UID: 1000, GID: 1000}, Identity{Full: true}
	user, zero, high := Shown{true, 7, 8}, Shown{true, 0, 0}, Shown{true, 70000, 8}
	for _, c := range []struct {
		runtime string
		id      Identity
		as      Shown
		can     bool
	}{
		{"", ordinary, user, true},
		{"native", root, user, true},
		{"native", ordinary, zero, true},
		{"bwrap", ordinary, user, true},
		{"bwrap", root, user, false},
		{"runc", ordinary, user, false},
		{"runc", ordinary, zero, true},
		{"crun", root, user, true},
		{"crun", root, zero, false},
		{"gvisor", root, high, false},
		{"docker", root, user, false},
	} {
		if reason := c.id.cannotShow(c.runtime, c.as); (reason == "") != c.can {
			t.Errorf("%s, %+v as %+v: %q", c.runtime, c.id, c.as, reason)
		}
	}
}
