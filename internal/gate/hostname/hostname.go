// Package hostname brings the name of a host into the one spelling by which the
// gate compares, resolves and reports it. Every way to write a name that a
// resolver or a server might take for another either becomes that one spelling
// or is refused: case, a trailing dot, Unicode and punycode, IPv4 addresses in
// octal, hexadecimal or with parts left out, IPv4 in IPv6 clothes. Nothing else
// in the gate looks at a host that has not come through here.
package hostname

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/bailey-sandbox/bailey/internal/policy/notation"
)

const (
	maxName  = 253
	maxLabel = 63
	// maxInput is generous: a name in Unicode may have four bytes for each
	// character and become shorter.
	maxInput = 4 * maxName
)

// Host is a name or an address, in canonical form. Two Hosts are the same host
// exactly if they are equal. The zero Host is none.
type Host struct {
	name string
	addr netip.Addr
}

// Name is the name in lower case, in ASCII, without a trailing dot. It is empty
// for an address.
func (h Host) Name() string { return h.name }

// Addr is the address, never an IPv4 address in IPv6 clothes and never with a
// zone. It is the zero Addr for a name.
func (h Host) Addr() netip.Addr { return h.addr }

// IsAddr says whether the host was given by its address.
func (h Host) IsAddr() bool { return h.addr.IsValid() }

// IsZero says whether there is no host.
func (h Host) IsZero() bool { return h == Host{} }

// String is the host as a policy names it.
func (h Host) String() string {
	if h.IsAddr() {
		return h.addr.String()
	}
	return h.name
}

// Join is the host and the port as they stand in a URL.
func (h Host) Join(port uint16) string {
	p := strconv.Itoa(int(port))
	if h.addr.Is6() {
		return "[" + h.addr.String() + "]:" + p
	}
	return h.String() + ":" + p
}

// FromAddr is the host with this address. An address with a zone is none: it
// means something on one machine only.
func FromAddr(a netip.Addr) (Host, error) {
	if !a.IsValid() || a.Zone() != "" {
		return Host{}, errors.New("not an address that can be reached from here")
	}
	return Host{addr: a.Unmap()}, nil
}

// Parse reads a host as a client writes it, without a port. An IPv6 address may
// stand in brackets. It does not allocate for names that are canonical already.
func Parse(s string) (Host, error) {
	if s == "" {
		return Host{}, errors.New("empty host")
	}
	if len(s) > maxInput {
		return Host{}, errors.New("host is too long")
	}
	if s[0] == '[' || strings.IndexByte(s, ':') >= 0 {
		return parseIPv6(s)
	}
	if !isASCII(s) {
		ascii, err := toASCII(s)
		if err != nil {
			return Host{}, err
		}
		s = ascii
	}
	return parseASCII(s)
}

// ParseHostPort reads "host:port". Without a port it takes the given one, unless
// that is 0.
func ParseHostPort(s string, otherwise uint16) (Host, uint16, error) {
	host, digits, given := cutPort(s)
	port := otherwise
	if given {
		p, err := ParsePort(digits)
		if err != nil {
			return Host{}, 0, err
		}
		port = p
	}
	if port == 0 {
		return Host{}, 0, errors.New("port is missing")
	}
	h, err := Parse(host)
	return h, port, err
}

// cutPort splits at the colon that is not part of an IPv6 address in brackets.
func cutPort(s string) (host, port string, given bool) {
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 || end+1 == len(s) || s[end+1] != ':' {
			return s, "", false
		}
		return s[:end+1], s[end+2:], true
	}
	return strings.Cut(s, ":")
}

// ParsePort reads a port in plain decimal digits.
func ParsePort(s string) (uint16, error) {
	if s == "" || len(s) > 5 || s[0] == '0' || strings.Trim(s, "0123456789") != "" {
		return 0, errors.New("port is not a number from 1 to 65535")
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, errors.New("port is not a number from 1 to 65535")
	}
	return uint16(n), nil
}

func parseIPv6(s string) (Host, error) {
	bare, bracket := strings.CutPrefix(s, "[")
	if bracket {
		if bare, bracket = strings.CutSuffix(bare, "]"); !bracket {
			return Host{}, errors.New("host has an unbalanced bracket")
		}
	}
	a, err := netip.ParseAddr(bare)
	if err != nil || !a.Is6() {
		return Host{}, errors.New("host is neither a name nor an address")
	}
	return FromAddr(a)
}

// toASCII maps Unicode the way browsers do, which turns full-width letters and
// ideographic full stops into plain ones too.
func toASCII(s string) (string, error) {
	if !utf8.ValidString(s) {
		return "", errors.New("host is not valid UTF-8")
	}
	// The mapping lets some ASCII through that must not be there.
	if err := checkASCII(s); err != nil {
		return "", err
	}
	ascii, err := idna.Lookup.ToASCII(s)
	if err != nil {
		return "", errors.New("host is not a valid internationalised name")
	}
	return ascii, nil
}

// checkASCII refuses the characters below 128 that are in no name.
func checkASCII(s string) error {
	for i := range len(s) {
		c := s[i]
		if c >= utf8.RuneSelf || isLDH(c) || c == '_' || c == '.' {
			continue
		}
		return fmt.Errorf("%q is not allowed in a host", rune(c))
	}
	return nil
}

func isLDH(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func parseASCII(s string) (Host, error) {
	if err := checkASCII(s); err != nil {
		return Host{}, err
	}
	s = strings.ToLower(strings.TrimSuffix(s, "."))
	if err := checkLabels(s); err != nil {
		return Host{}, err
	}
	if last := s[strings.LastIndexByte(s, '.')+1:]; notation.IsNumber(last) {
		return parseIPv4(s)
	}
	return Host{name: s}, nil
}

func checkLabels(s string) error {
	if len(s) > maxName {
		return fmt.Errorf("host is longer than %d characters", maxName)
	}
	for rest, more := s, true; more; {
		var label string
		label, rest, more = strings.Cut(rest, ".")
		switch {
		case label == "":
			return errors.New("host has an empty label")
		case len(label) > maxLabel:
			return fmt.Errorf("host has a label longer than %d characters", maxLabel)
		case strings.HasPrefix(label, "xn--"):
			if err := checkPunycode(label); err != nil {
				return err
			}
		}
	}
	return nil
}

// ErrPunycode is why no client gets to a name with such a label.
var ErrPunycode = errors.New("host has a label that is not valid punycode")

// checkPunycode wants the one encoding of a label: others would be read as the
// same name by some and as another by the rest.
func checkPunycode(label string) error {
	readable, err := idna.Lookup.ToUnicode(label)
	if err == nil {
		var again string
		again, err = idna.Lookup.ToASCII(readable)
		if err == nil && again == label {
			return nil
		}
	}
	return ErrPunycode
}

// parseIPv4 reads an address as inet_aton(3) does: one to four parts in decimal,
// octal or hexadecimal, of which the last fills what the others left.
func parseIPv4(s string) (Host, error) {
	errBad := errors.New("host ends in a number but is no IPv4 address")
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return Host{}, errBad
	}
	var value uint64
	for i, part := range parts {
		base, digits := 10, part
		if hex, ok := strings.CutPrefix(part, "0x"); ok {
			base, digits = 16, hex
		} else if len(part) > 1 && part[0] == '0' {
			base = 8
		}
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (5 - len(parts))
		}
		n, err := strconv.ParseUint(digits, base, bits)
		if err != nil {
			return Host{}, errBad
		}
		value = value<<bits | n
	}
	return Host{addr: netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)})}, nil
}
