package rules

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
)

// FuzzRangesGrantTheirAddressesOnly compares the look-up in sorted ranges with
// trying one after the other. The ranges come as one text, separated by blanks.
func FuzzRangesGrantTheirAddressesOnly(f *testing.F) {
	for _, seed := range [][2]string{
		{"10.0.0.0/8 10.1.0.0/16 11.0.0.0/8", "10.1.2.3"},
		{"0.0.0.0/0 ::/0", "::1"},
		{"127.0.0.1", "2130706433"},
		{"fd00::/8 fd00::1", "[fd00::1]"},
		{"10.9.9.9/8", "10.0.0.1"},
		{"64:ff9b::/96 ::ffff:1.2.3.4/104", "64:ff9b::7f00:1"},
		{"1.2.3.4/33 1.2.3.4/-1 1.2.3.4/ fe80::1%eth0/64", "1.2.3.4"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, text, address string) {
		h, err := hostname.Parse(address)
		if err != nil || !h.IsAddr() {
			return
		}
		c := config.Config{Default: config.Deny}
		want := false
		for _, cidr := range strings.Fields(text) {
			c.Ranges = append(c.Ranges, config.Range{CIDR: cidr})
			want = want || holds(cidr, h.Addr())
		}
		s, err := Compile(&c)
		if err != nil {
			return
		}
		q := Query{Host: h, Port: 1, Scheme: TCP}
		if got := s.Decide(q).Action == config.Allow; got != want || s.GrantsAddr(h.Addr(), 1) != want {
			t.Errorf("%q grants %s: got %v, want %v", text, h, got, want)
		}
	})
}

// holds reads a range bit by bit.
func holds(cidr string, a netip.Addr) bool {
	if p, err := netip.ParseAddr(cidr); err == nil {
		return p == a
	}
	p, err := netip.ParsePrefix(cidr)
	if err != nil || p.Addr().BitLen() != a.BitLen() {
		return false
	}
	base, given := p.Addr().AsSlice(), a.AsSlice()
	for bit := range p.Bits() {
		if (base[bit/8]^given[bit/8])&(0x80>>(bit%8)) != 0 {
			return false
		}
	}
	return true
}
