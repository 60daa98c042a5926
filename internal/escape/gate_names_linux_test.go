package escape

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// insiders are addresses that a name must not lead to, each with what a packet
// to it looks like.
var insiders = map[string]dnsmessage.ResourceBody{
	"loopback":       ipv4("127.0.0.1"),
	"loopback-other": ipv4("127.255.255.254"),
	"zero":           ipv4("0.0.0.0"),
	"metadata":       ipv4("169.254.169.254"),
	"link":           ipv4("169.254.1.1"),
	"private10":      ipv4("10.1.2.3"),
	"private172":     ipv4("172.31.255.254"),
	"private192":     ipv4("192.168.1.1"),
	"shared":         ipv4("100.64.0.1"),
	"own":            ipv4(machine4),
	"pool":           ipv4("198.18.0.1"),
	"group":          ipv4("224.0.0.251"),
	"broadcast":      ipv4("255.255.255.255"),
	"loopback6":      ipv6("::1"),
	"any6":           ipv6("::"),
	"mapped":         ipv6("::ffff:127.0.0.1"),
	"mapped-own":     ipv6("::ffff:" + machine4),
	"compatible":     ipv6("::127.0.0.1"),
	"nat64":          ipv6("64:ff9b::7f00:1"),
	"nat64-metadata": ipv6("64:ff9b::a9fe:a9fe"),
	"nat64-local":    ipv6("64:ff9b:1::7f00:1"),
	"6to4":           ipv6("2002:7f00:1::1"),
	"teredo":         ipv6("2001:0:a00:1::1"),
	"link6":          ipv6("fe80::1"),
	"unique":         ipv6("fd00::1"),
	"metadata6":      ipv6("fd00:ec2::254"),
	"own6":           ipv6(machine6),
	"group6":         ipv6("ff02::fb"),
	"pool6":          ipv6("fd62:6169:6c65:79::1"),
}

func TestGrantedNameLeadsToNoInsider(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.answer(func(name string, _ dnsmessage.Type) []dnsmessage.ResourceBody {
			first, _, _ := strings.Cut(name, ".")
			body, ok := insiders[first]
			if !ok {
				return []dnsmessage.ResourceBody{ipv4(good4)}
			}
			return []dnsmessage.ResourceBody{body}
		})
		w.policy = `{"network": {"allowedDomains": ["*.rebind.example", "good.example"]}}`
		var talks []talk
		var hosts []string
		for name := range insiders {
			host := name + ".rebind.example"
			hosts = append(hosts, host)
			talks = append(talks, everyWay(host, "/x")...)
			talks = append(talks, talk{name: "redirected, " + host, to: host + ":80", say: []string{get(host, "/x")}})
		}
		w.talk(talks...)
		got := w.heard()
		if !slices.Equal(got.sent, []string{"udp " + nameserver + ":53"}) || len(got.served) > 0 {
			t.Errorf("packets %q, requests %q", got.sent, got.served)
		}
		if len(got.questions) < 2*len(hosts) {
			t.Errorf("only %q were asked for", got.questions)
		}
		w.expectGood()

		// The same name where its address is granted.
		w.policy = `{"network": {"allowedDomains": ["*.rebind.example"], "allowedCIDRs": ["10.0.0.0/8", "169.254.169.254", "fd00::/8"]}}`
		for host, at := range map[string]string{"private10": "10.1.2.3", "metadata": "169.254.169.254", "unique": "[fd00::1]"} {
			host += ".rebind.example"
			ways := append(everyWay(host, "/x"), talk{name: "redirected", to: host + ":80", say: []string{get(host, "/x")}})
			for i, answer := range w.talk(ways...) {
				if !strings.Contains(answer, "at "+at+":80") {
					t.Errorf("control %s %d: got %q", host, i, answer)
				}
			}
		}
	})
}

// A name that is at a public address when it is checked and on the machine when
// it is used, or at both at once.
func TestNameThatChangesItsAddressLeadsToNoInsider(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var asked atomic.Int64
		w.answer(func(name string, kind dnsmessage.Type) []dnsmessage.ResourceBody {
			inside, outside := ipv4("127.0.0.1"), ipv4(good4)
			if strings.HasPrefix(name, "both") {
				return []dnsmessage.ResourceBody{inside, ipv4("10.1.2.3"), ipv6("::1"), outside, ipv6("fd00::1")}
			}
			if kind == dnsmessage.TypeA && asked.Add(1)%2 == 0 {
				return []dnsmessage.ResourceBody{inside}
			}
			return []dnsmessage.ResourceBody{outside}
		})
		w.policy = `{"network": {"allowedDomains": ["*.flip.example"]}}`
		var talks []talk
		for i := range 20 {
			// The gate keeps what it resolved, so that the names differ; those that
			// are looked up before they are asked for are resolved by then.
			host := fmt.Sprintf("n%d.flip.example", i)
			talks = append(talks, everyWay(host, "/x")...)
			host = fmt.Sprintf("r%d.flip.example", i)
			talks = append(talks, talk{name: "redirected", to: host + ":80", say: []string{get(host, "/x")}})
		}
		reached := strings.Count(strings.Join(w.talk(talks...), "\n"), "at "+good4+":80")
		if got := w.heard(); !slices.Equal(got.sent, []string{"tcp " + good4 + ":80", "udp " + nameserver + ":53"}) {
			t.Errorf("packets %q", got.sent)
		}
		if reached == 0 || reached == len(talks) {
			t.Errorf("control: %d of %d reached the public address", reached, len(talks))
		}
		for i, answer := range w.talk(everyWay("both.flip.example", "/x")...) {
			if !strings.Contains(answer, "at "+good4+":80") {
				t.Errorf("control, both %d: got %q", i, answer)
			}
		}
		if got := w.heard(); !slices.Equal(got.sent, []string{"tcp " + good4 + ":80", "udp " + nameserver + ":53"}) {
			t.Errorf("both: packets %q", got.sent)
		}
	})
}

// tricks are names that are not good.example, and look as if they were to
// somebody: to whoever checks, or to whoever resolves.
var tricks = []string{
	"good.example.evil.example", "evil.example#good.example", "evil.example?good.example", "evil.example/good.example", `evil.example\good.example`,
	"good.example@evil.example", "good.example:80@evil.example", "evil.example%23.good.example", "evil.example%00.good.example", "evil.example%2egood.example",
	"%67ood.example", "good%2eexample", "good.example%20", "good.example%0d%0aHost:%20evil.example", "good.example..", ".good.example", "good..example",
	"good.example,evil.example", "good.example;evil.example", "good.example evil.example", "good.example\tevil.example", "evil.example\x00good.example",
	"gооd.example", "xn--gd-emca.example", "good.exampl\u0435", "evil.example\u2024good.example", "evil.example\uff0fgood.example", "good.example\u200b.evil.example",
	"evil\u3002example", "[good.example]", "[::ffff:198.51.100.66]", "*.example", "*", "", ".", "good.example:0", "good.example:65616", "good.example:+80", "good.example:080",
	"good.example:80:80", "good.example:80.", "sub.good.example", "example", "evil.example.", "EVIL.EXAMPLE", "good_example",
}

func TestTrickedNameLeadsNowhere(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.policy = oneDomain
		var talks []talk
		for _, name := range tricks {
			talks = append(talks, everyWay(name, "/x")...)
			talks = append(talks,
				talk{name: "CONNECT without a port, " + name, say: []string{connectBy(name), get(name, "/x")}},
				talk{name: "another scheme, " + name, say: []string{"GET ftp://" + name + "/ HTTP/1.1\r\nHost: " + name + "\r\n\r\n"}},
				talk{name: "no scheme, " + name, say: []string{"GET //" + name + "/ HTTP/1.1\r\nHost: " + name + "\r\n\r\n"}},
				talk{name: "SOCKS 5 with a zero byte, " + name, say: []string{socks5Hello, socks5Name(name+"\x00good.example", 80), get(name, "/x")}},
			)
		}
		w.talk(talks...)
		w.expectSilence("tricks")
		w.expectGood()
		// Other ways to write the name that is granted lead to it.
		for _, name := range []string{"GOOD.example", "good.example.", "ｇｏｏｄ.example", "good。example", "good.example:80"} {
			answer := w.talk(talk{name: name, say: []string{getByURL(name, "/x")}})[0]
			if !strings.Contains(strings.ToLower(answer), "served good.example") {
				t.Errorf("control %q: got %q", name, answer)
			}
		}
		for _, host := range w.expectOnlyGood("other spellings") {
			if got := strings.ToLower(strings.Fields(host)[1]); got != "good.example" && got != "good.example:80" {
				t.Errorf("the server was asked for %q", host)
			}
		}
	})
}
