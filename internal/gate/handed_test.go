package gate

import (
	"strings"
	"testing"
)

func TestWhatIsSaidAboutAConnectionIsRead(t *testing.T) {
	for _, c := range []struct{ text, fails string }{
		{"mixed 127.0.0.1:940 12", ""},
		{"tcp [2001:db8::1]:443 12", ""},
		{"", "without a word"},
		{"tcp 10.0.0.1:1", "without a word"},
		{"tcp 10.0.0.1:1 2 3", "without a word"},
		{"unix 10.0.0.1:1 2", `as "unix"`},
		{"tcp example.com:1 2", "example.com"},
		{"tcp 10.0.0.1:1 x", "invalid syntax"},
	} {
		h, err := parseHanded(c.text)
		if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%q: got %v, want %q", c.text, err, c.fails)
		}
		if err == nil && !strings.HasPrefix(c.text, string(h.role)+" "+h.to.String()+" ") {
			t.Errorf("%q: got %+v", c.text, h)
		}
	}
}
