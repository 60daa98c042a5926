package policy

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// Exposure is a port of the host behind which a port of the sandbox is.
type Exposure struct {
	Addr   netip.Addr // of the host
	Port   uint16     // of the host; 0 lets the host choose
	Inside uint16
}

var errExposure = errors.New("a port is exposed as PORT, PORT:INSIDE, ADDR:PORT or ADDR:PORT:INSIDE, for example 3000, 8080:80, [::1]:8080:80")

// ParseExposure reads [ADDR:]PORT[:INSIDE]. Without an address it is loopback,
// and without a port inside it is the same as outside.
func ParseExposure(s string) (Exposure, error) {
	e := Exposure{Addr: netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	rest := s
	if addr, after, ok := cutAddress(s); ok {
		a, err := netip.ParseAddr(addr)
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return Exposure{}, errors.New("a port is exposed at an address of this machine, for example 127.0.0.1:8080 or [::1]:8080")
		}
		e.Addr, rest = a, after
	}
	outside, inside, given := strings.Cut(rest, ":")
	if !given {
		inside = outside
	}
	port, err1 := parsePort(outside)
	to, err2 := parsePort(inside)
	switch {
	case err1 != nil || err2 != nil:
		return Exposure{}, errExposure
	case to == 0:
		return Exposure{}, errors.New("the port inside must be named; 0:3000 lets the host choose its own")
	}
	e.Port, e.Inside = port, to
	return e, nil
}

// cutAddress cuts off what stands before the ports: an address in brackets, or a
// first field that is no number.
func cutAddress(s string) (addr, rest string, ok bool) {
	if inner, found := strings.CutPrefix(s, "["); found {
		return strings.Cut(inner, "]:")
	}
	addr, rest, ok = strings.Cut(s, ":")
	if _, err := parsePort(addr); err == nil {
		return "", "", false
	}
	return addr, rest, ok
}

func parsePort(s string) (uint16, error) {
	n, err := parseDigits(s)
	if err != nil || n > 65535 {
		return 0, errExposure
	}
	return uint16(n), nil
}

// String is the form that ParseExposure reads, complete.
func (e Exposure) String() string {
	return netip.AddrPortFrom(e.Addr, e.Port).String() + ":" + strconv.Itoa(int(e.Inside))
}

// sameExposure is a meet: the same port of the host and of the sandbox, however
// they are written.
func sameExposure(x, y string) (string, bool) {
	a, err1 := ParseExposure(x)
	b, err2 := ParseExposure(y)
	return x, err1 == nil && err2 == nil && a == b
}
