package oci

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// probeWord is the argument by which this test's program, inside a sandbox, is told
// what to try.
const probeWord = "oci-probe"

func TestMain(m *testing.M) {
	if status, is := Become(); is {
		os.Exit(status)
	}
	if len(os.Args) > 2 && os.Args[1] == probeWord {
		os.Exit(probes[os.Args[2]]())
	}
	os.Exit(m.Run())
}

// probes end with 0 if what they try works.
var probes = map[string]func() int{
	"trace": func() int {
		_, _, errno := unix.RawSyscall(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0)
		return int(errno)
	},
	"type": func() int { // the kernel looks at the lower half of the request
		typed := byte('x')
		return ioctl(0xabcd00000000|unix.TIOCSTI, &typed)
	},
	"look": func() int { return ioctl(0xabcd00000000|unix.TIOCINQ, new(byte)) },
}

// ioctl asks something of a pipe, and returns the error.
func ioctl(request uintptr, to *byte) int {
	var pipe [2]int
	if unix.Pipe(pipe[:]) != nil {
		return 99
	}
	room := [8]byte{*to}
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(pipe[0]), request, uintptr(unsafe.Pointer(&room)))
	return int(errno)
}

// place is a project in which commands run under a runtime.
type place struct {
	*testing.T
	runtime string
	bailey  string
	project string
}

// policy leaves out what these runtimes refuse.
const policy = `{"filesystem": {"protectMissing": false}}`

// each runs a test under every runtime.
func each(t *testing.T, test func(*place)) { under(t, []string{Runc, Crun, Gvisor}, test) }

// under runs a test under runtimes.
func under(t *testing.T, names []string, test func(*place)) {
	testenv.Requires(t, testenv.UserNamespaces)
	for _, e := range Engines() {
		e := e.(*Engine)
		if !slices.Contains(names, e.name) {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			test(newPlace(t, e))
		})
	}
}

func newPlace(t *testing.T, e *Engine) *place {
	t.Helper()
	bailey := testenv.Binary(t, "bailey")
	t.Setenv("PATH", os.Getenv("PATH")+":"+filepath.Dir(bailey))
	if _, err := e.find(); err != nil {
		testenv.Requires(t, testenv.Program(e.program))
	}
	project, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &place{t, e.name, bailey, project}
}

func (p *place) command(argv ...string) *exec.Cmd {
	c := exec.Command(p.bailey, append([]string{"-q", "--runtime", p.runtime, "--policy", policy, "--"}, argv...)...)
	c.Dir = p.project
	return c
}

// output runs a command that must succeed.
func (p *place) output(argv ...string) string {
	p.Helper()
	c := p.command(argv...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		p.Fatalf("%v: %v\n%s", argv, err, &stderr)
	}
	return string(out)
}

// probe tries something inside, and returns the error it met.
func (p *place) probe(name string) unix.Errno {
	p.Helper()
	self, err := os.Executable()
	if err != nil {
		p.Fatal(err)
	}
	program := filepath.Join(p.project, "probe")
	if text, err := os.ReadFile(self); err != nil || os.WriteFile(program, text, 0o755) != nil {
		p.Fatal("the probe could not be copied")
	}
	c := p.command(program, probeWord, name)
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil && c.ProcessState == nil {
		p.Fatal(err)
	}
	return unix.Errno(c.ProcessState.ExitCode())
}

func TestWhatTheCommandMakesBelongsToTheCaller(t *testing.T) {
	each(t, func(p *place) {
		if err := os.WriteFile(filepath.Join(p.project, "secret"), []byte("of the caller"), 0o600); err != nil {
			p.Fatal(err)
		}
		if got := p.output("sh", "-c", "cat secret; echo >made; test -O made && test -O secret"); got != "of the caller" {
			p.Errorf("read %q", got)
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(p.project, "made"), &st); err != nil || int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid() {
			p.Errorf("made by %d:%d (%v), want %d:%d", st.Uid, st.Gid, err, os.Geteuid(), os.Getegid())
		}
	})
}

func TestNobodyInsideIsRootOutside(t *testing.T) {
	// GVisor has ids of its own; what its processes are is in the bundle.
	under(t, []string{Runc, Crun}, func(p *place) {
		var inside, outside, count int
		if _, err := fmt.Sscan(p.output("cat", "/proc/self/uid_map"), &inside, &outside, &count); err != nil {
			p.Fatal(err)
		}
		if inside != 0 || outside == 0 {
			p.Errorf("%d ids from %d are %d outside", count, inside, outside)
		}
	})
}

func TestAStreamIsNotOpenedForMore(t *testing.T) {
	each(t, func(p *place) {
		file := filepath.Join(t.TempDir(), "input")
		if err := os.WriteFile(file, []byte("as it was"), 0o666); err != nil {
			p.Fatal(err)
		}
		in, err := os.Open(file)
		if err != nil {
			p.Fatal(err)
		}
		defer in.Close()
		c := p.command("sh", "-c", "cat; echo changed >/proc/self/fd/0")
		c.Stdin = in
		if out, _ := c.Output(); string(out) != "as it was" {
			p.Errorf("read %q", out)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != "as it was" {
			p.Errorf("the file is %q now (%v)", text, err)
		}
	})
}

func TestOutputGoesToAFile(t *testing.T) {
	each(t, func(p *place) {
		file, err := os.Create(filepath.Join(t.TempDir(), "output"))
		if err != nil {
			p.Fatal(err)
		}
		defer file.Close()
		c := p.command("sh", "-c", "head -c 300000 /dev/zero; echo end >&2")
		c.Stdout, c.Stderr = file, file
		if err := c.Run(); err != nil {
			p.Fatal(err)
		}
		if info, err := file.Stat(); err != nil || info.Size() != 300_004 {
			p.Errorf("%d bytes (%v), want 300004", info.Size(), err)
		}
	})
}

// Runtimes give the streams to the user inside.
func TestStreamsKeepTheirOwner(t *testing.T) {
	each(t, func(p *place) {
		pipe := filepath.Join(t.TempDir(), "pipe")
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			p.Fatal(err)
		}
		in, err := os.OpenFile(pipe, os.O_RDWR, 0)
		if err != nil {
			p.Fatal(err)
		}
		defer in.Close()
		var before, after [2]unix.Stat_t
		stat := func(st *[2]unix.Stat_t) {
			for i, name := range []string{os.DevNull, pipe} {
				if err := unix.Stat(name, &st[i]); err != nil {
					p.Fatal(err)
				}
			}
		}
		stat(&before)
		c := p.command("true") // its output and its errors go to /dev/null
		c.Stdin = in
		if err := c.Run(); err != nil {
			p.Fatal(err)
		}
		stat(&after)
		for i := range before {
			if before[i].Uid != after[i].Uid || before[i].Gid != after[i].Gid {
				p.Errorf("%d:%d became %d:%d", before[i].Uid, before[i].Gid, after[i].Uid, after[i].Gid)
				_ = os.Chown([]string{os.DevNull, pipe}[i], int(before[i].Uid), int(before[i].Gid))
			}
		}
	})
}

// The gate answers by itself what it lets nobody reach.
func TestTheGateIsReachedAtItsSocket(t *testing.T) {
	const gated = `{"filesystem": {"protectMissing": false},
		"network": {"allowedDomains": ["granted.test"], "egress": "socket", "allowAllUnixSockets": true}}`
	each(t, func(p *place) {
		testenv.Requires(t, testenv.Program("curl"))
		const line = `curl -s -o /dev/null -w '%{http_code}' --unix-socket "$BAILEY_GATE_SOCKET" http://denied.test/`
		c := exec.Command(p.bailey, "-q", "--runtime", p.runtime, "--policy", gated, "--", "sh", "-c", line)
		c.Dir = p.project
		if out, err := c.Output(); err != nil || string(out) != "403" {
			p.Errorf("%q, %v, want 403", out, err)
		}
	})
}

// Programs that know nothing of proxies are led to the gate, as are those that do.
func TestTheGateIsReachedAtItsPorts(t *testing.T) {
	const gated = `{"network": {"allowedDomains": ["granted.test"], "transparent": true}}`
	each(t, func(p *place) {
		testenv.Requires(t, testenv.Program("curl"))
		if !HasWalls(p.runtime) {
			return // it is refused; see TestRefusalsNameThePartOfThePolicy
		}
		const line = `curl -s -o /dev/null -w '%{http_code} ' http://denied.test/; curl --noproxy '*' -s -o /dev/null -w '%{http_code}' http://192.0.2.1/`
		c := exec.Command(p.bailey, "-q", "--runtime", p.runtime, "--policy", gated, "--", "sh", "-c", line)
		c.Dir = p.project
		if out, err := c.Output(); err != nil || string(out) != "403 403" {
			p.Errorf("%q, %v, want 403 twice", out, err)
		}
	})
}

// The broker connects for the command, and is root where the caller is.
func TestAServiceSeesTheCommandAndNotItsBroker(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	each(t, func(p *place) {
		if !HasWalls(p.runtime) {
			return
		}
		dir, err := os.MkdirTemp("/tmp", "s-") // short enough for an address
		if err != nil {
			p.Fatal(err)
		}
		p.Cleanup(func() { _ = os.RemoveAll(dir) })
		at := dir + "/s"
		service, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
		if err != nil {
			p.Fatal(err)
		}
		defer service.Close()
		if err := os.Chmod(at, 0o666); err != nil {
			p.Fatal(err)
		}
		seen := make(chan int, 1)
		go func() { seen <- peerOf(service) }()
		rules := `{"filesystem": {"allowRead": ["` + dir + `"]}, "network": {"allowUnixSockets": ["` + at + `"]}}`
		c := exec.Command(p.bailey, "-q", "--runtime", p.runtime, "--policy", rules, "--", "curl", "-s", "--unix-socket", at, "http://x/")
		c.Dir = p.project
		out, err := c.CombinedOutput()
		_ = service.Close() // should nobody have come
		uid, caller := <-seen, os.Geteuid()
		if caller == 0 && uid < firstRange || caller != 0 && uid != caller {
			p.Errorf("the service saw user %d; %v\n%s", uid, err, out)
		}
	})
}

// peerOf is the user who connects, or -1 if nobody does.
func peerOf(service *net.UnixListener) int {
	conn, err := service.AcceptUnix()
	if err != nil {
		return -1
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1
	}
	uid := -1
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = int(cred.Uid)
		}
	})
	return uid
}

func TestNothingIsTypedWhateverTheUpperHalfOfARequestIs(t *testing.T) {
	each(t, func(p *place) {
		if got := p.probe("type"); got != unix.EPERM {
			p.Errorf("TIOCSTI: %v, want %v", got, unix.EPERM)
		}
		if got := p.probe("look"); got != 0 {
			p.Errorf("control: TIOCINQ: %v", got)
		}
	})
}

// A tracer under gVisor can put another call in the place of one that its filter has
// allowed.
func TestOnlyGvisorHasNoTracers(t *testing.T) {
	each(t, func(p *place) {
		want := unix.Errno(0)
		if p.runtime == Gvisor {
			want = unix.EPERM
		}
		if got := p.probe("trace"); got != want {
			p.Errorf("ptrace: %v, want %v", got, want)
		}
	})
}

func TestGroupsOfAKilledOwnerAreSwept(t *testing.T) {
	testenv.Requires(t, testenv.Root)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	// Only runc makes groups where there are no limits.
	under(t, []string{Runc}, func(p *place) {
		c := p.command("sh", "-c", "echo ready; cat")
		in, err := c.StdinPipe()
		if err != nil {
			p.Fatal(err)
		}
		defer in.Close()
		out, err := c.StdoutPipe()
		if err != nil {
			p.Fatal(err)
		}
		if err := c.Start(); err != nil {
			p.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
			p.Fatal(err)
		}
		group := fmt.Sprintf("/%s%d", groupPrefix, c.Process.Pid)
		if len(standing(group)) == 0 {
			p.Error("control: there is no group, so this shows nothing")
		}
		_ = c.Process.Kill()
		_ = c.Wait()
		awaitOrphans()
		p.output("true")
		if left := standing(group); len(left) > 0 {
			p.Errorf("left: %v", left)
		}
	})
}

// awaitOrphans waits for what a killed child of this process has left. A guard can be
// waited for only when everything in its namespace is gone.
func awaitOrphans() {
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err == unix.ECHILD {
			return
		}
	}
}

// standing are the directories of a control group.
func standing(group string) (list []string) {
	for _, at := range hierarchies() {
		if _, err := os.Stat(filepath.Join(at, group)); err == nil {
			list = append(list, filepath.Join(at, group))
		}
	}
	return list
}

func TestGvisorRunsOnEachPlatform(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	for _, platform := range []string{"systrap", "ptrace"} {
		t.Run(platform, func(t *testing.T) {
			e := &Engine{Gvisor, "runsc", []string{platform}}
			p := newPlace(t, e)
			if out, status := p.start(e, "sh", "-c", "echo works; exit 3"); out != "works\n" || status.ExitStatus() != 3 {
				t.Errorf("%q, %v", out, status.ExitStatus())
			}
		})
	}
}

func TestAPlatformThatFailsIsNotTheLast(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	e := &Engine{Gvisor, "runsc", []string{"nosuch", "ptrace"}}
	p := newPlace(t, e)
	if out, _ := p.start(e, "echo", "works"); out != "works\n" {
		t.Errorf("%q", out)
	}
}

// start runs a command without the program bailey.
func (p *place) start(e *Engine, argv ...string) (string, unix.WaitStatus) {
	p.Helper()
	runtime.LockOSThread() // which the sandbox dies with
	defer runtime.UnlockOSThread()
	explain := exec.Command(p.bailey, append([]string{"explain", "--json", "--policy", policy, "--"}, argv...)...)
	explain.Dir = p.project
	text, err := explain.Output()
	if err != nil {
		p.Fatal(err)
	}
	var s spec.Spec
	if err := json.Unmarshal(text, &s); err != nil {
		p.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		p.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		p.Fatal(err)
	}
	defer null.Close()
	c, err := e.Start(&s, engine.Options{Streams: [3]*os.File{null, write, os.Stderr}})
	_ = write.Close()
	if err != nil {
		p.Fatal(err)
	}
	status := c.Wait().Wait
	out, _ := io.ReadAll(read)
	return string(out), status
}

func TestRefusalsNameThePartOfThePolicy(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	for _, c := range []struct{ runtime, policy, key string }{
		{Gvisor, `{}`, "filesystem.protectMissing"},
		{Gvisor, `{"filesystem": {"protectMissing": false, "denyRead": ["**/*.pem"]}}`, "filesystem.denyRead"},
		{Gvisor, `{"filesystem": {"protectMissing": false}, "network": {"allowedDomains": ["example.com"]}}`, "network.allowedDomains"},
		{Gvisor, `{"filesystem": {"protectMissing": false}, "network": {"exposePorts": [8080]}}`, "network.exposePorts"},
		{Crun, `{"resources": {"disk": "64M"}}`, "resources.disk"},
		{Runc, `{"network": {"allowedDomains": ["example.com"], "egress": "socket", "exposePorts": [8080]}}`, "network.exposePorts"},
		{Gvisor, `{"filesystem": {"protectMissing": false}, "network": {"allowedDomains": ["example.com"], "egress": "socket"}}`, "network.egress"},
		{Gvisor, `{"filesystem": {"protectMissing": false}, "command": {"deny": ["git push"]}}`, "command"},
	} {
		t.Run(c.key, func(t *testing.T) {
			var e *Engine
			for _, other := range Engines() {
				if other.Name() == c.runtime {
					e = other.(*Engine)
				}
			}
			p := newPlace(t, e)
			cmd := exec.Command(p.bailey, "-q", "--runtime", c.runtime, "--policy", c.policy, "--", "true")
			cmd.Dir = p.project
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.key+":") && !strings.Contains(string(out), c.key+" ") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func TestLimitsOfAnOrdinaryUserAreRefusedWithWhatHelps(t *testing.T) {
	s := &spec.Spec{
		Identity: spec.Identity{UID: 1000}, Limits: &spec.Limits{Memory: 64 << 20},
		Rlimits: []spec.Rlimit{{Name: "nproc", Value: 65}}, // and process 1
	}
	var got []string
	for _, u := range Refusals(Runc, s, false) {
		got = append(got, u.Key+" "+u.Value+": "+u.Fix)
	}
	want := []string{
		"resources.memory 64M: run it as root, remove it, or where this user has a control group (see: bailey doctor) use --runtime native",
		"resources.pids 64: remove it, or use --runtime native",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
