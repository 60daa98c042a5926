package seccomp

import (
	"testing"

	"golang.org/x/sys/unix"
)

// strictest is what several filters decide together.
func strictest(c call, profiles ...Profile) Action {
	decided := Allow
	for _, p := range profiles {
		// Of the actions used here, the lower number is the stricter.
		if a := run(Assemble(p), c); int32(a) < int32(decided) {
			decided = a
		}
	}
	return decided
}

func TestListenerIsHandedOutOnce(t *testing.T) {
	filter := New(Options{Families: []uint32{FamilyUnix}, Sockets: true, Datagrams: true})
	handOut := call{unix.SYS_SENDMSG, auditArch, [6]uint64{2: HandOut | garbage&^0xffffffff}}
	if got := strictest(handOut, filter); got != Allow {
		t.Errorf("before: got %#x, want it allowed", got)
	}
	if got := strictest(handOut, filter, HandedOut()); got != permission {
		t.Errorf("after: got %#x, want EPERM", got)
	}
	for nr := range uint32(1001) {
		for _, args := range [][6]uint64{{}, {2: 0x40}, {garbage, garbage, garbage, garbage, garbage, garbage}} {
			c := call{nr, auditArch, args}
			if alone, both := strictest(c, filter), strictest(c, filter, HandedOut()); alone != both {
				t.Errorf("call %d: got %#x, want %#x as with the first filter alone", nr, both, alone)
			}
		}
	}
}

func TestWhatIsSentSomewhereIsAskedAbout(t *testing.T) {
	asked := Options{Families: []uint32{FamilyUnix}, Sockets: true, Datagrams: true}
	without := Options{Families: []uint32{FamilyUnix}, Sockets: true}
	datagram := [6]uint64{FamilyUnix | garbage, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC, 0}
	for _, c := range []struct {
		name string
		o    Options
		nr   uint32
		args [6]uint64
		want Action
	}{
		{"send", asked, unix.SYS_SENDTO, [6]uint64{garbage, garbage, garbage, garbage, 0, 0}, Allow},
		{"send with a length above", asked, unix.SYS_SENDTO, [6]uint64{5: 1 << 32}, Allow},
		{"sendto", asked, unix.SYS_SENDTO, [6]uint64{4: 1 << 40, 5: 1}, Notify},
		{"sendto with no address", asked, unix.SYS_SENDTO, [6]uint64{5: 16}, Notify},
		{"sendmsg", asked, unix.SYS_SENDMSG, [6]uint64{}, Notify},
		{"sendmmsg", asked, unix.SYS_SENDMMSG, [6]uint64{}, Notify},
		{"socket", asked, unix.SYS_SOCKET, datagram, Allow},
		{"socketpair", asked, unix.SYS_SOCKETPAIR, datagram, Allow},
		{"sendto unasked", without, unix.SYS_SENDTO, [6]uint64{5: 16}, Allow},
		{"sendmsg unasked", without, unix.SYS_SENDMSG, [6]uint64{}, Allow},
		{"socket unasked", without, unix.SYS_SOCKET, datagram, noProtocol},
		{"socketpair unasked", without, unix.SYS_SOCKETPAIR, datagram, noProtocol},
	} {
		if got := run(Assemble(New(c.o)), call{c.nr, auditArch, c.args}); got != c.want {
			t.Errorf("%s: got %#x, want %#x", c.name, got, c.want)
		}
	}
}

func TestAFilterLacksOneCallAndNothingElse(t *testing.T) {
	filter := Assemble(Lacking(unix.SYS_OPEN_TREE))
	for nr := range uint32(maxNr) {
		want := Allow
		if nr == unix.SYS_OPEN_TREE {
			want = Fail(enosys)
		}
		if got := run(filter, call{nr, auditArch, [6]uint64{}}); got != want {
			t.Errorf("call %d: got %#x, want %#x", nr, got, want)
		}
	}
}
