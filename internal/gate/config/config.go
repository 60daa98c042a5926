// Package config is what the network gate is told, and the messages it exchanges
// with whoever started it. It is pure data that imports nothing of the network,
// so that the command can link it.
//
// The gate is a process of its own. It inherits descriptors, and its arguments
// say which is which:
//
//	bailey-gate serve --config FD --events FD --control FD --listen ROLE=FD ...
//		--expose PORT=FD ... --inside FD=FD ...
//
// The first yields one Config as JSON, and then its end. To the second the gate
// writes events, one a line, as package event has them. The third is a stream
// socket that carries Messages, one a line, in both directions; when its other
// end is closed the gate ends, and with it every connection. If it has to end
// before that, the first line that it writes to stderr says why. The others are
// listening sockets, made wherever the clients are; the Roles say what is spoken
// there. Two more sockets may be among them, that only tell: about connections of
// the sandbox's network, and about datagrams that were not let out of it. Behind
// --expose are listeners outside for a port inside, and behind --inside the
// sockets by which the gate gets in.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/bailey-sandbox/bailey/internal/policy/notation"
)

// Version is the version of Config and of Message. Both ends come from one
// release, so that another one means a mixed-up installation.
const Version = 1

// Addresses that the gate's name server gives out. They are from ranges that no
// network routes, and mean nothing outside of one gate.
const (
	PoolIPv4 = "198.18.0.0/15"
	PoolIPv6 = "fd62:6169:6c65:79::/64"
)

// Role is what is spoken on a listening socket.
type Role string

const (
	RoleHTTP   Role = "http"    // an HTTP proxy
	RoleSOCKS  Role = "socks"   // SOCKS5, SOCKS4 and SOCKS4a
	RoleMixed  Role = "mixed"   // either; the first byte tells
	RoleUnix   Role = "unix"    // as mixed, or as to the server itself, on a unix socket
	RoleTCP    Role = "tcp"     // connections redirected from anywhere (SO_ORIGINAL_DST)
	RoleDNSUDP Role = "dns-udp" // a bound datagram socket
	RoleDNSTCP Role = "dns-tcp"

	// RoleHanded is a socket of packets over which connections come that somebody
	// else has accepted, one with each packet, that says in a text what it is:
	// "mixed ADDR:PORT PID", or "tcp ADDR:PORT PID" for one that was meant to go to
	// that address. PID is the process that made it.
	RoleHanded Role = "handed"

	// RolePeers and RoleRejected are netlink sockets: the one answers which
	// socket has the other end of a connection (sock_diag), the other has the
	// heads of datagrams that lead nowhere (nfnetlink_log).
	RolePeers    Role = "peers"
	RoleRejected Role = "rejected"

	// RoleMint and RoleSeed are sockets of TCP by which the gate makes others in
	// the sandbox's network, to reach ports there; see package inside. The one
	// listens, the other is not connected.
	RoleMint Role = "mint"
	RoleSeed Role = "seed"
)

// Roles lists every Role.
func Roles() []Role {
	return []Role{RoleHTTP, RoleSOCKS, RoleMixed, RoleUnix, RoleTCP, RoleDNSUDP, RoleDNSTCP, RoleHanded, RolePeers, RoleRejected}
}

// Action is what happens to a connection.
type Action string

const (
	Deny  Action = "deny"
	Allow Action = "allow"
	Ask   Action = "ask"
	Proxy Action = "proxy" // of Default only: the upstream proxy decides
)

// Config is all the gate knows.
type Config struct {
	Version int    `json:"version"`
	Sandbox string `json:"sandbox,omitempty"` // its id, for events
	// Process is the first process of the sandbox, if events are to name the
	// process that made a connection.
	Process int `json:"process,omitempty"`

	// Rules are in order, and the first that matches decides. Denials come
	// first; see package grants.
	Rules   []Rule  `json:"rules,omitempty"`
	Ranges  []Range `json:"ranges,omitempty"`
	Default Action  `json:"default"`
	// CanAsk says that questions on the control socket are answered. Without it
	// a question is a denial.
	CanAsk bool `json:"canAsk,omitempty"`

	Inject   []Injection `json:"inject,omitempty"`
	Upstream Upstream    `json:"upstream,omitzero"`
	Limits   Limits      `json:"limits,omitzero"`

	// AuthorityDir holds the certificate authority that signs for hosts whose
	// TLS is opened. It is needed if NeedsAuthority.
	AuthorityDir string `json:"authorityDir,omitempty"`
	// Environ is the environment that credentials, the programs that print them and
	// the roots of TLS are looked up in; none: the gate's own. Who starts the gate adds
	// it, so that no value is in a Spec.
	Environ []string `json:"environ,omitempty"`
	// Nameservers are asked instead of the host's own, as address:port.
	Nameservers []string `json:"nameservers,omitempty"`
}

// Rule decides about some hosts.
type Rule struct {
	// Host is a name, "*.suffix", "*" or an address.
	Host    string   `json:"host"`
	Ports   []Ports  `json:"ports,omitempty"`   // none: every port
	Schemes []string `json:"schemes,omitempty"` // http, https, ssh, tcp; none: every protocol
	Methods []string `json:"methods,omitempty"` // none: every method
	Paths   []string `json:"paths,omitempty"`   // none: every path
	Action  Action   `json:"action"`
	// Inspect opens TLS, so that methods and paths can be seen.
	Inspect bool `json:"inspect,omitempty"`

	// Name is how events call the rule: a key of the policy and its entry.
	Name string `json:"name,omitempty"`
	// Where is file:line:column of it, if it has one.
	Where string `json:"where,omitempty"`
}

// Ports is a range, both ends included.
type Ports struct {
	From uint16 `json:"from"`
	To   uint16 `json:"to"`
}

// Range is a range of addresses that can be reached directly, on every port, and
// that allowed names may resolve to.
type Range struct {
	CIDR  string `json:"cidr"`
	Where string `json:"where,omitempty"`
}

// How a credential is sent.
const (
	InHeader = "header"
	InBasic  = "basic"
	InQuery  = "query"
)

// Injection is a credential that the gate adds to requests. The value comes from
// exactly one of FromEnv, FromFile and FromCommand, and is read by the gate.
type Injection struct {
	Hosts []string `json:"hosts"`
	As    string   `json:"as"`             // InHeader, InBasic or InQuery
	Name  string   `json:"name,omitempty"` // of the header, of the user, of the parameter
	// Format is the text of a header, with the value in the place of {}.
	Format string `json:"format,omitempty"`

	FromEnv     string   `json:"fromEnv,omitempty"`
	FromFile    string   `json:"fromFile,omitempty"` // an absolute path
	FromCommand []string `json:"fromCommand,omitempty"`
}

// Upstream says through which proxy connections leave. A proxy is a URL with the
// scheme http, https or socks5, possibly with a user and a password. Names are
// handed to it unresolved.
type Upstream struct {
	HTTP    string `json:"http,omitempty"`    // for requests in plain HTTP
	HTTPS   string `json:"https,omitempty"`   // for everything on port 443
	All     string `json:"all,omitempty"`     // for what the two above do not say
	NoProxy string `json:"noProxy,omitempty"` // hosts reached directly, as in NO_PROXY
}

// Redacted is the same without users and passwords, for people to see.
func (u Upstream) Redacted() Upstream {
	for _, text := range []*string{&u.HTTP, &u.HTTPS, &u.All} {
		if *text == "" {
			continue
		}
		p, err := notation.ParseProxy(*text)
		if *text = p.Redacted(); err != nil {
			*text = "a proxy"
		}
	}
	return u
}

// Limits bound what the gate serves. 0 means the gate's own default.
type Limits struct {
	Connections int           `json:"connections,omitempty"` // at once
	HeaderBytes int64         `json:"headerBytes,omitempty"`
	Idle        time.Duration `json:"idle,omitempty"`
	Total       time.Duration `json:"total,omitempty"`
	Bandwidth   int64         `json:"bandwidth,omitempty"` // bytes a second, both directions together
}

// NeedsAuthority says whether TLS is opened for any host.
func (c *Config) NeedsAuthority() bool {
	for i := range c.Rules {
		if c.Rules[i].Inspect {
			return true
		}
	}
	return len(c.Inject) > 0
}

// maxSize bounds a Config and a Message: far more than the largest policy.
const maxSize = 64 << 20

// Read reads a Config to its end.
func Read(r io.Reader) (Config, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration: %w", err)
	}
	if len(data) > maxSize {
		return Config{}, errors.New("the configuration is too large")
	}
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return Config{}, fmt.Errorf("read the configuration: %w", err)
	}
	return c, c.checkVersion()
}

// Write writes what Read reads.
func (c *Config) Write(w io.Writer) error {
	stamped := *c
	stamped.Version = Version
	return json.NewEncoder(w).Encode(&stamped)
}

func (c *Config) checkVersion() error {
	if c.Version != Version {
		return fmt.Errorf("the configuration has version %d, and only %d is known here: install all commands of Bailey from one release", c.Version, Version)
	}
	return nil
}

// Asks says whether a question could come up.
func (c *Config) Asks() bool {
	if c.Default == Ask {
		return true
	}
	for i := range c.Rules {
		if c.Rules[i].Action == Ask {
			return true
		}
	}
	return false
}
