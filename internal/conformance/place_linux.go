package conformance

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/foreground"
)

// Place is where a property is tried: a home directory with a secret, a project
// in it, and things beside it that nobody is granted.
type Place struct {
	testing.TB
	runtime Runtime
	key     string

	home    string
	project string // a git repository, below home
	outside string
	program string // this one, in the project; see Role
}

// programName is what this program is called in the project.
const programName = "probe"

const secret = "what nobody inside may know"

func newPlace(t testing.TB, r Runtime) *Place {
	t.Helper()
	// Not the test's own directory, whose name is too long for a socket in it.
	dir, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	root, err := filepath.EvalSymlinks(dir)
	p := &Place{TB: t, runtime: r, home: root + "/home", project: root + "/home/project", outside: root + "/outside"}
	p.must(err)
	p.program = p.project + "/" + programName
	for path, text := range map[string]string{
		p.outside + "/file":                    secret,
		p.home + "/.ssh/id_ed25519":            secret,
		p.project + "/file":                    "granted",
		p.project + "/sub/file":                "granted",
		p.project + "/.git/HEAD":               "ref: refs/heads/main\n",
		p.project + "/.git/config":             "[core]\n\tbare = false\n",
		p.project + "/.git/hooks/pre-commit":   "#!/bin/sh\n",
		p.project + "/.git/objects/info/packs": "",
		p.project + "/.git/refs/heads/main":    "",
	} {
		p.write(path, text)
	}
	p.install()
	return p
}

func (p *Place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *Place) write(path, text string) {
	p.Helper()
	p.must(os.MkdirAll(filepath.Dir(path), 0o755))
	p.must(os.WriteFile(path, []byte(text), 0o644))
}

// read returns a file of the host, or "" if there is none.
func (p *Place) read(path string) string {
	p.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.Fatal(err)
	}
	return string(data)
}

// install puts this program where the sandbox can start it. A program that is
// open for writing in a child that is just being forked cannot be executed.
func (p *Place) install() {
	p.Helper()
	from, err := os.Open("/proc/self/exe")
	p.must(err)
	defer from.Close()
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	to, err := os.OpenFile(p.program, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	p.must(err)
	_, err = io.Copy(to, from)
	p.must(errors.Join(err, to.Close()))
}

// result is how a run of the command ended.
type result struct {
	status         int
	stdout, stderr string
}

// command prepares a command in the sandbox of a policy.
func (p *Place) command(policy string, argv ...string) *exec.Cmd {
	args := append([]string{"--runtime", p.runtime.Name, "--quiet", "--policy", policy, "--dir", p.project, "--"}, argv...)
	c := exec.Command(p.runtime.Bailey, args...)
	c.Dir = p.project
	c.Env = []string{"HOME=" + p.home, "PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + p.outside}
	c.Env = append(c.Env, p.runtime.Env...)
	return c
}

// run runs a command in the sandbox of a policy to its end. It does not return if
// the runtime refuses the policy.
func (p *Place) run(policy string, argv ...string) result {
	p.Helper()
	return p.finish(p.command(policy, argv...))
}

// shell is run with a line for the shell.
func (p *Place) shell(policy, line string) result {
	p.Helper()
	return p.run(policy, "sh", "-c", line)
}

// role is run with a role of this program.
func (p *Place) role(policy, name string, args ...string) result {
	p.Helper()
	return p.run(policy, append([]string{p.program, roleWord, name}, args...)...)
}

func (p *Place) finish(c *exec.Cmd) result {
	p.Helper()
	var stdout, stderr bytes.Buffer
	if c.Stdout == nil {
		c.Stdout = &stdout
	}
	c.Stderr = &stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.Fatal(err)
	}
	got := result{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	p.Logf("%q: status %d\n%s%s", c.Args[len(c.Args)-1], got.status, got.stdout, got.stderr)
	p.checkRefusal(got)
	return got
}

// checkRefusal ends the property if the runtime refused the policy, as it may if
// it names what it cannot hold and runs nothing.
func (p *Place) checkRefusal(got result) {
	p.Helper()
	if got.status != foreground.Own || p.key == "" || got.stdout != "" {
		return
	}
	if strings.Contains(got.stderr, p.key) && strings.Contains(got.stderr, "; ") {
		panic(refusal{})
	}
}

// isRefused says whether the runtime refuses a policy by a key that is not the property's
// own.
func (p *Place) isRefused(key string, run func()) (refused bool) {
	own := p.key
	p.key = key
	defer func() {
		p.key = own
		if v := recover(); v != nil {
			if _, ok := v.(refusal); !ok {
				panic(v)
			}
			refused = true
		}
	}()
	run()
	return false
}

// works is a control: a command that must succeed.
func (p *Place) works(got result) {
	p.Helper()
	if got.status != 0 {
		p.Errorf("control: status %d, so the probe shows nothing\n%s", got.status, got.stderr)
	}
}

// says is a control: a command that must succeed and print something.
func (p *Place) says(got result, want string) {
	p.Helper()
	p.works(got)
	if !strings.Contains(got.stdout, want) {
		p.Errorf("control: %q, want %q, so the probe shows nothing", got.stdout, want)
	}
}

// fails is a probe that must have run and failed.
func (p *Place) fails(got result) {
	p.Helper()
	if got.status == 0 || got.status == foreground.Own {
		p.Errorf("status %d, want a failure of the command\n%s%s", got.status, got.stdout, got.stderr)
	}
}

// keeps fails if what nobody may know was told.
func (p *Place) keeps(got result) {
	p.Helper()
	if strings.Contains(got.stdout+got.stderr, secret) {
		p.Error("the command knows what it was not granted")
	}
}
