package gate

import (
	"slices"
	"testing"
)

// message is one of nfnetlink_log with a packet, and with an attribute before it.
func logMessage(packet string) []byte {
	size := byte(16 + 4 + 8 + 4 + len(packet))
	b := append([]byte{size, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0}, 8, 0, 1, 0, 1, 2, 3, 4, byte(4+len(packet)), 0, 9, 0)
	b = append(b, packet...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func TestPacketsAreTakenFromTheLog(t *testing.T) {
	both := slices.Concat(logMessage("one"), logMessage("second"))
	var got []string
	for _, p := range packetsIn(both) {
		got = append(got, string(p))
	}
	if !slices.Equal(got, []string{"one", "second"}) {
		t.Errorf("got %q", got)
	}
	for i := range both {
		packetsIn(both[:i]) // does not panic
	}
	other := logMessage("one")
	other[5] = 10 // of another part of the kernel
	if got := packetsIn(other); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

func FuzzLogMessages(f *testing.F) {
	f.Add(logMessage("one"))
	f.Add(slices.Concat(logMessage(datagram4), logMessage(datagram6)))
	f.Fuzz(func(_ *testing.T, b []byte) {
		for _, p := range packetsIn(b) {
			parseDatagram(p)
		}
	})
}
