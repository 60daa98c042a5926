package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

// ranges are ranges of addresses that do not overlap, in order.
type ranges []granted

// granted is a range, with the rule that an answer names.
type granted struct {
	prefix netip.Prefix
	source *config.Rule
}

func (s *Set) addRanges(list []config.Range) error {
	var all ranges
	for _, r := range list {
		prefix, err := parseRange(r.CIDR)
		if err != nil {
			return fmt.Errorf("network.allowedCIDRs %s: %w", r.CIDR, err)
		}
		all = append(all, granted{prefix, &config.Rule{
			Host: r.CIDR, Action: config.Allow, Name: "network.allowedCIDRs " + r.CIDR, Where: r.Where,
		}})
	}
	// A wider range comes before those inside it, which are left out.
	slices.SortStableFunc(all, func(a, b granted) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
	})
	for _, r := range all {
		if n := len(s.ranges); n == 0 || !s.ranges[n-1].prefix.Contains(r.prefix.Addr()) {
			s.ranges = append(s.ranges, r)
		}
	}
	return nil
}

func parseRange(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, err
		}
		prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	if prefix.Addr().Is4In6() || prefix.Addr().Zone() != "" {
		// Addresses are looked up in their IPv4 form and without a zone, so
		// this range would never match.
		return netip.Prefix{}, fmt.Errorf("write an IPv4 range in its IPv4 form, without a zone")
	}
	return prefix.Masked(), nil
}

// find returns the rule of the range that holds the address, nil if none does.
func (r ranges) find(addr netip.Addr) *config.Rule {
	if !addr.IsValid() {
		return nil
	}
	after, same := slices.BinarySearchFunc(r, addr, func(g granted, a netip.Addr) int {
		return g.prefix.Addr().Compare(a)
	})
	if same {
		return r[after].source
	}
	if after > 0 && r[after-1].prefix.Contains(addr) {
		return r[after-1].source
	}
	return nil
}
