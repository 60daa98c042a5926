// Package gate is the network gate: the one way out of a sandbox. It stands
// outside and takes connections on sockets that were made inside: as an HTTP
// proxy, as a SOCKS proxy, as the name server, and as whatever a program that
// knows of no proxy believes to be the server. Each way ends in the same place:
//
//	a name, in canonical form      package hostname
//	is it allowed?                 package rules; before anything is resolved
//	where is it?                   resolved here, once
//	may it be there?               package address
//	what does the client say       packages hello, head: SNI, Host, method, path
//	to that server?
//	bytes                          package relay: by the kernel if it can
//
// What is refused is refused in the client's own protocol, and is an event.
// Package config says how a gate is started and told what it may let through.
package gate

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/authority"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/nameserver"
	"github.com/bailey-sandbox/bailey/internal/gate/owner"
	"github.com/bailey-sandbox/bailey/internal/gate/relay"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

// Options are what a gate needs. Only Config and Events must be given.
type Options struct {
	Config  config.Config
	Events  event.Sink
	Control *config.Conn // where questions are asked; nil: nowhere

	Resolver Resolver       // nil: the host's
	Roots    *x509.CertPool // that servers are verified with; nil: the host's
	// Dial connects to an address that was checked; nil: TCP.
	Dial func(context.Context, netip.AddrPort) (net.Conn, error)
	// Destination says where a redirected connection was meant to go; nil: the
	// kernel knows.
	Destination func(*net.TCPConn) (netip.AddrPort, error)
	// Peers is a socket that tells whose connections are whose; see
	// config.RolePeers. It is needed if Config.Process is set.
	Peers *os.File
	// Getenv looks up variables for credentials; nil: those of this process.
	Getenv func(string) string
}

// Gate lets connections out. It may be used by several goroutines at once.
type Gate struct {
	options Options
	events  event.Sink
	names   *names
	own     ownAddresses
	pool    *nameserver.Pool
	server  *nameserver.Server
	asker   *asker
	owners  *owner.Finder // nil: nobody asks for them
	slots   chan struct{} // as many as connections are allowed at once
	away    chan struct{} // as many as are told at once that there is no room
	current atomic.Pointer[state]

	rejected    rejections
	authorities sync.Map // by directory: func() (*authority.Authority, error)

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	mu     sync.Mutex // of the two below
	open   map[net.Conn]config.Role
	wait   sync.WaitGroup
}

// state is what a configuration comes to. A connection keeps the one it began
// with.
type state struct {
	config   config.Config
	rules    *rules.Set
	inject   []*credential
	upstream *upstream
	limits   config.Limits
	bucket   *relay.Bucket
}

// poolSize is how many names may have an address at a time.
const poolSize = 16 << 10

// New makes a gate. It serves nothing yet.
func New(o Options) (*Gate, error) {
	if o.Resolver == nil {
		o.Resolver = systemResolver(o.Config.Nameservers)
	}
	if o.Dial == nil {
		o.Dial = dialTCP
	}
	if o.Destination == nil {
		o.Destination = originalDestination
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := &Gate{
		options: o, events: o.Events, names: newNames(o.Resolver), own: ownAddresses{list: net.InterfaceAddrs},
		pool:  nameserver.NewPool(netip.MustParsePrefix(config.PoolIPv4), netip.MustParsePrefix(config.PoolIPv6), poolSize),
		asker: newAsker(o.Control), ctx: ctx, cancel: cancel, open: map[net.Conn]config.Role{},
	}
	g.server = &nameserver.Server{Pool: g.pool, Lookup: g.lookup}
	if err := errors.Join(g.Reload(o.Config), g.findOwners()); err != nil {
		cancel()
		return nil, err
	}
	g.slots = make(chan struct{}, g.current.Load().limits.Connections)
	g.away = make(chan struct{}, maxTurnedAway)
	return g, nil
}

// Reload replaces the configuration for connections that come from now on. If
// it cannot be used, the old one holds. The number of connections and the name
// servers stay as they were when the gate was made.
func (g *Gate) Reload(c config.Config) error {
	set, err := rules.Compile(&c)
	if err != nil {
		return err
	}
	up, err := newUpstream(c.Upstream)
	if err != nil {
		return err
	}
	credentials, err := newCredentials(c.Inject, g.options.Getenv)
	if err != nil {
		return err
	}
	s := &state{config: c, rules: set, inject: credentials, upstream: up, limits: withDefaults(c.Limits)}
	s.bucket = relay.NewBucket(s.limits.Bandwidth)
	g.current.Store(s)
	return nil
}

// Answer takes the answer to a question that the gate asked.
func (g *Gate) Answer(m config.Message) { g.asker.answer(m) }

// Serve takes connections from a listener until that or the gate is closed.
func (g *Gate) Serve(role config.Role, l net.Listener) error {
	serve, ok := map[config.Role]func(*session){
		config.RoleHTTP:   (*session).serveProxy,
		config.RoleSOCKS:  (*session).serveSOCKS,
		config.RoleMixed:  (*session).serveMixed,
		config.RoleUnix:   (*session).serveUnix,
		config.RoleTCP:    (*session).serveRedirected,
		config.RoleDNSTCP: (*session).serveNames,
	}[role]
	if !ok {
		return fmt.Errorf("no connections come as %q", role)
	}
	return g.accept(role, l, serve)
}

// accept serves each connection of a listener by itself, until that or the gate
// is closed.
func (g *Gate) accept(role config.Role, l net.Listener, serve func(*session)) error {
	if !g.enter(func() {}) {
		return l.Close()
	}
	defer g.wait.Done() // by then nobody listens any more
	stop := context.AfterFunc(g.ctx, func() { l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		switch {
		case g.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			if c != nil {
				c.Close()
			}
			return nil
		case err != nil:
			if err := g.acceptFailed(err); err != nil {
				return err
			}
			continue
		}
		g.begin(role, c, serve)
	}
}

// ServePacket answers names on a datagram socket until that or the gate is
// closed.
func (g *Gate) ServePacket(c *net.UDPConn) error {
	stop := context.AfterFunc(g.ctx, func() { c.Close() })
	defer stop()
	return g.server.ServePacket(g.ctx, c)
}

// Close ends every connection, and returns when all are ended. The sandbox is gone
// by then; what it had sent to clients outside still reaches them.
func (g *Gate) Close() {
	g.mu.Lock()
	// The clients first: they are not to be told that their servers are gone.
	for c, role := range g.open {
		if role != roleExposed {
			relay.Reset(c)
		}
	}
	g.cancel()
	g.mu.Unlock()
	g.wait.Wait()
}

// authority returns the certificate authority, which is opened when the first
// connection needs it.
func (g *Gate) authority(dir string) (*authority.Authority, error) {
	open, _ := g.authorities.LoadOrStore(dir, sync.OnceValues(func() (*authority.Authority, error) {
		if dir == "" {
			return nil, errors.New("there is no directory for the certificate authority")
		}
		return authority.Open(dir)
	}))
	return open.(func() (*authority.Authority, error))()
}
