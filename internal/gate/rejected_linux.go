package gate

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ServeRejected records what a socket tells of datagrams that were not let out,
// until the gate is closed, and what it has still to tell then. What the kernel
// could not keep is lost.
func (g *Gate) ServeRejected(f *os.File) error {
	defer f.Close()
	if !g.enter(func() {}) {
		return nil
	}
	defer g.wait.Done()
	stop := context.AfterFunc(g.ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			break
		}
		g.rejectAll(buf[:max(n, 0)])
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	return raw.Control(func(fd uintptr) {
		for {
			n, err := unix.Read(int(fd), buf)
			if n <= 0 || err != nil {
				return
			}
			g.rejectAll(buf[:n])
		}
	})
}

func (g *Gate) rejectAll(messages []byte) {
	for _, packet := range packetsIn(messages) {
		if d, ok := parseDatagram(packet); ok {
			g.reject(d)
		}
	}
}

// packetsIn are the packets in messages of nfnetlink_log.
func packetsIn(b []byte) (packets [][]byte) {
	const generic, logged, payload = 4, 4 << 8, 9 // nfgenmsg, NFNL_SUBSYS_ULOG, NFULA_PAYLOAD
	for {
		message, rest, ok := cutTLV(b, 4, unix.NLMSG_HDRLEN)
		if !ok {
			return packets
		}
		b = rest
		if binary.NativeEndian.Uint16(message[4:]) != logged || len(message) < unix.NLMSG_HDRLEN+generic {
			continue
		}
		for attributes := message[unix.NLMSG_HDRLEN+generic:]; ; {
			attribute, more, ok := cutTLV(attributes, 2, unix.SizeofNlAttr)
			if !ok {
				break
			}
			attributes = more
			if binary.NativeEndian.Uint16(attribute[2:]) == payload {
				packets = append(packets, attribute[unix.SizeofNlAttr:])
			}
		}
	}
}

// cutTLV cuts off what begins with its own length, in so many bytes, and a head.
func cutTLV(b []byte, width, head int) (first, rest []byte, ok bool) {
	if len(b) < head {
		return nil, nil, false
	}
	size := int(binary.NativeEndian.Uint16(b))
	if width == 4 {
		size = int(binary.NativeEndian.Uint32(b))
	}
	if size < head || size > len(b) {
		return nil, nil, false
	}
	return b[:size], b[min((size+3)&^3, len(b)):], true
}
