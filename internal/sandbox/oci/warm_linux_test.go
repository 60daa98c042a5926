package oci

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// pooled runs a test under every runtime, with a keeper of the test's own.
func pooled(t *testing.T, test func(*place)) {
	each(t, func(p *place) {
		dir, err := os.MkdirTemp("", "r") // short: a socket is in there
		if err != nil {
			p.Fatal(err)
		}
		p.Setenv("XDG_RUNTIME_DIR", dir)
		p.Cleanup(func() {
			out, err := exec.Command(p.bailey, "box", "stop", "--all").CombinedOutput()
			if err != nil {
				p.Errorf("stop: %v\n%s", err, out)
			}
			_ = os.RemoveAll(dir)
		})
		test(p)
	})
}

// beforehand is what the command says of a sandbox that had been waiting for it.
const beforehand = "was built before there was a command"

func (p *place) poolCommand(policy string, argv ...string) *exec.Cmd {
	c := exec.Command(p.bailey, append([]string{"--debug", "--runtime", p.runtime, "--pool", "--policy", policy, "--"}, argv...)...)
	c.Dir = p.project
	return c
}

// warm runs a command that must succeed, again and again until it was in a sandbox that
// had been waiting for it: the first one cannot be.
func (p *place) warm(policy string, argv ...string) string {
	p.Helper()
	for range 100 {
		c := p.poolCommand(policy, argv...)
		var stderr bytes.Buffer
		c.Stderr = &stderr
		out, err := c.Output()
		if err != nil {
			p.Fatalf("%v: %v\n%s", argv, err, &stderr)
		}
		if strings.Contains(stderr.String(), beforehand) {
			return string(out)
		}
	}
	p.Fatal("no command was run in a sandbox that had been waiting")
	return ""
}

func TestASandboxThatWaitedIsLikeOneThatWasBuilt(t *testing.T) {
	// What a command sees of itself and its walls.
	const look = `grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp:|Umask)' /proc/self/status; pwd; umask; env | sort;
		ls /; cat /proc/mounts | cut -d' ' -f2- | grep -v tmpfs; cat /proc/net/dev; ulimit -c; ls -l /proc/self/fd | wc -l`
	pooled(t, func(p *place) {
		sub := filepath.Join(p.project, "sub")
		if err := os.Mkdir(sub, 0o755); err != nil {
			p.Fatal(err)
		}
		if p.runtime != Gvisor { // which refuses links that are protected
			if err := os.Symlink("sub", filepath.Join(p.project, ".envrc")); err != nil {
				p.Fatal(err)
			}
		}
		old := unix.Umask(0o027)
		defer unix.Umask(old)
		want := p.output("sh", "-c", look)
		if got := p.warm(policy, "sh", "-c", look); got != want {
			p.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

func TestASandboxThatWaitedWasUsedByNobody(t *testing.T) {
	pooled(t, func(p *place) {
		for range 3 {
			p.warm(policy, "sh", "-c", "test ! -e /tmp/used && touch /tmp/used && test -e /tmp/used")
		}
	})
}

func TestWhatTheCommandReadsWritesAndReturnsPasses(t *testing.T) {
	pooled(t, func(p *place) {
		p.warm(policy, "true")
		c := p.poolCommand(policy, "sh", "-c", "cat; echo to stderr >&2; exit 7")
		var stdout, stderr bytes.Buffer
		data := bytes.Repeat([]byte("bytes\xff\x00\n"), 40_000)
		c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(data), &stdout, &stderr
		if err := c.Run(); c.ProcessState == nil || c.ProcessState.ExitCode() != 7 {
			p.Errorf("ended with %v, want status 7", err)
		}
		if !bytes.Equal(stdout.Bytes(), data) || !strings.Contains(stderr.String(), "to stderr\n") {
			p.Errorf("%d bytes came back, want %d; stderr %q", stdout.Len(), len(data), stderr.String())
		}
		missing := p.poolCommand(policy, "./missing")
		if _ = missing.Run(); missing.ProcessState.ExitCode() != 127 {
			p.Errorf("a missing program: status %d, want 127", missing.ProcessState.ExitCode())
		}
	})
}

// A file that the host has replaced is another, although its name is the same.
func TestAReplacedFileIsSeen(t *testing.T) {
	pooled(t, func(p *place) {
		dir, err := filepath.EvalSymlinks(p.TempDir())
		if err != nil {
			p.Fatal(err)
		}
		file := filepath.Join(dir, "file")
		write := func(name, text string) {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				p.Fatal(err)
			}
		}
		write(file, "old")
		granting := `{"filesystem": {"protectMissing": false, "allowRead": ["` + file + `"]}}`
		if got := p.warm(granting, "cat", file); got != "old" {
			p.Errorf("read %q", got)
		}
		write(file+"2", "new")
		if err := os.Rename(file+"2", file); err != nil {
			p.Fatal(err)
		}
		c := p.poolCommand(granting, "cat", file)
		if out, err := c.Output(); err != nil || string(out) != "new" {
			p.Errorf("read %q, %v, want what the file is now", out, err)
		}
	})
}

// staying starts a command that was waited for and holds a pipe, which ends with it.
func (p *place) staying() (*exec.Cmd, *os.File) {
	p.Helper()
	p.warm(policy, "true")
	r, w, err := os.Pipe()
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = r.Close() })
	c := p.poolCommand(policy, "sh", "-c", "echo ready; sleep 1000 & wait")
	c.Stdout = w
	if err := c.Start(); err != nil {
		p.Fatal(err)
	}
	_ = w.Close()
	if _, err := io.ReadFull(r, make([]byte, len("ready\n"))); err != nil {
		p.Fatal(err)
	}
	return c, r
}

func TestAPooledCommandEndsWithItsClient(t *testing.T) {
	pooled(t, func(p *place) {
		c, r := p.staying()
		_ = c.Process.Kill()
		_ = c.Wait()
		if rest, err := io.ReadAll(r); err != nil || len(rest) != 0 {
			p.Errorf("%q, %v", rest, err)
		}
	})
}

func TestSignalsReachAPooledCommand(t *testing.T) {
	pooled(t, func(p *place) {
		c, r := p.staying()
		if err := c.Process.Signal(unix.SIGTERM); err != nil {
			p.Fatal(err)
		}
		_, _ = io.ReadAll(r)
		_ = c.Wait()
		if got := c.ProcessState.ExitCode(); got != 128+int(unix.SIGTERM) {
			p.Errorf("status %d, want %d", got, 128+int(unix.SIGTERM))
		}
	})
}

func TestNothingOutlivesAKilledKeeper(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	pooled(t, func(p *place) {
		c, r := p.staying()
		keeper := keeperOf(p)
		if err := unix.Kill(keeper, unix.SIGKILL); err != nil {
			p.Fatal(err)
		}
		if rest, err := io.ReadAll(r); err != nil || len(rest) != 0 {
			p.Errorf("%q, %v", rest, err)
		}
		_ = c.Wait()
		// Guards that waited are orphans of this process now, and can be waited for only
		// when everything below them is gone.
		awaitOrphans()
	})
}

// keeperOf is the keeper that was started last, which is an orphan of this process.
func keeperOf(p *place) int {
	p.Helper()
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, pid := range strings.Fields(string(text)) {
			args, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			if bytes.Contains(args, []byte("\x00keeper\x00")) {
				n, _ := strconv.Atoi(pid)
				return n
			}
		}
	}
	p.Fatal("there is no keeper below this process")
	return 0
}

// slow is a runtime that takes for ever to start. It says on a pipe that it has begun.
func slow(t *testing.T) (dir string, begun *os.File) {
	t.Helper()
	dir = t.TempDir()
	fifo := filepath.Join(dir, "begun")
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho begun >" + fifo + "\nexec sleep 1000\n"
	if err := os.WriteFile(filepath.Join(dir, "runsc"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	begun, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = begun.Close() })
	return dir, begun
}

func TestASlowStartCanBeInterrupted(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			dir, begun := slow(t)
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			p := newPlace(t, &Engine{Gvisor, "runsc", []string{"systrap"}})
			c := p.command("true")
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := begun.Read(make([]byte, 16)); err != nil {
				t.Fatal(err)
			}
			if err := c.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait()
			if got := c.ProcessState.ExitCode(); got != 128+int(sig) {
				t.Errorf("status %d, want %d", got, 128+int(sig))
			}
		})
	}
}
