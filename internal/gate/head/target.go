package head

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
)

// Authority is a host and a port.
type Authority struct {
	Host hostname.Host
	Port uint16
}

// String is the authority as it stands in a URL.
func (a Authority) String() string { return a.Host.Join(a.Port) }

const httpPort = 80

// ConnectTarget reads the target of a CONNECT, which is a host and a port and
// nothing else.
func (q *Request) ConnectTarget() (Authority, error) {
	host, port, err := hostname.ParseHostPort(q.Target, 0)
	if err != nil {
		return Authority{}, bad("the target of CONNECT: " + err.Error())
	}
	a := Authority{host, port}
	// Many clients repeat it in Host, some without the port.
	if value, ok := q.Fields.Get("Host"); ok && value != "" {
		if again, err := parseAuthority(value, port); err != nil || again != a {
			return Authority{}, bad("Host and the target of CONNECT differ")
		}
	}
	return a, nil
}

// ProxyTarget reads the target of any other request to a proxy: where it goes,
// and what the server there is to be asked for.
func (q *Request) ProxyTarget() (Authority, string, error) {
	scheme, authority, local, ok := splitURL(q.Target)
	switch {
	case !ok:
		return Authority{}, "", bad("this is a proxy: want a whole URL as the target, or CONNECT")
	case scheme != "http":
		return Authority{}, "", bad("only http URLs are served here: use CONNECT for others")
	}
	a, err := parseAuthority(authority, httpPort)
	if err != nil {
		return Authority{}, "", err
	}
	if local == "" {
		local = "/"
		if q.Method == http.MethodOptions {
			local = "*"
		}
	}
	return a, local, q.checkHost(a, httpPort)
}

// OriginTarget reads the target of a request to a server, which must be the one
// that the connection leads to.
func (q *Request) OriginTarget(a Authority, defaultPort uint16) (string, error) {
	local := q.Target
	if scheme, authority, rest, ok := splitURL(local); ok {
		// The whole URL is allowed here too.
		again, err := parseAuthority(authority, defaultPort)
		if scheme != "http" && scheme != "https" || err != nil || again != a {
			return "", bad("the target names another host than the connection leads to")
		}
		if local = rest; local == "" {
			local = "/"
		}
	}
	if !strings.HasPrefix(local, "/") && (local != "*" || q.Method != http.MethodOptions) {
		return "", bad("malformed request target")
	}
	return local, q.checkHost(a, defaultPort)
}

// HostOf is what a request to a server names as its host; without one it says
// false.
func (q *Request) HostOf(defaultPort uint16) (Authority, bool, error) {
	value, ok := q.Fields.Get("Host")
	if !ok {
		return Authority{}, false, nil
	}
	a, err := parseAuthority(value, defaultPort)
	return a, true, err
}

// checkHost wants Host to name where the request goes.
func (q *Request) checkHost(a Authority, defaultPort uint16) error {
	named, given, err := q.HostOf(defaultPort)
	if err != nil {
		return err
	}
	if given && named != a {
		return bad("Host names another host than the request goes to")
	}
	return nil
}

// PlainHost is how a server is told its name: in the client's spelling if that
// is the canonical one but for capital letters, and in the canonical one
// otherwise, since servers may read others in ways of their own. What was sent
// must have been checked; if it is empty, it is the authority.
func PlainHost(sent string, a Authority, defaultPort uint16) string {
	explicit := a.Port != defaultPort
	if sent != "" {
		host, port, err := hostname.ParseHostPort(sent, defaultPort)
		if err == nil {
			a = Authority{host, port}
			explicit = port != defaultPort || strings.HasSuffix(sent, ":"+strconv.Itoa(int(port)))
		}
	}
	text := a.String()
	if !explicit {
		text = strings.TrimSuffix(text, ":"+strconv.Itoa(int(a.Port)))
	}
	if strings.EqualFold(text, sent) {
		return sent
	}
	return text
}

// splitURL splits a URL with an authority. What follows that begins with a slash
// or is empty.
func splitURL(target string) (scheme, authority, local string, ok bool) {
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok || strings.ContainsAny(scheme, "/?") {
		return "", "", "", false
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	authority, local = rest[:end], rest[end:]
	if strings.HasPrefix(local, "?") {
		local = "/" + local
	}
	return strings.ToLower(scheme), authority, local, true
}

func parseAuthority(s string, defaultPort uint16) (Authority, error) {
	if strings.Contains(s, "@") {
		return Authority{}, bad("a user has no place in the host")
	}
	host, port, err := hostname.ParseHostPort(s, defaultPort)
	if err != nil {
		return Authority{}, bad("malformed host: " + err.Error())
	}
	return Authority{host, port}, nil
}
