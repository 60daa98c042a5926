package conformance

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

var networkProperties = []Property{
	{Name: "a closed network reaches nothing of the host", Try: closeNetwork},
	{Name: "an open network is the host's", Key: "network.allowedDomains", Try: openNetwork},
	{Name: "hosts are reached through the gate at a unix socket", Key: "network", Try: gateBySocket},
	{Name: "hosts are reached through the gate at a port", Key: "network", Try: gateByListener},
	{Name: "unix sockets of the host are reached only where they are granted", Key: "network.allowUnixSockets", Try: unixSockets},
	{Name: "abstract sockets of the host are not reached", Try: abstractSockets},
}

// opened is the base with the host's network.
var opened = strings.Replace(base, `"network": {`, `"network": {"allowedDomains": ["*"], `, 1)

// greet serves connections of the host's with a line, and returns where.
func (p *Place) greet(network, address string) net.Listener {
	p.Helper()
	l, err := net.Listen(network, address)
	p.must(err)
	p.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintln(c, secret)
			_ = c.Close()
		}
	}()
	return l
}

func closeNetwork(p *Place) {
	at := p.greet("tcp", "127.0.0.1:0").Addr().String()
	got := p.role(base, "connect", at)
	p.fails(got)
	p.keeps(got)
	if p.isRefused("network.allowedDomains", func() { p.says(p.role(opened, "connect", at), secret) }) {
		p.says(p.role(base, "connect-own"), "heard") // the probe can connect, at least
	}
}

func openNetwork(p *Place) {
	p.says(p.role(opened, "connect", p.greet("tcp", "127.0.0.1:0").Addr().String()), secret)
}

// gated is a policy that grants one port of the host's, by its address.
func gated(more, port string) string {
	return `{"filesystem": {"protectMissing": false}, "network": {"allowAllUnixSockets": true, ` + more +
		`"rules": [{"host": "127.0.0.1", "ports": [` + port + `], "action": "allow"}]}}`
}

// pages serves two pages of the host's, and returns where they are.
func (p *Place) pages() (granted, other string) {
	p.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, secret) })
	var at [2]string
	for i := range at {
		s := httptest.NewServer(handler)
		p.Cleanup(s.Close)
		at[i] = strings.TrimPrefix(s.URL, "http://")
	}
	return at[0], at[1]
}

func gateBySocket(p *Place) { p.gate(`"egress": "socket", `, "unix", "/.bailey/gate.sock") }

func gateByListener(p *Place) { p.gate("", "tcp", "127.0.0.1:940") }

func (p *Place) gate(more, network, proxy string) {
	p.Helper()
	granted, other := p.pages()
	_, port, err := net.SplitHostPort(granted)
	p.must(err)
	policy := gated(more, port)
	for _, target := range []string{other, "denied.example:80"} {
		got := p.role(policy, "fetch", network, proxy, "http://"+target+"/")
		p.fails(got)
		p.keeps(got)
	}
	for _, target := range []string{granted, other} { // past the gate
		if network == "unix" || target == other {
			got := p.role(policy, "connect", target)
			p.fails(got)
			p.keeps(got)
		}
	}
	p.says(p.role(policy, "fetch", network, proxy, "http://"+granted+"/"), secret)
}

// socketPath is one in the project, which leaves room for that of a socket.
func (p *Place) socketPath(name string) string {
	p.Helper()
	const longest = 107
	path := filepath.Join(p.project, name)
	if len(path) > longest {
		p.Fatalf("%s is too long for a socket", path)
	}
	return path
}

func unixSockets(p *Place) {
	at := p.socketPath("s")
	p.greet("unix", at)
	p.must(os.Chmod(at, 0o777))
	closed := `{"filesystem": {"protectMissing": false}}`
	got := p.role(closed, "unix", at)
	p.fails(got)
	p.keeps(got)
	one := `{"filesystem": {"protectMissing": false}, "network": {"allowUnixSockets": ["` + at + `"]}}`
	p.says(p.role(one, "unix", at), secret)
}

func abstractSockets(p *Place) {
	name := "@" + filepath.Base(filepath.Dir(p.home)) + fmt.Sprint(unix.Getpid())
	p.greet("unix", name)
	got := p.role(base, "unix", name)
	p.fails(got)
	p.keeps(got)
	at := p.socketPath("s")
	p.greet("unix", at)
	p.must(os.Chmod(at, 0o777))
	p.says(p.role(base, "unix", at), secret)
}
