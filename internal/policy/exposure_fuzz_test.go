package policy

import (
	"net/netip"
	"strconv"
	"testing"
)

// FuzzExposure writes out what was read, which must be read the same way.
func FuzzExposure(f *testing.F) {
	for _, seed := range []string{
		"3000", "8080:80", "0:3000", "127.0.0.1:8080", "127.0.0.1:8080:80", "[::1]:8080:80", "[::]:1", "0.0.0.0:65535:65535", "localhost:80", "::1:80", "[::1]80", "[::ffff:1.2.3.4]:80",
		"[fe80::1%eth0]:80", "80:", ":80", "+80", "080", "80:80:80", "2130706433:80", "0", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseExposure(text)
		if err != nil {
			return
		}
		if !e.Addr.IsValid() || e.Addr.Zone() != "" || e.Inside == 0 {
			t.Fatalf("%q: got %+v", text, e)
		}
		written := netip.AddrPortFrom(e.Addr, e.Port).String() + ":" + strconv.Itoa(int(e.Inside))
		if again, err := ParseExposure(written); err != nil || again != e {
			t.Errorf("%q is %q, and that %+v, %v", text, written, again, err)
		}
	})
}
