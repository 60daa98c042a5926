package notation

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// Proxy is an upstream proxy as it is written.
type Proxy struct {
	Scheme string // http, https, socks5 or socks5h
	User   string // and its password, as they stand; empty if there is none
	Host   string // a name or an address, an IPv6 one without its brackets
	Port   uint16 // 0: that of the scheme
}

var (
	errProxy     = errors.New("a proxy is written as http://host:port, https://host:port or socks5://host:port")
	errProxyUser = errors.New("the user or the password of the proxy has a character that must be written with a percent sign, such as %40 for @")
)

// ParseProxy reads a proxy. Its errors do not repeat the text, which may hold a
// password.
func ParseProxy(text string) (Proxy, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return Proxy{}, errProxy
	}
	p := Proxy{Scheme: strings.ToLower(scheme)}
	switch p.Scheme {
	case "http", "https", "socks5", "socks5h":
	default:
		return Proxy{}, errors.New("a proxy is reached by http, https or socks5: write http://host:port, https://host:port or socks5://host:port")
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		p.User, rest = rest[:i], rest[i+1:]
		if !isUserinfo(p.User) {
			return Proxy{}, errProxyUser
		}
	}
	return p, p.address(rest)
}

// address reads the host and the port.
func (p *Proxy) address(text string) error {
	host, port := text, ""
	if bracketed, ok := strings.CutPrefix(text, "["); ok {
		bare, after, closed := strings.Cut(bracketed, "]")
		a, err := netip.ParseAddr(bare)
		if !closed || err != nil || !a.Is6() || a.Zone() != "" || after != "" && after[0] != ':' {
			return errProxy
		}
		host, port = bare, after
	} else {
		if i := strings.IndexByte(text, ':'); i >= 0 {
			host, port = text[:i], text[i:]
		}
		if !isName(host) {
			return errProxy
		}
	}
	p.Host = host
	if port == "" {
		return nil
	}
	digits := port[1:]
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return errors.New("the port of a proxy is a number from 1 to 65535, such as 3128")
	}
	p.Port = uint16(n)
	return nil
}

func isName(s string) bool {
	other := func(r rune) bool { return !isAlphanumeric(r) && r != '-' && r != '_' && r != '.' }
	return s != "" && strings.IndexFunc(s, other) < 0 && strings.Trim(s, ".") != ""
}

// isUserinfo says whether every character is one that stands for itself there, or
// is escaped.
func isUserinfo(s string) bool {
	other := func(r rune) bool { return !isAlphanumeric(r) && !strings.ContainsRune("-._~!$&'()*+,;=:%", r) }
	return strings.IndexFunc(s, other) < 0 && checkEscapes(s) == nil
}

// Redacted is the proxy without its user and password.
func (p Proxy) Redacted() string {
	host := p.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if p.Port != 0 {
		host += ":" + strconv.Itoa(int(p.Port))
	}
	return p.Scheme + "://" + host
}

// FromVariable is a proxy as ParseProxy reads it, of what a variable such as
// http_proxy holds: that may leave the scheme out, which is http then, and may end
// in a slash.
func FromVariable(value string) string {
	value = strings.TrimSpace(value)
	scheme, rest, ok := strings.Cut(value, "://")
	if !ok {
		scheme, rest = "http", value
	}
	if value == "" {
		return ""
	}
	return scheme + "://" + strings.TrimSuffix(rest, "/")
}
