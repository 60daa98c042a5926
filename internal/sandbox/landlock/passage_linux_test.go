package landlock

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// sockaddr is an address as the kernel has it.
func sockaddr(text string) []byte {
	to := netip.MustParseAddrPort(text)
	b := binary.NativeEndian.AppendUint16(nil, unix.AF_INET)
	if to.Addr().Is6() {
		b = binary.NativeEndian.AppendUint16(nil, unix.AF_INET6)
	}
	b = binary.BigEndian.AppendUint16(b, to.Port())
	if to.Addr().Is6() {
		b = append(b, 0, 0, 0, 0)
	}
	b = append(b, to.Addr().AsSlice()...)
	return append(b, make([]byte, 8)...)
}

func TestAddressesAreReadAsTheKernelDoes(t *testing.T) {
	for _, c := range []struct {
		address []byte
		want    string
		errno   unix.Errno
	}{
		{sockaddr("127.0.0.1:940"), "127.0.0.1:940", 0},
		{sockaddr("10.1.2.3:65535"), "10.1.2.3:65535", 0},
		{sockaddr("0.0.0.0:80"), "127.0.0.1:80", 0},
		{sockaddr("[::ffff:127.0.0.1]:940"), "127.0.0.1:940", 0},
		{sockaddr("[2001:db8::1]:443"), "[2001:db8::1]:443", 0},
		{sockaddr("[::]:443"), "[::1]:443", 0},
		{sockaddr("127.0.0.1:940")[:15], "", unix.EINVAL},
		{sockaddr("[::1]:940")[:24], "", unix.EINVAL},
		{[]byte{2}, "", unix.EINVAL},
		{nil, "", unix.EINVAL},
		{make([]byte, 16), "", unix.EAFNOSUPPORT}, // AF_UNSPEC, which ends a connection
		{append([]byte{1, 0}, "/run/x.sock\x00"...), "", unix.EAFNOSUPPORT},
	} {
		to, errno := parseAddress(c.address)
		if errno != c.errno || errno == 0 && to.String() != c.want {
			t.Errorf("%v: got %v, %v; want %s, %v", c.address, to, errno, c.want, c.errno)
		}
	}
}

func TestConnectionsAreHandedOverWithWhereTheyWereMeantToGo(t *testing.T) {
	gate := &spec.Gate{
		Config:    config.Config{Default: config.Deny, Ranges: []config.Range{{CIDR: "10.0.0.0/8"}}},
		Local:     []config.Ports{{From: 80, To: 81}},
		LocalIPv6: []config.Ports{{From: 90, To: 90}},
	}
	p, err := newPassage(gate)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for _, c := range []struct{ to, want string }{
		{"127.0.0.1:940", "mixed 127.0.0.1:940 7"},
		{"[::ffff:127.0.0.1]:940", "mixed 127.0.0.1:940 7"},
		{"10.0.0.1:940", "tcp 10.0.0.1:940 7"},
		{"127.0.0.1:80", "tcp 127.0.0.1:80 7"},
		{"[::1]:90", "tcp [::1]:90 7"},
		{"[2001:db8::1]:443", "tcp [2001:db8::1]:443 7"},
	} {
		inside, denied, errno := p.lead(sockaddr(c.to), 7)
		if errno != 0 || denied != nil {
			t.Fatalf("%s: %v, %v", c.to, denied, errno)
		}
		text, oob := make([]byte, 100), make([]byte, unix.CmsgSpace(4))
		n, control, _, _, err := unix.Recvmsg(int(p.far.Fd()), text, oob, unix.MSG_CMSG_CLOEXEC)
		if err != nil || string(text[:n]) != c.want {
			t.Errorf("%s: got %q, %v; want %q", c.to, text[:n], err, c.want)
		}
		outside, err := descriptorIn(oob[:control])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(inside, []byte("hello")); err != nil {
			t.Error(err)
		}
		if n, err := unix.Read(outside, text); err != nil || string(text[:n]) != "hello" {
			t.Errorf("%s: what was sent came as %q, %v", c.to, text[:n], err)
		}
		unix.Close(inside)
		unix.Close(outside)
	}
	p.far.Close()
	if fd, _, errno := p.lead(sockaddr("127.0.0.1:940"), 7); errno != unix.ECONNREFUSED {
		t.Errorf("without a gate: got %d, %v", fd, errno)
	}
}

func TestWhatTheGateCouldOnlyDenyIsNoConnection(t *testing.T) {
	names := []config.Rule{{Host: "good.example", Action: config.Allow}, {Host: "127.0.0.1", Action: config.Allow}}
	local := []config.Ports{{From: 80, To: 81}}
	for _, c := range []struct {
		to    string
		gate  spec.Gate
		errno unix.Errno // 0 if it is the gate's to decide
	}{
		{"127.0.0.1:80", spec.Gate{Local: local}, 0},
		{"0.0.0.0:81", spec.Gate{Local: local}, 0},
		{"127.0.0.1:82", spec.Gate{Local: local}, unix.ECONNREFUSED},
		{"[::1]:80", spec.Gate{Local: local}, unix.ECONNREFUSED},
		{"127.0.0.1:82", spec.Gate{Config: config.Config{Ranges: []config.Range{{CIDR: "0.0.0.0/0"}}}}, unix.ECONNREFUSED},
		{"10.0.0.1:25", spec.Gate{}, unix.ENETUNREACH},
		{"[2001:db8::1]:25", spec.Gate{Config: config.Config{Ranges: []config.Range{{CIDR: "127.0.0.0/8"}}}}, unix.ENETUNREACH},
		{"10.0.0.1:25", spec.Gate{Config: config.Config{Ranges: []config.Range{{CIDR: "10.0.0.0/8"}}}}, 0},
		{"10.0.0.1:25", spec.Gate{Config: config.Config{Rules: []config.Rule{{Host: "10.0.0.1", Action: config.Allow}}}}, 0},
		{"10.0.0.1:25", spec.Gate{Config: config.Config{Rules: []config.Rule{{Host: "10.0.0.1", Action: config.Deny}}}}, unix.ENETUNREACH},
		{"10.0.0.1:25", spec.Gate{Config: config.Config{Rules: []config.Rule{{Host: "*", Action: config.Ask}}}}, 0},
		{"10.0.0.1:25", spec.Gate{Config: config.Config{Default: config.Proxy}}, 0},
	} {
		c.gate.Config.Rules = append(names, c.gate.Config.Rules...)
		if c.gate.Config.Default == "" {
			c.gate.Config.Default = config.Deny
		}
		p, err := newPassage(&c.gate)
		if err != nil {
			t.Fatal(err)
		}
		fd, denied, errno := p.lead(sockaddr(c.to), 7)
		if errno != c.errno || (denied != nil) != (c.errno != 0) {
			t.Errorf("%s, %+v: got %v, %v; want %v", c.to, c.gate, denied, errno, c.errno)
		}
		if errno == 0 {
			unix.Close(fd)
		}
		p.close()
	}
}

func TestDeniedConnectionsAreToldOfAsTheGateWould(t *testing.T) {
	for _, c := range []struct {
		to        string
		rules     []config.Rule
		host, why string
		fix       string
	}{
		{"127.0.0.1:82", nil, "127.0.0.1", "network.defaultAction deny", `"network": {"allowLocalOutboundPorts": ["82"]}`},
		{"10.0.0.1:443", nil, "10.0.0.1", "network.defaultAction deny", `"network": {"allowedDomains": ["10.0.0.1"]}`},
		{"10.0.0.1:443", []config.Rule{{Host: "*", Action: config.Deny, Name: "network.deniedDomains *"}}, "10.0.0.1", "network.deniedDomains *", "take back network.deniedDomains *"},
	} {
		d := deny(&spec.Gate{Config: config.Config{Rules: c.rules}}, netip.MustParseAddrPort(c.to))
		if d.Op != "connect" || d.Host != c.host || d.Port == 0 || d.Why != c.why || d.Fix != c.fix {
			t.Errorf("%s: got %+v", c.to, d)
		}
	}
}

// Whoever finds the listener in its moment gets nothing.
func TestStrangersAreTurnedAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.SetNonblock(int(file.Fd()), false); err != nil {
		t.Fatal(err)
	}
	stranger, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	own, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(own)
	port, _ := strconv.Atoi(l.Addr().String()[len("127.0.0.1:"):])
	if err := connectTo(own, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port}); err != nil {
		t.Fatal(err)
	}
	outside, err := acceptFrom(int(file.Fd()), own)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(outside)
	if _, err := unix.Write(own, []byte("mine")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 8)
	if n, err := unix.Read(outside, buf); err != nil || string(buf[:n]) != "mine" {
		t.Errorf("got %q, %v", buf[:n], err)
	}
	if n, err := stranger.Read(buf); err == nil {
		t.Errorf("the stranger got %q", buf[:n])
	}
}

func TestFilterForTheGateLeavesTCPAlone(t *testing.T) {
	rules := gateRules(nil)
	if !slices.IsSortedFunc(rules, func(a, b seccomp.Rule) int { return int(a.Nr) - int(b.Nr) }) {
		t.Error("the rules are not sorted")
	}
	for nr, want := range map[uint32]seccomp.Action{
		unix.SYS_CONNECT: seccomp.Notify, unix.SYS_BIND: seccomp.Fail(uint16(unix.EACCES)), unix.SYS_LISTEN: seccomp.Fail(uint16(unix.EACCES)),
		unix.SYS_ACCEPT: seccomp.Fail(uint16(unix.EACCES)), unix.SYS_ACCEPT4: seccomp.Fail(uint16(unix.EACCES)),
		unix.SYS_SETSOCKOPT: seccomp.Fail(uint16(unix.ENOPROTOOPT)), unix.SYS_SOCKET: seccomp.Fail(uint16(unix.EPROTONOSUPPORT)),
	} {
		if i, found := find(rules, nr); !found || rules[i].Else != want {
			t.Errorf("call %d: found %v", nr, found)
		}
	}
}

func TestUnconnectedStreamsAreRefused(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	loose, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	connected, other, unconnected := os.NewFile(uintptr(pair[0]), ""), os.NewFile(uintptr(pair[1]), ""), os.NewFile(uintptr(loose), "")
	defer connected.Close()
	defer other.Close()
	defer unconnected.Close()
	c := flattened().check
	c.spec.Broker = &spec.Broker{}
	c.refuseSockets([3]*os.File{connected, os.Stdout, unconnected})
	if len(c.reasons) != 1 || c.reasons[0].Key != "stderr" {
		t.Errorf("got %v", c.reasons)
	}
}
