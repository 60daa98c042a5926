package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/server/transport"
)

// opened is a listening socket, and its address as a client writes it.
type opened struct {
	address  string
	listener net.Listener
}

type sockets []opened

// open takes the sockets that were handed over, or else opens those that the
// flags name.
func (o *options) open(e transport.Exposure) (sockets, error) {
	all, err := inherited(e)
	if err != nil || len(all) > 0 {
		return all, err
	}
	addresses := o.listen
	if len(addresses) == 0 {
		addresses = texts{"unix:" + socket(o.state)}
	}
	for _, a := range addresses {
		l, err := transport.Listen(transport.Address(a), e)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, opened{addressOf(l, e), l})
	}
	return all, nil
}

// inherited returns sockets that whoever started this process left open for it,
// as systemd does: LISTEN_FDS of them from descriptor 3 on, if LISTEN_PID is this
// process.
func inherited(e transport.Exposure) (sockets, error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil {
		return nil, fmt.Errorf("LISTEN_FDS: %w", err)
	}
	var all sockets
	for fd := 3; fd < 3+n; fd++ {
		unix.CloseOnExec(fd)
		f := os.NewFile(uintptr(fd), "socket "+strconv.Itoa(fd))
		l, err := net.FileListener(f)
		_ = f.Close()
		if err == nil {
			err = e.Allows(l.Addr())
		}
		if err != nil {
			all.close()
			return nil, err
		}
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(true)
		}
		all = append(all, opened{addressOf(l, e), l})
	}
	return all, nil
}

func addressOf(l net.Listener, e transport.Exposure) string {
	switch {
	case l.Addr().Network() == "unix":
		return "unix:" + l.Addr().String()
	case e.TLS != nil:
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}

func (s sockets) close() {
	for _, o := range s {
		_ = o.listener.Close()
	}
}

// successor is the program that will go on with the sockets.
type successor struct{ files []*os.File }

// successor keeps the sockets open beyond the end of their listeners. Clients
// that connect meanwhile wait in the kernel's queue.
func (s sockets) successor() (*successor, error) {
	next := &successor{}
	for _, o := range s {
		if u, ok := o.listener.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
		}
		l, ok := o.listener.(interface{ File() (*os.File, error) })
		if !ok {
			return nil, fmt.Errorf("%s cannot be handed over", o.address)
		}
		f, err := l.File()
		if err != nil {
			return nil, err
		}
		next.files = append(next.files, f)
	}
	return next, nil
}

// become executes the program as it is on the disk now, in this process.
func (n *successor) become() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	// What was replaced on the disk is still running, under a name that says so.
	program = strings.TrimSuffix(program, " (deleted)")
	for i, f := range n.files {
		// Sockets may lie where others must go: move all of them out of the way first.
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3+len(n.files)+16)
		if err != nil {
			return err
		}
		n.files[i] = os.NewFile(uintptr(fd), f.Name())
	}
	for i, f := range n.files {
		if err := unix.Dup3(int(f.Fd()), 3+i, 0); err != nil {
			return err
		}
	}
	environment := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "LISTEN_FDS=") || strings.HasPrefix(v, "LISTEN_PID=")
	})
	environment = append(environment, "LISTEN_PID="+strconv.Itoa(os.Getpid()), "LISTEN_FDS="+strconv.Itoa(len(n.files)))
	return fmt.Errorf("execute %s: %w", program, syscall.Exec(program, os.Args, environment))
}

// notifyManager tells a service manager that asked for it how the server is.
func notifyManager(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	c, err := net.Dial("unixgram", path)
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	_, err = c.Write([]byte(state))
	return errors.Join(err, c.Close())
}
