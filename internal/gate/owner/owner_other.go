//go:build !linux

package owner

import (
	"errors"
	"net/netip"
	"os"
)

// Finder finds processes; here it finds none.
type Finder struct{}

// New refuses: only Linux tells.
func New(int, *os.File) (*Finder, error) { return nil, errors.ErrUnsupported }

// TCP returns nobody.
func (*Finder) TCP(_, _ netip.AddrPort) Process { return Process{} }

// UDP returns nobody.
func (*Finder) UDP(_, _ netip.AddrPort) Process { return Process{} }

// Named knows no names.
func Named(pid int) Process { return Process{Pid: pid} }
