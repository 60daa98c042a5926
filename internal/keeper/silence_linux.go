package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/processes"
)

// ErrSilent says that the keeper is there and does not answer.
var ErrSilent = errors.New("the keeper of resident sandboxes has not answered")

// silence is how long a keeper may take to greet a client, and to take what it
// sends. It does nothing else first, so one that needs longer was stopped, or hangs.
// Tests shorten it.
var silence = 5 * time.Second

// await returns when there is something to read. A keeper that is asked for much may
// need long for it; but it still greets others meanwhile.
func (c *conn) await() error {
	for c.site != nil && !c.isReady() {
		if !c.site.greets() {
			return c.silent()
		}
	}
	return nil
}

// awaitTaken returns when the keeper has taken what was sent, or something is there
// to read.
func (c *conn) awaitTaken() error {
	for c.site != nil && !c.isReady() && !c.isTaken() {
		if !c.site.greets() && !c.isTaken() {
			return c.silent()
		}
	}
	return nil
}

// isTaken says whether nothing that was sent waits to be read at the other end.
func (c *conn) isTaken() bool {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return true // to be said by who reads
	}
	waiting := 0
	err = raw.Control(func(fd uintptr) { waiting, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return err != nil || waiting == 0
}

// awaitGreeting returns when a keeper has begun to greet, or has ended.
func (c *conn) awaitGreeting() error {
	if !c.isReady() {
		return c.silent()
	}
	return nil
}

// greets says whether the keeper of a site greets who connects now. One that is not
// there has ended, which whoever waits for it will hear.
func (s *Site) greets() bool {
	p, err := s.find()
	if p == nil || err != nil {
		return true
	}
	defer p.close()
	c, err := p.connect()
	if c == nil {
		return !errors.Is(err, ErrSilent)
	}
	defer c.close()
	return c.isReady()
}

// isReady waits for something to read, or the end of it, and says whether that came
// in time.
func (c *conn) isReady() bool {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return true // to be said by who reads
	}
	n := 1
	if raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			if n, err = unix.Poll(fds, int(silence.Milliseconds())); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}) != nil {
		return true
	}
	return n != 0
}

// silent is the error for a keeper that does not answer.
func (c *conn) silent() error {
	if pid := c.keeper(); pid != 0 {
		return fmt.Errorf("%w for %v: process %d; if somebody stopped it: kill -CONT %d; to end it and its sandboxes: kill -KILL %d", ErrSilent, silence, pid, pid, pid)
	}
	return fmt.Errorf("%w for %v; look for a process that hangs: pgrep -af 'baileyd keeper'", ErrSilent, silence)
}

// keeper is the process at the other end: the one that has greeted, or that listens.
// It is 0 if that is not known to be a keeper: until one listens itself, the kernel
// names who has started it.
func (c *conn) keeper() int {
	if c.greeter != 0 {
		return c.greeter
	}
	raw, err := c.file.SyscallConn()
	if err != nil {
		return 0
	}
	var peer *unix.Ucred
	if raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}) != nil || err != nil {
		return 0
	}
	argv, err := os.ReadFile(processes.File(int(peer.Pid), "cmdline"))
	if fields := bytes.Split(argv, []byte{0}); err != nil || len(fields) < 2 || string(fields[1]) != "keeper" {
		return 0
	}
	return int(peer.Pid)
}
