package keeper

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/peer"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

const socketName = "keeper.sock"

// Site is where a keeper's socket is: a directory that holds it alone.
type Site struct {
	dir     string
	program string // that is started as the keeper; baileyd beside this one if empty
}

// Own is the site of the user's keeper.
func Own() Site { return Site{dir: sandbox.RuntimeDir()} }

// At is the site of a keeper for another purpose, whose sandboxes are none of the
// user's other programs'. Program is started as the keeper if there is none; if it
// is empty, baileyd beside this program.
func At(dir, program string) Site { return Site{dir, program} }

// place is the directory, opened, so that nobody can exchange it any more and
// the socket's name fits into an address however long the path is.
type place struct {
	dir  *os.File
	site Site
}

// open opens the directory, and makes it if it is missing.
func (s Site) open() (*place, error) {
	for range 5 { // a keeper that ends removes it
		if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("the directory of the keeper's socket: %w", err)
		}
		if p, err := s.find(); p != nil || err != nil {
			return p, err
		}
	}
	return nil, &os.PathError{Op: "open", Path: s.dir, Err: unix.ENOENT}
}

// find opens the directory, or returns nil if it is missing. Others could wait in
// a directory of theirs for what is sent here.
func (s Site) find() (*place, error) {
	name := s.dir
	fd, err := unix.Open(name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_RDONLY, 0)
	if err == unix.ENOENT {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	p := &place{os.NewFile(uintptr(fd), name), s}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		p.close()
		return nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		p.close()
		return nil, fmt.Errorf("%s: others can write to it, or it belongs to somebody else; remove it, or set XDG_RUNTIME_DIR", name)
	}
	return p, nil
}

func (p *place) close() { _ = p.dir.Close() }

func (p *place) address() unix.Sockaddr {
	return &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(int(p.dir.Fd())) + "/" + socketName}
}

// connect returns a connection, or nil if nobody listens.
func (p *place) connect() (*conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	// The kernel then says who sends each message; see checkHello.
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	if err == nil {
		limit := unix.NsecToTimeval(silence.Nanoseconds())
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit)
	}
	for err == nil {
		err = unix.Connect(fd, p.address())
		if !errors.Is(err, unix.EINTR) {
			break
		}
		err = nil
	}
	c := &conn{file: os.NewFile(uintptr(fd), "keeper"), site: &p.site}
	switch {
	case err == nil:
		return c, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		err = nil
	case errors.Is(err, unix.EAGAIN):
		err = c.silent() // as many as may wait do already
	default:
		err = os.NewSyscallError("connect", err)
	}
	c.close()
	return nil, err
}

// backlog is how many clients wait to be served before others wait to connect.
const backlog = 128

// listen makes the socket. The caller holds the lock, and has found that nobody
// listens at an old one.
func (p *place) listen() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Unlinkat(int(p.dir.Fd()), socketName, 0); err != nil && err != unix.ENOENT {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("unlink", err)
	}
	// The directory keeps others out before the mode does.
	if err = unix.Bind(fd, p.address()); err == nil {
		err = unix.Fchmodat(int(p.dir.Fd()), socketName, peer.Mode, 0)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return os.NewFile(uintptr(fd), "keeper"), nil
}

// lock waits until nobody else starts a keeper here, or ends one. Closing the
// directory unlocks.
func (p *place) lock() error {
	for {
		if err := unix.Flock(int(p.dir.Fd()), unix.LOCK_EX); err != unix.EINTR {
			return os.NewSyscallError("flock", err)
		}
	}
}

// remove removes the socket and the directory, if nothing else is in it. The
// caller holds the lock.
func (p *place) remove() {
	_ = unix.Unlinkat(int(p.dir.Fd()), socketName, 0) // a new keeper would remove it too
	_ = unix.Rmdir(p.dir.Name())
}

// fdListener is where a new keeper finds its socket.
const fdListener = 3

// start starts a keeper, unless another client was faster. The socket accepts
// connections before the keeper runs. The place is of no use afterwards.
func (p *place) start() error {
	program := p.site.program
	if program == "" {
		program = host.Beside("baileyd")
	}
	if program == "" {
		return errors.New("there is no program baileyd beside bailey: resident sandboxes need it; install it there")
	}
	if err := p.lock(); err != nil {
		return err
	}
	if c, err := p.connect(); c != nil || err != nil {
		if c != nil {
			c.close()
		}
		return err
	}
	listener, err := p.listen()
	if errors.Is(err, unix.ENOENT) {
		return nil // the directory was removed by a keeper that ended; try again
	}
	if err != nil {
		return err
	}
	defer listener.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	n := null.Fd()
	_, err = syscall.ForkExec(program, p.site.argv(program), &syscall.ProcAttr{
		Dir: "/", Env: environment(), Files: []uintptr{n, n, n, listener.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	return nil
}

// argv is what a keeper for the site is started with.
func (s Site) argv(program string) []string {
	if s.dir == sandbox.RuntimeDir() {
		return []string{program, "keeper"}
	}
	return []string{program, "keeper", s.dir}
}

// environment is what the keeper needs to find its places. It has no use for
// secrets.
func environment() []string {
	var env []string
	for _, name := range []string{"HOME", "PATH", "USER", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "GOTRACEBACK"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
