package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestAllowedNameMustNotLeadInside(t *testing.T) {
	w := newWorld(t, allowed)
	s := echo(t)
	w.place(80, addressOf(s))
	for i, list := range [][]string{
		{"127.0.0.1"},
		{"127.8.8.8"},
		{"0.0.0.0"},
		{"10.1.2.3"},
		{"172.20.0.1"},
		{"192.168.1.1"},
		{"169.254.169.254"},
		{"169.254.1.1"},
		{"100.64.1.1"},
		{"224.0.0.1"},
		{"255.255.255.255"},
		{"198.18.0.1"},
		{"::1"},
		{"::"},
		{"fe80::1"},
		{"fd00:ec2::254"},
		{"fc00::1"},
		{"::ffff:127.0.0.1"},
		{"::ffff:10.0.0.1"},
		{"64:ff9b::7f00:1"},
		{"2002:7f00:1::"},
		{"ff02::1"},
		{"127.0.0.1", "10.0.0.1"},
	} {
		name := fmt.Sprintf("n%d.allowed.example", i)
		w.mu.Lock()
		w.hosts[name] = addrs(list...)
		w.mu.Unlock()
		status, body := get(t, w.client(w.http, nil), "http://"+name+"/")
		if status != 403 {
			t.Errorf("%v: got %d %q", list, status, body)
		}
		contains(t, list[0], body, "the name resolves to", "network.allowedCIDRs")
		if e := w.denied(name); e.Address == "" || e.Rule != "special address" {
			t.Errorf("%v: got %+v", list, e)
		}
		if _, _, status, _ := w.connect(name + ":443"); status != 403 {
			t.Errorf("%v: CONNECT got %d", list, status)
		}
	}
	if _, dialed := w.traces(); len(dialed) > 0 {
		t.Errorf("dialed %v", dialed)
	}
	// Of several addresses only those that may be reached are.
	w.mu.Lock()
	w.hosts["mixed.allowed.example"] = append(addrs("127.0.0.1", "10.0.0.1"), public)
	w.mu.Unlock()
	if status, body := get(t, w.client(w.http, nil), "http://mixed.allowed.example/"); status != 200 {
		t.Errorf("got %d %q", status, body)
	}
	if _, dialed := w.traces(); !slices.Equal(dialed, []netip.AddrPort{netip.AddrPortFrom(public, 80)}) {
		t.Errorf("dialed %v", dialed)
	}
}

func TestGrantedAddressesMayBeWhereANameLeads(t *testing.T) {
	s := echo(t)
	port := netip.MustParseAddrPort(addressOf(s)).Port()
	for name, policy := range map[string]string{
		"range":   `{"network": {"allowedCIDRs": ["127.0.0.0/8"], "rules": [{"host": "local.example", "ports": ["*"], "action": "allow"}]}}`,
		"address": `{"network": {"rules": [{"host": "local.example", "ports": ["*"], "action": "allow"}, {"host": "127.0.0.1", "ports": ["*"], "action": "allow"}]}}`,
	} {
		w := newWorld(t, policy, func(w *world) { w.hosts["local.example"] = addrs("127.0.0.1") })
		if status, body := get(t, w.client(w.http, nil), fmt.Sprintf("http://local.example:%d/", port)); status != 200 {
			t.Errorf("%s: got %d %q", name, status, body)
		}
	}
	// "*" is no grant of any single address, and a denial of one wins.
	for _, policy := range []string{
		`{"network": {"allowedDomains": ["*"]}}`,
		`{"network": {"allowedDomains": ["*"], "allowedCIDRs": ["127.0.0.0/8"], "deniedDomains": ["127.0.0.1"]}}`,
	} {
		w := newWorld(t, policy, func(w *world) { w.hosts["local.example"] = addrs("127.0.0.1") })
		for _, host := range []string{"local.example", "127.0.0.1", "0x7f.1", "[::ffff:127.0.0.1]"} {
			if status, body := get(t, w.client(w.http, nil), fmt.Sprintf("http://%s:%d/", host, port)); status != 403 {
				t.Errorf("%s under %s: got %d %q", host, policy, status, body)
			}
		}
	}
}

func TestAddressesOfThisMachineAreRefused(t *testing.T) {
	w := newWorld(t, allowed)
	w.own.list = func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: public.AsSlice(), Mask: net.CIDRMask(24, 32)}}, nil
	}
	status, body := get(t, w.client(w.http, nil), "http://allowed.example/")
	if status != 403 {
		t.Errorf("got %d", status)
	}
	contains(t, "answer", body, "an address of this machine")
}

func TestWhatWasCheckedIsWhatIsDialed(t *testing.T) {
	s := echo(t)
	w := newWorld(t, allowed)
	w.place(80, addressOf(s))
	var calls atomic.Int32
	// A name that leads elsewhere whenever it is asked for again.
	w.names.resolver = resolverFunc(func() ([]netip.Addr, error) {
		if calls.Add(1) == 1 {
			return []netip.Addr{public}, nil
		}
		return addrs("127.0.0.1"), nil
	})
	for range 3 {
		if status, body := get(t, w.client(w.http, nil), "http://allowed.example/"); status != 200 {
			t.Errorf("got %d %q", status, body)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the name was resolved %d times", n)
	}
	// Later it is resolved again, and checked again.
	w.names.now = func() time.Time { return time.Now().Add(keepFound + time.Second) }
	if status, body := get(t, w.client(w.http, nil), "http://allowed.example/"); status != 403 {
		t.Errorf("got %d %q", status, body)
	}
}

type resolverFunc func() ([]netip.Addr, error)

func (f resolverFunc) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) { return f() }

func TestNamesAreResolvedOnceForAllWhoWait(t *testing.T) {
	var calls atomic.Int32
	let := make(chan struct{})
	n := newNames(resolverFunc(func() ([]netip.Addr, error) {
		calls.Add(1)
		<-let
		return []netip.Addr{public}, nil
	}))
	results := make(chan error)
	for range 10 {
		go func() {
			_, err := n.lookup(t.Context(), "a.example")
			results <- err
		}()
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.lookup(gone, "a.example"); err == nil {
		t.Error("a client that went away still waits")
	}
	close(let)
	for range 10 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if calls.Load() != 1 {
		t.Errorf("resolved %d times", calls.Load())
	}
	for i := range maxKept + 100 {
		if _, err := n.lookup(t.Context(), fmt.Sprintf("h%d.example", i)); err != nil {
			t.Fatal(err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.kept) > maxKept {
		t.Errorf("%d names are kept", len(n.kept))
	}
}

func TestFirstAddressThatAnswersWins(t *testing.T) {
	list := addrs("192.0.2.1", "192.0.2.2", "192.0.2.3")
	wait := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, c := range map[string]struct {
		dial map[string]func(context.Context) error
		want string
	}{
		"the first":           {nil, "192.0.2.1"},
		"the first refuses":   {map[string]func(context.Context) error{"192.0.2.1": func(context.Context) error { return errors.New("refused") }}, "192.0.2.2"},
		"the first is silent": {map[string]func(context.Context) error{"192.0.2.1": wait}, "192.0.2.2"},
		"two are silent":      {map[string]func(context.Context) error{"192.0.2.1": wait, "192.0.2.2": wait}, "192.0.2.3"},
	} {
		begin := time.Now()
		conn, addr, err := race(t.Context(), list, 80, func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			if dial := c.dial[to.Addr().String()]; dial != nil {
				if err := dial(ctx); err != nil {
					return nil, err
				}
			}
			near, _ := net.Pipe()
			return near, nil
		})
		if err != nil || addr.String() != c.want || conn == nil {
			t.Errorf("%s: got %v, %v", name, addr, err)
		}
		if took := time.Since(begin); took > 12*headStart {
			t.Errorf("%s: it took %v", name, took)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := race(ctx, list, 80, func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) { return nil, wait(ctx) }); err == nil {
		t.Error("nobody answered, and it went well")
	}
	if _, _, err := race(t.Context(), list, 80, func(context.Context, netip.AddrPort) (net.Conn, error) { return nil, errors.New("no") }); err == nil {
		t.Error("all refused, and it went well")
	}
}
