package address

import (
	"net/netip"
	"strings"
	"testing"
)

func TestPublicAddressesAreNotSpecial(t *testing.T) {
	for _, s := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
		"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255",
		"198.20.0.0", "223.255.255.255", "::ffff:1.1.1.1",
		"2606:4700:4700::1111", "2a00:1450::1", "64:ff9b::1.1.1.1", "2002:0101:0101::1", "2001:4860:4860::8888",
		"2001:0:0808:0808::f7f7:f7f7", // Teredo: server 8.8.8.8, client 8.8.8.8
		"2a00::5efe:101:101",
	} {
		if got := Special(netip.MustParseAddr(s)); got != "" {
			t.Errorf("%s: got %q", s, got)
		}
	}
}

func TestWhatIsNotTheInternetIsSpecial(t *testing.T) {
	for s, want := range map[string]string{
		"0.0.0.0": "this machine", "0.1.2.3": "this machine", "127.0.0.1": "loopback", "127.255.255.255": "loopback",
		"10.0.0.1": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.0.1": "private",
		"100.64.0.1": "provider", "169.254.0.1": "one link", "169.254.169.254": "metadata", "100.100.100.200": "metadata",
		"224.0.0.1": "multicast", "239.255.255.250": "multicast", "240.0.0.1": "reserved", "255.255.255.255": "broadcast",
		"198.18.0.1": "test", "198.19.255.255": "test", "192.0.0.8": "protocols",
		"::": "this machine", "::1": "loopback", "fe80::1": "one link", "fe80::1%eth0": "one link", "febf::1": "one link",
		"fc00::1": "private", "fd00:ec2::254": "metadata", "fdff::1": "private", "fec0::1": "private",
		"ff02::1": "multicast", "2001:db8::1": "documentation",
		"::ffff:127.0.0.1": "loopback", "::ffff:169.254.169.254": "metadata", "::ffff:0.0.0.0": "this machine",
		"64:ff9b::127.0.0.1": "NAT64", "64:ff9b::a9fe:a9fe": "metadata", "64:ff9b:1::1.1.1.1": "reserved",
		"2002:7f00:1::1": "6to4", "2002:a9fe:a9fe::1": "metadata", "2002:0a00:0001::": "6to4",
		"2001:0:7f00:1::f7f7:f7f7": "Teredo", "2001:0:0808:0808::80ff:fffe": "Teredo", // client 127.0.0.1
		"::127.0.0.1": "compatible", "::a9fe:a9fe": "metadata", "::8.8.8.8": "reserved", "::ffff:0:127.0.0.1": "translator",
		"2a00::5efe:7f00:1": "ISATAP", "2a00::200:5efe:a00:1": "ISATAP",
		"100::1": "reserved", "4000::1": "reserved", "5f00::1": "reserved", "8000::": "reserved",
	} {
		if got := Special(netip.MustParseAddr(s)); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", s, got, want)
		}
	}
}

func FuzzEmbeddedAddressesAreFound(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1})
	f.Add([]byte{8, 8, 8, 8})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != 4 {
			return
		}
		inner := netip.AddrFrom4([4]byte(b))
		special := Special(inner) != ""
		for _, prefix := range []string{"64:ff9b::", "2002::", "::ffff:0:0"} {
			outer := netip.MustParseAddr(prefix).As16()
			if prefix == "2002::" {
				copy(outer[2:], b)
			} else {
				copy(outer[12:], b)
			}
			if got := Special(netip.AddrFrom16(outer)) != ""; got != special {
				t.Errorf("%v is special: %v, and %v: %v", netip.AddrFrom16(outer), got, inner, special)
			}
		}
	})
}
