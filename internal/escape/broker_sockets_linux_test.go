package escape

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// callers are the ways to a unix socket in the working directory.
var callers = []struct {
	name string
	way  func(socket string) error
}{
	{"name", connectTo},
	{"absolute path", func(s string) error {
		if len(absolute(s)) > 107 {
			return connectTo("/proc/self/cwd/" + s) // an address has no room for more
		}
		return connectTo(absolute(s))
	}},
	{"dots and slashes", func(s string) error { return connectTo(".//loot/../" + s) }},
	{"link", func(s string) error { return through(s, "l", connectTo) }},
	{"link to the directory", func(s string) error {
		return through(".", "d", func(l string) error { return connectTo(l + "/" + s) })
	}},
	{"hard link", func(s string) error {
		defer os.Remove("h")
		if err := unix.Link(s, "h"); err != nil {
			return err
		}
		return connectTo("h")
	}},
	{"rename", func(s string) error {
		if err := unix.Rename(s, "r"); err != nil {
			return err
		}
		defer unix.Rename("r", s)
		return connectTo("r")
	}},
	{"rename over an own socket", func(s string) error {
		defer os.Remove("own")
		if err := bindTo("own"); err != nil {
			return err
		}
		if err := unix.Link(s, "h"); err != nil {
			return err
		}
		if err := unix.Rename("h", "own"); err != nil {
			return err
		}
		return connectTo("own")
	}},
	{"exchange with an own socket", func(s string) error {
		defer os.Remove("own")
		if err := bindTo("own"); err != nil {
			return err
		}
		if err := swap(s, "own"); err != nil {
			return err
		}
		defer func() { _ = swap(s, "own") }()
		return connectTo("own")
	}},
	{"path descriptor", func(s string) error {
		return onDescriptor(s, func(fd int) error { return connectTo(fmt.Sprintf("/proc/self/fd/%d", fd)) }, unix.O_PATH)
	}},
	{"/proc/self/cwd", func(s string) error { return connectTo("/proc/self/cwd/" + s) }},
	{"/proc/PID/cwd", func(s string) error { return connectTo(fmt.Sprintf("/proc/%d/cwd/%s", os.Getpid(), s)) }},
	{"address that changes", flipAddress},
	{"socket that changes", flipSocket},
	{"socket put in the place of an own one", replaceOwn},
}

func connectTo(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
}

// flipAddress changes an address between one of the attacker's own sockets and
// the victim while it is used.
func flipAddress(socket string) error {
	own := strings.Repeat("o", len(socket))
	defer os.Remove(own)
	fd, err := listenAt(own, 1000)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	flipText("\x01\x00"+own, "\x01\x00"+socket, time.Now().Add(time.Second), func(at uintptr) {
		s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err == nil {
			_, _, _ = unix.Syscall(unix.SYS_CONNECT, uintptr(s), at, uintptr(2+len(own)))
			_ = unix.Close(s)
		}
	})
	return nil
}

// flipSocket changes which socket a descriptor is: one that cannot be used with
// the address, and one that can.
func flipSocket(socket string) error {
	inet, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	used, err := unix.Dup(inet)
	if err != nil {
		return err
	}
	beside(time.Now().Add(time.Second), func() {
		s, _ := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		_ = unix.Dup3(s, used, 0)
		_ = unix.Close(s)
		_ = unix.Dup3(inet, used, 0)
	}, func() { _ = unix.Connect(used, &unix.SockaddrUnix{Name: socket}) })
	return nil
}

// replaceOwn puts the victim in the place of an own socket the moment that is
// made, for whoever remembers it by its name.
func replaceOwn(socket string) error {
	for range 400 {
		_ = create("busy") // until more than one thread answers
	}
	end := time.Now().Add(3 * time.Second)
	n := 0
	beside(end, func() {
		_ = unix.Link(socket, "h")
		_ = unix.Rename("h", "own")
	}, func() {
		_ = unix.Unlink("own")
		_ = bindTo("own")
		if n++; n%100 == 0 {
			_ = connectTo(socket)
		}
	})
	for _, name := range []string{"own", "h", "busy"} {
		_ = os.Remove(name)
	}
	return connectTo(socket)
}

func listenAt(path string, backlog int) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return -1, err
	}
	return fd, unix.Listen(fd, backlog)
}

func init() {
	attacks["call"] = func(args []string) {
		for _, c := range callers {
			if args[1] == "" || args[1] == c.name {
				report(c.name, c.way(args[0]))
			}
		}
	}
	attacks["own-socket"] = func([]string) {
		for _, name := range []string{"own.sock", "./@own", "loot/own.sock", absolute("absolute.sock"), "/tmp/own.sock"} {
			fd, err := listenAt(name, 1)
			report("listen "+name, err)
			if err := connectTo(name); err == nil {
				keep(filepath.Base(name), nil)
			}
			_ = unix.Close(fd)
		}
	}
}

// hostSocket listens in the project. The address has no room for a long path.
func (b *box) hostSocket(l *listeners) {
	b.t.Helper()
	b.t.Chdir(b.project)
	s, err := net.Listen("unix", "host.sock")
	must(b.t, err)
	b.t.Cleanup(func() { _ = s.Close() })
	go accept(l, "host.sock", s)
}

func TestSocketOfTheHostInTheProjectIsNotReached(t *testing.T) {
	b := newBox(t)
	l := listen(t)
	b.hostSocket(l)
	for _, c := range callers {
		t.Run(c.name, func(t *testing.T) {
			b.t = t
			b.attack("call", "host.sock", c.name)
			if got := arrived(t, l, "host.sock"); got > 0 {
				t.Errorf("the sandbox reached the host %d times", got)
			}
			b.free("call", "host.sock", c.name)
			if arrived(t, l, "host.sock") == 0 {
				t.Errorf("control: without a sandbox it is not reached")
			}
		})
	}
	b.t = t
	b.policy = `{"network": {"allowUnixSockets": ["host.sock"]}}`
	b.attack("call", "host.sock", "name")
	if arrived(t, l, "host.sock") == 0 {
		t.Errorf("control: with the grant given it is not reached")
	}
}

// arrived counts connections to the host's socket since it was last asked. They
// are taken in order, so the host makes one more, and waits until that is taken.
func arrived(t *testing.T, l *listeners, name string) int {
	t.Helper()
	c, err := net.Dial("unix", name)
	must(t, err)
	defer c.Close()
	_, _ = c.Read(make([]byte, 1)) // its end, when it was counted
	return l.take()["host.sock"] - 1
}

func TestOwnSocketIsReached(t *testing.T) {
	b := newBox(t)
	for _, policy := range []string{"", `{"network": {"allowAllUnixSockets": true}}`, `{"filesystem": {"denyRead": ["**/*.key"]}}`} {
		b.policy = policy
		b.attack("own-socket")
		b.expectLoot("own.sock", "@own", "absolute.sock")
		for _, name := range []string{"own.sock", "@own", "absolute.sock"} {
			if err := os.Remove(filepath.Join(b.project, name)); err != nil {
				t.Errorf("with policy %q: %v", policy, err)
			}
		}
	}
}

// granted is where a policy allows a socket, and impostors are the ways to bring
// another one there: host.sock, which the working directory has.
const granted = "ok/granted.sock"

var impostors = []struct {
	name string
	way  func()
}{
	{"rename", func() { report("rename", unix.Rename("host.sock", granted)) }},
	{"link", func() { report("link", unix.Link("host.sock", granted)) }},
	{"another spelling first", func() {
		report("rename", unix.Rename("host.sock", "ok/GRANTED.sock"))
		report("rename", unix.Rename("ok/GRANTED.sock", granted))
	}},
	{"exchange", func() {
		report("create", create(granted))
		report("exchange", swap("host.sock", granted))
	}},
	{"link to a descriptor", func() {
		report("link", onDescriptor("host.sock", func(fd int) error {
			return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, granted, unix.AT_SYMLINK_FOLLOW)
		}, unix.O_PATH))
	}},
	{"directory", func() {
		report("link", unix.Link("host.sock", "other/granted.sock"))
		report("rmdir", unix.Rmdir("ok"))
		report("rename", unix.Rename("other", "ok"))
	}},
	{"exchange of directories", func() {
		report("link", unix.Link("host.sock", "other/granted.sock"))
		report("exchange", swap("other", "ok"))
	}},
	{"link to a directory", func() {
		report("link", unix.Link("host.sock", "other/granted.sock"))
		report("rmdir", unix.Rmdir("ok"))
		report("symlink", unix.Symlink("other", "ok"))
	}},
	{"in the place of an own socket", func() {
		report("bind", bindTo("own"))
		report("exchange", swap("own", "host.sock"))
		report("rename", unix.Rename("own", granted))
	}},
	{"in the place of an own socket that is there", func() {
		report("bind", bindTo(granted))
		report("exchange", swap("host.sock", granted))
	}},
	{"own socket that changes", func() {
		report("bind", bindTo("own"))
		end := time.Now().Add(300 * time.Millisecond)
		beside(end, func() { _ = swap("own", "host.sock") }, func() {
			if unix.Rename("own", granted) == nil && connectTo(granted) != nil {
				_ = unix.Rename(granted, "own")
			}
		})
	}},
}

func swap(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

func init() {
	attacks["impose"] = func(args []string) {
		for _, i := range impostors {
			if i.name == args[0] {
				i.way()
			}
		}
		report("connect", connectTo(granted))
	}
	// A socket of one's own may be given every name, and so may every other file.
	attacks["rename-own"] = func([]string) {
		fd, err := listenAt("own", 1)
		report("listen", err)
		defer unix.Close(fd)
		report("link", unix.Link("own", "ok/linked.sock"))
		report("create", create("file"))
		report("rename", unix.Rename("file", granted))
		report("rename", unix.Rename("own", granted))
		for _, name := range []string{granted, "ok/linked.sock"} {
			if err := connectTo(name); err == nil {
				keep(filepath.Base(name), nil)
			}
		}
	}
	// reconnect connects again when the first connection has ended.
	attacks["reconnect"] = func([]string) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		report("socket", err)
		report("connect", unix.Connect(fd, &unix.SockaddrUnix{Name: granted}))
		_, _ = unix.Read(fd, make([]byte, 1))
		if err := connectTo(granted); err == nil {
			keep("again", nil)
		}
	}
}

func TestNoOtherSocketGetsTheNameOfAnAllowedOne(t *testing.T) {
	b := newBox(t)
	l := listen(t)
	b.hostSocket(l)
	must(t, os.Link("host.sock", "spare.sock"))
	anew := func() {
		for _, name := range []string{"ok", "other", "own", "host.sock"} {
			must(t, os.RemoveAll(name))
		}
		must(t, errors.Join(os.Mkdir("ok", 0o755), os.Mkdir("other", 0o755), os.Link("spare.sock", "host.sock")))
	}
	for _, i := range impostors {
		t.Run(i.name, func(t *testing.T) {
			b.t = t
			for _, b.policy = range []string{
				`{"network": {"allowUnixSockets": ["` + granted + `"]}}`,
				`{"network": {"allowUnixSockets": ["ok/"]}, "filesystem": {"protectMissing": false}}`,
				`{"network": {"allowUnixSockets": ["**/granted.s*"]}, "filesystem": {"protectMissing": false}}`,
			} {
				anew()
				b.attack("impose", i.name)
				if got := arrived(t, l, "spare.sock"); got > 0 {
					t.Errorf("with %s the sandbox reached the host %d times", b.policy, got)
				}
			}
			anew()
			b.free("impose", i.name)
			if arrived(t, l, "spare.sock") == 0 {
				t.Errorf("control: without a sandbox it is not reached")
			}
		})
	}
}

func TestAllowedSocketMayBeMadeAnew(t *testing.T) {
	b := newBox(t)
	b.policy = `{"network": {"allowUnixSockets": ["ok/"]}}`
	must(t, os.Mkdir(b.project+"/ok", 0o755))
	b.attack("rename-own")
	b.expectLoot("granted.sock", "linked.sock")

	t.Chdir(b.project)
	must(t, os.RemoveAll("ok"))
	must(t, os.Mkdir("ok", 0o755))
	first, err := net.Listen("unix", granted)
	must(t, err)
	t.Cleanup(func() { _ = first.Close() })
	go func() {
		c, err := first.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = first.Close() // and its file is removed
		if again, err := net.Listen("unix", granted); err == nil {
			t.Cleanup(func() { _ = again.Close() })
		}
	}()
	b.attack("reconnect")
	b.expectLoot("again")
}

func init() {
	// crowd blocks calls of every kind that can block, and then works on.
	attacks["crowd"] = func([]string) {
		listener, err := listenAt("full.sock", 0)
		report("listen", err)
		defer unix.Close(listener)
		for range 8 {
			go func() {
				runtime.LockOSThread()
				s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
				if err == nil {
					_ = unix.Connect(s, &unix.SockaddrUnix{Name: "full.sock"})
				}
			}()
		}
		report("mkfifo", unix.Mkfifo("pipe", 0o644))
		for _, flags := range []int{unix.O_WRONLY, unix.O_WRONLY, unix.O_WRONLY} {
			go func() {
				runtime.LockOSThread()
				_, _ = unix.Open("pipe", flags, 0)
			}()
		}
		time.Sleep(300 * time.Millisecond)
		keep("worked", nil)
		_ = os.Remove("full.sock")
		_ = os.Remove("pipe")
	}
	// flood makes many threads ask at once.
	attacks["flood"] = func([]string) {
		var all sync.WaitGroup
		for i := range 2000 {
			all.Add(1)
			go func() {
				defer all.Done()
				runtime.LockOSThread()
				report("create", create(fmt.Sprintf("loot/%d", i)))
			}()
		}
		all.Wait()
	}
	// orphans are killed while their calls wait.
	attacks["orphans"] = func(args []string) {
		report("mkfifo", unix.Mkfifo("pipe", 0o644))
		var children []*os.Process
		for range 60 {
			c, err := os.StartProcess("/proc/self/exe", []string{"", "attack", "open-pipe"}, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
			if err == nil {
				children = append(children, c)
			}
		}
		time.Sleep(500 * time.Millisecond)
		for i := range 50 {
			_ = bindTo(fmt.Sprintf("s%d", i))
			_ = os.Remove(fmt.Sprintf("s%d", i))
		}
		unix.Umask(0o77)
		_ = create("file")
		if len(args) == 0 {
			return // they end with the sandbox
		}
		for _, c := range children {
			_ = c.Kill()
			_, _ = c.Wait()
		}
		time.Sleep(300 * time.Millisecond)
		// Nobody writes any more, so a reader that does not wait meets nobody.
		fd, err := unix.Open("pipe", unix.O_RDONLY|unix.O_NONBLOCK, 0)
		report("open", err)
		time.Sleep(100 * time.Millisecond)
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, _ := unix.Poll(fds, 0); n > 0 {
			keep("ghost", nil)
		}
		for range 3 {
			go func() { _, _ = unix.Open("pipe", unix.O_RDONLY, 0) }()
			fd, err := unix.Open("pipe", unix.O_WRONLY, 0)
			if err == nil {
				keep("opened", nil)
				_ = unix.Close(fd)
			}
		}
	}
	attacks["open-pipe"] = func([]string) { _, _ = unix.Open("pipe", unix.O_WRONLY, 0) }
}

func TestCallsThatBlockStopNobody(t *testing.T) {
	b := newBox(t)
	b.within(2*time.Minute, func(c *bailey.Cmd) {}, "crowd")
	b.expectLoot("worked")
}

func TestManyThreadsAskAtOnce(t *testing.T) {
	b := newBox(t)
	b.within(2*time.Minute, func(c *bailey.Cmd) {}, "flood")
	if n := len(b.looted()); n != 2000 {
		t.Errorf("got %d files, want 2000", n)
	}
}

// within runs an attack that must end by itself in time.
func (b *box) within(limit time.Duration, started func(*bailey.Cmd), name string, args ...string) {
	b.t.Helper()
	c := b.command(append([]string{b.program, "attack", name}, args...)...)
	must(b.t, c.Start())
	started(c)
	timer := time.AfterFunc(limit, func() {
		b.t.Errorf("%s hangs", name)
		_ = c.Kill()
	})
	_ = c.Wait()
	timer.Stop()
}

func TestKilledCallersLeaveNothing(t *testing.T) {
	b := newBox(t)
	b.within(2*time.Minute, func(*bailey.Cmd) {}, "orphans", "kill")
	got := b.looted()
	if _, ok := got["ghost"]; ok {
		t.Errorf("a call of a killed process was performed")
	}
	if _, ok := got["opened"]; !ok {
		t.Errorf("a pipe can no longer be opened")
	}
	must(t, os.Remove(b.project+"/pipe"))

	// In the program that launches, neither descriptors nor threads are left.
	var before [2]int
	for i := range 3 {
		b.within(2*time.Minute, func(*bailey.Cmd) {}, "orphans")
		must(t, os.Remove(b.project+"/pipe"))
		now := settled()
		if i > 0 && (now[0] > before[0]+5 || now[1] > before[1]+10) {
			t.Errorf("after command %d: got %d descriptors and %d threads, want about %v", i+1, now[0], now[1], before)
		}
		if i == 0 {
			before = now
		}
	}
}

// settled counts this process's descriptors and threads when they have stopped
// to become fewer.
func settled() (now [2]int) {
	count := func(dir string) int { entries, _ := os.ReadDir(dir); return len(entries) }
	for last := [2]int{1 << 30}; now[0] < last[0] || now[1] < last[1]; time.Sleep(300 * time.Millisecond) {
		if now != [2]int{} {
			last = now
		}
		now = [2]int{count("/proc/self/fd"), count("/proc/self/task")}
	}
	return now
}

func TestStoppedCallersStopNobody(t *testing.T) {
	b := newBox(t)
	b.within(15*time.Second, func(*bailey.Cmd) {}, "stopped")
	b.expectLoot("worked")
}

func init() {
	// ask-stopped makes a directory when it is told to, and says when the call waits.
	attacks["ask-stopped"] = func([]string) {
		report("warm", os.Mkdir("loot/before", 0o755))
		fmt.Println("ready")
		_, _ = os.Stdin.Read(make([]byte, 1))
		thread, done := make(chan int), make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			thread <- unix.Gettid()
			report("mkdir", unix.Mkdirat(unix.AT_FDCWD, "loot/asked", 0o755))
		}()
		file := fmt.Sprintf("/proc/self/task/%d/syscall", <-thread)
		call := fmt.Sprintf("%d ", unix.SYS_MKDIRAT)
		for waits := false; !waits; {
			select {
			case <-done:
				return
			default:
			}
			now, _ := os.ReadFile(file)
			waits = strings.HasPrefix(string(now), call)
		}
		fmt.Println("waits")
		<-done
	}
}

// A broker that is stopped lets nothing pass, and what waits for it happens when it
// goes on.
func TestCallWaitsForAStoppedBroker(t *testing.T) {
	b := newBox(t)
	c := b.cli("-q", "--", b.program, "attack", "ask-stopped")
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	defer func() { _ = c.Process.Kill() }()
	lines := bufio.NewScanner(out)
	until := func(want string) {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == want {
				return
			}
		}
		t.Fatalf("the command never said %q", want)
	}
	until("ready")
	must(t, c.Process.Signal(syscall.SIGSTOP))
	_, err = unix.Wait4(c.Process.Pid, nil, unix.WUNTRACED, nil) // until all of it has stopped
	must(t, err)
	must(t, in.Close())
	until("waits")
	if _, err := os.Stat(b.project + "/loot/asked"); err == nil {
		t.Errorf("the call was performed while the broker was stopped")
	}
	must(t, c.Process.Signal(syscall.SIGCONT))
	until("mkdir: done")
	must(t, c.Wait())
	for _, name := range []string{"before", "asked"} {
		if _, err := os.Stat(b.project + "/loot/" + name); err != nil {
			t.Error(err)
		}
	}
}

func init() {
	attacks["stopped"] = func([]string) {
		var children []*os.Process
		for range 20 {
			c, err := os.StartProcess("/proc/self/exe", []string{"", "attack", "busy"}, &os.ProcAttr{})
			if err == nil {
				children = append(children, c)
			}
		}
		for range 50 {
			for _, c := range children {
				_ = c.Signal(syscall.SIGSTOP)
			}
			report("create", create("while-stopped"))
			for _, c := range children {
				_ = c.Signal(syscall.SIGCONT)
			}
		}
		for _, c := range children {
			_ = c.Kill()
			_, _ = c.Wait()
		}
		keep("worked", nil)
	}
	attacks["busy"] = func([]string) {
		for i := 0; ; i++ {
			_ = create(fmt.Sprintf("busy-%d", os.Getpid()))
		}
	}
}
