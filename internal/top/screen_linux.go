package top

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// screen is the terminal, while it is ours.
type screen struct {
	in, out *os.File
	saved   unix.Termios
	taken   bool
}

// What a terminal is told: another screen without a cursor, on which nothing
// wraps, and back.
const (
	enter  = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leave  = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home   = "\x1b[H"
	blank  = "\x1b[2J"
	toEnd  = "\x1b[K"
	toEdge = "\r\n"
)

// take makes the terminal ours.
func (s *screen) take() error {
	saved, err := unix.IoctlGetTermios(int(s.in.Fd()), unix.TCGETS)
	if err != nil {
		return errors.New("box top needs a terminal; without one: bailey box top --once")
	}
	raw := terminal.Raw(*saved)
	if err := unix.IoctlSetTermios(int(s.in.Fd()), unix.TCSETS, &raw); err != nil {
		return os.NewSyscallError("tcsetattr", err)
	}
	s.saved, s.taken = *saved, true
	return s.write(enter + blank)
}

// giveBack makes it what it was. It may be called twice.
func (s *screen) giveBack() {
	if !s.taken {
		return
	}
	s.taken = false
	_ = s.write(leave) // a terminal that is gone needs nothing
	_ = unix.IoctlSetTermios(int(s.in.Fd()), unix.TCSETS, &s.saved)
}

func (s *screen) size() (width, height int) {
	size, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 80, 24
	}
	return int(size.Col), int(size.Row)
}

// draw shows lines over what was there, in one piece, so that nothing flickers.
func (s *screen) draw(lines []line) error {
	var b strings.Builder
	b.WriteString(home)
	for i, l := range lines {
		if i > 0 {
			b.WriteString(toEdge)
		}
		if l.style == ordinary {
			b.WriteString(l.text)
		} else {
			b.WriteString(string(l.style) + l.text + plainly)
		}
		b.WriteString(toEnd)
	}
	return s.write(b.String())
}

func (s *screen) write(text string) error {
	_, err := s.out.WriteString(text)
	return err
}
