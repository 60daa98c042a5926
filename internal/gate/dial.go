package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/address"
	"github.com/bailey-sandbox/bailey/internal/gate/relay"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

const (
	dialTime = 30 * time.Second
	// headStart is what one address has before the next is tried as well.
	headStart = 250 * time.Millisecond
	// maxAddresses of one name are tried.
	maxAddresses = 8
)

// leg is the part of a connection that leads out.
type leg struct {
	*wire
	address netip.Addr // zero if a proxy resolves the name
	// via is the proxy that has to be asked for each request by its whole URL;
	// nil if the wire leads to the server.
	via *proxy
	// free ends what would close the connection at the end of the session.
	free func() bool
}

// Close implements net.Conn.
func (l *leg) Close() error {
	l.free()
	return l.wire.Close()
}

// newLeg is a connection that ends with the session at the latest.
func (s *session) newLeg(w *wire, addr netip.Addr) *leg {
	return &leg{wire: w, address: addr, free: context.AfterFunc(s.ctx, func() { relay.Reset(w.Conn) })}
}

// dial connects to a host that was granted. The error is a *denial if the host
// is at an address that is not.
func (s *session) dial(q rules.Query, g grant) (*leg, error) {
	ctx, cancel := context.WithTimeout(s.ctx, dialTime)
	defer cancel()
	if p := s.upstream.choose(q.Scheme, q.Host, q.Port); p != nil {
		return s.dialUpstream(ctx, q, p)
	}
	if g.proxied {
		return nil, errors.New("no upstream proxy is meant for this host")
	}
	addrs, err := s.addresses(ctx, q)
	if err != nil {
		return nil, err
	}
	c, addr, err := race(ctx, addrs, q.Port, s.gate.options.Dial)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be reached: %w", q.Host.Join(q.Port), plainError(err))
	}
	return s.newLeg(newWire(c), addr), nil
}

// addresses are where a host is, as far as the policy lets it be there. These
// very addresses are then dialed: nothing is resolved a second time.
func (s *session) addresses(ctx context.Context, q rules.Query) ([]netip.Addr, error) {
	found := []netip.Addr{q.Host.Addr()}
	if !q.Host.IsAddr() {
		var err error
		if found, err = s.gate.names.lookup(ctx, q.Host.Name()); err != nil {
			return nil, fmt.Errorf("%s cannot be resolved: %w", q.Host, plainError(err))
		}
	}
	var allowed []netip.Addr
	var refused error
	for _, addr := range found {
		addr = addr.Unmap()
		if d := s.checkAddress(q, addr); d != nil {
			refused = d
			continue
		}
		if len(allowed) < maxAddresses {
			allowed = append(allowed, addr)
		}
	}
	if len(allowed) == 0 {
		return nil, refused
	}
	return allowed, nil
}

// checkAddress returns a denial unless a host may be at this address.
func (s *session) checkAddress(q rules.Query, addr netip.Addr) *denial {
	if v, denied := s.rules.DeniesAddr(addr, q.Port); denied {
		d := explain(s.rules, q, v)
		d.address = addr
		return d
	}
	what := address.Special(addr)
	if what == "" && s.gate.own.has(addr) {
		what = "an address of this machine"
	}
	if what == "" || s.rules.GrantsAddr(addr, q.Port) {
		return nil
	}
	return special(q, addr, what)
}

// ownAddresses are those of this machine. Its services listen on them too, and
// see a connection from here as one from the machine itself.
type ownAddresses struct {
	list func() ([]net.Addr, error)

	mu      sync.Mutex
	addrs   map[netip.Addr]bool
	expires time.Time
}

const keepOwn = 10 * time.Second

func (o *ownAddresses) has(addr netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); now.After(o.expires) {
		o.expires = now.Add(keepOwn)
		o.addrs = map[netip.Addr]bool{}
		// If the list cannot be had, the ranges above are what remains.
		list, _ := o.list()
		for _, entry := range list {
			if network, ok := entry.(*net.IPNet); ok {
				if a, ok := netip.AddrFromSlice(network.IP); ok {
					o.addrs[a.Unmap()] = true
				}
			}
		}
	}
	return o.addrs[addr]
}

// dialFunc connects to an address.
type dialFunc func(ctx context.Context, to netip.AddrPort) (net.Conn, error)

// race tries addresses one after the other, each with a head start, and returns
// the first connection that is made.
func race(ctx context.Context, addrs []netip.Addr, port uint16, dial dialFunc) (net.Conn, netip.Addr, error) {
	type result struct {
		conn net.Conn
		addr netip.Addr
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result)
	next, running := 0, 0
	start := func() {
		addr := addrs[next]
		next++
		running++
		go func() {
			c, err := dial(ctx, netip.AddrPortFrom(addr, port))
			select {
			case results <- result{c, addr, err}:
			case <-ctx.Done():
				if c != nil {
					c.Close()
				}
			}
		}()
	}
	start()
	timer := time.NewTimer(headStart)
	defer timer.Stop()
	var first error
	for running > 0 {
		select {
		case r := <-results:
			if r.err == nil {
				return r.conn, r.addr, nil
			}
			running--
			if first == nil {
				first = r.err
			}
		case <-timer.C:
		case <-ctx.Done():
			if first == nil {
				first = ctx.Err()
			}
			return nil, netip.Addr{}, first
		}
		if next < len(addrs) {
			start()
			timer.Reset(headStart)
		}
	}
	return nil, netip.Addr{}, first
}

// dialTCP is how addresses are dialed unless a test does it.
func dialTCP(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", to.String())
}

// plainError drops what package net puts in front: the reader knows the address.
func plainError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		if dns.IsNotFound {
			return errNoSuchHost
		}
		return errors.New(dns.Err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errTooLong
	}
	return err
}

var (
	errNoSuchHost = errors.New("there is no such name")
	errTooLong    = errors.New("it does not answer")
)
