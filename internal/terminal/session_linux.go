package terminal

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Session is the caller's terminal for the time of one command.
type Session struct {
	// Streams says which of stdin, stdout and stderr are the terminal.
	Streams [3]bool
	// Termios and Size are what the command's terminal begins with.
	Termios unix.Termios
	Size    unix.Winsize

	in, out int  // the caller's terminal; in is -1 if it cannot be read
	shared  bool // with other programs of a pipeline

	master int // the command's terminal, seen from outside
	peer   int // and from inside: while it is open, no output is lost to a hang-up
	events int // epoll instance for in, or -1
	done   chan struct{}

	// A question holds all three; see Ask. Input and output are held while they
	// are relayed as well.
	question, input, output sync.Mutex

	mu        sync.Mutex
	cancel    func() // ends the question that stands, if one does
	suspended bool
	closed    bool         // no question is asked any more
	taken     bool         // the caller's terminal has settings of ours
	saved     unix.Termios // its own settings, if taken
	wanted    unix.Termios // ours, if taken,
	applied   unix.Termios // and what the terminal made of them
	echo      []byte       // what the command's terminal is about to echo
	held      []byte       // the beginning of that, not yet known for what it is
}

// Open looks for a terminal among the streams. Without one it returns nil.
func Open(streams [3]*os.File) (*Session, error) {
	s := &Session{in: -1, out: -1, master: -1, peer: -1, events: -1}
	first := -1
	for fd, f := range streams {
		t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		if err != nil {
			continue
		}
		s.Streams[fd] = true
		if first < 0 {
			first, s.Termios = int(f.Fd()), *t
		}
	}
	if first < 0 {
		return nil, nil
	}
	s.shared = !s.Streams[0] || !s.Streams[1]
	if size, err := unix.IoctlGetWinsize(first, unix.TIOCGWINSZ); err == nil {
		s.Size = *size
	}
	if s.shared {
		// The caller's terminal turns line feeds into new lines already.
		s.Termios.Oflag &^= unix.OPOST
	}
	return s, s.choose(streams)
}

// choose finds the descriptors to relay through. Standard output comes first
// for writing, so that the order of what is written is the command's.
func (s *Session) choose(streams [3]*os.File) error {
	for _, i := range [...]int{1, 2, 0} {
		if !s.Streams[i] {
			continue
		}
		fd := int(streams[i].Fd())
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil {
			return os.NewSyscallError("fcntl", err)
		}
		if mode := flags & unix.O_ACCMODE; mode != unix.O_RDONLY && s.out < 0 {
			s.out = fd
		}
		if mode := flags & unix.O_ACCMODE; mode != unix.O_WRONLY {
			s.in = fd
		}
	}
	if s.out < 0 {
		fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(s.in), unix.O_WRONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("the terminal cannot be written: %w", err)
		}
		s.out = fd
	}
	return nil
}

// Attach begins to relay between the caller's terminal and the command's.
func (s *Session) Attach(master *os.File) {
	s.master = int(master.Fd())
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno == 0 {
		s.peer = int(peer)
	}
	s.done = make(chan struct{})
	s.sync()
	go s.relayOutput()
	if s.in >= 0 && s.watchInput() {
		go s.relayInput()
	}
}

// Close writes what the command has still to say, and gives the caller's
// terminal back. The command must have ended.
func (s *Session) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stopQuestion()
	if s.done != nil {
		if s.peer >= 0 {
			_ = unix.Close(s.peer)
		}
		<-s.done
	}
	s.Suspend()
}

// Resize gives the command's terminal the size of the caller's. The kernel
// tells the command if it changed.
func (s *Session) Resize() {
	if size, err := unix.IoctlGetWinsize(s.out, unix.TIOCGWINSZ); err == nil {
		_ = unix.IoctlSetWinsize(s.master, unix.TIOCSWINSZ, size)
	}
}

// Alone says that no other program of a pipeline uses the terminal.
func (s *Session) Alone() bool { return !s.shared }

// Suspend gives the caller's terminal back, until Resume.
func (s *Session) Suspend() {
	s.mu.Lock()
	s.suspended = true
	s.mu.Unlock()
	s.stopQuestion()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBack()
}

// Resume takes the terminal again if the caller is in the foreground. What was
// typed in between is not lost.
func (s *Session) Resume() {
	s.mu.Lock()
	s.suspended = false
	s.mu.Unlock()
	s.sync()
	s.Resize()
	s.rearm()
}

// sync gives the caller's terminal the settings that the moment asks for, and
// reports whether what is typed is meant for the command.
func (s *Session) sync() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suspended || s.cancel != nil || !s.foreground() {
		return false
	}
	now, err := unix.IoctlGetTermios(s.out, unix.TCGETS)
	if err != nil {
		return false
	}
	own := *now
	// A stop from outside leaves no time to give the terminal back, and whoever
	// had it since has set it to their liking.
	if s.taken = s.taken && *now == s.applied; s.taken {
		own = s.saved
	}
	want := Raw(own)
	if s.shared {
		want = s.mirrored(own)
	}
	switch {
	case want == own && s.taken:
		s.giveBack()
	case want != own && (!s.taken || want != s.wanted):
		s.take(own, want)
	}
	// If it is not ours and not in line mode, another program of the pipeline
	// has taken it, and what is typed is for that one.
	const lineMode = unix.ICANON | unix.ECHO
	return s.taken || !s.shared || now.Lflag&lineMode == lineMode
}

func (s *Session) take(own, want unix.Termios) {
	if unix.IoctlSetTermios(s.out, unix.TCSETS, &want) != nil {
		return
	}
	if applied, err := unix.IoctlGetTermios(s.out, unix.TCGETS); err == nil {
		s.saved, s.wanted, s.applied, s.taken = own, want, *applied, true
	}
}

// foreground says whether the terminal is the caller's to use. One that is not
// its controlling terminal knows no background.
func (s *Session) foreground() bool {
	group, err := unix.IoctlGetInt(s.out, unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// Raw is for a terminal that hands everything on.
func Raw(t unix.Termios) unix.Termios {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return t
}

// mirrored switches off what the command has switched off on its own terminal:
// the echo for a password, the line mode for a pager.
func (s *Session) mirrored(t unix.Termios) unix.Termios {
	inner, err := unix.IoctlGetTermios(s.master, unix.TCGETS)
	if err != nil {
		return t
	}
	t.Iflag &^= s.Termios.Iflag &^ inner.Iflag
	t.Oflag &^= s.Termios.Oflag &^ inner.Oflag
	t.Lflag &^= s.Termios.Lflag &^ inner.Lflag
	if t.Lflag&unix.ICANON == 0 {
		t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	}
	return t
}

// giveBack undoes what sync did. In the background the terminal is someone
// else's, who has set it already, and touching it would stop this process.
func (s *Session) giveBack() {
	if s.taken && s.foreground() {
		_ = unix.IoctlSetTermios(s.out, unix.TCSETS, &s.saved)
	}
	s.taken = false
}

// echoes and takesLines say how the caller's terminal treats what is typed.
func (s *Session) echoes() bool { return !s.taken || s.applied.Lflag&unix.ECHO != 0 }

func (s *Session) takesLines() bool { return !s.taken || s.applied.Lflag&unix.ICANON != 0 }
