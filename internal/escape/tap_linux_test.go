package escape

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// tap sees every packet that the machine sends, to wherever, on every
// interface. What sockets inside of sandboxes send it does not see: they have
// interfaces of their own.
type tap struct {
	fences chan struct{}

	mu   sync.Mutex
	seen map[string]bool
}

// fencePort is where the tap itself sends packets.
const fencePort = 61000

func newTap(t *testing.T) *tap {
	t.Helper()
	everything := int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, everything)
	must(t, err)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20) // as much as may be had
	f := os.NewFile(uintptr(fd), "tap")
	t.Cleanup(func() { f.Close() })
	raw, err := f.SyscallConn()
	must(t, err)
	p := &tap{fences: make(chan struct{}, 1), seen: map[string]bool{}}
	go p.read(raw)
	return p
}

func (p *tap) read(raw syscall.RawConn) {
	for buf := make([]byte, 1<<16); ; {
		var n int
		var from unix.Sockaddr
		var err error
		closed := raw.Read(func(fd uintptr) bool {
			n, from, err = unix.Recvfrom(int(fd), buf, 0)
			return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
		})
		if closed != nil {
			return
		}
		if link, ok := from.(*unix.SockaddrLinklayer); err == nil && ok && link.Pkttype == unix.PACKET_OUTGOING {
			p.packet(buf[:n])
		}
	}
}

// packet takes note of a packet, by where it goes.
func (p *tap) packet(b []byte) {
	to, proto, rest, ok := parseIP(b)
	if !ok || len(rest) < 8 {
		return // ARP
	}
	port := binary.BigEndian.Uint16(rest[2:])
	var text string
	switch proto {
	case unix.IPPROTO_TCP:
		const syn, ack = 0x02, 0x10
		if len(rest) < 14 || rest[13]&(syn|ack) != syn {
			return // not the first of a connection
		}
		text = fmt.Sprintf("tcp %s", netip.AddrPortFrom(to, port))
	case unix.IPPROTO_UDP:
		if port == fencePort && to == netip.MustParseAddr(nameserver) {
			p.fences <- struct{}{}
			return
		}
		text = fmt.Sprintf("udp %s", netip.AddrPortFrom(to, port))
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		const echo, echo6 = 8, 128
		if rest[0] != echo && rest[0] != echo6 {
			return // the kernel's own: neighbours, and who cannot be reached
		}
		text = "ping " + to.String()
	case unix.IPPROTO_HOPOPTS:
		return // who listens to which group
	default:
		text = fmt.Sprintf("protocol %d to %s", proto, to)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[text] = true
}

func parseIP(b []byte) (to netip.Addr, proto int, rest []byte, ok bool) {
	const size4, size6 = 20, 40
	switch {
	case len(b) >= size4 && b[0]>>4 == 4:
		header := int(b[0]&15) * 4
		if header < size4 || len(b) < header {
			return netip.Addr{}, 0, nil, false
		}
		return netip.AddrFrom4([4]byte(b[16:20])), int(b[9]), b[header:], true
	case len(b) >= size6 && b[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(b[24:40])), int(b[6]), b[size6:], true
	}
	return netip.Addr{}, 0, nil, false
}

// take returns what was sent since the last time. A packet of its own follows
// all others, and when that is seen, so are they.
func (p *tap) take(t *testing.T) []string {
	t.Helper()
	c, err := net.Dial("udp4", nameserver+":"+fmt.Sprint(fencePort))
	must(t, err)
	defer c.Close()
	_, err = c.Write([]byte("fence fence"))
	must(t, err)
	<-p.fences
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []string
	for text := range p.seen {
		list = append(list, text)
	}
	p.seen = map[string]bool{}
	slices.Sort(list)
	return list
}
