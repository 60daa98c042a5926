package native

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// netlink builds messages to the kernel. Numbers in headers are the machine's
// own, those in attributes of netfilter are in network order.
type netlink struct {
	b    []byte
	open []int // where messages and attributes that are not finished begin
	seq  uint32
}

// message begins a message with what every message of its kind begins with.
func (n *netlink) message(kind, flags uint16, body ...byte) {
	n.open = append(n.open, len(n.b))
	n.b = append(n.b, make([]byte, unix.NLMSG_HDRLEN)...)
	h := n.b[len(n.b)-unix.NLMSG_HDRLEN:]
	ne := binary.NativeEndian
	ne.PutUint16(h[4:], kind)
	ne.PutUint16(h[6:], flags|unix.NLM_F_REQUEST)
	n.seq++
	ne.PutUint32(h[8:], n.seq)
	n.b = append(n.b, body...)
}

// done finishes a message.
func (n *netlink) done() {
	at := n.pop()
	binary.NativeEndian.PutUint32(n.b[at:], uint32(len(n.b)-at))
}

func (n *netlink) pop() int {
	at := n.open[len(n.open)-1]
	n.open = n.open[:len(n.open)-1]
	return at
}

// attr adds an attribute.
func (n *netlink) attr(kind uint16, data []byte) {
	n.begin(kind)
	n.b = append(n.b, data...)
	n.end()
}

// begin begins an attribute that holds others.
func (n *netlink) begin(kind uint16) {
	n.open = append(n.open, len(n.b))
	n.b = binary.NativeEndian.AppendUint16(n.b, 0)
	n.b = binary.NativeEndian.AppendUint16(n.b, kind)
}

func (n *netlink) end() {
	at := n.pop()
	binary.NativeEndian.PutUint16(n.b[at:], uint16(len(n.b)-at))
	for len(n.b)%4 != 0 {
		n.b = append(n.b, 0)
	}
}

func (n *netlink) nested(kind uint16, fill func()) {
	n.begin(kind | unix.NLA_F_NESTED)
	fill()
	n.end()
}

func (n *netlink) number(kind uint16, v uint32) {
	n.attr(kind, binary.BigEndian.AppendUint32(nil, v))
}

func (n *netlink) text(kind uint16, s string) { n.attr(kind, append([]byte(s), 0)) }

// loopbackIndex is the number of lo in every network namespace.
const loopbackIndex = 1

// everywhereRoute makes every address one of this machine's own:
//
//	ip route add local default dev lo
func everywhereRoute(family byte) []byte {
	n := &netlink{}
	n.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK,
		family, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0)
	n.attr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, loopbackIndex))
	n.done()
	return n.b
}

const (
	tableName  = "bailey"
	protoTCP   = unix.IPPROTO_TCP
	protoUDP   = unix.IPPROTO_UDP
	offsetPort = 2 // of the destination in the headers of TCP and UDP
	dnsPort    = 53

	verdictDrop   = 0
	verdictAccept = 1
)

// captureRules lead what leaves the sandbox to the gate:
//
//	table inet bailey {
//		chain nat {
//			type nat hook output priority -100
//			tcp dport 53 redirect to :942
//			udp dport 53 redirect to :942
//			ip daddr 127.0.0.0/8 tcp dport GRANTED redirect to :941   (each, and for ::1)
//			ip daddr 127.0.0.0/8 accept
//			ip6 daddr ::1 accept
//			meta l4proto tcp redirect to :941
//		}
//		chain filter {
//			type filter hook output priority 0
//			icmp type echo-request drop                                (and for ICMPv6)
//			ip daddr != 127.0.0.0/8 udp sport != 942 log group 940     (and for IPv6)
//		}
//	}
//
// Datagrams to elsewhere find that nobody listens there: every address is the
// sandbox's own. The gate is told of them, but not of its own answers: a question
// comes from the address that it goes to.
func captureRules(g *spec.Gate) []byte {
	n := &netlink{b: make([]byte, 0, 4096), open: make([]int, 0, 16)}
	n.batch(unix.NFNL_MSG_BATCH_BEGIN)
	n.netfilter(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE)
	n.text(unix.NFTA_TABLE_NAME, tableName)
	n.done()
	const natPriority = -100
	n.chain("nat", "nat", natPriority)
	n.chain("filter", "filter", 0)
	for _, proto := range []byte{protoTCP, protoUDP} {
		n.rule("nat", func() { n.isProtocol(proto); n.isPort(dnsPort, dnsPort); n.redirect(spec.GateDNSPort) })
	}
	for _, of := range []struct {
		is    func()
		ports []config.Ports
	}{{n.isLoopback4, g.Local}, {n.isLoopback6, g.LocalIPv6}} {
		for _, ports := range of.ports {
			n.rule("nat", func() { of.is(); n.isProtocol(protoTCP); n.isPort(ports.From, ports.To); n.redirect(spec.GateTCPPort) })
		}
		n.rule("nat", func() { of.is(); n.verdict(verdictAccept) })
	}
	n.rule("nat", func() { n.isProtocol(protoTCP); n.redirect(spec.GateTCPPort) })
	const echo, echo6 = 8, 128
	n.rule("filter", func() { n.isProtocol(unix.IPPROTO_ICMP); n.isKind(echo); n.verdict(verdictDrop) })
	n.rule("filter", func() { n.isProtocol(unix.IPPROTO_ICMPV6); n.isKind(echo6); n.verdict(verdictDrop) })
	if !g.Silent {
		for _, is := range []func(op uint32){n.comparesLoopback4, n.comparesLoopback6} {
			n.rule("filter", func() { n.isProtocol(protoUDP); is(unix.NFT_CMP_NEQ); n.isNotFrom(spec.GateDNSPort); n.log() })
		}
	}
	n.acknowledge()
	n.batch(unix.NFNL_MSG_BATCH_END)
	return n.b
}

// batch begins or ends a transaction.
func (n *netlink) batch(kind uint16) {
	n.message(kind, 0, 0, 0, 0, unix.NFNL_SUBSYS_NFTABLES)
	n.done()
}

func (n *netlink) netfilter(kind, flags uint16) {
	n.message(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, unix.NFPROTO_INET, 0, 0, 0)
}

// acknowledge asks for an answer to the last message. Errors of others are told
// without that, and before.
func (n *netlink) acknowledge() {
	ne := binary.NativeEndian
	last, at := 0, 0
	for at < len(n.b) {
		last = at
		at += int(ne.Uint32(n.b[at:]))
	}
	ne.PutUint16(n.b[last+6:], ne.Uint16(n.b[last+6:])|unix.NLM_F_ACK)
}

func (n *netlink) chain(name, kind string, priority int32) {
	n.netfilter(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE)
	n.text(unix.NFTA_CHAIN_TABLE, tableName)
	n.text(unix.NFTA_CHAIN_NAME, name)
	n.nested(unix.NFTA_CHAIN_HOOK, func() {
		n.number(unix.NFTA_HOOK_HOOKNUM, unix.NF_INET_LOCAL_OUT)
		n.number(unix.NFTA_HOOK_PRIORITY, uint32(priority))
	})
	n.text(unix.NFTA_CHAIN_TYPE, kind)
	n.done()
}

func (n *netlink) rule(chain string, expressions func()) {
	n.netfilter(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
	n.text(unix.NFTA_RULE_TABLE, tableName)
	n.text(unix.NFTA_RULE_CHAIN, chain)
	n.nested(unix.NFTA_RULE_EXPRESSIONS, expressions)
	n.done()
}

func (n *netlink) expression(name string, data func()) {
	n.nested(unix.NFTA_LIST_ELEM, func() {
		n.text(unix.NFTA_EXPR_NAME, name)
		n.nested(unix.NFTA_EXPR_DATA, data)
	})
}

// register is where expressions put values for the next.
const register = unix.NFT_REG_1

func (n *netlink) compare(op uint32, value ...byte) {
	n.expression("cmp", func() {
		n.number(unix.NFTA_CMP_SREG, register)
		n.number(unix.NFTA_CMP_OP, op)
		n.nested(unix.NFTA_CMP_DATA, func() { n.attr(unix.NFTA_DATA_VALUE, value) })
	})
}

func (n *netlink) meta(key uint32) {
	n.expression("meta", func() {
		n.number(unix.NFTA_META_DREG, register)
		n.number(unix.NFTA_META_KEY, key)
	})
}

func (n *netlink) payload(base, offset, size uint32) {
	n.expression("payload", func() {
		n.number(unix.NFTA_PAYLOAD_DREG, register)
		n.number(unix.NFTA_PAYLOAD_BASE, base)
		n.number(unix.NFTA_PAYLOAD_OFFSET, offset)
		n.number(unix.NFTA_PAYLOAD_LEN, size)
	})
}

func (n *netlink) isProtocol(number byte) {
	n.meta(unix.NFT_META_L4PROTO)
	n.compare(unix.NFT_CMP_EQ, number)
}

func (n *netlink) isKind(number byte) {
	n.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1)
	n.compare(unix.NFT_CMP_EQ, number)
}

func (n *netlink) isPort(from, to uint16) {
	n.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, offsetPort, 2)
	if from == to {
		n.compare(unix.NFT_CMP_EQ, byte(from>>8), byte(from))
		return
	}
	n.compare(unix.NFT_CMP_GTE, byte(from>>8), byte(from))
	n.compare(unix.NFT_CMP_LTE, byte(to>>8), byte(to))
}

func (n *netlink) isNotFrom(port uint16) {
	const source = 0
	n.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, source, 2)
	n.compare(unix.NFT_CMP_NEQ, byte(port>>8), byte(port))
}

func (n *netlink) isLoopback4() { n.comparesLoopback4(unix.NFT_CMP_EQ) }

func (n *netlink) isLoopback6() { n.comparesLoopback6(unix.NFT_CMP_EQ) }

// comparesLoopback4 is for packets of IPv4 that go to loopback, or do not.
func (n *netlink) comparesLoopback4(op uint32) {
	const destination = 16 // in the header
	n.meta(unix.NFT_META_NFPROTO)
	n.compare(unix.NFT_CMP_EQ, unix.NFPROTO_IPV4)
	n.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, destination, 1)
	n.compare(op, 127)
}

func (n *netlink) comparesLoopback6(op uint32) {
	const destination = 24 // in the header
	n.meta(unix.NFT_META_NFPROTO)
	n.compare(unix.NFT_CMP_EQ, unix.NFPROTO_IPV6)
	n.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, destination, 16)
	n.compare(op, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
}

// logGroup is a number that both ends of the kernel's log know, in a network in
// which there is no other.
const logGroup = spec.GateProxyPort

// log tells of a packet, at once and no more than its head.
func (n *netlink) log() {
	n.expression("log", func() {
		n.attr(unix.NFTA_LOG_GROUP, binary.BigEndian.AppendUint16(nil, logGroup))
		n.number(unix.NFTA_LOG_SNAPLEN, loggedBytes)
		n.attr(unix.NFTA_LOG_QTHRESHOLD, binary.BigEndian.AppendUint16(nil, 1))
	})
}

// loggedBytes hold the headers of IP, with all options, and UDP.
const loggedBytes = 72

// wantLog asks for what is logged to be sent to the socket that this is sent on.
func wantLog() []byte {
	const config, command, mode, threshold, bind, copyPacket = 1, 1, 2, 5, 1, 2 // NFULNL_…, NFULA_CFG_…
	n := &netlink{}
	n.message(unix.NFNL_SUBSYS_ULOG<<8|config, 0, unix.AF_UNSPEC, 0, logGroup>>8, logGroup&0xff)
	n.attr(command, []byte{bind})
	n.attr(mode, append(binary.BigEndian.AppendUint32(nil, loggedBytes), copyPacket, 0))
	n.number(threshold, 1)
	n.done()
	return n.b
}

func (n *netlink) verdict(code uint32) {
	n.expression("immediate", func() {
		n.number(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		n.nested(unix.NFTA_IMMEDIATE_DATA, func() {
			n.nested(unix.NFTA_DATA_VERDICT, func() { n.number(unix.NFTA_VERDICT_CODE, code) })
		})
	})
}

func (n *netlink) redirect(port uint16) {
	n.expression("immediate", func() {
		n.number(unix.NFTA_IMMEDIATE_DREG, register)
		n.nested(unix.NFTA_IMMEDIATE_DATA, func() { n.attr(unix.NFTA_DATA_VALUE, []byte{byte(port >> 8), byte(port)}) })
	})
	n.expression("redir", func() { n.number(unix.NFTA_REDIR_REG_PROTO_MIN, register) })
}

// gateSocket is a socket inside that is the gate's.
type gateSocket struct {
	role   config.Role
	family int
	kind   int
	port   uint16
	path   string // of AF_UNIX
	proto  int    // of AF_NETLINK
}

// gateSockets are the sockets of a gate. Without IPv6 there are fewer.
func gateSockets(s *spec.Spec, ipv6 bool) []gateSocket {
	families := []int{unix.AF_INET}
	if ipv6 {
		families = append(families, unix.AF_INET6)
	}
	list := make([]gateSocket, 0, maxGateSockets)
	switch g := s.Gate; {
	case g == nil:
	case g.Socket != "":
		list = append(list, gateSocket{role: config.RoleUnix, family: unix.AF_UNIX, kind: unix.SOCK_STREAM, path: g.Socket})
	default:
		list = append(list, gateSocket{role: config.RoleMixed, family: unix.AF_INET, kind: unix.SOCK_STREAM, port: spec.GateProxyPort})
	}
	if s.Gate != nil && s.Gate.Socket == "" && !s.Gate.Silent {
		list = append(list, gateSocket{role: config.RolePeers, family: unix.AF_NETLINK, kind: unix.SOCK_RAW, proto: unix.NETLINK_SOCK_DIAG})
		if s.Gate.Transparent {
			list = append(list, gateSocket{role: config.RoleRejected, family: unix.AF_NETLINK, kind: unix.SOCK_RAW, proto: unix.NETLINK_NETFILTER})
		}
	}
	for _, family := range families {
		if s.Gate != nil && s.Gate.Transparent {
			list = append(list,
				gateSocket{role: config.RoleTCP, family: family, kind: unix.SOCK_STREAM, port: spec.GateTCPPort},
				gateSocket{role: config.RoleDNSTCP, family: family, kind: unix.SOCK_STREAM, port: spec.GateDNSPort},
				gateSocket{role: config.RoleDNSUDP, family: family, kind: unix.SOCK_DGRAM, port: spec.GateDNSPort})
		}
		if s.HasInlet() {
			list = append(list,
				gateSocket{role: config.RoleMint, family: family, kind: unix.SOCK_STREAM, port: spec.GateInsidePort},
				gateSocket{role: config.RoleSeed, family: family, kind: unix.SOCK_STREAM})
		}
	}
	return list
}
