// Package nameserver answers the names that programs look up. It never asks
// anybody itself, and the addresses it gives out are its own: they lead to the
// gate, which knows the name behind each. So a name that is not allowed reaches
// nobody, not even as a question.
package nameserver

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
)

// Outcome is what a look-up comes to.
type Outcome int

const (
	Refused Outcome = iota // the policy does not allow the name
	Missing                // there is no such name
	Failed                 // it could not be found out
	Found
)

// TTL is how long programs may keep an answer.
const TTL = 30 * time.Second

// Server answers queries.
type Server struct {
	Pool *Pool
	// Lookup decides about a name before anything else is done with it.
	Lookup func(context.Context, hostname.Host) Outcome
}

// Types that package dnsmessage has no name for.
const (
	typeIXFR dnsmessage.Type = 251
)

// Answer returns the response to a query, nil if it deserves none.
func (s *Server) Answer(ctx context.Context, query []byte) []byte {
	var p dnsmessage.Parser
	header, err := p.Start(query)
	if err != nil || header.Response {
		return nil
	}
	a := answer{id: header.ID, recursion: header.RecursionDesired, opcode: header.OpCode}
	if header.OpCode != 0 {
		return a.build(dnsmessage.RCodeNotImplemented)
	}
	questions, err := p.AllQuestions()
	if err != nil || len(questions) != 1 {
		return a.build(dnsmessage.RCodeFormatError)
	}
	a.question = &questions[0]
	if !a.readExtensions(&p) {
		return a.build(dnsmessage.RCodeFormatError)
	}
	return s.answer(ctx, &a)
}

func (s *Server) answer(ctx context.Context, a *answer) []byte {
	q := a.question
	if q.Class != dnsmessage.ClassINET || q.Type == dnsmessage.TypeAXFR || q.Type == typeIXFR {
		return a.build(dnsmessage.RCodeRefused)
	}
	name := q.Name.String()
	if addr, ok := reverseAddr(name); ok {
		return s.answerReverse(a, addr)
	}
	host, err := hostname.Parse(name)
	if err != nil || host.IsAddr() {
		return a.build(dnsmessage.RCodeNameError)
	}
	if host.Name() == "localhost" || strings.HasSuffix(host.Name(), ".localhost") {
		a.add(netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
		return a.build(dnsmessage.RCodeSuccess)
	}
	switch s.Lookup(ctx, host) {
	case Found:
	case Failed:
		return a.build(dnsmessage.RCodeServerFailure)
	case Missing:
		return a.build(dnsmessage.RCodeNameError)
	default:
		// Not RCodeRefused: at that, programs ask again and again, and then
		// speak of a temporary failure.
		a.reason = "not allowed by the policy of this sandbox"
		return a.build(dnsmessage.RCodeNameError)
	}
	v4, v6, ok := s.Pool.Assign(host.Name())
	if !ok {
		return a.build(dnsmessage.RCodeServerFailure)
	}
	a.add(v4, v6)
	return a.build(dnsmessage.RCodeSuccess)
}

func (s *Server) answerReverse(a *answer, addr netip.Addr) []byte {
	name, ok := s.Pool.Name(addr)
	if !ok {
		return a.build(dnsmessage.RCodeNameError)
	}
	if a.question.Type == dnsmessage.TypePTR {
		if target, err := dnsmessage.NewName(name + "."); err == nil {
			a.records = append(a.records, &dnsmessage.PTRResource{PTR: target})
		}
	}
	return a.build(dnsmessage.RCodeSuccess)
}

// answer is a response in the making.
type answer struct {
	id        uint16
	opcode    dnsmessage.OpCode
	recursion bool
	question  *dnsmessage.Question
	extended  bool // the client knows EDNS
	reason    string
	records   []dnsmessage.ResourceBody
}

// readExtensions looks for the record that says that the client knows EDNS.
func (a *answer) readExtensions(p *dnsmessage.Parser) bool {
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return false
	}
	const most = 8
	for range most {
		h, err := p.AdditionalHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return true
		}
		if err != nil {
			return false
		}
		a.extended = a.extended || h.Type == dnsmessage.TypeOPT
		if p.SkipAdditional() != nil {
			return false
		}
	}
	return false
}

// add takes the address that was asked for. To other questions, HTTPS and SVCB
// among them, the answer is empty: what they would say (keys for ECH, other
// hosts) leads past the gate.
func (a *answer) add(v4, v6 netip.Addr) {
	switch a.question.Type {
	case dnsmessage.TypeA:
		a.records = append(a.records, &dnsmessage.AResource{A: v4.As4()})
	case dnsmessage.TypeAAAA:
		a.records = append(a.records, &dnsmessage.AAAAResource{AAAA: v6.As16()})
	}
}

func (a *answer) build(code dnsmessage.RCode) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{
		ID: a.id, Response: true, OpCode: a.opcode, RecursionDesired: a.recursion, RecursionAvailable: true, RCode: code,
	}}
	if a.question != nil {
		m.Questions = []dnsmessage.Question{*a.question}
	}
	for _, body := range a.records {
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: a.question.Name, Class: dnsmessage.ClassINET, TTL: uint32(TTL / time.Second)},
			Body:   body,
		})
	}
	if a.extended {
		m.Additionals = []dnsmessage.Resource{a.extension(code)}
	}
	packed, err := m.Pack()
	if err != nil {
		return nil // the question cannot be repeated, so nobody waits for it
	}
	return packed
}

// extension is the record that tells a client that knows EDNS why a name was
// refused (RFC 8914).
func (a *answer) extension(code dnsmessage.RCode) dnsmessage.Resource {
	const udpSize, errorOption, prohibited = 1232, 15, 18
	r := dnsmessage.Resource{Body: &dnsmessage.OPTResource{}}
	_ = r.Header.SetEDNS0(udpSize, code, false) // fails for codes that do not fit only
	if a.reason != "" {
		r.Body = &dnsmessage.OPTResource{Options: []dnsmessage.Option{{
			Code: errorOption, Data: append([]byte{0, prohibited}, a.reason...),
		}}}
	}
	return r
}

// reverseAddr reads a name below in-addr.arpa or ip6.arpa. It says true for any
// such name, with the zero address if it is none of a single address.
func reverseAddr(name string) (netip.Addr, bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if digits, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		return reverse4(strings.Split(digits, ".")), true
	}
	if digits, ok := strings.CutSuffix(name, ".ip6.arpa"); ok {
		return reverse6(strings.Split(digits, ".")), true
	}
	return netip.Addr{}, name == "arpa" || strings.HasSuffix(name, ".arpa")
}

func reverse4(parts []string) netip.Addr {
	var b [4]byte
	if len(parts) != len(b) {
		return netip.Addr{}
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 8)
		if err != nil {
			return netip.Addr{}
		}
		b[3-i] = byte(n)
	}
	return netip.AddrFrom4(b)
}

func reverse6(parts []string) netip.Addr {
	var b [16]byte
	if len(parts) != 2*len(b) {
		return netip.Addr{}
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 16, 4)
		if err != nil || len(part) != 1 {
			return netip.Addr{}
		}
		b[15-i/2] |= byte(n) << (4 * (i % 2))
	}
	return netip.AddrFrom16(b)
}
