package escape

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// nest is a sandbox in a sandbox: flags of the outer and of the inner command.
// The controls run the same in the outer one alone.
type nest struct {
	*box
	outer, inner []string
}

func newNest(t *testing.T) *nest {
	testenv.Requires(t, testenv.Landlock(6))
	return &nest{box: newBox(t)}
}

// bailey is the command with flags, and the right to read itself.
func (n *nest) bailey(flags []string) []string {
	program := testenv.Binary(n.t, "bailey")
	argv := append([]string{program, "--allow-read", filepath.Dir(program)}, flags...)
	return append(argv, "--")
}

// within runs a program in the inner sandbox, and outside of it for control.
func (n *nest) within(argv ...string) string {
	n.t.Helper()
	return n.around("", argv...)
}

func (n *nest) control(argv ...string) string {
	n.t.Helper()
	return n.aroundControl("", argv...)
}

// around is within, beside something that runs in the outer sandbox.
func (n *nest) around(surrounding string, argv ...string) string {
	n.t.Helper()
	return n.start(surrounding, append(n.bailey(n.inner), argv...))
}

func (n *nest) aroundControl(surrounding string, argv ...string) string {
	n.t.Helper()
	return n.start(surrounding, argv)
}

func (n *nest) start(surrounding string, argv []string) string {
	n.t.Helper()
	if surrounding != "" {
		argv = append([]string{n.program, "attack", "around", surrounding}, argv...)
	}
	all := append(n.bailey(n.outer), argv...)
	c := exec.Command(all[0], all[1:]...)
	c.Dir = n.project
	out, err := c.CombinedOutput()
	n.t.Logf("%q (%v):\n%s", argv, err, out)
	return string(out)
}

// attackArgs is an attack as an argv.
func (n *nest) attackArgs(name string, args ...string) []string {
	return append([]string{n.program, "attack", name}, args...)
}

// surroundings are what the outer sandbox has beside the inner one. Each returns
// what the attack is told about it, and what to look at afterwards.
var surroundings = map[string]func() (about []string, after func()){
	"process": func() ([]string, func()) {
		os.Setenv("TOKEN", "BEGIN SECRET")
		return []string{strconv.Itoa(startIdle())}, func() {}
	},
	"signals": func() ([]string, func()) {
		hits := make(chan os.Signal, 64)
		signal.Notify(hits, syscall.SIGWINCH)
		return []string{strconv.Itoa(os.Getpid())}, func() {
			time.Sleep(50 * time.Millisecond)
			if len(hits) > 0 {
				keep("signalled", nil)
			}
		}
	},
	"sockets":  serveSockets,
	"memory":   shareMemory,
	"terminal": holdTerminal,
	"descriptors": func() ([]string, func()) {
		for _, path := range []string{os.Getenv("HOME") + "/data/key", os.Getenv("HOME") + "/data"} {
			fd, err := unix.Open(path, unix.O_RDONLY, 0) // without O_CLOEXEC
			report(fmt.Sprint("hold ", fd, " ", path), err)
		}
		return nil, func() {}
	},
}

func init() {
	attacks["around"] = func(args []string) {
		about, after := surroundings[args[0]]()
		argv := append(args[1:], about...)
		// Not os/exec, which closes what the descriptors are about.
		pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Env: os.Environ(), Files: inherited()})
		report("start", err)
		var ws syscall.WaitStatus
		_, err = syscall.Wait4(pid, &ws, 0, nil)
		report(fmt.Sprint("ended ", ws.ExitStatus()), err)
		after()
	}

	// What is opened to be made if need be is opened by the outer broker.
	attacks["steal-by-broker"] = func(args []string) {
		read := func(name, path string, flags int) {
			f, err := os.OpenFile(path, flags, 0o600)
			report(name, err)
			if err != nil {
				return
			}
			defer f.Close()
			if data, _ := io.ReadAll(f); len(data) > 0 {
				keep(name, data)
			}
		}
		for _, flags := range []int{os.O_RDONLY | os.O_CREATE, os.O_RDWR, os.O_RDWR | os.O_CREATE, os.O_RDONLY | unix.O_SYNC | os.O_CREATE | unix.O_NONBLOCK} {
			read(fmt.Sprintf("flags %#x", flags), args[0], flags)
			fd, err := unix.Open(args[0], unix.O_PATH, 0)
			report("path descriptor", err)
			read(fmt.Sprintf("reopened %#x", flags), fmt.Sprintf("/proc/self/fd/%d", fd), flags)
			read(fmt.Sprintf("by link %#x", flags), "linked", flags)
		}
	}

	attacks["memory-of"] = func(args []string) {
		id, _ := strconv.Atoi(args[0])
		data, err := unix.SysvShmAttach(id, 0, unix.SHM_RDONLY)
		report("attach", err)
		if err == nil {
			keep("shared memory", bytes.Clone(data[:12]))
		}
	}

	attacks["terminal-of"] = func(args []string) {
		for _, flags := range []int{unix.O_RDWR, unix.O_RDONLY} {
			fd, err := unix.Open(args[0], flags|unix.O_NOCTTY, 0)
			report("open "+args[0], err)
			if err == nil {
				_, err = unix.Write(fd, []byte("evil"))
				report("write", err)
				keep("terminal", nil)
			}
		}
	}

	attacks["pair"] = func(args []string) {
		for _, kind := range []int{unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
			fds, err := unix.Socketpair(unix.AF_UNIX, kind, 0)
			report(fmt.Sprint("pair ", kind), err)
			for _, name := range args {
				if err != nil {
					break
				}
				to := &unix.SockaddrUnix{Name: name}
				report("send to "+name, unix.Sendto(fds[0], []byte("evil"), 0, to))
				report("connect to "+name, unix.Connect(fds[0], to))
				_, werr := unix.Write(fds[0], []byte("evil"))
				report("write", werr)
			}
		}
	}

	attacks["reach"] = func(args []string) {
		c, err := net.Dial("tcp", args[0])
		report("connect", err)
		if err == nil {
			c.Close()
			keep("reached", nil)
		}
	}
}

// inherited are the streams, and what was opened to be leaked.
func inherited() []uintptr {
	files := []uintptr{0, 1, 2}
	for fd := 3; fd < 32; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			files = append(files, uintptr(fd))
		}
	}
	return files
}

// serveSockets listens by path and by abstract name.
func serveSockets() (names []string, after func()) {
	heard := make(chan string, 64)
	_ = os.Remove("outer.sock") // of a run before
	_ = os.Remove("outer.sockd")
	for _, name := range []string{"/tmp/outer.sock", "outer.sock", "@outer"} {
		l, err := net.Listen("unix", name)
		report("listen "+name, err)
		if err != nil {
			continue
		}
		names = append(names, name)
		go func() {
			for {
				if _, err := l.Accept(); err != nil {
					return
				}
				heard <- "stream " + name
			}
		}()
		p, err := net.ListenPacket("unixgram", name+"d")
		report("listen "+name+"d", err)
		if err != nil {
			continue
		}
		names = append(names, name+"d")
		go func() {
			for {
				if _, _, err := p.ReadFrom(make([]byte, 16)); err != nil {
					return
				}
				heard <- "datagram " + name
			}
		}()
	}
	return names, func() {
		time.Sleep(50 * time.Millisecond)
		for len(heard) > 0 {
			keep(strings.ReplaceAll(<-heard, "/", "_"), nil)
		}
	}
}

// shareMemory makes a segment of System V shared memory.
func shareMemory() ([]string, func()) {
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
	report("shmget", err)
	data, err := unix.SysvShmAttach(id, 0, 0)
	report("shmat", err)
	if err == nil {
		copy(data, "BEGIN SECRET")
	}
	return []string{strconv.Itoa(id)}, func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) }
}

// holdTerminal opens a pseudo-terminal of the outer sandbox's own.
func holdTerminal() ([]string, func()) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	report("open /dev/ptmx", err)
	report("unlock", unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	report("number", err)
	return []string{"/dev/pts/" + strconv.Itoa(n)}, func() {}
}

func TestNestedSandboxReadsOnlyWhatItIsGranted(t *testing.T) {
	n := newNest(t)
	const secret = "BEGIN SECRET"
	key := n.home + "/data/key"
	n.write(key, secret)
	n.outer = []string{"--allow-read", n.home + "/data"}
	n.within(n.attackArgs("steal", key)...)
	for name, text := range n.looted() {
		// That it exists is known to whoever asks for it by name.
		if strings.Contains(text, secret) || strings.Contains(text, "listed") {
			t.Errorf("the inner sandbox got %s: %q", name, text)
		}
	}
	n.control(n.attackArgs("steal", key)...)
	n.expectLoot("0-0", "0-1", "0-2", "0-4", "0-7", "0-8", "0-9")

	must(t, os.Symlink(key, n.project+"/linked"))
	n.within(n.attackArgs("steal-by-broker", key)...)
	n.expectNoLoot()
	n.control(n.attackArgs("steal-by-broker", key)...)
	n.expectLoot("flags 0x40", "reopened 0x40", "by link 0x40")
}

func TestNestedSandboxInheritsOnlyStreams(t *testing.T) {
	n := newNest(t)
	n.write(n.home+"/data/key", "BEGIN SECRET")
	n.outer = []string{"--allow-read", n.home + "/data"}
	n.around("descriptors", n.attackArgs("descriptors")...)
	n.expectNoLoot()
	n.aroundControl("descriptors", n.attackArgs("descriptors")...)
	if got := n.looted(); len(got) < 2 {
		t.Errorf("control: got %v, want two descriptors", got)
	}
}

// content describes files by name and content alone: Landlock knows nothing of
// modes, times and attributes.
func content(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		var data []byte
		if info.Mode().IsRegular() { // a pipe would be waited for
			data, _ = os.ReadFile(path)
		}
		fmt.Fprintf(&b, "%s %v %q\n", path, info.Mode().Type(), data)
		return nil
	}))
	return b.String()
}

// unbrokered is an outer policy whose broker writes no files, so that Landlock
// judges those who do.
const unbrokered = `{"extends": "default", "filesystem": {"protectMissing": false, "allowWrite": ["~/data"]}}`

func TestNestedSandboxWritesOnlyWhatItIsGranted(t *testing.T) {
	for _, inner := range []struct{ name, outer, policy, victim string }{
		{"not granted", unbrokered, `{"filesystem": {"protectMissing": false}}`, "home/data/file"},
		{"read-only", unbrokered, `{"filesystem": {"protectMissing": false, "allowRead": ["~/data"]}}`, "home/data/file"},
		{"denied directory", unbrokered, `{"filesystem": {"protectMissing": false, "allowWrite": ["~/data"], "denyWrite": ["kept"]}}`, "home/src/project/kept/file"},
		{"denied file", unbrokered, `{"filesystem": {"protectMissing": false, "allowWrite": ["~/data"], "denyWrite": ["kept/file"]}}`, "home/src/project/kept/file"},
		{"nothing, and a broker", `{}`, `{"extends": "locked"}`, "home/src/project/kept/file"},
		{"nothing, and a broker that removes", `{"filesystem": {"denyWrite": ["**/*.key"]}}`, `{"extends": "locked"}`, "home/src/project/kept/file"},
	} {
		t.Run(inner.name, func(t *testing.T) {
			n := newNest(t)
			n.write(n.home+"/data/file", "original")
			n.write(n.project+"/kept/file", "original")
			n.outer, n.inner = []string{"--policy", inner.outer}, []string{"--policy", inner.policy}
			victim := n.root + "/" + inner.victim
			dir := filepath.Dir(victim)
			before := content(t, dir)
			if out := n.within(n.attackArgs("write", victim, "")...); strings.Contains(out, "bailey:") && !strings.Contains(out, "inside another sandbox") {
				t.Fatalf("the attack did not start: %s", out)
			}
			if after := content(t, dir); after != before {
				t.Errorf("got\n%swant\n%s", after, before)
			}
			n.control(n.attackArgs("write", victim, "")...)
			if content(t, dir) == before {
				t.Errorf("control: nothing changed")
			}
		})
	}
}

func TestNestedSandboxReadsNothingDenied(t *testing.T) {
	for _, deny := range []string{"secret/key", "secret"} {
		n := newNest(t)
		n.write(n.project+"/secret/key", "BEGIN SECRET")
		n.outer = []string{"--policy", `{"filesystem": {"protectMissing": false}}`}
		n.inner = []string{"--policy", `{"filesystem": {"protectMissing": false, "denyRead": ["` + deny + `"]}}`}
		key := n.project + "/secret/key"
		n.within(n.attackArgs("steal", key)...)
		n.expectNothingRead("SECRET")
		n.within("sh", "-c", "cp -r . /tmp/copy; mv secret moved; cat moved/key /tmp/copy/secret/key >loot/key; ln secret/key hard; cat hard >>loot/key; true")
		n.expectNothingRead("SECRET")
		n.control(n.attackArgs("steal", key)...)
		n.expectLoot("0-0")
	}
}

// A file can be opened for both, and then it is the outer broker's to open, unless it
// opens none for the inner sandbox.
func TestNestedSandboxReadsNothingDeniedThroughABroker(t *testing.T) {
	n := newNest(t)
	n.write(n.project+"/key", "BEGIN SECRET")
	n.inner = []string{"-t", "locked", "--deny-read", "key"}
	read := []string{"sh", "-c", "echo started; cat <key; cat <>key; cat >/dev/null && echo ended"}
	if out := n.within(read...); strings.Contains(out, "SECRET") || !strings.Contains(out, "started") || !strings.Contains(out, "ended") {
		t.Errorf("got %q", out)
	}
	if out := n.control(read...); strings.Count(out, "SECRET") != 2 {
		t.Errorf("control: got %q", out)
	}
}

// Whoever has the limit already by which a process gives up the broker's help has given
// up nothing, and nothing relies on it.
func TestLimitOfTheCallerGivesNothingUp(t *testing.T) {
	n := newNest(t)
	argv := append(n.bailey(nil), append(n.bailey([]string{"-t", "locked"}), "echo", "it ran")...)
	for _, line := range []string{`"$@"`, `echo >loot/made`} {
		all := append(n.bailey(nil), append([]string{"sh", "-c", line, "sh"}, argv[len(n.bailey(nil)):]...)...)
		c := exec.Command("prlimit", append([]string{"--msgqueue=0:0"}, all...)...)
		c.Dir = n.project
		out, err := c.CombinedOutput()
		t.Logf("%q (%v):\n%s", line, err, out)
		if strings.Contains(string(out), "it ran") {
			t.Errorf("a policy ran that nobody holds")
		}
	}
	n.expectLoot("made")
}

// The private directories are those of the outer sandbox, but for what the policy
// denies in them. Its broker performs truncate there too.
func TestNestedDenialHoldsInSharedDirectories(t *testing.T) {
	n := newNest(t)
	const victim = "/var/tmp/outer/key"
	put := "mkdir /var/tmp/outer; echo BEGIN SECRET >" + victim + "; "
	line := func(flag, attack string) string {
		argv := append(n.bailey([]string{flag, victim}), n.attackArgs(attack, victim, "")...)
		return put + "'" + strings.Join(argv, "' '") + "'; cat " + victim + " >loot/left"
	}
	n.start("", []string{"sh", "-c", line("--deny-read", "steal") + "; rm loot/left"})
	n.expectNothingRead("SECRET")
	n.start("", []string{"sh", "-c", line("--deny-write", "write")})
	if got := n.looted()["left"]; got != "BEGIN SECRET\n" {
		t.Errorf("got %q", got)
	}
	n.start("", []string{"sh", "-c", put + strings.Join(n.attackArgs("steal", victim), " ")})
	n.expectLoot("0-0")
	n.start("", []string{"sh", "-c", put + strings.Join(n.attackArgs("write", victim, "truncate"), " ") + "; cat " + victim + " >loot/left"})
	if got := n.looted()["left"]; got != "" {
		t.Errorf("control: got %q", got)
	}
}

// Where the broker of the outer sandbox writes files it would do so for the inner
// one too. A policy that restricts anything there runs nothing.
func TestNestedPolicyThatCannotBeHeldIsRefused(t *testing.T) {
	for _, c := range []struct {
		name         string
		outer, inner []string
		word         string
	}{
		{"denyWrite", nil, []string{"--deny-write", "src"}, "filesystem.denyWrite PROJECT/src:"},
		{"denyWrite of a file", nil, []string{"--deny-write", "src/file"}, "filesystem.denyWrite PROJECT/src/file:"},
		{"denyWrite of a sealed file", nil, []string{"--deny-write", "src/sealed"}, "filesystem.denyWrite PROJECT/src/sealed:"},
		{"denyWrite of a sealed directory", nil, []string{"--deny-write", "src/closed"}, "filesystem.denyWrite PROJECT/src/closed:"},
		{"denyRead", nil, []string{"--deny-read", "secret.env"}, "filesystem.denyRead PROJECT/secret.env:"},
		{"less than the outer one", []string{"--allow-write", "DATA"}, nil, "DATA: is not granted"},
		{"pattern", nil, []string{"--policy", `{"filesystem": {"denyRead": ["**/*.env"]}}`}, "filesystem.denyRead **/*.env:"},
		{"patterns outside", []string{"--policy", `{"filesystem": {"denyRead": ["**/*.key"]}}`}, []string{"--deny-read", "secret.env"}, "patterns in its denyRead"},
		{"missing file", nil, []string{"--deny-read", "later.env"}, "filesystem.denyRead PROJECT/later.env:"},
		{"commands", nil, []string{"--policy", `{"command": {"deny": ["git push"]}}`}, "command: needs a broker"},
		{"time limit", nil, []string{"--policy", `{"resources": {"timeout": "1m"}}`}, "resources.timeout 1m"},
		{"one socket", nil, []string{"--policy", `{"network": {"allowUnixSockets": ["/tmp/x"]}}`}, "network.allowUnixSockets /tmp/x:"},
		{"names elsewhere", nil, []string{"--dir", "src"}, "filesystem.protectMissing: nothing keeps .aider.conf.yml"},
		{"hidden part of /proc", nil, []string{"--deny-read", "/proc/cpuinfo"}, "filesystem.denyRead /proc/cpuinfo:"},
		{"namespace", nil, []string{"--policy", `{"require": ["pidns"]}`}, "require pidns"},
		{"runtime", nil, []string{"--runtime", "native"}, "runtime native"},
		{"monitor", nil, []string{"-m"}, "--monitor"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNest(t)
			n.write(n.project+"/src/file", "x")
			// Their owner can open them up.
			n.write(n.project+"/src/sealed", "x")
			must(t, os.Chmod(n.project+"/src/sealed", 0o444))
			must(t, os.Mkdir(n.project+"/src/closed", 0o555))
			n.write(n.project+"/secret.env", "BEGIN SECRET")
			n.write(n.home+"/data/file", "x")
			here := strings.NewReplacer("PROJECT", n.project, "DATA", n.home+"/data")
			for _, arg := range c.outer {
				n.outer = append(n.outer, here.Replace(arg))
			}
			n.inner = c.inner
			const ran = "it ran"
			out := n.within("echo", ran)
			if word := here.Replace(c.word); !strings.Contains(out, word) || strings.Contains(out, ran) {
				t.Errorf("want nothing but a message with %q", word)
			}
			n.outer = c.inner
			if out := n.control("echo", ran); !strings.Contains(out, ran) {
				t.Errorf("control: the policy by itself ran nothing")
			}
		})
	}
}

// A mount goes when the host puts another file in its place. The broker around
// still knows the name.
func TestNestedSandboxStartsAfterTheHostReplacedAProtectedFile(t *testing.T) {
	n := newNest(t)
	fifo := n.project + "/go"
	must(t, unix.Mkfifo(fifo, 0o644))
	inner := append(n.bailey(nil), "sh", "-c", "echo evil >>.git/config; mv .git/config old; rm -f .git/config; echo ran >loot/ran")
	all := append(n.bailey(nil), "sh", "-c", "echo up; cat go >/dev/null; '"+strings.Join(inner, "' '")+"'")
	c := exec.Command(all[0], all[1:]...)
	c.Dir = n.project
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	must(t, c.Start())
	signalled, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits for its reader
	must(t, err)
	must(t, os.WriteFile(n.project+"/.git/new", []byte("[core]\n"), 0o644))
	must(t, os.Rename(n.project+"/.git/new", n.project+"/.git/config"))
	must(t, signalled.Close())
	t.Logf("%v\n%s", c.Wait(), out.Bytes())
	n.expectLoot("ran")
	if got, err := os.ReadFile(n.project + "/.git/config"); string(got) != "[core]\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestNestedSandboxCannotTouchProcessesAroundIt(t *testing.T) {
	n := newNest(t)
	n.outer = []string{"--deny-read", "**/*.env"} // its broker opens the files of /proc
	n.around("process", n.attackArgs("inspect")...)
	n.expectNoLoot()
	n.outer = nil
	n.around("process", n.attackArgs("inspect")...)
	n.expectNoLoot()
	n.aroundControl("process", n.attackArgs("inspect")...)
	if got := n.looted(); len(got) != len(inspections)+len(managements) {
		t.Errorf("control: got %v", got)
	}
}

func TestNestedSandboxSignalsNobodyAroundIt(t *testing.T) {
	n := newNest(t)
	n.around("signals", n.attackArgs("signal")...)
	n.expectNoLoot()
	n.aroundControl("signals", n.attackArgs("signal")...)
	n.expectLoot("signalled")
}

func TestNestedSandboxReachesNoSocketsAroundIt(t *testing.T) {
	const all = `{"network": {"allowAllUnixSockets": true}}`
	for _, outer := range []string{`{}`, all} {
		for _, attack := range []string{"unix", "pair"} {
			n := newNest(t)
			n.outer = []string{"--policy", outer}
			n.around("sockets", n.attackArgs(attack)...)
			n.expectNoLoot()
		}
	}
	n := newNest(t)
	n.aroundControl("sockets", n.attackArgs("unix")...)
	n.expectLoot("stream _tmp_outer.sock", "stream outer.sock", "stream @outer")
	n.outer = []string{"--policy", all}
	n.aroundControl("sockets", n.attackArgs("pair")...)
	n.expectLoot("datagram _tmp_outer.sock", "datagram outer.sock", "datagram @outer")
	// A policy that allows all means these too.
	n.inner = n.outer
	n.around("sockets", n.attackArgs("unix")...)
	n.expectLoot("stream _tmp_outer.sock", "datagram _tmp_outer.sock")
}

func TestNestedSandboxSharesNoMemoryWithThoseAroundIt(t *testing.T) {
	n := newNest(t)
	n.around("memory", n.attackArgs("memory-of")...)
	n.expectNoLoot()
	n.aroundControl("memory", n.attackArgs("memory-of")...)
	n.expectLoot("shared memory")
}

// With patterns in denyRead the outer broker opens what is only to be read, also a
// terminal.
func TestNestedSandboxHasNoTerminalOfOthers(t *testing.T) {
	n := newNest(t)
	for _, n.outer = range [][]string{nil, {"--deny-read", "**/*.env"}} {
		n.around("terminal", n.attackArgs("terminal-of")...)
		n.expectNoLoot()
		n.aroundControl("terminal", n.attackArgs("terminal-of")...)
		n.expectLoot("terminal")
	}
}

func TestNestedSandboxClosesTheNetwork(t *testing.T) {
	n := newNest(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	n.outer = []string{"--allow-network"}
	n.within(n.attackArgs("reach", l.Addr().String())...)
	n.expectNoLoot()
	n.control(n.attackArgs("reach", l.Addr().String())...)
	n.expectLoot("reached")
	// Closed around it, nothing opens it.
	n.outer, n.inner = nil, []string{"--allow-network"}
	n.within(n.attackArgs("reach", l.Addr().String())...)
	n.expectNoLoot()
}

func TestNestedSandboxHasItsOwnEnvironment(t *testing.T) {
	n := newNest(t)
	line := "echo $MY_TOKEN $OTHER >loot/env"
	n.start("", append([]string{"env", "MY_TOKEN=BEGIN SECRET", "OTHER=BEGIN SECRET"}, append(n.bailey(nil), "sh", "-c", line)...))
	n.expectNothingRead("SECRET")
	n.start("", []string{"env", "MY_TOKEN=BEGIN SECRET", "sh", "-c", line})
	if got := n.looted(); !strings.Contains(got["env"], "SECRET") {
		t.Errorf("control: got %q", got)
	}
}

func TestNestedSandboxKeepsProtectedNamesAway(t *testing.T) {
	n := newNest(t)
	const line = "for f in .envrc .vscode/x .git/hooks/x .git/config.worktree bailey.jsonc .config/fish/x; do mkdir -p $(dirname $f); echo evil >$f; done; " +
		"mv .git away; mkdir -p .git/hooks; ls -A >loot/ls; true"
	before := content(t, n.project+"/.git")
	n.within("sh", "-c", line)
	if after := content(t, n.project+"/.git"); after != before {
		t.Errorf("got\n%swant\n%s", after, before)
	}
	for _, name := range []string{".envrc", ".vscode", "bailey.jsonc", ".config/fish"} {
		if _, err := os.Lstat(n.project + "/" + name); err == nil {
			t.Errorf("%s was made", name)
		}
	}
	n.expectLoot("ls")
	n.outer = []string{"--policy", `{"filesystem": {"protectMissing": false}}`}
	n.control("sh", "-c", line)
	if _, err := os.Lstat(n.project + "/.envrc"); err != nil {
		t.Errorf("control: %v", err)
	}
}
