package foreign

import (
	"github.com/tailscale/hujson"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// greywallFile is Greywall's settings file.
type greywallFile struct {
	Schema      hujson.Value        `json:"$schema,omitempty"`
	Extends     string              `json:"extends,omitempty"`
	Network     greywallNetwork     `json:"network,omitempty"`
	Filesystem  fenceFilesystem     `json:"filesystem,omitempty"`
	Command     fenceCommand        `json:"command,omitempty"`
	SSH         fenceSSH            `json:"ssh,omitempty"`
	Credentials greywallCredentials `json:"credentials,omitempty"`
	AllowPty    *bool               `json:"allowPty,omitempty"`
}

type greywallNetwork struct {
	ProxyURL            *string  `json:"proxyUrl,omitempty"`
	HTTPProxyURL        *string  `json:"httpProxyUrl,omitempty"`
	DNSAddr             *string  `json:"dnsAddr,omitempty"`
	AllowUnixSockets    []string `json:"allowUnixSockets,omitempty"`
	AllowAllUnixSockets *bool    `json:"allowAllUnixSockets,omitempty"`
	AllowLocalBinding   *bool    `json:"allowLocalBinding,omitempty"`
	AllowLocalOutbound  *bool    `json:"allowLocalOutbound,omitempty"`
	ForwardPorts        []string `json:"forwardPorts,omitempty" check:"port"`
}

type greywallCredentials struct {
	Secrets []string `json:"secrets,omitempty" check:"name"`
	Inject  []string `json:"inject,omitempty"`
}

// greywall translates Greywall's settings, in which reading is denied unless
// they say otherwise, and a proxy decides about hosts.
func (t *translator) greywall(doc *policy.Document) error {
	dropNulls(doc.Root())
	var f greywallFile
	origins, err := doc.Decode(&f)
	if err != nil {
		return err
	}
	s := section{t, origins}
	if f.Extends != "" {
		t.loseRestriction(s.at("extends").pos, "extends "+f.Extends, "profiles are in Greywall's own program; import the file it names, or grant what it grants")
	}
	t.environment()
	s.greywallFiles(&f.Filesystem)
	s.greywallNetwork(&f.Network)
	s.sockets(f.Network.AllowUnixSockets, f.Network.AllowAllUnixSockets)
	s.commands(&f.Command)
	s.ssh(&f.SSH)
	s.texts(&t.Policy.Env.Deny, "env.deny", "name", s.list("credentials.secrets", f.Credentials.Secrets))
	for _, e := range s.list("credentials.inject", f.Credentials.Inject) {
		t.lose(e.pos, "credentials.inject "+e.text, "a credential is named by where it comes from and whom it is for; see network.inject")
	}
	return nil
}

func (s section) greywallFiles(f *fenceFilesystem) {
	closed := f.DefaultDenyRead == nil || *f.DefaultDenyRead
	w := files{
		allowRead: s.list(keyAllowRead, f.AllowRead), denyRead: s.list(keyDenyRead, f.DenyRead),
		allowWrite: s.list(keyAllowWrite, f.AllowWrite), denyWrite: s.list(keyDenyWrite, f.DenyWrite),
		closed: &closed, denyWins: true, braces: true,
	}
	if closed {
		w.allowRead = append(w.allowRead, because("readable in Greywall", append([]string{"."}, fenceReadable()...)...)...)
	}
	s.files(w)
	if on(f.AllowGitConfig) {
		set(s.translator, &s.Policy.Filesystem.AllowGitConfig, "filesystem.allowGitConfig", true, s.at("filesystem.allowGitConfig"))
	}
}

func (s section) greywallNetwork(f *greywallNetwork) {
	n := &s.Policy.Network
	if f.ProxyURL != nil {
		s.upstream("network.proxyUrl", *f.ProxyURL)
		set(s.translator, &n.DefaultAction, "network.defaultAction", "proxy", entry{reason: "Greywall leaves the decision to the proxy"})
	} else {
		s.lose(policy.Pos{}, "the network", "without network.proxyUrl Greywall uses greyproxy on this machine; name its address, or hosts in network.allowedDomains")
	}
	s.idleIf(s.origins, "network.httpProxyUrl", "every connection leaves through network.proxyUrl")
	s.idleIf(s.origins, "network.dnsAddr", "the gate answers questions for names, and the proxy resolves them")
	for _, e := range s.list("network.forwardPorts", f.ForwardPorts) {
		s.local(e.text, e)
	}
	local := on(f.AllowLocalBinding)
	if f.AllowLocalOutbound != nil {
		local = *f.AllowLocalOutbound
	}
	if local && len(f.ForwardPorts) == 0 {
		s.idleIf(s.origins, keyLocal, "only ports that are forwarded lead to the host's loopback")
	}
}
