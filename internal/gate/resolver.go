package gate

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Resolver finds the addresses of a name. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// systemResolver asks the host's name servers or, if any are given, those.
func systemResolver(servers []string) Resolver {
	r := &net.Resolver{PreferGo: true}
	if len(servers) == 0 {
		return r
	}
	next := 0
	var mu sync.Mutex
	r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		mu.Lock()
		server := servers[next%len(servers)]
		next++
		mu.Unlock()
		var d net.Dialer
		return d.DialContext(ctx, network, server)
	}
	return r
}

const (
	resolveTime = 15 * time.Second
	// How long an answer is used again. What was checked is what is dialed,
	// whatever the name resolves to meanwhile.
	keepFound   = 30 * time.Second
	keepMissing = 5 * time.Second
	maxKept     = 2048
)

// names resolves each name once for all connections that want it at the same
// time, and for a little longer.
type names struct {
	resolver Resolver
	now      func() time.Time

	mu   sync.Mutex
	kept map[string]*resolution
}

type resolution struct {
	done    chan struct{} // closed when the rest is set
	addrs   []netip.Addr
	err     error
	expires time.Time
}

func newNames(r Resolver) *names {
	return &names{resolver: r, now: time.Now, kept: map[string]*resolution{}}
}

// lookup returns at least one address or an error. The name must have been
// allowed.
func (n *names) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	r := n.find(name)
	select {
	case <-r.done:
		return r.addrs, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *names) find(name string) *resolution {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.kept[name]; r != nil && (!r.isDone() || n.now().Before(r.expires)) {
		return r
	}
	if len(n.kept) >= maxKept {
		n.sweep()
	}
	r := &resolution{done: make(chan struct{})}
	n.kept[name] = r
	go n.resolve(name, r)
	return r
}

func (r *resolution) isDone() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// sweep makes room. What is still under way stays.
func (n *names) sweep() {
	now := n.now()
	for name, r := range n.kept {
		if r.isDone() && (!now.Before(r.expires) || len(n.kept) >= maxKept) {
			delete(n.kept, name)
		}
	}
}

func (n *names) resolve(name string, r *resolution) {
	// Not the context of who asked first: others wait too.
	ctx, cancel := context.WithTimeout(context.Background(), resolveTime)
	defer cancel()
	// With a dot at the end the name is whole: no search list makes it another.
	addrs, err := n.resolver.LookupNetIP(ctx, "ip", name+".")
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: name, IsNotFound: true}
	}
	keep := keepFound
	if err != nil {
		keep = keepMissing
	}
	n.mu.Lock()
	r.addrs, r.err, r.expires = addrs, err, n.now().Add(keep)
	n.mu.Unlock()
	close(r.done)
}

// isMissing says whether a name does not exist, as opposed to that this could
// not be found out.
func isMissing(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}
