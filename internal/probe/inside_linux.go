package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// InsideWord is the argument of the verb that makes the program the prober.
const InsideWord = "inside"

// program is where the sandbox shows the prober, in its private root directory.
const program = "/.bailey-audit"

// Argv is the command that an audit runs.
func Argv() []string { return []string{program, "-q", "audit", InsideWord} }

// Inside is the prober. It must run in a sandbox: nothing here asks whether an
// attack is stopped. With an argument it is one of the prober's children.
func Inside(args []string) int {
	if len(args) > 0 {
		return child(args[0])
	}
	if err := carryOut(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func carryOut() error {
	text, err := readAll(0)
	if err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	outcomes := make([]outcome, len(p.Attempts))
	for i := range p.Attempts {
		outcomes[i] = p.perform(&p.Attempts[i])
	}
	text, err = json.Marshal(outcomes)
	if err != nil {
		return err
	}
	return writeAll(1, text)
}

// perform tries one thing. A switch and not a table: every start of Bailey
// would pay for laying that out.
func (p *plan) perform(a *attempt) outcome {
	path, to := string(a.Path), string(a.To)
	switch a.Op {
	case opCreate, opMkdir, opSymlink, opMove, opLink, opThrough:
		return p.make(a.Op, path, to)
	case opAway:
		return away(path, to)
	case opRead:
		return openOnly(path, unix.O_RDONLY, unix.R_OK)
	case opWrite:
		return openOnly(path, unix.O_WRONLY, unix.W_OK)
	case opChmod:
		return sameMode(path)
	case opInode:
		return inode(path)
	case opSetuid:
		return setuid(path)
	case opNode:
		return node(path)
	case opCall:
		return callByName(path)
	case opSocket:
		return socketByName(path)
	case opX32:
		return outcome{Errno: int(x32())}
	case opInt80:
		return inChild(childInt80)
	case opType:
		return typeIntoTerminal()
	}
	return p.performMore(a, path)
}

func (p *plan) performMore(a *attempt, path string) outcome {
	switch a.Op {
	case opTCP:
		return errnoOf(connectTCP(path, a.Number))
	case opUDP:
		return errnoOf(sendUDP(path, a.Number))
	case opUnix:
		return errnoOf(connectUnix(path))
	case opOwnTCP:
		return errnoOf(ownTCP())
	case opOwnUnix:
		return errnoOf(ownUnix(path))
	case opAnswered:
		return outcome{}
	case opTrace:
		return trace(a.Number)
	case opPeek:
		return outcome{Errno: number(peek(a.Number)), Control: number(peek(os.Getpid()))}
	case opKill:
		return errnoOf(unix.Kill(a.Number, 0))
	case opPidfd:
		return pidfd(a.Number)
	case opChild:
		return errnoOf(killChild())
	case opProcesses:
		return strangers()
	case opLinger:
		return errnoOf(linger())
	case opInherited:
		return inheritedDescriptors()
	case opStatus:
		return status()
	case opSpaces:
		return outcome{Values: namespaces()}
	case opVariables:
		return variables()
	}
	return outcome{Errno: int(unix.ENOTSUP), Control: int(unix.ENOTSUP)}
}

func errnoOf(err error) outcome { return outcome{Errno: number(err)} }

// number is the errno of an error, 0 if there is none.
func number(err error) int {
	var errno unix.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return int(errno)
	}
	return int(unix.EIO)
}

func readAll(fd int) ([]byte, error) {
	var all []byte
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || n == 0:
			return all, err
		}
		all = append(all, buf[:n]...)
	}
}

func writeAll(fd int, data []byte) error {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err != nil && err != unix.EINTR {
			return err
		}
		data = data[max(n, 0):]
	}
	return nil
}
