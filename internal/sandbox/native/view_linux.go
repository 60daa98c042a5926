package native

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// ErrNoView says that a Spec has path permissions that mounts cannot hold, and
// who starts it has nobody to ask for a view.
var ErrNoView = errors.New("workspace.rules: path permissions with patterns need the keeper of resident sandboxes; run the command by: bailey -- CMD")

// openView asks for the mount that the project is shown by, if the Spec wants
// one. That of an overlay can only be had once the child has made it.
func (e *Embryo) openView(s *spec.Spec) (*os.File, error) {
	if s.Rules == nil {
		return nil, nil
	}
	if e.o.View == nil {
		return nil, ErrNoView
	}
	if s.Overlay != nil {
		return nil, nil
	}
	return e.o.View(s.Rules, nil)
}

// viewOverlay takes the overlay from the child, which waits, and gives it a view of
// that.
func (e *Embryo) viewOverlay(s *spec.Spec) error {
	if s.Rules == nil || s.Overlay == nil {
		return nil
	}
	fd := receiveDescriptor(e.pipes.socket)
	if fd < 0 {
		return nil // the child has ended, and says why
	}
	dir := os.NewFile(uintptr(fd), s.Overlay.Source)
	defer dir.Close()
	view, err := e.o.View(s.Rules, dir)
	if err != nil {
		return err
	}
	return e.sendView(view)
}

// sendView gives the child the mount. It waits in the socket until the child is
// there.
func (e *Embryo) sendView(view *os.File) error {
	if view == nil {
		return nil
	}
	defer view.Close()
	return os.NewSyscallError("sendmsg", unix.Sendmsg(e.pipes.socket, []byte{0}, unix.UnixRights(int(view.Fd())), nil, unix.MSG_NOSIGNAL))
}

// ruled attaches the view beside the new root, where no path leads, and as with
// an overlay, mounts are taken from it as they otherwise are from the host. So
// there is none through which the project could be reached past its rules.
func (l *launcher) ruled() {
	rules := l.spec.Rules
	if rules == nil {
		return
	}
	if over := l.spec.Overlay; over != nil {
		l.layers(over)
		l.handOut(WallRules, "the overlay", l.overAt)
	}
	l.begin(WallRules, "attach the view of", rules.Root, "")
	l.view, l.viewAt = rules, l.scratch(0o755)
	msg := l.message(1)
	l.call(unix.SYS_RECVMSG, num(fdSocket), l.ptr(msg.pointer()), num(unix.MSG_CMSG_CLOEXEC))
	fd := cell(msg.descriptor(0))
	l.call(unix.SYS_MOVE_MOUNT, from(fd), l.str(""), num(fdScratch), l.str(l.viewAt), num(unix.MOVE_MOUNT_F_EMPTY_PATH))
	l.call(unix.SYS_CLOSE, from(fd))
}

// isBorrowed says whether a path of the host is not taken from the host.
func (t *tree) isBorrowed(source string) bool { return t.over.Covers(source) || t.view.Covers(source) }

// borrowedFrom is where a path is taken from instead, below fdScratch.
func (t *tree) borrowedFrom(source string) string {
	if t.view.Covers(source) {
		return t.viewAt + strings.TrimPrefix(source, t.view.Root)
	}
	return t.overAt + strings.TrimPrefix(source, t.over.Source)
}
