package oci

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/landlock"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// What follows is for an engine that has a daemon make the container: the same sources and
// the same first process, but no descriptor can be handed to it.

// InitPath is where the program of the first process is, inside.
const InitPath = initPath

// Furnish makes the sources of a bundle, and the program of its first process, in a
// directory that is there and empty, and which nobody but root can enter. Only root can
// do it.
func Furnish(dir string, sources []Source, id Identity) error {
	userns, err := exchange(id)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(userns) }()
	program, err := ownProgram()
	if err != nil {
		return err
	}
	list, err := take(sources, nil, program, userns)
	if err != nil {
		return err
	}
	return (&furnisher{dir: dir, id: id}).furnish(list)
}

// Listen makes the socket of the network gate among the sources of a bundle.
func Listen(dir string) (int, error) { return listen(dir, gateName) }

// doorName is, among the sources, the socket by which a listener goes out.
const doorName = "door"

// Door is where that is in a directory that was furnished.
func Door(dir string) string { return filepath.Join(dir, sourceName, doorName) }

// ListenAtDoor makes it.
func ListenAtDoor(dir string) (int, error) { return listen(dir, doorName) }

// leaveName is, among the sources, the socket by which the first process is told that it may
// start the command, and that it may go on.
const leaveName = "leave"

// Leave is where that is in a directory that was furnished.
func Leave(dir string) string { return filepath.Join(dir, sourceName, leaveName) }

// ListenForLeave makes it.
func ListenForLeave(dir string) (int, error) { return listen(dir, leaveName) }

// GiveLeave lets the first process go on, which has connected to the socket or will, for as
// long as this process lives. Nobody else is let in.
func GiveLeave(socket int) error {
	defer func() { _ = unix.Close(socket) }()
	conn, _, err := unix.Accept4(socket, unix.SOCK_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("accept", err)
	}
	_, _ = unix.Write(conn, []byte{1}) // it may be gone
	return nil                         // the kernel closes the connection when this process ends, however it does
}

// AwaitLeave waits for that, by the socket as it is shown inside. When whoever gave leave is
// gone, this process ends, and with it its whole process namespace.
func AwaitLeave(at string) error {
	conn, err := ask(at, nil, "nobody gave leave to start the command")
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(conn) }()
	// Above the descriptors that RunFirst arranges.
	high, err := unix.FcntlInt(uintptr(conn), unix.F_DUPFD_CLOEXEC, statusFD+1)
	if err == nil {
		err = unix.SetNonblock(high, true) // or the wait would be a thread, which limits count
	}
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(uintptr(high), at)
	go func() {
		_, _ = f.Read(make([]byte, 1)) // nothing more is said
		os.Exit(1)                     //nolint:forbidigo // the kernel ends everything inside with it, and nobody is left to tell
	}()
	return nil
}

// ask sends something to a socket outside, or nothing, waits for the answer, and returns the
// connection.
func ask(at string, rights []byte, unanswered string) (int, error) {
	conn, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	err = os.NewSyscallError("connect", unix.Connect(conn, &unix.SockaddrUnix{Name: at}))
	if err == nil && rights != nil {
		err = os.NewSyscallError("sendmsg", unix.Sendmsg(conn, []byte{1}, rights, nil, unix.MSG_NOSIGNAL))
	}
	if err == nil {
		if n, _, failed := Receive(conn, make([]byte, 1), nil); failed != nil || n == 0 {
			err = errors.New(unanswered)
		}
	}
	if err != nil {
		_ = unix.Close(conn)
		return -1, err
	}
	return conn, nil
}

// WallsOf are the walls that a command under a runtime puts up around itself, or nil.
func WallsOf(s *spec.Spec, runtime string) (*landlock.Walls, error) { return wallsOf(s, runtime) }

// ReceiveListener takes the listener that the first process sends through the door, and
// who that is. It must be answered, once whoever attends to it is told: see AnswerDoor.
func ReceiveListener(conn int) (fd int, from *unix.Ucred, err error) {
	if from, err = unix.GetsockoptUcred(conn, unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
		return -1, nil, os.NewSyscallError("getsockopt", err)
	}
	rights := make([]byte, unix.CmsgSpace(4))
	_, rn, err := Receive(conn, make([]byte, 1), rights)
	if err != nil {
		return -1, nil, err
	}
	fds, err := Descriptors(rights[:rn])
	if err != nil || len(fds) != 1 {
		return -1, nil, errors.New("the first process sent no listener")
	}
	return fds[0], from, nil
}

// AnswerDoor lets the first process go on.
func AnswerDoor(conn int) {
	_, _ = unix.Write(conn, []byte{1}) // it may be gone
	_ = unix.Close(conn)
}

// sendThroughDoor hands out a listener, closes it, and waits until that is known where the
// command's end will be told.
func sendThroughDoor(door string, fd int) error {
	defer func() { _ = unix.Close(fd) }()
	conn, err := ask(door, unix.UnixRights(fd), "nobody attends to the listener")
	if err == nil {
		_ = unix.Close(conn)
	}
	return err
}

// First is a command for RunFirst.
type First struct {
	Exec, Argv, Env []string
	Dir             string
	// Stream is the one that is the command's terminal, or -1.
	Stream int
	// Walls are what the command puts up around itself, and Door the socket inside through
	// which their listener goes out.
	Walls *landlock.Walls
	Door  string
	// Lingers says that the first process is to stay when the command has ended, until
	// somebody ends it who has looked at what it used.
	Lingers bool
}

// RunFirst is the first process of such a container. It tells what becomes of the
// command by writing to a file.
func RunFirst(status *os.File, c First) int {
	if status.Fd() != statusFD {
		if err := unix.Dup3(int(status.Fd()), statusFD, unix.O_CLOEXEC); err != nil {
			return 1
		}
	}
	code := (&first{
		stream: c.Stream, exec: c.Exec, argv: c.Argv, env: c.Env, dir: c.Dir, relayed: true,
		walled: c.Walls != nil, walls: c.Walls, listen: func(fd int) error { return sendThroughDoor(c.Door, fd) },
	}).run()
	for c.Lingers {
		_ = unix.Pause()
	}
	return code
}

// Told is all that a first process has told so far.
type Told struct {
	Started bool
	Failed  unix.Errno // 0, or why the command could not be executed
	Refused string     // or why a wall could not be put up
	Ended   bool
	Wait    unix.WaitStatus // how it ended
	Used    *unix.Rusage    // by processes that it has waited for; nil if that is not told
}

// IsOver says whether there is no command, or will be none.
func (t *Told) IsOver() bool { return t.Ended || t.Failed != 0 || t.Refused != "" }

// ReadTold reads what a first process has told.
func ReadTold(data []byte) (t Told) {
	for ; len(data) >= toldSize; data = data[toldSize:] {
		switch what := binary.NativeEndian.Uint64(data); {
		case what&toldRefused != 0:
			rest := data[toldSize:]
			t.Refused = string(rest[:min(int(what&^toldRefused), len(rest))])
			return t // it is the last
		case what == toldUsed && len(data) >= toldSize*(usedWords+1):
			t.Used = usedIn(data[toldSize:])
			data = data[toldSize*usedWords:]
		case what&toldFailed != 0:
			t.Failed = unix.Errno(what &^ toldFailed)
		case what&toldStarted != 0:
			t.Started = true
		case what < toldStarted:
			ws := unix.WaitStatus(what)
			if ws.Exited() || ws.Signaled() {
				t.Ended, t.Wait = true, ws
			}
		}
	}
	return t
}

// Noexec says whether nothing may be executed from a mount of a Spec.
func Noexec(s *spec.Spec, m *spec.Mount) bool { return executing(s, m) == "noexec" }
