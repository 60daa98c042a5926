package probe

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[2] == "audit" && os.Args[3] == InsideWord {
		os.Exit(Inside(os.Args[4:]))
	}
	os.Exit(m.Run())
}

// box is a home directory with secrets in it, and a project.
type box struct {
	t          *testing.T
	root       string
	home, proj string
	config     sandbox.Config
	alter      func(*spec.Spec)
}

func newBox(t *testing.T) *box {
	t.Helper()
	testenv.Requires(t, testenv.UserNamespaces)
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &box{t: t, root: root, home: root + "/home", proj: root + "/project"}
	for _, dir := range []string{b.proj, b.home + "/.ssh", b.home + "/.config/bailey", root + "/data"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{b.home + "/.netrc", b.home + "/.bash_history", b.home + "/.config/bailey/bailey.jsonc"} {
		if err := os.WriteFile(name, []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", b.home)
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR"} {
		t.Setenv(name, "")
	}
	b.config = sandbox.Config{Dir: b.proj, Environ: Environ(os.Environ())}
	return b
}

func (b *box) compiled() Config {
	b.t.Helper()
	m := sandbox.New(b.config)
	if err := m.Initialize(); err != nil {
		b.t.Fatal(err)
	}
	s, err := m.Compile(Argv())
	if err != nil {
		b.t.Fatal(err)
	}
	return Config{
		Spec: s, Policy: m.Loaded().Policy, Program: testenv.Binary(b.t, "bailey"), Home: b.home,
		PolicyFiles: m.Loaded().Files, OwnDirs: sandbox.OwnDirs(b.home), alter: b.alter,
	}
}

// audit runs one, and looks whether something was left behind.
func (b *box) audit() Report {
	b.t.Helper()
	c := b.compiled()
	before := b.tree()
	begin := time.Now()
	r, err := Run(c)
	if err != nil {
		b.t.Fatal(err)
	}
	if d := time.Since(begin); d > 3*time.Second {
		b.t.Errorf("it took %v", d)
	}
	if after := b.tree(); !slices.Equal(before, after) {
		b.t.Errorf("the audit left %q, before there was %q", after, before)
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run", "/etc", "/var/lib"} {
		if left, _ := filepath.Glob(dir + "/.bailey-audit-*"); len(left) > 0 {
			b.t.Errorf("the audit left %q", left)
		}
	}
	return r
}

func (b *box) tree() []string {
	b.t.Helper()
	var names []string
	err := filepath.WalkDir(b.root, func(name string, _ os.DirEntry, err error) error {
		names = append(names, name)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return names
}

// with lists the attacks that had a result.
func (r Report) with(results ...Result) []string {
	var attacks []string
	for i := range r {
		if slices.Contains(results, r[i].Result) {
			attacks = append(attacks, r[i].Attack)
		}
	}
	return attacks
}

const codeStrictOffline = `{"extends": "code-strict", "network": {"allowedDomains": ["!@npm", "!@pip", "!@go", "!@cargo", "!@git-remotes"]}}`

func TestEveryAttackIsStopped(t *testing.T) {
	for name, set := range map[string]func(*sandbox.Config){
		"default":     func(*sandbox.Config) {},
		"offline":     func(c *sandbox.Config) { c.Preset = "offline" },
		"locked":      func(c *sandbox.Config) { c.Preset = "locked" },
		"code-strict": func(c *sandbox.Config) { c.Policy = []string{codeStrictOffline} },
	} {
		for _, repository := range []string{"no repository", "repository"} {
			t.Run(name+", "+repository, func(t *testing.T) {
				b := newBox(t)
				set(&b.config)
				if repository == "repository" {
					if err := os.MkdirAll(b.proj+"/.git/hooks", 0o755); err != nil {
						t.Fatal(err)
					}
				}
				r := b.audit()
				if stopped := len(r.with(Stopped)); !r.Held() || len(r.with(Granted)) > 0 || stopped < 50 {
					t.Errorf("only %d were stopped:\n%s", stopped, r.Text(false))
				}
				for _, f := range r {
					if f.Result == Stopped && (f.Wall == "" || f.How == "") {
						t.Errorf("%s: stopped by wall %q because %q", f.Attack, f.Wall, f.How)
					}
				}
			})
		}
	}
}

var overNetwork = []string{
	"TCP to the host's 127.0.0.1", "TCP to the host's ::1", "UDP to the host's 127.0.0.1", "UDP to the host's ::1",
	"reach the metadata service", "reach another machine", "ask a name server",
}

// whereIPv6 leaves out what the host lacks.
func whereIPv6(r Report, attacks []string) []string {
	return slices.DeleteFunc(slices.Clone(attacks), func(a string) bool { return slices.Contains(r.with(Absent), a) })
}

func TestWhatThePolicyGrantsIsNoWayOut(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy func(b *box) string
		want   []string
	}{
		{"network", func(*box) string { return `{"network": {"allowedDomains": ["*"]}}` }, overNetwork},
		{"write", func(b *box) string { return `{"filesystem": {"allowWrite": [".", "` + b.root + `/data"]}}` }, []string{"write outside the project"}},
		{"read", func(*box) string { return `{"filesystem": {"allowRead": ["~/.ssh"]}}` }, []string{"read ssh and gpg keys"}},
		{"name", func(*box) string { return `{"filesystem": {"allowWrite": [".", ".envrc"]}}` }, []string{"create .envrc"}},
		{"sockets", func(*box) string { return `{"network": {"allowAllUnixSockets": true}}` }, []string{"unix socket in the project"}},
		{"variable", func(*box) string { return `{"env": {"allow": ["CARGO_BAILEY_AUDIT"]}}` }, []string{"read secrets in variables"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t)
			b.config.Policy = []string{c.policy(b)}
			r := b.audit()
			if got, want := r.with(Granted), whereIPv6(r, c.want); !r.Held() || !slices.Equal(got, want) {
				t.Errorf("granted: got %q, want %q\n%s", got, want, r.Text(false))
			}
		})
	}
}

// edit changes the mount at a target.
func edit(s *spec.Spec, target string, f func(*spec.Mount)) {
	for i := range s.Mounts {
		if s.Mounts[i].Target == target {
			f(&s.Mounts[i])
		}
	}
}

// open lets everything through Landlock.
func open(s *spec.Spec) {
	s.Landlock.Rules = append(s.Landlock.Rules, spec.LandlockRule{Path: "/", Read: true, Write: true, Execute: true})
}

func TestABrokenWallIsCaught(t *testing.T) {
	for _, c := range []struct {
		name  string
		alter func(b *box, s *spec.Spec)
		want  []string // besides others
		none  []string // must not be among those that got through
	}{
		{"home shown", func(b *box, s *spec.Spec) {
			edit(s, b.home, func(m *spec.Mount) { m.Kind, m.Source, m.Write = spec.Bind, b.home, true })
			open(s)
		}, []string{"write outside the project", "read ssh and gpg keys", "read cloud and registry credentials", "read shell history", "write the policy file", "write the trust store"}, []string{"create .git"}},
		{"shared memory", func(_ *box, s *spec.Spec) {
			edit(s, "/tmp", func(m *spec.Mount) { m.Kind, m.Source, m.Write = spec.Bind, "/tmp", true })
			open(s)
		}, []string{"reach the host's /tmp"}, []string{"reach the host's /var/tmp"}},
		{"hidden files shown", func(_ *box, s *spec.Spec) {
			s.Mounts = slices.DeleteFunc(s.Mounts, func(m spec.Mount) bool { return m.Kind == spec.Hide })
		}, nil, []string{"write outside the project"}},
		{"network", func(_ *box, s *spec.Spec) { s.Network = spec.NetworkHost }, slices.Concat(overNetwork[:4], []string{"share a namespace with the host"}), []string{"abstract unix socket of the host"}},
		{"network and scopes", func(_ *box, s *spec.Spec) {
			s.Network, s.Landlock.ScopeAbstract, s.Broker = spec.NetworkHost, false, nil
		}, []string{"abstract unix socket of the host", "unix socket in the project"}, nil},
		{"no broker", func(_ *box, s *spec.Spec) { s.Broker = nil; open(s) }, []string{"create .envrc", "create .mcp.json", "create .vscode", "create .bashrc", "create .zshrc", "create .git", "create bailey.jsonc", "unix socket in the project"}, []string{"write outside the project"}},
		{"environment", func(_ *box, s *spec.Spec) { s.Env = append(slices.Clone(s.Env), baits[0]) }, []string{"read secrets in variables"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t)
			b.alter = func(s *spec.Spec) {
				s.Mounts = slices.Clone(s.Mounts)
				c.alter(b, s)
			}
			r := b.audit()
			through := r.with(Through)
			for _, want := range whereIPv6(r, c.want) {
				if !slices.Contains(through, want) {
					t.Errorf("%s: not caught", want)
				}
			}
			for _, other := range c.none {
				if slices.Contains(through, other) {
					t.Errorf("%s: got through, but its wall stands", other)
				}
			}
			if t.Failed() {
				t.Logf("\n%s", r.Text(false))
			}
		})
	}
}

// A repository's directory is a mount of its own, so that it cannot be renamed.
func TestARenamedRepositoryIsCaughtAndPutBack(t *testing.T) {
	b := newBox(t)
	if err := os.MkdirAll(b.proj+"/.git/hooks", 0o755); err != nil {
		t.Fatal(err)
	}
	b.alter = func(s *spec.Spec) {
		s.Broker = nil
		s.Mounts = slices.DeleteFunc(slices.Clone(s.Mounts), func(m spec.Mount) bool { return strings.HasPrefix(m.Target, b.proj+"/.git") })
		open(s)
	}
	through := b.audit().with(Through)
	for _, want := range []string{"rename .git away", "plant a git hook"} {
		if !slices.Contains(through, want) {
			t.Errorf("%s: not caught; got through: %q", want, through)
		}
	}
}

// bare runs the prober with namespaces around it and no other wall, and returns
// the report.
func (b *box) bare() Report {
	b.t.Helper()
	c := b.compiled()
	a := &audit{Config: c, dir: b.proj, scratch: b.proj, shared: true, token: ".bailey-audit-bare"}
	b.t.Cleanup(a.close)
	a.buildControls()
	a.controls.read.try.Path = []byte(c.Program)
	a.buildReads()
	a.buildNames()
	a.buildSockets()
	a.buildCalls()
	a.buildPrivileges()
	a.finally(a.sweep)
	todo := plan{Token: a.token}
	for _, t := range a.tries {
		todo.Attempts = append(todo.Attempts, t.attempt)
	}
	text, err := json.Marshal(todo)
	if err != nil {
		b.t.Fatal(err)
	}
	extra, err := os.Open("/")
	if err != nil {
		b.t.Fatal(err)
	}
	defer extra.Close()
	prober := exec.Command("/proc/self/exe", Argv()[1:]...)
	prober.Dir, prober.Stdin, prober.ExtraFiles = b.proj, bytes.NewReader(text), []*os.File{extra}
	prober.Env = append(Environ(os.Environ()), "BAILEY=1")
	prober.Stderr = os.Stderr
	prober.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWIPC,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := prober.Output()
	if err != nil {
		b.t.Fatal(err)
	}
	var outcomes []outcome
	if err := json.Unmarshal(out, &outcomes); err != nil {
		b.t.Fatal(err)
	}
	for i := range outcomes {
		a.tries[i].out = outcomes[i]
	}
	return a.report()
}

// Where no wall stands every attack must be seen to work: one that fails for a
// reason of its own would be counted as stopped for ever.
func TestAttacksWorkWhereNothingStopsThem(t *testing.T) {
	b := newBox(t)
	r := b.bare()
	through := r.with(Through, Absent)
	want := []string{
		"read ssh and gpg keys", "read cloud and registry credentials", "read shell history",
		"create .envrc", "create .mcp.json", "create .vscode", "create .bashrc", "create .zshrc", "create .git", "create bailey.jsonc",
		"abstract unix socket of the host",
		"mount a file system", "mount by the new calls", "make a user namespace", "enter a namespace", "use the user's keyrings", "use io_uring", "handle page faults",
		"leave a setuid program", "make a device node", "32-bit system calls",
		"use a capability", "gain privileges by executing", "make unfiltered system calls", "share a namespace with the host",
		"use inherited descriptors", "read secrets in variables",
	}
	granted := r.with(Granted) // by the Spec, which has no part in this
	for _, attack := range want {
		if !slices.Contains(through, attack) && !slices.Contains(granted, attack) {
			t.Errorf("%s: did not get through", attack)
		}
	}
	if t.Failed() {
		t.Logf("\n%s", r.Text(false))
	}
}

func TestAFailedControlIsNotASuccess(t *testing.T) {
	a := &audit{Config: Config{Spec: &spec.Spec{}}}
	refused := func(*audit, *try) verdict { return verdict{result: Stopped, wall: WallMount, how: "refused"} }
	working := &control{text: "something works", try: &try{}}
	broken := &control{text: "something works", try: &try{out: outcome{Errno: int(unix.EIO)}}}
	for _, c := range []struct {
		name string
		row  row
		want Result
	}{
		{"control works", row{control: working, tries: []*try{{judge: refused}}}, Stopped},
		{"control fails", row{control: broken, tries: []*try{{judge: refused}}}, Unclear},
		{"its own control fails", row{tries: []*try{{judge: refused, out: outcome{Control: int(unix.EIO)}}}}, Unclear},
		{"nothing to try", row{control: broken, absent: "nothing"}, Absent},
	} {
		if got := a.finding(&c.row); got.Result != c.want {
			t.Errorf("%s: got %+v, want %s", c.name, got, c.want)
		}
	}
}

func TestWhoAnsweredACallIsTold(t *testing.T) {
	const eperm, einval, enosys = int(unix.EPERM), int(unix.EINVAL), int(unix.ENOSYS)
	for _, c := range []struct {
		name    string
		out     outcome
		outside unix.Errno
		result  Result
		wall    Wall
	}{
		{"worked", outcome{Second: einval}, unix.EINVAL, Through, ""},
		{"filter", outcome{Errno: eperm, Second: eperm}, unix.EINVAL, Stopped, WallSeccomp},
		{"filter says it does not exist", outcome{Errno: enosys, Second: enosys}, unix.EFAULT, Stopped, WallSeccomp},
		{"both", outcome{Errno: eperm, Second: eperm}, unix.EPERM, Stopped, WallSeccomp + ", " + WallCapabilities},
		{"no filter", outcome{Errno: eperm, Second: einval}, unix.EINVAL, Stopped, WallCapabilities},
		{"no such call", outcome{Errno: enosys, Second: enosys}, unix.ENOSYS, Absent, ""},
		{"another error", outcome{Errno: einval, Second: einval}, unix.EINVAL, Unclear, ""},
	} {
		if got := judgeCall(c.outside)(nil, &try{out: c.out}); got.result != c.result || got.wall != c.wall {
			t.Errorf("%s: got %s by %q, want %s by %q", c.name, got.result, got.wall, c.result, c.wall)
		}
	}
}

func TestWhatAnEndedProberLeftIsRemoved(t *testing.T) {
	dir := t.TempDir()
	a := &audit{token: ".bailey-audit-test"}
	for _, at := range []attempt{
		{Op: opCreate, Path: []byte(dir + "/.envrc")},
		{Op: opMove, Path: []byte(dir + "/.mcp.json"), To: []byte(dir + "/" + a.token + "-.mcp.json")},
		{Op: opMkdir, Path: []byte(dir + "/.vscode")},
		{Op: opSetuid, Path: []byte(dir + "/" + a.token + "-setuid")},
		{Op: opAway, Path: []byte(dir + "/.git"), To: []byte(dir + "/" + a.token + "-git")},
		{Op: opCreate, Path: []byte(dir + "/theirs")},
	} {
		a.tries = append(a.tries, &try{attempt: at, host: string(at.Path)})
	}
	for name, text := range map[string]string{
		".envrc": a.token, a.token + "-.mcp.json": a.token, a.token + "-setuid": "", "theirs": "not the audit's",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".vscode", a.token + "-git"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	a.sweep()
	var got []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if want := []string{".git", "theirs"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("left: %q, %v; want %q", got, err, want)
	}
}
