package gate

import (
	"net/netip"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

const (
	datagram4 = "\x45\x00\x00\x20\x00\x00\x40\x00\x40\x11\x00\x00\xc6\x33\x64\x07\xc6\x33\x64\x08" + "\x30\x39\x01\xbb\x00\x0c\x00\x00"
	datagram6 = "\x60\x00\x00\x00\x00\x0c\x11\x40" + "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x08" + "\x30\x39\x01\xbb\x00\x0c\x00\x00"
)

func TestHeadsOfDatagramsAreRead(t *testing.T) {
	for _, c := range []struct{ packet, from, to string }{
		{datagram4, "198.51.100.7:12345", "198.51.100.8:443"},
		{datagram6, "[2001:db8::7]:12345", "[2001:db8::8]:443"},
		{datagram4[:27], "", ""},
		{datagram6[:47], "", ""},
		{"\x44" + datagram4[1:], "", ""}, // a head that is too short
		{"\x4f" + datagram4[1:], "", ""}, // and one longer than the packet
		{datagram4[:9] + "\x06" + datagram4[10:], "", ""},
		{"\x75", "", ""},
		{"", "", ""},
	} {
		got, ok := parseDatagram([]byte(c.packet))
		if c.from == "" {
			if ok {
				t.Errorf("%q: got %+v", c.packet, got)
			}
			continue
		}
		if !ok || got != (datagram{netip.MustParseAddrPort(c.from), netip.MustParseAddrPort(c.to)}) {
			t.Errorf("got %+v, %v, want %s, %s", got, ok, c.from, c.to)
		}
	}
}

func TestRejectedDestinationIsToldOnce(t *testing.T) {
	var fold event.Fold
	g, err := New(Options{Config: config.Config{Default: config.Deny}, Events: &fold})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	named, _, ok := g.pool.Assign("quic.example")
	if !ok {
		t.Fatal("no address")
	}
	for _, to := range []netip.AddrPort{netip.MustParseAddrPort("198.51.100.8:443"), netip.AddrPortFrom(named, 443), netip.MustParseAddrPort("198.51.100.8:443")} {
		g.reject(datagram{to: to})
	}
	got, _ := fold.Denials()
	if len(got) != 2 || got[0].Address != "198.51.100.8" || got[0].Port != 443 || got[0].Count > 1 || got[1].Host != "quic.example" {
		t.Errorf("got %+v", got)
	}
	for i := range 2 * maxRejected {
		g.reject(datagram{to: netip.AddrPortFrom(named, uint16(i+1))})
	}
	if len(g.rejected.told) != maxRejected {
		t.Errorf("%d are remembered", len(g.rejected.told))
	}
}

func FuzzDatagram(f *testing.F) {
	f.Add([]byte(datagram4))
	f.Add([]byte(datagram6))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, ok := parseDatagram(b); ok && (!d.from.IsValid() || !d.to.IsValid()) {
			t.Errorf("got %+v", d)
		}
	})
}
