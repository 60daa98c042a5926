package terminal

import (
	"bytes"
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrBusy says that nobody can be asked now: this process is in the
	// background, is about to end, or another program of a pipeline has the
	// terminal for itself.
	ErrBusy = errors.New("the terminal is in use by others")
	// ErrInterrupted says that somebody answered with Ctrl-C, Ctrl-\ or Ctrl-D.
	ErrInterrupted = errors.New("interrupted")
)

// HasCaller says whether there is a terminal on which somebody could be asked.
func HasCaller() bool {
	f, err := openCaller()
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

// openCaller opens the terminal from which this process was started, whatever
// its streams are.
func openCaller() (*os.File, error) {
	return os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
}

// Ask shows a text on the terminal from which this process was started, and
// returns the line that is typed then. The command cannot interfere: what it
// writes meanwhile waits, and so does what is typed for it. What was typed before
// the text was there is not taken for an answer, but thrown away.
//
// The Session is the command's, or nil if it has none.
func Ask(ctx context.Context, s *Session, text string) (string, error) {
	tty, err := openCaller()
	if err != nil {
		return "", err
	}
	defer tty.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s != nil {
		if !s.beginQuestion(cancel) {
			return "", ErrBusy
		}
		defer s.endQuestion()
	}
	fd, err := descriptor(tty)
	if err != nil {
		return "", err
	}
	restore, err := lineMode(fd, s)
	if err != nil {
		return "", err
	}
	defer restore()
	if err := unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH); err != nil {
		return "", os.NewSyscallError("tcflush", err)
	}
	if _, err := tty.WriteString(plainly + text); err != nil {
		return "", err
	}
	return readAnswer(ctx, tty)
}

// descriptor is a file's, without making that one block: a question can be taken
// back.
func descriptor(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = raw.Control(func(n uintptr) { fd = int(n) })
	return fd, err
}

// beginQuestion has the relay wait. It says false if the terminal is to be given
// back soon.
func (s *Session) beginQuestion(cancel context.CancelFunc) bool {
	s.question.Lock()
	s.input.Lock()
	s.output.Lock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suspended || s.closed {
		s.output.Unlock()
		s.input.Unlock()
		s.question.Unlock()
		return false
	}
	s.cancel = cancel
	return true
}

func (s *Session) endQuestion() {
	s.mu.Lock()
	s.cancel = nil
	s.mu.Unlock()
	s.output.Unlock()
	s.input.Unlock()
	s.question.Unlock()
	s.rearm()
}

// stopQuestion ends a question without an answer, and returns when the terminal
// is as it was before. The caller has seen to it that no other begins.
func (s *Session) stopQuestion() {
	s.mu.Lock()
	if s.cancel != nil {
		s.cancel()
	}
	s.mu.Unlock()
	s.question.Lock()
	//lint:ignore SA2001 it was held for as long as the question stood
	s.question.Unlock()
}

// lineMode has the terminal take lines, and Ctrl-C and Ctrl-\ as the ends of
// lines: the signals would be the command's. It refuses if the terminal is
// somebody else's.
func lineMode(fd int, s *Session) (restore func(), err error) {
	if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return nil, ErrBusy
	}
	now, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, os.NewSyscallError("tcgetattr", err)
	}
	const usual = unix.ICANON | unix.ECHO
	if (s == nil || !s.has(now)) && now.Lflag&usual != usual {
		return nil, ErrBusy
	}
	t := *now
	t.Iflag |= unix.ICRNL
	t.Iflag &^= unix.INLCR | unix.IGNCR | unix.ISTRIP
	t.Oflag |= unix.OPOST | unix.ONLCR
	t.Lflag |= usual | unix.ECHOE | unix.ECHOK | unix.ECHOCTL | unix.IEXTEN
	t.Lflag &^= unix.ISIG | unix.NOFLSH
	const interrupt, quit, endOfFile, erase = 3, 28, 4, 127
	t.Cc[unix.VEOL], t.Cc[unix.VEOL2], t.Cc[unix.VEOF], t.Cc[unix.VERASE] = interrupt, quit, endOfFile, erase
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &t); err != nil {
		return nil, os.NewSyscallError("tcsetattr", err)
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, now) }, nil
}

// has says whether these settings are the Session's own.
func (s *Session) has(now *unix.Termios) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken && *now == s.applied
}

// plainly undoes what a command may have done to the look of the terminal:
// colours, invisible text, other characters, a hidden cursor.
const plainly = "\r\x1b[0m\x1b(B\x0f\x1b[?25h\x1b[K"

func readAnswer(ctx context.Context, tty *os.File) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = tty.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, 4096) // no line is longer
	n, err := tty.Read(buf)
	if err == nil && n > 0 && buf[n-1] == '\n' {
		return string(bytes.TrimSuffix(buf[:n], []byte("\n"))), nil
	}
	_, _ = tty.WriteString("\n") // what comes next begins a line
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return "", ErrInterrupted
}
