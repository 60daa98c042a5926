package gate

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/grants"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/policy/notation"
)

// A gate starts when the first connection comes. By then nobody is told any more
// what is wrong with a policy, so whatever is accepted must be what it can use.
func FuzzGateTakesWhatPoliciesMayHold(f *testing.F) {
	for _, text := range []string{
		"a.com", "*.a.com", "*", "1.2.3.4", "[::1]", "::ffff:1.2.3.4", "127.1", "a.0x", "a.0x1", "a.0b1", "a.1_0", "a.00", "A_b.-c",
		"xn--a.test", "xn--.test", "xn--bcher-kva.de", "XN--BCHER-KVA.de", "*.xn--a.test", "xn--abc-.de", "xn--99999999.de", "xn--zckzah",
		"xn--ls8h.la", "xn--a-ecp.ru", "xn--mgba3a4f16a.ir", "xn--0.pt", "xn--wca.de", "*.xn--zug.de", "xn--ab-g4t",
		"/", "/**", "admin/**", "*", "**", "/a?b", "/a#b", "/%zz", "/%41", "/%", "/a;b/../c", "/ü",
		"GET", "get", "G ET", "M-SEARCH",
		"http://a%zz", "http://:80", "http://p:99999", "http://p:0", "http://u:p@p:1", "http://u@v@p", "socks5h://[::1]:1", "http://[::1%25lo]",
		"http://[1.2.3.4]", "http://p:", "http://p:080", "https://u:%40@p", "http://a:b:c@p", "HTTP://p", "http://p/", "p:1", "http://..",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quoted, err := json.Marshal(text)
		if err != nil || strings.HasPrefix(text, "!") { // which takes back what another file says
			t.Skip(err)
		}
		for _, form := range []string{
			`{"network": {"allowedDomains": [%]}}`, `{"network": {"deniedDomains": [%]}}`, `{"ssh": {"allowedHosts": [%]}}`,
			`{"network": {"rules": [{"host": "a.com", "action": "allow", "paths": [%]}]}}`,
			`{"network": {"rules": [{"host": %, "action": "deny", "methods": [%]}]}}`,
			`{"network": {"inject": [{"hosts": [%], "bearer": true, "fromEnv": "A"}]}}`,
			`{"network": {"upstreamProxy": %}}`, `{"network": {"allowedCIDRs": [%]}}`,
		} {
			takes(t, strings.ReplaceAll(form, "%", string(quoted)))
		}
	})
}

// takes checks that a policy is either refused or can be used.
func takes(t *testing.T, text string) {
	t.Helper()
	p, err := policy.Parse("p", []byte(text))
	if err != nil {
		return
	}
	c, err := grants.FromPolicy(*p, grants.Options{AuthorityDir: "/ca"})
	if err != nil {
		return
	}
	g, err := New(Options{Config: c, Events: event.Multi{}})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	g.Close()
	if c.Upstream != (config.Upstream{}) {
		sameProxy(t, c.Upstream.All)
	}
}

// sameProxy checks that what was read of a proxy is what will be used of it.
func sameProxy(t *testing.T, text string) {
	t.Helper()
	read, err := notation.ParseProxy(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() != read.Host || u.Scheme != read.Scheme || (u.User != nil) != (read.User != "") && read.User != "" {
		t.Fatalf("%q: read as %+v, used as %v, %v", text, read, u, err)
	}
	if _, err := parseProxy(text); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}
