package nameserver

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func testPool(capacity int) (*Pool, *time.Time) {
	now := time.Unix(1000, 0)
	p := NewPool(netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("fd00::/64"), capacity)
	p.now = func() time.Time { return now }
	return p, &now
}

func TestAddressesLeadBackToTheirName(t *testing.T) {
	p, _ := testPool(1000)
	seen := map[netip.Addr]string{}
	for i := range 600 {
		name := fmt.Sprintf("host%d.example", i)
		v4, v6, ok := p.Assign(name)
		if !ok || !p.Contains(v4) || !p.Contains(v6) || !v4.Is4() || !v6.Is6() {
			t.Fatalf("%s: %v %v %v", name, v4, v6, ok)
		}
		for _, a := range []netip.Addr{v4, v6, netip.AddrFrom16(v4.As16())} {
			if other, taken := seen[a]; taken {
				t.Fatalf("%v belongs to %s and %s", a, other, name)
			}
			seen[a] = name
			if got, ok := p.Name(a); !ok || got != name {
				t.Errorf("%v: got %q, want %q", a, got, name)
			}
		}
		again4, again6, _ := p.Assign(name)
		if again4 != v4 || again6 != v6 {
			t.Errorf("%s changed its addresses", name)
		}
	}
}

func TestAddressNeverGivenOutHasNoName(t *testing.T) {
	p, _ := testPool(10)
	if _, _, ok := p.Assign("a.com"); !ok {
		t.Fatal("no address")
	}
	for _, s := range []string{
		"198.18.0.0", "198.18.0.2", "198.19.255.255", "fd00::", "fd00::2", "fd00::1:0:1", "fd00:0:0:1::1", "1.1.1.1", "::1", "fd00::1:1",
	} {
		if name, ok := p.Name(netip.MustParseAddr(s)); ok {
			t.Errorf("%s: got %q", s, name)
		}
	}
	if _, ok := p.Name(netip.Addr{}); ok {
		t.Error("no address has a name")
	}
}

func TestAddressInUseNeverChangesHands(t *testing.T) {
	p, now := testPool(3)
	a, _, _ := p.Assign("a.com")
	_, _, _ = p.Assign("b.com")
	c, _, _ := p.Assign("c.com")
	name, release, ok := p.Acquire(a)
	if !ok || name != "a.com" {
		t.Fatalf("got %q, %v", name, ok)
	}
	if _, _, ok := p.Assign("d.com"); ok {
		t.Error("an address that was just given out changed hands")
	}
	*now = now.Add(Hold + time.Second)
	_, _, _ = p.Assign("c.com") // used again
	if d, _, ok := p.Assign("d.com"); !ok || d == a || d == c {
		t.Errorf("got %v, %v, want that of b.com", d, ok)
	}
	*now = now.Add(Hold + time.Second)
	if e, _, ok := p.Assign("e.com"); !ok || e == a {
		t.Errorf("got %v, %v: %v is in use", e, ok, a)
	}
	release()
	release() // counts once
	if got, _ := p.Name(a); got != "a.com" {
		t.Errorf("released address went to %q at once", got)
	}
	*now = now.Add(Hold + time.Second)
	for _, name := range []string{"x.com", "y.com", "z.com"} {
		if _, _, ok := p.Assign(name); !ok {
			t.Errorf("%s got no address", name)
		}
	}
	if got, _ := p.Name(a); got == "a.com" {
		t.Error("an address that nobody uses was never given to another name")
	}
	if len(p.byName) != 3 || p.recent.Len() != 3 {
		t.Errorf("%d names in a pool of 3", len(p.byName))
	}
}
