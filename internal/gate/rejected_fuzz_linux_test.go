package gate

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// logged is a message as the kernel sends it, about one packet.
func logged(packet []byte) []byte {
	const generic = 4
	padded := (len(packet) + 3) &^ 3
	b := make([]byte, unix.NLMSG_HDRLEN+generic+unix.SizeofNlAttr+padded)
	b[0], b[1], b[5] = byte(len(b)), byte(len(b)>>8), 4
	at := b[unix.NLMSG_HDRLEN+generic:]
	size := unix.SizeofNlAttr + len(packet)
	at[0], at[1], at[2] = byte(size), byte(size>>8), 9
	copy(at[unix.SizeofNlAttr:], packet)
	return b
}

// FuzzLoggedPackets reads what the kernel tells of rejected packets, in which
// the sandbox chose most bytes. Every packet lies within the message, and one
// that is whole is found again.
func FuzzLoggedPackets(f *testing.F) {
	four := append([]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}, 0x12, 0x34, 0, 123, 0, 8, 0, 0)
	six := append(append([]byte{0x60, 0, 0, 0, 0, 8, 17, 64}, make([]byte, 32)...), 0x12, 0x34, 0x01, 0xbb, 0, 8, 0, 0)
	f.Add(four)
	f.Add(six)
	f.Add(logged(four))
	f.Add(append(logged(six), logged(four)...))
	f.Add([]byte{0x4f, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<15 {
			return // more than the kernel copies
		}
		for _, packet := range packetsIn(b) {
			if !bytes.Contains(b, packet) {
				t.Errorf("%q is not in %q", packet, b)
			}
			if d, ok := parseDatagram(packet); ok && (!d.from.IsValid() || !d.to.IsValid() || d.from.Addr().Is4() != d.to.Addr().Is4()) {
				t.Errorf("%q: got %+v", packet, d)
			}
		}
		if got := packetsIn(logged(b)); len(got) != 1 || !bytes.Equal(got[0], b) {
			t.Errorf("%q: got %q", b, got)
		}
		if d, ok := parseDatagram(b); ok && len(b) < 28 {
			t.Errorf("%q: got %+v", b, d)
		}
	})
}
