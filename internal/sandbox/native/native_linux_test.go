package native

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// TestMain is also the program that tests run in sandboxes, and the launcher
// that tests kill: argv[0] says which.
func TestMain(m *testing.M) {
	if role, ok := roles[filepath.Base(os.Args[0])]; ok {
		if err := role(os.Args[1:]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var roles map[string]func(args []string) error

func init() {
	roles = map[string]func([]string) error{
		"probe":       probe,
		"launcher":    launch,
		"reaper":      reaper,
		"write-image": writeImage,
		"write-stage": writeStage,
	}
}

// noRaceSleep keeps a program built with the race detector from sleeping for a
// second before it exits.
const noRaceSleep = "GORACE=atexit_sleep_ms=0"

func requireSandbox(t testing.TB) {
	t.Helper()
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
}

// newSpec is a sandbox with the system's programs, a project directory that can
// be written, and this test binary as /probe.
func newSpec(t testing.TB, dir string, argv ...string) *spec.Spec {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	return specFor(self, dir, argv...)
}

func specFor(self, dir string, argv ...string) *spec.Spec {
	s := &spec.Spec{
		Version: 1, Argv: argv, Exec: []string{argv[0]}, Dir: dir,
		Env:      []string{noRaceSleep, "HOME=" + dir, "LC_ALL=C", "PATH=/usr/bin:/bin"},
		Identity: spec.Identity{UID: os.Geteuid(), GID: os.Getegid(), Full: os.Geteuid() == 0},
		Network:  spec.NetworkNone,
		Seccomp:  spec.Seccomp{Families: []string{"unix", "inet", "inet6", "netlink"}},
	}
	for _, name := range []string{"/bin", "/lib", "/lib64", "/usr"} {
		if text, err := os.Readlink(name); err == nil {
			s.Mounts = append(s.Mounts, spec.Mount{Kind: spec.Symlink, Source: text, Target: name})
		} else if _, err := os.Stat(name); err == nil {
			s.Mounts = append(s.Mounts, spec.Mount{Kind: spec.Bind, Source: name, Target: name})
		}
	}
	s.Mounts = append(s.Mounts,
		spec.Mount{Kind: spec.Proc, Target: "/proc"},
		spec.Mount{Kind: spec.Dev, Target: "/dev"},
		spec.Mount{Kind: spec.Tmpfs, Target: "/tmp", Mode: 0o1777},
		spec.Mount{Kind: spec.Bind, Source: self, Target: "/probe", File: true},
		spec.Mount{Kind: spec.Bind, Source: dir, Target: dir, Write: true},
	)
	s.Landlock = spec.Landlock{MinABI: 1, ScopeAbstract: true, ScopeSignals: true, Rules: []spec.LandlockRule{
		{Path: "/", Read: true, Execute: true},
		{Path: "/dev", Write: true, Device: true},
		{Path: "/tmp", Write: true},
		{Path: dir, Write: true},
	}}
	return s
}

// shell is newSpec for a line of the shell.
func shell(t testing.TB, line string) *spec.Spec {
	return newSpec(t, t.TempDir(), "/bin/sh", "-c", line)
}

func probeSpec(t testing.TB, args ...string) *spec.Spec {
	s := newSpec(t, t.TempDir(), append([]string{"probe"}, args...)...)
	s.Exec = []string{"/probe"}
	return s
}

func openNull(t testing.TB) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// result is a finished sandbox.
type result struct {
	State
	out string // stdout and stderr
}

// start starts a sandbox on a locked thread, which the caller stays on.
func start(t testing.TB, s *spec.Spec, o Options) *Process {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	p, err := Start(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// outputTo returns streams whose output is collected, and a function that waits
// for its end.
func outputTo(t testing.TB) (streams [3]*os.File, collect func() string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(&buf, r)
		r.Close()
	}()
	return [3]*os.File{openNull(t), w, w}, func() string {
		w.Close()
		<-done
		return buf.String()
	}
}

// run runs a sandbox to its end.
func run(t testing.TB, s *spec.Spec) result {
	t.Helper()
	streams, collect := outputTo(t)
	p := start(t, s, Options{Streams: streams})
	st := p.Wait()
	return result{st, collect()}
}

// exit fails the test unless the command exited with a status.
func (r result) exit(t testing.TB, status int) result {
	t.Helper()
	if r.Killed || !r.Wait.Exited() || r.Wait.ExitStatus() != status {
		t.Fatalf("ended with %#x (killed %v), want exit status %d; output:\n%s", uint32(r.Wait), r.Killed, status, r.out)
	}
	return r
}

// launchError starts a sandbox that cannot stand.
func launchError(t testing.TB, s *spec.Spec, streams [3]*os.File) error {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, err := Start(s, Options{Streams: streams})
	if err == nil {
		_ = p.Kill()
		p.Wait()
		t.Fatal("the sandbox started")
	}
	return err
}

func nulls(t testing.TB) [3]*os.File {
	null := openNull(t)
	return [3]*os.File{null, null, null}
}

func TestCommandRunsBehindTheWalls(t *testing.T) {
	requireSandbox(t)
	got := run(t, shell(t, "echo $$; cat /proc/1/comm; cat /proc/net/dev | grep -c :; ls /home 2>&1")).exit(t, 2)
	want := "2\nbailey-init\n1\nls: cannot access '/home': No such file or directory\n"
	if got.out != want {
		t.Errorf("got %q, want %q", got.out, want)
	}
}

func TestFailedStepIsNamed(t *testing.T) {
	requireSandbox(t)
	missing := filepath.Join(t.TempDir(), "missing")
	tests := []struct {
		name   string
		change func(*spec.Spec)
		want   LaunchError
	}{
		{"missing source", func(s *spec.Spec) {
			s.Mounts = append(s.Mounts, spec.Mount{Kind: spec.Bind, Source: missing, Target: "/granted"})
		}, LaunchError{"bind " + missing + " on /granted", unix.ENOENT, WallMount}},
		{"source is a link", func(s *spec.Spec) {
			if err := os.Symlink("/etc", missing); err != nil {
				t.Fatal(err)
			}
			s.Mounts = append(s.Mounts, spec.Mount{Kind: spec.Bind, Source: missing, Target: "/granted"})
		}, LaunchError{"bind " + missing + " on /granted", unix.EINVAL, WallMount}},
		{
			"missing directory", func(s *spec.Spec) { s.Dir = "/nowhere" },
			LaunchError{"change to /nowhere", unix.ENOENT, WallDir},
		},
		{"missing landlock path", func(s *spec.Spec) {
			s.Landlock.Rules = append(s.Landlock.Rules, spec.LandlockRule{Path: "/nowhere", Read: true})
		}, LaunchError{"landlock rule /nowhere", unix.ENOENT, WallLandlock}},
		{
			"newer landlock", func(s *spec.Spec) { s.Landlock.MinABI = 99 },
			LaunchError{"landlock interface 99 is needed, this kernel has " + strconv.Itoa(testenv.LandlockABI()), unix.ENOSYS, WallLandlock},
		},
		{"hide of nothing", func(s *spec.Spec) {
			s.Mounts = append(s.Mounts, spec.Mount{Kind: spec.Hide, Source: "dir", Target: "/nowhere/at/all"})
		}, LaunchError{"hide /nowhere/at/all", unix.ENOENT, WallMount}},
	}
	before := openDescriptors(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := shell(t, "touch ran")
			test.change(s)
			err := launchError(t, s, nulls(t))
			var got *LaunchError
			if !errors.As(err, &got) || *got != test.want {
				t.Errorf("got %#v, want %#v", err, test.want)
			}
			if want := "launch: " + test.want.Step + ": "; got != nil && got.Error() != want+test.want.Errno.Error() {
				t.Errorf("message %q", got)
			}
			if !errors.Is(err, test.want.Errno) {
				t.Errorf("%v is not %v", err, test.want.Errno)
			}
		})
	}
	if after := openDescriptors(t); !slices.Equal(before, after) {
		t.Errorf("descriptors before %v, after %v", before, after)
	}
}

// openDescriptors lists this process's own descriptors.
func openDescriptors(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			out = append(out, e.Name()+" "+to)
		}
	}
	return out
}

func TestProgramThatCannotStart(t *testing.T) {
	requireSandbox(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	plain := write("plain", "#!/bin/sh\nexit 0\n", 0o644)
	garbage := write("garbage", "\x00\x01\x02\x03", 0o755)
	orphan := write("orphan", "#!/no/such/interpreter\n", 0o755)
	good := write("good", "#!/bin/sh\nexit 42\n", 0o755)
	for _, test := range []struct {
		name string
		exec []string
		want unix.Errno // 0: the last candidate runs
	}{
		{"none", nil, unix.ENOENT},
		{"missing", []string{"/no/such/program"}, unix.ENOENT},
		{"below a file", []string{plain + "/x"}, unix.ENOENT},
		{"not executable", []string{plain}, unix.EACCES},
		{"a directory", []string{dir}, unix.EACCES},
		{"not a program", []string{garbage}, unix.ENOEXEC},
		{"missing interpreter", []string{orphan}, unix.ENOENT},
		{"forbidden is remembered", []string{plain, "/no/such/program"}, unix.EACCES},
		{"missing, then forbidden", []string{"/no/such/program", plain}, unix.EACCES},
		{"broken ends the search", []string{garbage, good}, unix.ENOEXEC},
		{"missing, then good", []string{"/no/such/program", plain + "/x", good}, 0},
		{"forbidden, then good", []string{plain, good}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSpec(t, dir, "the-command")
			s.Exec = test.exec
			if test.want == 0 {
				run(t, s).exit(t, 42)
				return
			}
			err := launchError(t, s, nulls(t))
			var got *ExecError
			if !errors.As(err, &got) || *got != (ExecError{"the-command", test.want}) {
				t.Errorf("got %v, want the-command: %v", err, test.want)
			}
		})
	}
}

func TestFirstCandidateWins(t *testing.T) {
	requireSandbox(t)
	s := shell(t, "exit 7")
	s.Exec = []string{"/bin/sh", "/bin/false"}
	run(t, s).exit(t, 7)
}
