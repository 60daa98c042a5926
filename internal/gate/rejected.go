package gate

import (
	"encoding/binary"
	"net/netip"
	"sync"

	"github.com/bailey-sandbox/bailey/internal/event"
)

// maxRejected is how many destinations are told of. A program that scans has
// been noticed by then.
const maxRejected = 1024

// rejections tells of each destination of rejected datagrams once.
type rejections struct {
	mu   sync.Mutex
	told map[netip.AddrPort]bool
}

func (r *rejections) isNew(to netip.AddrPort) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told[to] || len(r.told) >= maxRejected {
		return false
	}
	if r.told == nil {
		r.told = map[netip.AddrPort]bool{}
	}
	r.told[to] = true
	return true
}

// reject records a datagram that leads nowhere. Its sender is told so by the
// kernel: nobody listens there.
func (g *Gate) reject(d datagram) {
	if !g.rejected.isNew(d.to) {
		return
	}
	e := event.New(event.Deny)
	e.Op, e.Address, e.Port = event.OpConnect, d.to.Addr().String(), int(d.to.Port())
	e.Rule = "no UDP but questions for names leaves the sandbox"
	if name, ok := g.pool.Name(d.to.Addr()); ok {
		e.Host = name
	}
	if g.owners != nil {
		p := g.owners.UDP(d.from, d.to)
		e.Pid, e.Process = p.Pid, p.Name
	}
	g.emit(e)
}

// datagram is where one of UDP was sent from and to.
type datagram struct{ from, to netip.AddrPort }

const (
	protocolUDP = 17
	udpHeader   = 8
)

// parseDatagram reads the head of an IP packet.
func parseDatagram(b []byte) (datagram, bool) {
	if len(b) == 0 {
		return datagram{}, false
	}
	var from, to netip.Addr
	var head int
	switch b[0] >> 4 {
	case 4:
		if head = int(b[0]&15) * 4; head < 20 || len(b) < head+udpHeader || b[9] != protocolUDP {
			return datagram{}, false
		}
		from, to = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	case 6:
		if head = 40; len(b) < head+udpHeader || b[6] != protocolUDP {
			return datagram{}, false
		}
		from, to = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	default:
		return datagram{}, false
	}
	be := binary.BigEndian
	return datagram{
		netip.AddrPortFrom(from, be.Uint16(b[head:])), netip.AddrPortFrom(to, be.Uint16(b[head+2:])),
	}, true
}
