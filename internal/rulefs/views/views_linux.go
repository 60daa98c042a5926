package views

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
)

// Server is the process that serves the views of one keeper.
type Server struct {
	done chan struct{}

	mu     sync.Mutex // held from a request to its answer
	socket *os.File   // nil once it is closed
}

// ErrNoFUSE says that this user cannot have views on this machine.
var ErrNoFUSE = errors.New("path permissions with patterns need FUSE: /dev/fuse is missing, or this user may not open it; as root: modprobe fuse && chmod 666 /dev/fuse")

// Start starts a program as the server: "PROGRAM rulefs". It lives in namespaces
// of its own for users and mounts, and ends with this process.
func Start(program string) (*Server, error) {
	socket, process, err := Spawn(program)
	if err != nil {
		return nil, err
	}
	s, err := Connect(socket)
	if err != nil {
		_, _ = process.Wait() // its socket is closed
		return nil, err
	}
	go func() {
		_, _ = process.Wait()
		close(s.done)
	}()
	return s, nil
}

// Spawn starts the program, and returns the socket it is asked by. It ends when
// that is closed.
func Spawn(program string) (*os.File, *os.Process, error) {
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, ErrNoFUSE
	}
	_ = unix.Close(fuse)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "views"), os.NewFile(uintptr(pair[1]), "views")
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		_ = ours.Close()
		return nil, nil, err
	}
	defer null.Close()
	process, err := os.StartProcess(program, []string{program, "rulefs"}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, null, null, theirs}, Sys: attributes(),
	})
	if err != nil {
		_ = ours.Close()
		return nil, nil, fmt.Errorf("start %s: %w", program, err)
	}
	return ours, process, nil
}

// Connect returns the server at the other end of a socket, which it takes over.
func Connect(socket *os.File) (*Server, error) {
	s := &Server{done: make(chan struct{}), socket: socket}
	// The first thing it says is whether it could mount.
	if err := s.answer(nil); err != nil {
		_ = socket.Close()
		return nil, err
	}
	return s, nil
}

// attributes give the server namespaces in which every id is what it is here, and
// the capabilities that it begins with and mostly drops.
func attributes() *syscall.SysProcAttr {
	uid, gid := os.Geteuid(), os.Getegid()
	sys := &syscall.SysProcAttr{
		Setsid:      true,
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
	}
	if uid == 0 {
		sys.UidMappings, sys.GidMappings = sameIDs("/proc/self/uid_map"), sameIDs("/proc/self/gid_map")
		return sys
	}
	sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_DAC_OVERRIDE}
	return sys
}

// sameIDs maps all ids that exist in this namespace to themselves.
func sameIDs(file string) (list []syscall.SysProcIDMap) {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 {
			return nil
		}
		first, _ := strconv.Atoi(fields[0])
		size, _ := strconv.Atoi(fields[2])
		list = append(list, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: size})
	}
	return list
}

// Done is closed when the process has ended.
func (s *Server) Done() <-chan struct{} { return s.done }

// Close ends the process. Whoever still uses a view gets errors.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.socket != nil {
		_ = s.socket.Close()
		s.socket = nil
	}
}

// View is a directory under rules.
type View struct {
	// Mount is the view as a detached mount, which can be attached once.
	Mount *os.File

	server *Server
	name   string
}

// Open makes a view of a directory. Of each path the least is permitted that any
// of the lists does.
func (s *Server) Open(dir *os.File, rules [][]pathrule.Rule) (*View, error) {
	v := &View{server: s, name: rand.Text()}
	var mount int
	if err := s.ask(&Request{Kind: KindOpen, View: v.name, Rules: rules}, dir, &mount); err != nil {
		return nil, err
	}
	v.Mount = os.NewFile(uintptr(mount), "view")
	return v, nil
}

// Change gives the view other rules. When it returns they hold, also for what is
// open and mapped.
func (v *View) Change(rules [][]pathrule.Rule) error {
	return v.server.ask(&Request{Kind: KindChange, View: v.name, Rules: rules}, nil, nil)
}

// Close ends the view. Whoever still uses it gets errors.
func (v *View) Close() {
	_ = v.Mount.Close()
	// If the server has gone, so has the view.
	_ = v.server.ask(&Request{Kind: KindClose, View: v.name}, nil, nil)
}

func (s *Server) ask(r *Request, file *os.File, got *int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.socket == nil {
		return errGone
	}
	if err := send(int(s.socket.Fd()), *r, file); err != nil {
		return errGone
	}
	return s.answer(got)
}

var errGone = errors.New("the process that shows files under path permissions has ended")

// answer waits for what is said to a request.
func (s *Server) answer(got *int) error {
	var a Answer
	fd, err := Receive(int(s.socket.Fd()), &a)
	if err != nil {
		return errGone
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	if got == nil || fd < 0 {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		if got != nil {
			return errGone
		}
		return nil
	}
	*got = fd
	return nil
}
