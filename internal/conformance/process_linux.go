package conformance

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/foreground"
)

var processProperties = []Property{
	{Name: "the environment is a choice", Try: chooseEnvironment},
	{Name: "streams carry bytes as they are", Try: carryBytes},
	{Name: "no descriptor but the streams is inherited", Try: inheritStreams},
	{Name: "the exit status is the command's", Try: exitStatus},
	{Name: "a program that is missing or cannot be run is told apart", Try: tellMissing},
	{Name: "signals reach the command", Try: forwardSignal},
	{Name: "a terminal is a terminal, and nothing is typed into the caller's", Try: haveTerminal},
	{Name: "rules about commands hold at every exec", Key: "command", Try: denyCommand},
	{Name: "what the command asks for and does not get is told", Key: "--monitor", Try: tellMissed},
	{Name: "what the command used is told", Key: "--stats", Try: tellUsed},
	{Name: "only its own processes are seen", Try: seeProcesses},
	{Name: "no process outside is signalled", Try: signalOutside},
	{Name: "what is left in the background ends with the command", Try: endDaemon},
	{Name: "the command ends when bailey is killed", Try: killBailey},
	{Name: "what is left in the background ends when bailey is killed", Try: killBaileyWithDaemon},
}

func chooseEnvironment(p *Place) {
	policy := strings.Replace(base, `{`, `{"env": {"allow": ["CHOSEN"], "set": {"GIVEN": "given"}}, `, 1)
	c := p.command(policy, "env")
	c.Env = append(c.Env, "CHOSEN=chosen", "GITHUB_TOKEN="+secret, "OTHER="+secret)
	got := p.finish(c)
	p.keeps(got)
	p.says(got, "CHOSEN=chosen\n")
	p.says(got, "GIVEN=given\n")
}

func carryBytes(p *Place) {
	data := make([]byte, 1<<20)
	_, err := rand.Read(data)
	p.must(err)
	var out bytes.Buffer
	c := p.command(base, "cat")
	c.Stdin, c.Stdout = bytes.NewReader(data), &out
	p.works(p.finish(c))
	if !bytes.Equal(out.Bytes(), data) {
		p.Errorf("%d bytes came back as %d others", len(data), out.Len())
	}
}

func inheritStreams(p *Place) {
	const number, line = 7, `cat <&"$1"`
	with := func(n int) result {
		f, err := os.Open(p.outside + "/file")
		p.must(err)
		defer f.Close()
		c := p.command(base, "sh", "-c", line, "sh", strconv.Itoa(n))
		c.Stdin = f
		for range number - 2 {
			c.ExtraFiles = append(c.ExtraFiles, f)
		}
		return p.finish(c)
	}
	got := with(number)
	p.fails(got)
	p.keeps(got)
	p.says(with(0), secret)
}

func exitStatus(p *Place) {
	for _, want := range []int{0, 1, 42, 255} {
		if got := p.shell(base, "exit "+strconv.Itoa(want)); got.status != want {
			p.Errorf("status %d, want %d", got.status, want)
		}
	}
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL, unix.SIGSEGV} {
		want := foreground.Signalled + int(sig)
		if got := p.shell(base, "kill -"+strconv.Itoa(int(sig))+" $$"); got.status != want {
			p.Errorf("status %d, want %d", got.status, want)
		}
	}
}

func tellMissing(p *Place) {
	if got := p.run(base, "./missing"); got.status != foreground.NotFound {
		p.Errorf("status %d, want %d", got.status, foreground.NotFound)
	}
	if got := p.run(base, "./file"); got.status != foreground.NotRunnable {
		p.Errorf("status %d, want %d", got.status, foreground.NotRunnable)
	}
	p.works(p.run(base, "true"))
}

// flagged is role with flags of bailey's.
func (p *Place) flagged(flags []string, name string, args ...string) result {
	p.Helper()
	c := p.command(base, append([]string{p.program, roleWord, name}, args...)...)
	c.Args = slices.Insert(c.Args, 1, flags...)
	return p.finish(c)
}

func tellMissed(p *Place) {
	file := p.outside + "/file"
	got := p.flagged([]string{"--monitor", "--json"}, "open", file)
	p.fails(got)
	if want := `"path":"` + file + `"`; !strings.Contains(got.stderr, want) {
		p.Errorf("nothing is told of %s", file)
	}
	got = p.flagged([]string{"--monitor", "--json"}, "open", p.project+"/file")
	p.works(got)
	if strings.Contains(got.stderr, `"deny"`) {
		p.Error("something is told of what is granted")
	}
}

func tellUsed(p *Place) {
	const megabytes = 128
	got := p.flagged([]string{"--stats", "--json"}, "allocate", strconv.Itoa(megabytes))
	p.says(got, "had")
	var used struct {
		Wall, User, System float64
		PeakMemoryBytes    *int64
		Status             int
	}
	last := got.stderr[strings.LastIndexByte(strings.TrimSuffix(got.stderr, "\n"), '\n')+1:]
	last = strings.ReplaceAll(last, `Seconds"`, `"`)
	if err := json.Unmarshal([]byte(last), &used); err != nil {
		p.Errorf("%q: %v", last, err)
		return
	}
	if used.User+used.System <= 0 || used.Wall <= 0 {
		p.Errorf("no time is counted: %+v", used)
	}
	if used.PeakMemoryBytes == nil || *used.PeakMemoryBytes < megabytes<<20 {
		p.Errorf("less memory is counted than was used: %s", last)
	}
}

// forwardSignal signals bailey alone, and everything of its process group, as a shell and
// timeout(1) do.
func forwardSignal(p *Place) {
	for _, to := range []struct {
		sig   unix.Signal
		group bool
	}{{unix.SIGTERM, false}, {unix.SIGUSR1, false}, {unix.SIGTERM, true}} {
		c, out := p.piped("wait")
		pid := c.Process.Pid
		if to.group {
			pid = -pid
		}
		p.must(unix.Kill(pid, to.sig))
		want := to.sig.String() + "\n"
		got := make([]byte, len(want))
		if _, err := io.ReadFull(out, got); err != nil || string(got) != want {
			p.Errorf("%+v: the command heard %q %v, want %q", to, got, err, want)
			p.must(c.Process.Kill())
		}
		if err := c.Wait(); err != nil {
			p.Error(err)
		}
	}
}

func haveTerminal(p *Place) {
	master, slave := p.openTerminal(&unix.Winsize{Row: 17, Col: 71})
	defer master.Close()
	c := p.command(base, p.program, roleWord, "terminal")
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.must(c.Start())
	p.must(slave.Close())
	out, _ := io.ReadAll(master) // which ends with an error when the last one closes it
	if err := c.Wait(); err != nil {
		p.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "17x71 typed=false") {
		p.Errorf("the terminal: %q", out)
	}
	p.fails(p.role(base, "terminal")) // where there is none
}

// openTerminal makes a terminal such as a person sits at.
func (p *Place) openTerminal(size *unix.Winsize) (master, slave *os.File) {
	p.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	p.must(err)
	master = os.NewFile(uintptr(fd), "ptmx")
	p.must(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	p.must(unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size))
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		p.Fatal(errno)
	}
	return master, os.NewFile(peer, "pts")
}

func denyCommand(p *Place) {
	policy := strings.Replace(base, `{`, `{"command": {"deny": ["git push"]}, `, 1)
	// From a file, so that nobody can judge by what was typed.
	p.write(p.project+"/script", "git push 2>&1; env git -C . push 2>&1; git --version\n")
	got := p.run(policy, "sh", "script")
	if strings.Contains(got.stdout, "fatal") {
		p.Errorf("git push ran: %s", got.stdout)
	}
	p.says(got, "git version")
	if got := p.run(base, "sh", "script"); !strings.Contains(got.stdout, "fatal") {
		p.Errorf("control: %q, so the probe shows nothing", got.stdout)
	}
}

// bystander is a process of the host, which is ended at the end.
func (p *Place) bystander() int {
	p.Helper()
	c := exec.Command("sleep", "1000")
	p.must(c.Start())
	p.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c.Process.Pid
}

func seeProcesses(p *Place) {
	const line = `grep -q sleep /proc/"$1"/cmdline`
	p.fails(p.run(base, "sh", "-c", line, "sh", strconv.Itoa(p.bystander())))
	p.works(p.shell(base, `sleep 1000 & until grep -q sleep /proc/$!/cmdline; do :; done; kill $!`))
}

func signalOutside(p *Place) {
	pid := p.bystander()
	p.fails(p.role(base, "kill", strconv.Itoa(pid)))
	p.works(p.role(base, "kill", "0"))
	// Nobody has reaped it, so it would be a zombie.
	if stat := p.read("/proc/" + strconv.Itoa(pid) + "/stat"); strings.Contains(stat, ") Z ") {
		p.Errorf("it was: %q", stat)
	}
}

// patience is how long a failure takes to be told. What holds is seen at once.
const patience = 30 * time.Second

// piped starts a role with a pipe for stdout, in a process group of its own, waits until it
// is ready, and returns the other end, which ends when nobody inside is left.
func (p *Place) piped(args ...string) (*exec.Cmd, *os.File) {
	p.Helper()
	r, w, err := os.Pipe()
	p.must(err)
	p.Cleanup(func() { _ = r.Close() })
	p.must(r.SetReadDeadline(time.Now().Add(patience)))
	c := p.command(base, append([]string{p.program, roleWord}, args...)...)
	c.Stdout, c.Stderr, c.SysProcAttr = w, os.Stderr, &syscall.SysProcAttr{Setpgid: true}
	p.must(c.Start())
	p.must(w.Close())
	buf := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(r, buf); err != nil || string(buf) != "ready\n" {
		_ = c.Process.Kill()
		_ = c.Wait()
		p.Fatalf("control: %q %v", buf, err)
	}
	return c, r
}

// isOver waits until nobody holds the other end of a pipe.
func (p *Place) isOver(r *os.File) {
	p.Helper()
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		p.Errorf("something inside lives on: %v", err)
	}
}

// isHeld says that somebody holds the other end of a pipe.
func (p *Place) isHeld(r *os.File) {
	p.Helper()
	raw, err := r.SyscallConn()
	p.must(err)
	p.must(raw.Control(func(fd uintptr) {
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); n != 0 || err != nil {
			p.Errorf("control: the pipe has ended already, so the probe shows nothing: %v", err)
		}
	}))
}

func endDaemon(p *Place) {
	c, out := p.piped("daemon")
	p.must(c.Wait())
	p.isOver(out)
}

func killBailey(p *Place) { p.killed("stay") }

func killBaileyWithDaemon(p *Place) { p.killed("daemon", "stay") }

func (p *Place) killed(role ...string) {
	p.Helper()
	c, out := p.piped(role...)
	p.isHeld(out)
	p.must(c.Process.Kill())
	_ = c.Wait() // it was killed
	p.isOver(out)
}
