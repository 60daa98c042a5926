package nameserver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
)

// testServer knows allowed.example and what is below it.
func testServer() (*Server, *[]string) {
	p, _ := testPool(100)
	var asked []string
	var mu sync.Mutex // real clients ask several questions at once
	return &Server{Pool: p, Lookup: func(_ context.Context, h hostname.Host) Outcome {
		mu.Lock()
		asked = append(asked, h.Name())
		mu.Unlock()
		switch {
		case strings.HasPrefix(h.Name(), "missing."):
			return Missing
		case strings.HasPrefix(h.Name(), "broken."):
			return Failed
		case strings.HasSuffix("."+h.Name(), ".allowed.example"):
			return Found
		}
		return Refused
	}}, &asked
}

func query(name string, kind dnsmessage.Type, extended bool) []byte {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 4711, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
	if extended {
		r := dnsmessage.Resource{Body: &dnsmessage.OPTResource{}}
		_ = r.Header.SetEDNS0(4096, 0, false)
		m.Additionals = append(m.Additionals, r)
	}
	packed, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return packed
}

func ask(t testing.TB, s *Server, packed []byte) dnsmessage.Message {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(s.Answer(t.Context(), packed)); err != nil {
		t.Fatal(err)
	}
	if !m.Response || m.ID != 4711 {
		t.Errorf("got %+v", m.Header)
	}
	return m
}

func TestAllowedNamesGetAddressesOfThePool(t *testing.T) {
	s, _ := testServer()
	m := ask(t, s, query("A.allowed.EXAMPLE.", dnsmessage.TypeA, false))
	if m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) != 1 || m.Questions[0].Name.String() != "A.allowed.EXAMPLE." {
		t.Fatalf("got %+v", m)
	}
	four := netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A)
	m = ask(t, s, query("a.allowed.example.", dnsmessage.TypeAAAA, false))
	six := netip.AddrFrom16(m.Answers[0].Body.(*dnsmessage.AAAAResource).AAAA)
	for _, a := range []netip.Addr{four, six} {
		if name, ok := s.Pool.Name(a); !ok || name != "a.allowed.example" {
			t.Errorf("%v: got %q", a, name)
		}
	}
	m = ask(t, s, query("1.0.18.198.in-addr.arpa.", dnsmessage.TypePTR, false))
	if len(m.Answers) != 1 || m.Answers[0].Body.(*dnsmessage.PTRResource).PTR.String() != "a.allowed.example." {
		t.Errorf("reverse: got %+v", m)
	}
	m = ask(t, s, query(strings.Repeat("0.", 0)+"1."+strings.Repeat("0.", 29)+"d.f.ip6.arpa.", dnsmessage.TypePTR, false))
	if len(m.Answers) != 1 || m.Answers[0].Body.(*dnsmessage.PTRResource).PTR.String() != "a.allowed.example." {
		t.Errorf("reverse: got %+v", m)
	}
}

func TestOtherQuestionsAboutAllowedNamesGetEmptyAnswers(t *testing.T) {
	s, _ := testServer()
	for _, kind := range []dnsmessage.Type{
		dnsmessage.TypeHTTPS, dnsmessage.TypeSVCB, dnsmessage.TypeMX, dnsmessage.TypeTXT, dnsmessage.TypeSRV, dnsmessage.TypeALL,
		dnsmessage.TypeCNAME, dnsmessage.TypeNS, 257,
	} {
		m := ask(t, s, query("allowed.example.", kind, false))
		if m.RCode != dnsmessage.RCodeSuccess || len(m.Answers)+len(m.Authorities)+len(m.Additionals) != 0 {
			t.Errorf("%v: got %+v", kind, m)
		}
	}
}

func TestEverythingElseIsRefusedHere(t *testing.T) {
	s, _ := testServer()
	for _, c := range []struct {
		name string
		kind dnsmessage.Type
		want dnsmessage.RCode
	}{
		{"denied.example.", dnsmessage.TypeA, dnsmessage.RCodeNameError},
		{"denied.example.", dnsmessage.TypeTXT, dnsmessage.RCodeNameError},
		{"allowed.example.evil.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError},
		{"missing.allowed.example.", dnsmessage.TypeA, dnsmessage.RCodeNameError},
		{"broken.allowed.example.", dnsmessage.TypeA, dnsmessage.RCodeServerFailure},
		{"127.0.0.1.", dnsmessage.TypeA, dnsmessage.RCodeNameError},
		{"a b.allowed.example.", dnsmessage.TypeA, dnsmessage.RCodeNameError},
		{"\x00.allowed.example.", dnsmessage.TypeA, dnsmessage.RCodeNameError},
		{".", dnsmessage.TypeNS, dnsmessage.RCodeNameError},
		{"8.8.8.8.in-addr.arpa.", dnsmessage.TypePTR, dnsmessage.RCodeNameError},
		{"secret.in-addr.arpa.", dnsmessage.TypePTR, dnsmessage.RCodeNameError},
		{"secret.ip6.arpa.", dnsmessage.TypeA, dnsmessage.RCodeNameError},
		{"secret.arpa.", dnsmessage.TypeA, dnsmessage.RCodeNameError},
		{"allowed.example.", dnsmessage.TypeAXFR, dnsmessage.RCodeRefused},
		{"allowed.example.", typeIXFR, dnsmessage.RCodeRefused},
	} {
		m := ask(t, s, query(c.name, c.kind, false))
		if m.RCode != c.want || len(m.Answers) != 0 {
			t.Errorf("%s %v: got %+v", c.name, c.kind, m)
		}
	}
}

func TestRefusalIsExplainedToWhoeverUnderstandsIt(t *testing.T) {
	s, _ := testServer()
	m := ask(t, s, query("denied.example.", dnsmessage.TypeA, true))
	if len(m.Additionals) != 1 {
		t.Fatalf("got %+v", m)
	}
	options := m.Additionals[0].Body.(*dnsmessage.OPTResource).Options
	if len(options) != 1 || options[0].Code != 15 || !strings.HasPrefix(string(options[0].Data), "\x00\x12not allowed") {
		t.Errorf("got %+v", options)
	}
}

func TestLocalhostIsTheSandboxItself(t *testing.T) {
	s, asked := testServer()
	m := ask(t, s, query("localhost.", dnsmessage.TypeA, false))
	if len(m.Answers) != 1 || m.Answers[0].Body.(*dnsmessage.AResource).A != [4]byte{127, 0, 0, 1} {
		t.Errorf("got %+v", m)
	}
	if len(*asked) != 0 {
		t.Errorf("looked up %q", *asked)
	}
}

func TestMalformedQueriesAreAnsweredOrDropped(t *testing.T) {
	s, asked := testServer()
	two := dnsmessage.Message{Header: dnsmessage.Header{ID: 4711}}
	for range 2 {
		two.Questions = append(two.Questions, dnsmessage.Question{Name: dnsmessage.MustNewName("allowed.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET})
	}
	packed, _ := two.Pack()
	if m := ask(t, s, packed); m.RCode != dnsmessage.RCodeFormatError {
		t.Errorf("two questions: got %+v", m)
	}
	update := query("allowed.example.", dnsmessage.TypeA, false)
	update[2] |= 5 << 3
	if m := ask(t, s, update); m.RCode != dnsmessage.RCodeNotImplemented {
		t.Errorf("update: got %+v", m)
	}
	chaos := query("version.bind.", dnsmessage.TypeTXT, false)
	chaos[len(chaos)-1] = 3
	if m := ask(t, s, chaos); m.RCode != dnsmessage.RCodeRefused {
		t.Errorf("chaos: got %+v", m)
	}
	response := query("allowed.example.", dnsmessage.TypeA, false)
	response[2] |= 0x80
	for _, b := range [][]byte{nil, {1}, response} {
		if got := s.Answer(t.Context(), b); got != nil {
			t.Errorf("%q: answered %q", b, got)
		}
	}
	if len(*asked) != 0 {
		t.Errorf("looked up %q", *asked)
	}
}

// resolver asks the server with Go's own client.
func resolver(network, address string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}}
}

func TestRealClientIsServedByPacketAndByStream(t *testing.T) {
	s, _ := testServer()
	packets, err := net.ListenUDP("udp", &net.UDPAddr{}) // every address, both families
	if err != nil {
		t.Fatal(err)
	}
	streams, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.ServePacket(ctx, packets) }()
	go func() {
		for {
			c, err := streams.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = s.ServeStream(ctx, c)
			}()
		}
	}()
	port := packets.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	for name, r := range map[string]*net.Resolver{
		"udp":           resolver("udp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port).String()),
		"another local": resolver("udp", netip.AddrPortFrom(netip.MustParseAddr("127.9.9.9"), port).String()),
		"tcp":           resolver("tcp", streams.Addr().String()),
	} {
		got, err := r.LookupNetIP(ctx, "ip", "b.allowed.example")
		if err != nil || len(got) != 2 {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
		_, err = r.LookupNetIP(ctx, "ip", "denied.example")
		if dns := (*net.DNSError)(nil); !errors.As(err, &dns) || !dns.IsNotFound {
			t.Errorf("%s: a denied name got %v", name, err)
		}
	}
	packets.Close()
	streams.Close()
	if err := <-done; err != nil {
		t.Errorf("at the end: %v", err)
	}
}

func FuzzEveryQueryGetsAProperAnswerOrNone(f *testing.F) {
	f.Add(query("allowed.example.", dnsmessage.TypeA, false))
	f.Add(query("denied.example.", dnsmessage.TypeHTTPS, true))
	f.Add(query("1.0.18.198.in-addr.arpa.", dnsmessage.TypePTR, true))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, asked := testServer()
		response := s.Answer(t.Context(), b)
		if response == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(response); err != nil || !m.Response {
			t.Fatalf("%q: answered %q, %v", b, response, err)
		}
		if len(response) > 1232 {
			t.Errorf("an answer of %d bytes", len(response))
		}
		for _, name := range *asked {
			if h, err := hostname.Parse(name); err != nil || h.Name() != name {
				t.Errorf("looked up %q", name)
			}
		}
	})
}
