package gate

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// This file sets up a network namespace the way a sandbox's is: every address is
// local, and connections and names land at the gate's listeners. It is written
// out with bare messages, since what the gate is tested with must not depend on
// what is installed.

// attr is a netlink attribute.
func attr(kind uint16, parts ...[]byte) []byte {
	var data []byte
	for _, p := range parts {
		data = append(data, p...)
	}
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), data...)
	return append(b, make([]byte, -len(b)&3)...)
}

const nested = unix.NLA_F_NESTED

func be32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
func be16(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
func text(s string) []byte { return append([]byte(s), 0) }

// message is a netlink message.
func message(kind, flags uint16, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags|unix.NLM_F_REQUEST)
	b = append(b, make([]byte, 8)...) // sequence and sender
	return append(b, body...)
}

// netlink sends messages and returns the first error among the answers.
func netlink(family int, answers int, messages ...[]byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var all []byte
	for _, m := range messages {
		all = append(all, m...)
	}
	if err := unix.Sendto(fd, all, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buffer := make([]byte, 1<<16)
	for answers > 0 {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil {
			return err
		}
		for b := buffer[:n]; len(b) >= unix.NLMSG_HDRLEN; answers-- {
			size := binary.NativeEndian.Uint32(b)
			if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR {
				if code := int32(binary.NativeEndian.Uint32(b[16:])); code != 0 {
					return os.NewSyscallError("netlink", unix.Errno(-code))
				}
			}
			b = b[min(int(size+3)&^3, len(b)):]
		}
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// everythingLocal is "ip route add local default dev lo".
func everythingLocal(family byte) error {
	const loopback = 1
	// Family, lengths of prefixes, service; then table, protocol, scope, kind.
	body := []byte{family, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0}
	body = append(body, attr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, loopback))...)
	return netlink(unix.NETLINK_ROUTE, 1, message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_ACK, body))
}

// Expressions of nftables.
func expression(name string, parts ...[]byte) []byte {
	return attr(1|nested, attr(1, text(name)), attr(2|nested, parts...))
}

func loadProtocol() []byte { return expression("meta", attr(1, be32(1)), attr(2, be32(16))) }

func loadPort() []byte {
	const transport, destination, size = 2, 2, 2
	return expression("payload", attr(1, be32(1)), attr(2, be32(transport)), attr(3, be32(destination)), attr(4, be32(size)))
}

func equals(value []byte) []byte {
	return expression("cmp", attr(1, be32(1)), attr(2, be32(0)), attr(3|nested, attr(1, value)))
}

func redirectTo(port uint16) []byte {
	return append(expression("immediate", attr(1, be32(1)), attr(2|nested, attr(1, be16(port)))), expression("redir", attr(1, be32(1)))...)
}

// redirect sends names and connections to these ports.
func redirect(dns, tcp uint16) error {
	const subsystem, begin, end = 10 << 8, 0x10, 0x11
	const newTable, newChain, newRule, output = 0, 3, 6, 3
	generic := func(family byte, id uint16) []byte { return append([]byte{family, 0}, be16(id)...) }
	change := func(kind uint16, parts ...[]byte) []byte {
		body := generic(unix.NFPROTO_INET, 0)
		for _, p := range parts {
			body = append(body, p...)
		}
		return message(subsystem|kind, unix.NLM_F_CREATE|unix.NLM_F_APPEND|unix.NLM_F_ACK, body)
	}
	rule := func(expressions ...[]byte) []byte {
		return change(newRule, attr(1, text("gate")), attr(2, text("out")), attr(4|nested, expressions...))
	}
	const natPriority = -100
	err := netlink(
		unix.NETLINK_NETFILTER, 5,
		message(begin, 0, generic(0, subsystem>>8)),
		change(newTable, attr(1, text("gate"))),
		change(newChain, attr(1, text("gate")), attr(3, text("out")),
			attr(4|nested, attr(1, be32(output)), attr(2, be32(uint32(natPriority&0xffffffff)))), attr(7, text("nat"))),
		rule(loadProtocol(), equals([]byte{unix.IPPROTO_UDP}), loadPort(), equals(be16(53)), redirectTo(dns)),
		rule(loadProtocol(), equals([]byte{unix.IPPROTO_TCP}), loadPort(), equals(be16(53)), redirectTo(dns)),
		rule(loadProtocol(), equals([]byte{unix.IPPROTO_TCP}), redirectTo(tcp)),
		message(end, 0, generic(0, subsystem>>8)),
	)
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}
