package hostname

import (
	"net/netip"
	"strings"
	"testing"
)

func TestEverySpellingOfAHostBecomesOne(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"example.com", "example.com"},
		{"EXAMPLE.Com", "example.com"},
		{"example.com.", "example.com"},
		{"_dmarc.example.com", "_dmarc.example.com"},
		{"r3---sn-x.example.com", "r3---sn-x.example.com"},
		{"localhost", "localhost"},
		{"bücher.example", "xn--bcher-kva.example"},
		{"BÜCHER.example", "xn--bcher-kva.example"},
		{"bu\u0308cher.example", "xn--bcher-kva.example"},
		{"XN--BCHER-KVA.example", "xn--bcher-kva.example"},
		{"straße.example", "xn--strae-oqa.example"},
		{"example。com", "example.com"},
		{"ｅｘａｍｐｌｅ.com", "example.com"},
		{"a.0b1", "a.0b1"},

		{"127.0.0.1", "127.0.0.1"},
		{"127.0.0.1.", "127.0.0.1"},
		{"127.1", "127.0.0.1"},
		{"0x7f.1", "127.0.0.1"},
		{"0X7F.0.0.1", "127.0.0.1"},
		{"2130706433", "127.0.0.1"},
		{"017700000001", "127.0.0.1"},
		{"0177.0.0.01", "127.0.0.1"},
		{"127.0.1", "127.0.0.1"},
		{"127.65535", "127.0.255.255"},
		{"0", "0.0.0.0"},
		{"１２７.０.０.１", "127.0.0.1"},
		{"169.254.43518", "169.254.169.254"},

		{"::1", "::1"},
		{"[::1]", "::1"},
		{"[0:0:0:0:0:0:0:1]", "::1"},
		{"[::ffff:127.0.0.1]", "127.0.0.1"},
		{"::ffff:7f00:1", "127.0.0.1"},
		{"[2001:DB8::1]", "2001:db8::1"},
	} {
		h, err := Parse(c.in)
		if err != nil || h.String() != c.want {
			t.Errorf("Parse(%q) = %q, %v; want %q", c.in, h, err, c.want)
			continue
		}
		if again, err := Parse(h.String()); err != nil || again != h {
			t.Errorf("Parse(%q) is not stable: %q, %v", c.in, again, err)
		}
	}
}

func TestWhatIsNoHostIsRefused(t *testing.T) {
	for _, in := range []string{
		"", ".", "..", "a..b", ".a", "a.com..",
		"a b", "a\tb", "a\x00.com", "a\n", "\x7f", "a.com\r\nX: y",
		"user@a.com", "a.com/path", "a.com?x", "a.com#b", "evil.com#allowed.com", `a\b`,
		"a%2ecom", "%61.com", "a.com%00", "*.com", "*", "a,b", "a;b", "a|b", "'a'", "a(b)",
		"256.0.0.1", "1.2.3.4.5", "0x100.1", "127.0.0.08", "1.2.3.256", "4294967296", "0x", "1..2", "a.1", "1.a.1", "0xg.1", "foo.0x7f",
		"99999999999999999999", "1.2.3.0x1ff",
		"[::1", "::1]", "[]", "[127.0.0.1]", "[a.com]", "fe80::1%eth0", "[fe80::1%25eth0]", ":::", "a:b", "[::1]x",
		"xn--a", "xn--", "xn--zzzzzz99999", "xn--bcher-kvb.xn--", "\xff\xfe.com", "a\u200b\u200b@.com", "\u2488com\u0000",
		strings.Repeat("a", 64) + ".com", strings.Repeat("a.", 127) + "aa", strings.Repeat("ü", 300), strings.Repeat("a.", 4096),
		"xn--example-.com", // punycode of plain ASCII
	} {
		if h, err := Parse(in); err == nil {
			t.Errorf("Parse(%q) = %q, want an error", in, h)
		}
	}
}

func TestHostAndPort(t *testing.T) {
	for _, c := range []struct {
		in        string
		otherwise uint16
		host      string
		port      uint16
	}{
		{"a.com:443", 0, "a.com", 443},
		{"a.com", 80, "a.com", 80},
		{"[::1]:22", 0, "::1", 22},
		{"[::1]", 80, "::1", 80},
		{"0x7f.1:65535", 0, "127.0.0.1", 65535},
	} {
		h, port, err := ParseHostPort(c.in, c.otherwise)
		if err != nil || h.String() != c.host || port != c.port {
			t.Errorf("%q: got %q %d, %v", c.in, h, port, err)
		}
	}
	for _, in := range []string{
		"a.com", "a.com:", "a.com:0", "a.com:65536", "a.com:080", "a.com:+80", "a.com: 80", "a.com:80 ", "a.com:443:443",
		"::1:443", "[::1]443", "[::1]:", ":443", "a.com:http", "user:pass@a.com:443", "a.com:٤٤٣",
	} {
		if h, port, err := ParseHostPort(in, 0); err == nil {
			t.Errorf("%q: got %q %d, want an error", in, h, port)
		}
	}
}

func TestAnAddressWithAZoneIsNoHost(t *testing.T) {
	if h, err := FromAddr(netip.MustParseAddr("fe80::1%lo")); err == nil {
		t.Errorf("got %q", h)
	}
	h, err := FromAddr(netip.MustParseAddr("::ffff:10.0.0.1"))
	if err != nil || h.String() != "10.0.0.1" {
		t.Errorf("got %q, %v", h, err)
	}
}

func TestCanonicalNamesAreReadWithoutAllocation(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { _, _ = Parse("a.very.ordinary.example.com") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParsedHostIsStable(f *testing.F) {
	for _, s := range []string{
		"example.com", "EXAMPLE.com.", "bücher.example", "xn--bcher-kva.example", "0x7f.1", "[::ffff:1.2.3.4]",
		"a%2e", "1.2.3", "。", "a.com#b", "ß.x", "\u200d.com",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := Parse(s)
		if err != nil {
			return
		}
		if h.IsZero() || h.IsAddr() == (h.Name() != "") {
			t.Fatalf("Parse(%q) = %#v: want a name or an address", s, h)
		}
		again, err := Parse(h.String())
		if err != nil || again != h {
			t.Errorf("Parse(%q) = %q, which is read as %q, %v", s, h, again, err)
		}
		if strings.Trim(h.Name(), "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || len(h.Name()) > 253 {
			t.Errorf("Parse(%q) = %q has characters of no name", s, h)
		}
		if a, port, err := ParseHostPort(h.Join(443), 0); err != nil || a != h || port != 443 {
			t.Errorf("%q is read as %q %d, %v", h.Join(443), a, port, err)
		}
	})
}
