package oci

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"

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
	list, err := take(sources, program, userns)
	if err != nil {
		return err
	}
	return (&furnisher{dir: dir, id: id}).furnish(list)
}

// Listen makes the socket of the network gate among the sources of a bundle.
func Listen(dir string) (int, error) { return listen(dir) }

// First is a command for RunFirst.
type First struct {
	Exec, Argv, Env []string
	Dir             string
	// Stream is the one that is the command's terminal, or -1.
	Stream int
}

// RunFirst is the first process of such a container. It tells what becomes of the
// command by writing to a file.
func RunFirst(status *os.File, c First) int {
	if status.Fd() != statusFD {
		if err := unix.Dup3(int(status.Fd()), statusFD, unix.O_CLOEXEC); err != nil {
			return 1
		}
	}
	return (&first{stream: c.Stream, exec: c.Exec, argv: c.Argv, env: c.Env, dir: c.Dir, relayed: true}).run()
}

// Told is all that a first process has told so far.
type Told struct {
	Started bool
	Failed  unix.Errno // 0, or why the command could not be executed
	Ended   bool
	Wait    unix.WaitStatus // how it ended
}

// ReadTold reads what a first process has told.
func ReadTold(data []byte) (t Told) {
	for ; len(data) >= toldSize; data = data[toldSize:] {
		switch what := binary.NativeEndian.Uint64(data); {
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
