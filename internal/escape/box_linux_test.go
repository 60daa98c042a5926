package escape

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// attacks are started by name: in a sandbox, and for control outside.
var attacks = map[string]func(args []string){}

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "attack" {
		attack, ok := attacks[os.Args[2]]
		if !ok {
			fmt.Println("no such attack:", os.Args[2])
			os.Exit(2)
		}
		attack(os.Args[3:])
		// Not os.Exit: the race detector would wait a second for stragglers.
		unix.Exit(0)
	}
	os.Exit(m.Run())
}

// report shows what became of a step, for whoever reads a failure.
func report(what string, err error) {
	if err != nil {
		fmt.Printf("%s: %v\n", what, err)
		return
	}
	fmt.Printf("%s: done\n", what)
}

// loot is where attacks put what they got: a directory in the project, so that
// the host sees it.
const loot = "loot"

// keep puts something into the loot.
func keep(name string, data []byte) {
	report("keep "+name, os.WriteFile(filepath.Join(loot, name), data, 0o644))
}

// runtimeVariable names the runtime that attacks are tried on, in a run for
// another than the native one; see TestAttacksFailWithOtherRuntimesToo.
const runtimeVariable = "BAILEY_TEST_RUNTIME"

// box is a home directory with secrets, a project in it, and a sandbox around
// the project.
type box struct {
	t       *testing.T
	root    string // holds everything below
	home    string
	project string // a git repository, below home
	outside string // the caller's as well, and granted to nobody
	program string // this binary, in the project
	policy  string // in JSON; empty for the default
}

func newBox(t *testing.T) *box {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	b := &box{t: t, root: root, home: root + "/home", project: root + "/home/src/project", outside: root + "/outside"}
	b.program = b.project + "/attacker"
	for _, dir := range []string{b.outside, b.project + "/" + loot, b.project + "/.git/hooks", b.project + "/.git/objects", b.project + "/.git/refs"} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	b.write(b.project+"/.git/HEAD", "ref: refs/heads/main\n")
	b.write(b.project+"/.git/config", "[core]\n\tbare = false\n")
	b.write(b.project+"/.git/hooks/pre-commit", "#!/bin/sh\n")
	copyProgram(t, b.program)
	t.Setenv("HOME", b.home)
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"} {
		t.Setenv(name, "")
	}
	return b
}

// copyProgram puts this binary where a sandbox can start it.
func copyProgram(t *testing.T, to string) {
	t.Helper()
	from, err := os.Open("/proc/self/exe")
	must(t, err)
	defer from.Close()
	// Closed before anything is started: a program that is open for writing in
	// a child that is just being forked cannot be executed.
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	must(t, err)
	_, err = io.Copy(out, from)
	must(t, errors.Join(err, out.Close()))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *box) write(path, text string) {
	b.t.Helper()
	must(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(b.t, os.WriteFile(path, []byte(text), 0o644))
}

// manager is ready to run commands in the sandbox.
func (b *box) manager() (*bailey.Manager, error) {
	m := bailey.New(bailey.Config{Dir: b.project, Policy: b.policy, Runtime: os.Getenv(runtimeVariable)})
	return m, m.Initialize()
}

// command prepares a command in the sandbox; the box must allow that.
func (b *box) command(argv ...string) *bailey.Cmd {
	b.t.Helper()
	m, err := b.manager()
	must(b.t, err)
	b.t.Cleanup(func() { _ = m.Cleanup() })
	return m.Command(argv[0], argv[1:]...)
}

// run runs a command in the sandbox to its end. How it ended is shown only.
func (b *box) run(argv ...string) string {
	b.t.Helper()
	if isContainer() {
		return b.runBailey(os.Getenv(runtimeVariable), argv...)
	}
	return b.runCmd(b.command(argv...))
}

// isContainer says that attacks are tried on a runtime that the API does not start.
func isContainer() bool {
	runtime := os.Getenv(runtimeVariable)
	return runtime != "" && runtime != "bwrap"
}

// runBailey is run for a runtime that only the command bailey starts.
func (b *box) runBailey(runtime string, argv ...string) string {
	b.t.Helper()
	args := []string{"-q", "--runtime", runtime}
	if runtime == "gvisor" {
		args = append(args, "--allow-degraded") // protected names may come into being
	}
	if b.policy != "" {
		args = append(args, "--policy", b.policy)
	}
	c := exec.Command(testenv.Binary(b.t, "bailey"), append(append(args, "--"), argv...)...)
	c.Dir = b.project
	out, err := c.CombinedOutput()
	if c.ProcessState == nil || c.ProcessState.ExitCode() == ownStatus {
		b.t.Fatalf("the attack did not start: %v\n%s", err, out)
	}
	b.t.Logf("in the sandbox (%v):\n%s", err, out)
	return string(out)
}

// ownStatus is what bailey exits with if there is no command.
const ownStatus = 125

func (b *box) runCmd(c *bailey.Cmd) string {
	b.t.Helper()
	var out bytes.Buffer
	c.Stderr = &out
	if c.Stdout == nil {
		c.Stdout = &out
	}
	err := c.Run()
	var exit *bailey.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.t.Fatalf("the attack did not start: %v", err)
	}
	b.t.Logf("in the sandbox (%v):\n%s", err, out.Bytes())
	return out.String()
}

// attack runs an attack in the sandbox.
func (b *box) attack(name string, args ...string) string {
	b.t.Helper()
	return b.run(append([]string{b.program, "attack", name}, args...)...)
}

// free runs the same attack without a sandbox.
func (b *box) free(name string, args ...string) string {
	b.t.Helper()
	return b.runFree(b.freeCommand(name, args...))
}

func (b *box) freeCommand(name string, args ...string) *exec.Cmd {
	c := exec.Command(b.program, append([]string{"attack", name}, args...)...)
	c.Dir = b.project
	return c
}

func (b *box) runFree(c *exec.Cmd) string {
	b.t.Helper()
	out, err := c.CombinedOutput()
	b.t.Logf("without a sandbox (%v):\n%s", err, out)
	return string(out)
}

// namespaced makes a control run as root of a user and mount namespace of its
// own: what a sandbox without its further walls would be.
func namespaced(c *exec.Cmd) *exec.Cmd {
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	return c
}

// looted returns what the attack got, by name, and empties the loot.
func (b *box) looted() map[string]string {
	b.t.Helper()
	got := map[string]string{}
	dir := b.project + "/" + loot
	must(b.t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		got[strings.TrimPrefix(path, dir+"/")] = string(data)
		return err
	}))
	must(b.t, os.RemoveAll(dir))
	must(b.t, os.Mkdir(dir, 0o755))
	return got
}

// expectNoLoot fails for everything the attack got.
func (b *box) expectNoLoot() {
	b.t.Helper()
	for name, text := range b.looted() {
		b.t.Errorf("the sandbox got %s: %.200q", name, text)
	}
}

// expectLoot is for controls: the attack works where nothing holds it.
func (b *box) expectLoot(names ...string) {
	b.t.Helper()
	got := b.looted()
	for _, name := range names {
		if _, ok := got[name]; !ok {
			b.t.Errorf("control: %s was not got, so this test shows nothing", name)
		}
	}
}

// snapshot describes everything at and below the paths, so that any change
// shows: content, links, owners, modes, times, extended attributes.
func snapshot(t *testing.T, paths ...string) string {
	t.Helper()
	var out strings.Builder
	for _, path := range paths {
		err := filepath.WalkDir(path, func(p string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return describe(&out, p)
		})
		if err != nil {
			fmt.Fprintf(&out, "%s: %v\n", path, err)
		}
	}
	return out.String()
}

func describe(w io.Writer, path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err
	}
	content := ""
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		content = fmt.Sprintf("%x", sha256.Sum256(data))
	case unix.S_IFLNK:
		content, _ = os.Readlink(path)
	}
	var names [4096]byte
	n, _ := unix.Llistxattr(path, names[:])
	// The change time moves with every change of content, owner, mode, links or
	// attributes, and nobody can set it.
	_, err := fmt.Fprintf(w, "%s ino=%d mode=%o links=%d owner=%d:%d size=%d mtime=%d.%d ctime=%d.%d xattr=%q %s\n",
		path, st.Ino, st.Mode, st.Nlink, st.Uid, st.Gid, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec,
		names[:max(n, 0)], content)
	return err
}

// unchanged fails if what an attack does shows on the host at or below paths.
func unchanged(t *testing.T, attack func(), paths ...string) {
	t.Helper()
	before := snapshot(t, paths...)
	attack()
	if after := snapshot(t, paths...); before != after {
		t.Errorf("the host changed: got\n%swant\n%s", after, before)
	}
}
