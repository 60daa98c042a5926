package launch

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// exposed is a listener of the host for a port inside.
type exposed struct {
	want spec.Exposure
	at   netip.AddrPort
	file *os.File
}

// expose takes the ports of the host. Nothing runs if one of them cannot be had.
func (g *Gate) expose(list []spec.Exposure) error {
	for _, want := range list {
		e, err := listen(want)
		if err != nil {
			return err
		}
		g.exposed = append(g.exposed, e)
	}
	return nil
}

// Chosen says which ports the host chose where the choice was left to it.
func (g *Gate) Chosen() (lines []string) {
	for _, e := range g.exposures() {
		if e.want.Port == 0 {
			lines = append(lines, e.String())
		}
	}
	return lines
}

// Exposed are the ports of the host, as ADDR:PORT:INSIDE.
func (g *Gate) Exposed() (list []string) {
	for _, e := range g.exposures() {
		list = append(list, e.text())
	}
	return list
}

func (e exposed) text() string { return e.at.String() + ":" + strconv.Itoa(int(e.want.Inside)) }

// String says what leads where.
func (e exposed) String() string {
	return e.at.String() + " leads to port " + strconv.Itoa(int(e.want.Inside)) + " of the sandbox"
}

func listen(want spec.Exposure) (exposed, error) {
	addr, err := netip.ParseAddr(want.Address)
	if err != nil {
		return exposed{}, err
	}
	e := exposed{want: want, at: netip.AddrPortFrom(addr, want.Port)}
	fd, err := listenAt(e.at)
	if err != nil {
		return exposed{}, fmt.Errorf("port %d cannot be exposed at %s: %w", want.Inside, e.at, explained(err, want))
	}
	e.file = os.NewFile(uintptr(fd), "exposed")
	name, err := unix.Getsockname(fd)
	if err != nil {
		return exposed{}, errors.Join(os.NewSyscallError("getsockname", err), e.file.Close())
	}
	e.at = netip.AddrPortFrom(addr, portOf(name))
	return e, nil
}

func listenAt(at netip.AddrPort) (int, error) {
	var address unix.Sockaddr = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	family := unix.AF_INET6
	if at.Addr().Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	// Connections of the last sandbox that still linger are in nobody's way.
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, address)
	}
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// explained says what to do about an error.
func explained(err error, want spec.Exposure) error {
	inside := strconv.Itoa(int(want.Inside))
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return errors.New("the port is in use; name another, or let the host choose one: -p 0:" + inside)
	case errors.Is(err, unix.EACCES):
		return errors.New("a port this low is for root; name a higher one, for example -p " + strconv.Itoa(int(want.Port)+8000) + ":" + inside)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return errors.New("this is no address of this machine; without one it is 127.0.0.1")
	}
	return err
}

func portOf(name unix.Sockaddr) uint16 {
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		return uint16(a.Port)
	case *unix.SockaddrInet6:
		return uint16(a.Port)
	}
	return 0
}
