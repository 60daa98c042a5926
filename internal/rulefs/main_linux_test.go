package rulefs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
	"github.com/bailey-sandbox/bailey/internal/rulefs/views"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// The tests run in a process without capabilities, as a sandbox is. Mounts are
// attached for it by another one in the same namespaces, which has them, and the
// servers are started by a third outside of those.
const (
	stage    = "BAILEY_RULEFS_STAGE"
	without  = "without namespaces"
	fdSpawn  = 3
	fdAttach = 4
)

func TestMain(m *testing.M) {
	watchedTimeout = time.Hour // so that what shows a change is that it was told
	searchPause = 0
	if is, err := Main(os.Args[1:]); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	switch os.Getenv(stage) {
	case "":
		os.Exit(enter())
	case "1":
		_ = os.Setenv(stage, "2")
		os.Exit(attachFor())
	}
	unix.CloseOnExec(fdSpawn)
	unix.CloseOnExec(fdAttach)
	os.Exit(m.Run())
}

// enter runs the tests in namespaces of their own, and starts servers for them.
func enter() int {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return exitOf(err)
	}
	go spawnFor(pair[0])
	self := exec.Command("/proc/self/exe", os.Args[1:]...)
	self.Env = append(os.Environ(), stage+"=1")
	self.ExtraFiles = []*os.File{os.NewFile(uintptr(pair[1]), "spawn")}
	self.Stdin, self.Stdout, self.Stderr = os.Stdin, os.Stdout, os.Stderr
	uid, gid := os.Geteuid(), os.Getegid()
	runtime.LockOSThread() // the kernel means the thread
	self.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig:   syscall.SIGKILL,
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
	}
	if uid == 0 {
		self.SysProcAttr.UidMappings[0].Size, self.SysProcAttr.GidMappings[0].Size = 65536, 65536
	} else {
		self.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	if err := self.Start(); err != nil {
		// Without namespaces they say so.
		self = exec.Command("/proc/self/exe", os.Args[1:]...)
		self.Env = append(os.Environ(), stage+"="+without)
		self.Stdout, self.Stderr = os.Stdout, os.Stderr
		return exitOf(self.Run())
	}
	return exitOf(self.Wait())
}

// spawnFor starts a server for each message.
func spawnFor(socket int) {
	for {
		var a views.Answer
		if _, err := views.Receive(socket, &a); err != nil {
			return
		}
		file, process, err := views.Spawn("/proc/self/exe")
		if err != nil {
			_ = views.Send(socket, views.Answer{Error: err.Error()}, nil)
			continue
		}
		go func() { _, _ = process.Wait() }()
		_ = views.Send(socket, a, unix.UnixRights(int(file.Fd())))
		_ = file.Close()
	}
}

func newServer(t testing.TB) *views.Server {
	t.Helper()
	testenv.Requires(t, testenv.FUSE)
	if os.Getenv(stage) == without {
		t.Skip(testenv.SkipPrefix + testenv.UserNamespaces.String())
	}
	if err := views.Send(fdSpawn, views.Answer{}, nil); err != nil {
		t.Fatal(err)
	}
	var a views.Answer
	fd, err := views.Receive(fdSpawn, &a)
	if err != nil || a.Error != "" {
		t.Fatal(err, a.Error)
	}
	s, err := views.Connect(os.NewFile(uintptr(fd), "views"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func exitOf(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// attachment is a mount to be attached, or detached where none comes with it.
type attachment struct{ At string }

// attachFor starts the tests and attaches mounts for them.
func attachFor() int {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return exitOf(err)
	}
	dir, _ := os.Getwd()
	tests, err := startPlain(append([]string{os.Args[0]}, os.Args[1:]...), []*os.File{
		os.Stdin, os.Stdout, os.Stderr, os.NewFile(fdSpawn, "spawn"), os.NewFile(uintptr(pair[1]), "attach"),
	}, dir)
	if err != nil {
		return exitOf(err)
	}
	_, _ = unix.Close(pair[1]), unix.Close(fdSpawn)
	go func() {
		for {
			var a attachment
			fd, err := views.Receive(pair[0], &a)
			if err != nil {
				return
			}
			if fd < 0 {
				err = unix.Unmount(a.At, unix.MNT_DETACH)
			} else {
				err = unix.MoveMount(fd, "", unix.AT_FDCWD, a.At, unix.MOVE_MOUNT_F_EMPTY_PATH)
				_ = unix.Close(fd)
			}
			var answer views.Answer
			if err != nil {
				answer.Error = err.Error()
			}
			_ = views.Send(pair[0], answer, nil)
		}
	}()
	state, err := tests.Wait()
	if err != nil {
		return exitOf(err)
	}
	return state.ExitCode()
}

var attaching sync.Mutex

// attach attaches a mount, or with nil detaches what is there.
func attach(t testing.TB, mount *os.File, at string) {
	t.Helper()
	attaching.Lock()
	defer attaching.Unlock()
	var rights []byte
	if mount != nil {
		rights = unix.UnixRights(int(mount.Fd()))
	}
	if err := views.Send(fdAttach, attachment{at}, rights); err != nil {
		t.Fatal(err)
	}
	var a views.Answer
	if _, err := views.Receive(fdAttach, &a); err != nil || a.Error != "" {
		t.Fatal(err, a.Error)
	}
}

// world is a directory of the host and a view of it.
type world struct {
	host, mnt string
	view      *views.View
	server    *views.Server
}

// newWorld shows a new directory under rules. It skips where there is no FUSE.
func newWorld(t testing.TB, rules ...pathrule.Rule) *world {
	t.Helper()
	w := &world{host: t.TempDir(), server: newServer(t)}
	w.mnt, w.view = w.show(t, rules...)
	return w
}

// show makes a view of the directory and attaches it.
func (w *world) show(t testing.TB, rules ...pathrule.Rule) (string, *views.View) {
	t.Helper()
	dir, err := os.Open(w.host)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	view, err := w.server.Open(dir, [][]pathrule.Rule{rules})
	if err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	attach(t, view.Mount, at)
	t.Cleanup(func() {
		attach(t, nil, at)
		view.Close()
	})
	return at, view
}

// put writes files of the host: names with a slash at the end are directories.
func (w *world) put(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		p := filepath.Join(w.host, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if name[len(name)-1] == '/' {
			err = os.MkdirAll(p, 0o755)
		} else {
			err = os.WriteFile(p, []byte("content of "+name), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) in(name string) string { return filepath.Join(w.mnt, name) }

func (w *world) out(name string) string { return filepath.Join(w.host, name) }

func rule(pattern string, p pathrule.Permission) pathrule.Rule {
	return pathrule.Rule{Pattern: pattern, Permission: p}
}
