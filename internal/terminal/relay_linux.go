package terminal

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"
)

const (
	bufferSize = 32 << 10
	// terminalHolds is about what the kernel keeps of a terminal's output.
	terminalHolds = 64 << 10
)

// relayOutput copies until the command's terminal has no user left.
func (s *Session) relayOutput() {
	defer close(s.done)
	defer s.giveBackOnPanic()
	buf := make([]byte, bufferSize)
	for {
		poll(s.master, -1)
		if _, ok := s.relayOnce(buf); !ok {
			_ = writeAll(s.out, s.held)
			return
		}
	}
}

// Drain shows what the command has said so far: at most what its terminal holds,
// because others may still be talking.
func (s *Session) Drain() {
	buf := make([]byte, bufferSize)
	for left := terminalHolds; left > 0; {
		n, ok := s.relayOnce(buf)
		if n == 0 || !ok {
			return
		}
		left -= n
	}
}

// relayOnce shows what can be read without waiting and says how much that was,
// and false for ok if there will not be more.
func (s *Session) relayOnce(buf []byte) (n int, ok bool) {
	s.output.Lock()
	defer s.output.Unlock()
	if poll(s.master, 0) == 0 {
		return 0, true
	}
	n, err := unix.Read(s.master, buf)
	switch {
	case err == unix.EINTR:
		return 0, true
	case n <= 0 || err != nil:
		return 0, false
	}
	s.show(buf[:n])
	return n, true
}

// show writes what the command said. Nobody may be listening any more; the
// command is still read, so that it does not wait for ever. The caller holds
// output.
func (s *Session) show(data []byte) {
	if s.shared {
		s.sync()
		data = s.withoutEcho(data)
	}
	_ = writeAll(s.out, data)
}

// watchInput asks to be woken once for each arrival of input. To be woken for
// as long as there is some would mean to turn in circles in the background,
// where it must be left to others.
func (s *Session) watchInput() bool {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	s.mu.Lock()
	s.events = fd
	s.mu.Unlock()
	return unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, s.in, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}) == nil
}

// rearm wakes relayInput for input that is there already.
func (s *Session) rearm() {
	s.mu.Lock()
	fd := s.events
	s.mu.Unlock()
	if fd >= 0 {
		_ = unix.EpollCtl(fd, unix.EPOLL_CTL_MOD, s.in, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET})
	}
}

// relayInput copies what is typed while it is meant for the command. It ends
// with the terminal, or never: the process does not wait for it.
func (s *Session) relayInput() {
	defer s.giveBackOnPanic()
	buf := make([]byte, bufferSize)
	var event [1]unix.EpollEvent
	for {
		if _, err := unix.EpollWait(s.events, event[:], -1); err == unix.EINTR {
			continue
		} else if err != nil {
			return
		}
		for {
			n, err := s.readInput(buf)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || writeAll(s.master, s.typed(buf[:n])) != nil {
				return
			}
		}
	}
}

// readInput reads what is meant for the command. EAGAIN says that there is
// nothing, or nothing for it. A question does not come in between: the answer
// would be read here.
func (s *Session) readInput(buf []byte) (int, error) {
	s.input.Lock()
	defer s.input.Unlock()
	if !s.sync() {
		return 0, unix.EAGAIN
	}
	ready, ok := readable(s.in)
	switch {
	case !ok:
		return 0, unix.EIO
	case !ready:
		return 0, unix.EAGAIN
	}
	return unix.Read(s.in, buf)
}

// typed returns the bytes that make the command's terminal see what the
// caller's has seen. In line mode an end of file comes as nothing, or as a line
// without its end.
func (s *Session) typed(data []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.takesLines() {
		return data
	}
	if s.echoes() {
		s.echo = append(s.echo, data...)
	}
	if len(data) == 0 || data[len(data)-1] != '\n' {
		return append(data[:len(data):len(data)], s.Termios.Cc[unix.VEOF])
	}
	return data
}

// withoutEcho takes out what the command's terminal echoes after the caller's
// has echoed it already. The echo may stand anywhere among the command's own
// output.
func (s *Session) withoutEcho(data []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	data = append(s.held, data...)
	s.held = nil
	for len(s.echo) > 0 {
		line := s.echo
		if i := bytes.IndexByte(s.echo, '\n'); i >= 0 {
			line = s.echo[:i+1]
		}
		i := bytes.Index(data, line)
		if i < 0 {
			data, s.held = splitEcho(data, line)
		}
		if i < 0 {
			break
		}
		data = append(data[:i], data[i+len(line):]...)
		s.echo = s.echo[len(line):]
	}
	// What is not echoed soon never will be.
	if len(s.echo) > bufferSize {
		s.echo = nil
	}
	return data
}

// splitEcho cuts off the beginning of a line's echo at the end of data, whose
// rest is still to come.
func splitEcho(data, line []byte) (before, begun []byte) {
	for n := min(len(data), len(line)-1); n > 0; n-- {
		if bytes.HasSuffix(data, line[:n]) {
			return data[:len(data)-n], bytes.Clone(line[:n])
		}
	}
	return data, nil
}

// giveBackOnPanic keeps a defect here from leaving the terminal raw.
func (s *Session) giveBackOnPanic() {
	if v := recover(); v != nil {
		s.Suspend()
		panic(v)
	}
}

// readable says whether a read would return at once, and false for ok if the
// terminal is gone.
func readable(fd int) (ready, ok bool) {
	events := poll(fd, 0)
	if events&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 {
		return false, false
	}
	return events&unix.POLLIN != 0, true
}

// poll waits until something can be read, or went wrong, and says what.
func poll(fd, millis int) int16 {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, millis)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return unix.POLLERR
		}
		return fds[0].Revents
	}
}

func writeAll(fd int, data []byte) error {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EAGAIN {
			// Another program made the terminal non-blocking for everyone.
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1)
			n = 0
		}
		if err != nil && err != unix.EINTR {
			return err
		}
		data = data[n:]
	}
	return nil
}
