package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// pane is a shell on a screen of tmux's.
type pane struct {
	*bench
	socket string
}

func (b *bench) pane() *pane {
	b.t.Helper()
	p := &pane{b, filepath.Join(b.home, "tmux")}
	p.tmux("new-session", "-d", "-x", "200", "-y", "30", "HISTFILE= exec bash --norc --noprofile") // which would write a history when it is killed
	b.t.Cleanup(func() { exec.Command("tmux", "-S", p.socket, "kill-server").Run() })
	return p
}

func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", p.socket, "-f", "/dev/null"}, args...)...)
	cmd.Dir, cmd.Env = p.dir, p.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (p *pane) keys(keys ...string) { p.t.Helper(); p.tmux(append([]string{"send-keys"}, keys...)...) }

func (p *pane) screen() string { p.t.Helper(); return p.tmux("capture-pane", "-p") }

// expect waits until every text is on the screen.
func (p *pane) expect(texts ...string) {
	p.t.Helper()
	p.watch(fmt.Sprintf("%q", texts), func(screen string) bool {
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
}

// watch waits until the screen is as it should be.
func (p *pane) watch(what string, is func(screen string) bool) {
	p.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !is(p.screen()) {
		if time.Now().After(deadline) {
			p.t.Fatalf("waited in vain for %s:\n%s", what, p.screen())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// top starts "box top" on the screen.
func (b *bench) top() *pane {
	b.t.Helper()
	testenv.Requires(b.t, testenv.Program("tmux"))
	p := b.pane()
	p.keys("stty -g >before; PS1='shell> '", "Enter")
	p.keys(testenv.Binary(b.t, "bailey")+" box top; echo status $?; stty -g >after", "Enter")
	p.expect("bailey box top:")
	return p
}

// restored checks that the terminal is what it was before.
func (p *pane) restored(status int) {
	p.t.Helper()
	p.expect(fmt.Sprintf("status %d\nshell>", status))
	var settings [2]string
	for i, name := range []string{"before", "after"} {
		data, err := os.ReadFile(filepath.Join(p.dir, name))
		if err != nil {
			p.t.Fatal(err)
		}
		settings[i] = string(data)
	}
	if settings[0] != settings[1] {
		p.t.Errorf("the terminal was\n%s\nand is\n%s", settings[0], settings[1])
	}
	if flags := p.tmux("display-message", "-p", "#{alternate_on}#{cursor_flag}#{wrap_flag}"); flags != "011\n" {
		p.t.Errorf("other screen, cursor, wrapping: %q", flags)
	}
}

func TestTopShowsWhatSandboxesDo(t *testing.T) {
	b := keepBench(t)
	b.run("--keep", "dev", "--detach", "-c", "touch .envrc; exec sleep 1000").want(t, 0, "", "")
	b.run("--keep", "other", "--detach", "-c", `printf '\033[31m'; exec sleep 2000 "$(printf '\033[2Jx')"`).want(t, 0, "", "")
	p := b.top()
	p.expect("2 sandboxes", "> dev", "  other", "NAME", "CPU", "MEMORY", "CONNECTIONS", "denied in dev", "create "+b.dir+"/.envrc")
	p.keys("Down")
	p.expect("> other", "  dev")
	p.keys("k")
	p.expect("> dev", "denied in dev")

	p.keys("Enter")
	p.expect("dev in "+b.dir, "policy", "writes   "+b.dir, "network  closed", "processes", "sleep 1000", "recent events", "> deny")
	p.keys("a")
	p.expect("to allow: --allow-write " + b.dir + "/.envrc; it needs a new sandbox: bailey box stop dev")
	p.keys("Escape")
	p.expect("2 sandboxes")
	p.keys("?")
	p.expect("any key goes back")
	p.keys("x")
	p.expect("2 sandboxes")

	p.tmux("resize-window", "-x", "60", "-y", "12")
	p.watch("a small screen", func(screen string) bool {
		lines := strings.Split(strings.TrimSuffix(screen, "\n"), "\n")
		return len(lines) == 12 && strings.HasPrefix(lines[0], "bailey box top") && strings.HasPrefix(lines[11], "arrows select")
	})
	p.keys("C-z")
	p.expect("Stopped")
	p.restored(128 + int(unix.SIGSTOP))
	p.keys("clear; fg", "Enter")
	p.expect("2 sandboxes", "> dev")
	p.keys("q")
	p.expect("shell>")
	p.keys("echo status $?; stty -g >after", "Enter")
	p.restored(0)
}

func TestTopStopsASandbox(t *testing.T) {
	b := keepBench(t)
	for _, name := range []string{"one", "two", "three"} {
		b.run("--keep", name, "--detach", "--", "sleep", "1000").want(t, 0, "", "")
	}
	p := b.top()
	p.expect("3 sandboxes", "> one")
	p.keys("s")
	p.expect("stop one and everything in it? y/n")
	p.keys("n")
	p.expect("nothing was done")
	if got := b.boxes(); len(got) != 3 {
		t.Errorf("after no there are %v", got)
	}
	p.keys("Down", "s")
	p.expect("stop three and everything in it? y/n")
	p.keys("y")
	p.expect("2 sandboxes", "stopped three")
	// One that ends while it is looked at leads back to the list.
	p.keys("End", "i")
	p.expect("two in "+b.dir, "sleep 1000")
	b.run("box", "stop", "two").want(t, 0, "", "")
	p.expect("1 sandbox", "> one")
	b.run("box", "stop", "one").want(t, 0, "", "")
	p.expect("0 sandboxes", "none runs")
	p.keys("s", "a", "Enter", "Down", "C-c")
	p.restored(0)
}

func TestTopGivesTheTerminalBackWhateverEndsIt(t *testing.T) {
	b := keepBench(t)
	b.run("--keep", "dev", "--detach", "--", "sleep", "1000").want(t, 0, "", "")
	for _, c := range []struct {
		name   string
		signal unix.Signal
	}{{"terminated", unix.SIGTERM}, {"interrupted", unix.SIGINT}, {"hung up", unix.SIGHUP}} {
		t.Run(c.name, func(t *testing.T) {
			bench := *b
			bench.t, bench.home = t, t.TempDir()
			p := bench.top()
			p.expect("> dev")
			if err := unix.Kill(p.child("baileyd"), c.signal); err != nil {
				t.Fatal(err)
			}
			p.restored(128 + int(c.signal))
		})
	}
}

// child is the program of the shell's in the foreground.
func (p *pane) child(name string) (pid int) {
	p.t.Helper()
	var shell int
	if _, err := fmt.Sscan(p.tmux("display-message", "-p", "#{pane_pid}"), &shell); err != nil {
		p.t.Fatal(err)
	}
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", shell, shell))
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(list), &pid); err != nil {
		p.t.Fatalf("the shell has no %s: %q", name, list)
	}
	return pid
}

func TestTopAllowsWhatTheGateDenied(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.keep(t)
		t.Cleanup(w.endKeeper)
		w.userPolicy(`"allowedDomains": ["good.example"], "deniedDomains": ["also.good.example"]`)
		kept := func(urls ...string) result { return w.run("-q", "--keep", "dev", "-c", curls(urls...)) }
		kept("http://also.good.example/x", "http://bad.example:8080/x").want(t, 0, " status 22\n status 22\n", "")
		pid := w.boxes()["dev"].Pid

		p := w.top()
		p.expect("> dev", "denied in dev", "bad.example:8080", "also.good.example:80")
		p.keys("a")
		p.expect("let dev reach bad.example:8080? y/n")
		p.keys("y")
		p.expect("dev may reach bad.example:8080 until it ends")
		p.keys("i")
		p.expect("network  through the gate to good.example bad.example:8080 127.0.0.0/8; not to also.good.example")
		p.keys("Down")
		p.watch("the denial by a rule to be selected", func(screen string) bool {
			_, line, _ := strings.Cut(screen, "\n> ")
			return strings.Contains(strings.SplitN(line, "\n", 2)[0], "also.good.example")
		})
		p.keys("a")
		p.expect("to allow: take back network.deniedDomains also.good.example")

		// The same sandbox, found by the same policy, reaches that and no more.
		got := kept("http://bad.example:8080/x", "http://bad.example/x", "http://also.good.example/x")
		got.want(t, 0, "answer from bad.example:8080 status 0\n status 22\n status 22\n", "")
		if now := w.boxes()["dev"].Pid; now != pid {
			t.Errorf("process 1 was %d and is %d", pid, now)
		}
		// Rules that are loaded again are those of the policy.
		w.run("box", "reload", "dev").want(t, 0, "", "")
		kept("http://bad.example:8080/x").want(t, 0, " status 22\n", "")
		p.keys("q")
		p.restored(0)
	})
}

func TestTopWithoutATerminalIsATable(t *testing.T) {
	b := keepBench(t)
	b.run("box", "top").want(t, 0, "NAME  CPU  MEMORY  PROCESSES  CONNECTIONS  DENIED  AGE  COMMANDS\n", "")
	b.run("--keep", "dev", "--detach", "-c", "touch .envrc; exec sleep 1000").want(t, 0, "", "")
	b.until("the denial", func() bool { return b.boxes()["dev"].Denials == 1 })
	got := b.run("box", "top", "--once")
	if fields := strings.Fields(strings.Split(got.stdout, "\n")[1]); len(fields) < 8 || fields[0] != "dev" || fields[5] != "1" {
		t.Errorf("got %+v", got)
	}
	got = b.run("box", "top", "--json")
	if !strings.Contains(got.stdout, `"denials":1,"lastDenial":"denied: create `+b.dir+`/.envrc`) {
		t.Errorf("got %+v", got)
	}
	s := openScreen(t)
	s.start(b.command("box", "top", "--once"))
	s.expect("NAME  CPU")
	s.expect("dev ")
	if status := s.wait(); status != 0 {
		t.Errorf("status %d", status)
	}
}

func TestConnectionsOfASandboxAreCounted(t *testing.T) {
	b := keepBench(t)
	testenv.Requires(t, testenv.Program("python3"))
	const script = `
import socket, os, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
c = socket.create_connection(s.getsockname()); a, _ = s.accept()
os.fork()
time.sleep(1000)`
	b.run("--keep", "dev", "--detach", "--", "python3", "-c", script).want(t, 0, "", "")
	b.until("both ends to be counted, each once", func() bool { return b.boxes()["dev"].Connections == 2 && b.boxes()["dev"].Processes == 2 })
}

// TestTopShowsSingleCommands, which no keeper has, with what they were denied, and
// stops them.
func TestTopShowsSingleCommands(t *testing.T) {
	b := keepBench(t)
	cmd := b.command("-q", "-c", "touch .envrc; trap '' TERM; sleep 1000 & wait; wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	name := strconv.Itoa(cmd.Process.Pid)

	var box boxJSON
	b.until("the denial to be known", func() bool {
		got := b.run("box", "top", "--json")
		box = boxJSON{}
		if strings.Count(got.stdout, "\n") == 1 {
			_ = json.Unmarshal([]byte(got.stdout), &box)
		}
		return box.Denials == 1
	})
	if box.Name != name || box.Launcher != cmd.Process.Pid || box.Dir != b.dir || box.Processes != 2 || len(box.Commands) != 1 || box.Commands[0][1] != "-c" {
		t.Errorf("got %+v", box)
	}
	if got := b.run("box", "ps"); strings.Contains(got.stdout, name) {
		t.Errorf("it is no sandbox that stays: %+v", got)
	}

	p := b.top()
	p.expect("1 sandbox", "> "+name, "denied in "+name, "create "+b.dir+"/.envrc")
	p.keys("a")
	p.expect("to allow: --allow-write", "the command must be run again")
	p.keys("i")
	p.expect(name+" in "+b.dir, "processes", "sleep 1000", "recent events", "> deny")
	p.keys("s")
	p.expect("stop " + name + " and everything in it? y/n")
	p.keys("y")
	p.expect("0 sandboxes", "stopped "+name)
	if err := <-ended; err == nil {
		t.Error("it ended as if nothing had happened")
	}
	p.keys("q")
	p.restored(0)
}
