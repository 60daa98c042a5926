package grants

import (
	"strconv"
	"strings"
	"testing"
)

// FuzzPortsAreWhatTheySay reads one entry of a list of ports.
func FuzzPortsAreWhatTheySay(f *testing.F) {
	for _, seed := range []string{"80", "1-65535", "*", "0", "65536", "8080-80", "-", "1-", "-1", "+80", "0x50", "080", "80-80-80", " 80", "٨٠"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Ports([]string{text})
		if err != nil {
			return
		}
		if len(got) != 1 || got[0].From == 0 || got[0].From > got[0].To {
			t.Fatalf("%q: got %+v", text, got)
		}
		if text == "*" {
			return
		}
		// Nothing but digits and a dash says which ports.
		if strings.Trim(text, "0123456789-") != "" {
			t.Errorf("%q: got %+v", text, got)
		}
		first, last, _ := strings.Cut(text, "-")
		for _, part := range []struct {
			text string
			port uint16
		}{{first, got[0].From}, {last, got[0].To}} {
			if digits := strings.TrimLeft(part.text, "0"); part.text != "" && digits != strconv.Itoa(int(part.port)) {
				t.Errorf("%q: got %+v", text, got)
			}
		}
	})
}
