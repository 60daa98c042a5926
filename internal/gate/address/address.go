// Package address says what lies at an address: the internet, or something that
// a name must not lead to unless the policy grants the address itself. An
// attacker chooses what a name of theirs resolves to, so this is asked of every
// address, after the name was allowed and before a packet is sent.
package address

import "net/netip"

// Special says what an address is if it is not one of the public internet, and
// is empty if it is. An IPv6 address that carries an IPv4 address, for whatever
// way of translation, is what that one is.
func Special(a netip.Addr) string {
	if a.Zone() != "" {
		return "an address of one link"
	}
	a = a.Unmap()
	if a.Is4() {
		return special4(a)
	}
	return special6(a)
}

type named struct {
	prefix netip.Prefix
	name   string
}

func prefixes(list ...[2]string) []named {
	out := make([]named, len(list))
	for i, entry := range list {
		out[i] = named{netip.MustParsePrefix(entry[0]), entry[1]}
	}
	return out
}

// The more specific ones come first.
var ranges4 = prefixes(
	[2]string{"169.254.169.254/32", "the metadata service of a cloud"},
	[2]string{"100.100.100.200/32", "the metadata service of a cloud"},
	[2]string{"168.63.129.16/32", "the metadata service of a cloud"},
	[2]string{"0.0.0.0/8", "this machine"},
	[2]string{"10.0.0.0/8", "a private address"},
	[2]string{"100.64.0.0/10", "an address of a provider's own network"},
	[2]string{"127.0.0.0/8", "this machine (loopback)"},
	[2]string{"169.254.0.0/16", "an address of one link"},
	[2]string{"172.16.0.0/12", "a private address"},
	[2]string{"192.0.0.0/24", "an address for protocols"},
	[2]string{"192.88.99.0/24", "an address for protocols"},
	[2]string{"192.168.0.0/16", "a private address"},
	[2]string{"198.18.0.0/15", "an address for test networks"},
	[2]string{"224.0.0.0/4", "a multicast address"},
	[2]string{"255.255.255.255/32", "a broadcast address"},
	[2]string{"240.0.0.0/4", "a reserved address"},
)

func special4(a netip.Addr) string { return find(ranges4, a) }

func find(list []named, a netip.Addr) string {
	for _, r := range list {
		if r.prefix.Contains(a) {
			return r.name
		}
	}
	return ""
}

var ranges6 = prefixes(
	[2]string{"fd00:ec2::254/128", "the metadata service of a cloud"},
	[2]string{"fd20:ce::254/128", "the metadata service of a cloud"},
	[2]string{"::1/128", "this machine (loopback)"},
	[2]string{"::/128", "this machine"},
	[2]string{"fc00::/7", "a private address"},
	[2]string{"fe80::/10", "an address of one link"},
	[2]string{"fec0::/10", "a private address"},
	[2]string{"ff00::/8", "a multicast address"},
	[2]string{"2001:2::/48", "an address for test networks"},
	[2]string{"2001:10::/28", "a reserved address"},
	[2]string{"2001:20::/28", "a reserved address"},
	[2]string{"2001:db8::/32", "an address for documentation"},
	[2]string{"3fff::/20", "an address for documentation"},
)

// public6 is what is given out for the public internet; everything else in IPv6
// is special, known or not.
var public6 = netip.MustParsePrefix("2000::/3")

// carrier is a range whose addresses carry IPv4 addresses, from these bytes on.
type carrier struct {
	prefix netip.Prefix
	name   string
	at     []int
	masked bool // the second of them is stored inverted
}

var carriers = []carrier{
	{netip.MustParsePrefix("64:ff9b::/96"), "NAT64", []int{12}, false},
	{netip.MustParsePrefix("2002::/16"), "6to4", []int{2}, false},
	{netip.MustParsePrefix("2001::/32"), "Teredo", []int{4, 12}, true},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "a translator", []int{12}, false},
	{netip.MustParsePrefix("::/96"), "compatible", []int{12}, false},
}

func special6(a netip.Addr) string {
	if name := find(ranges6, a); name != "" {
		return name
	}
	bytes := a.As16()
	for i := range carriers {
		c := &carriers[i]
		if !c.prefix.Contains(a) {
			continue
		}
		for j := range c.at {
			if name := special4(c.inner(bytes, j)); name != "" {
				return name + ", behind " + c.name
			}
		}
		if c.name == "NAT64" || public6.Contains(a) {
			return ""
		}
	}
	if isISATAP(bytes) {
		if name := special4(netip.AddrFrom4([4]byte(bytes[12:]))); name != "" {
			return name + ", behind ISATAP"
		}
	}
	if !public6.Contains(a) {
		return "a reserved address"
	}
	return ""
}

// inner is one of the addresses that an address of the range carries.
func (c *carrier) inner(outer [16]byte, i int) netip.Addr {
	inner := [4]byte(outer[c.at[i]:])
	if c.masked && i == 1 {
		for j := range inner {
			inner[j] ^= 0xff
		}
	}
	return netip.AddrFrom4(inner)
}

// Carried calls visit with each IPv4 address that an IPv6 address carries: what is
// sent to the one may arrive at the other.
func Carried(a netip.Addr, visit func(netip.Addr)) {
	if !a.Is6() {
		return
	}
	bytes := a.As16()
	for i := range carriers {
		if c := &carriers[i]; c.prefix.Contains(a) {
			for j := range c.at {
				visit(c.inner(bytes, j))
			}
		}
	}
	if isISATAP(bytes) {
		visit(netip.AddrFrom4([4]byte(bytes[12:])))
	}
}

// isISATAP says whether the interface part of an address carries an IPv4
// address.
func isISATAP(b [16]byte) bool {
	return (b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
