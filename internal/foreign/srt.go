package foreign

import (
	"net/netip"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// srtFile is sandbox-runtime's settings file. What is a hujson.Value has no
// counterpart here, or more than one form.
type srtFile struct {
	Schema                       hujson.Value   `json:"$schema,omitempty"`
	Network                      srtNetwork     `json:"network,omitempty"`
	Filesystem                   srtFilesystem  `json:"filesystem,omitempty"`
	Credentials                  srtCredentials `json:"credentials,omitempty"`
	IgnoreViolations             hujson.Value   `json:"ignoreViolations,omitempty"`
	EnableWeakerNestedSandbox    *bool          `json:"enableWeakerNestedSandbox,omitempty"`
	EnableWeakerNetworkIsolation *bool          `json:"enableWeakerNetworkIsolation,omitempty"`
	AllowAppleEvents             *bool          `json:"allowAppleEvents,omitempty"`
	Ripgrep                      hujson.Value   `json:"ripgrep,omitempty"`
	MandatoryDenySearchDepth     *int           `json:"mandatoryDenySearchDepth,omitempty"`
	AllowPty                     *bool          `json:"allowPty,omitempty"`
	Seccomp                      hujson.Value   `json:"seccomp,omitempty"`
	BwrapPath                    hujson.Value   `json:"bwrapPath,omitempty"`
	SocatPath                    hujson.Value   `json:"socatPath,omitempty"`
	JavaAgentJarPath             hujson.Value   `json:"javaAgentJarPath,omitempty"`
	Windows                      hujson.Value   `json:"windows,omitempty"`
	Git                          hujson.Value   `json:"git,omitempty"`
}

type srtNetwork struct {
	AllowedDomains          []string      `json:"allowedDomains,omitempty"`
	AllowAllDomains         *bool         `json:"allowAllDomains,omitempty"`
	DeniedDomains           []string      `json:"deniedDomains,omitempty"`
	DeniedDomainReasons     hujson.Value  `json:"deniedDomainReasons,omitempty"`
	DeniedResolvedAddresses []string      `json:"deniedResolvedAddresses,omitempty" check:"cidr"`
	StrictAllowlist         *bool         `json:"strictAllowlist,omitempty"`
	AllowUnixSockets        []string      `json:"allowUnixSockets,omitempty"`
	AllowAllUnixSockets     *bool         `json:"allowAllUnixSockets,omitempty"`
	AllowLocalBinding       *bool         `json:"allowLocalBinding,omitempty"`
	AllowMachLookup         []string      `json:"allowMachLookup,omitempty"`
	HTTPProxyDualStack      *bool         `json:"httpProxyDualStack,omitempty"`
	HTTPProxyPort           *int          `json:"httpProxyPort,omitempty" min:"1" max:"65535"`
	SOCKSProxyPort          *int          `json:"socksProxyPort,omitempty" min:"1" max:"65535"`
	MITMProxy               *srtMITMProxy `json:"mitmProxy,omitempty"`
	TLSTerminate            hujson.Value  `json:"tlsTerminate,omitempty"`
	ParentProxy             *srtParent    `json:"parentProxy,omitempty"`
	AllowPlaintextHeaderSet *bool         `json:"allowPlaintextHeaderSet,omitempty"`
	StripResponseHeaders    []string      `json:"stripResponseHeaders,omitempty"`
	RefuseOpaqueTunnels     *bool         `json:"refuseOpaqueTunnels,omitempty"`
	RequireHostMatch        *bool         `json:"requireHostMatch,omitempty"`
	// AllowManagedDomainsOnly is Claude Code's, whose sandbox section is made of
	// the same parts.
	AllowManagedDomainsOnly *bool `json:"allowManagedDomainsOnly,omitempty"`
}

type srtMITMProxy struct {
	SocketPath string   `json:"socketPath"`
	Domains    []string `json:"domains"`
}

type srtParent struct {
	HTTP    *string `json:"http,omitempty"`
	HTTPS   *string `json:"https,omitempty"`
	NoProxy *string `json:"noProxy,omitempty"`
}

// srtFilesystem has entries that are a string, or an object that names a path
// without wildcards.
type srtFilesystem struct {
	Disabled       *bool          `json:"disabled,omitempty"`
	DenyRead       []hujson.Value `json:"denyRead,omitempty"`
	AllowRead      []hujson.Value `json:"allowRead,omitempty"`
	AllowWrite     []hujson.Value `json:"allowWrite,omitempty"`
	DenyWrite      []hujson.Value `json:"denyWrite,omitempty"`
	AllowGitConfig *bool          `json:"allowGitConfig,omitempty"`
	// AllowManagedReadPathsOnly is Claude Code's.
	AllowManagedReadPathsOnly *bool `json:"allowManagedReadPathsOnly,omitempty"`
}

type srtCredentials struct {
	Files                []srtSecret  `json:"files,omitempty"`
	EnvVars              []srtSecret  `json:"envVars,omitempty"`
	AllowPlaintextInject *bool        `json:"allowPlaintextInject,omitempty"`
	AWSPairs             hujson.Value `json:"awsPairs,omitempty"`
	SigV4                hujson.Value `json:"sigv4,omitempty"`
}

// srtSecret is a file by its path, or a variable by its name.
type srtSecret struct {
	Path             string       `json:"path,omitempty" check:"path"`
	Name             string       `json:"name,omitempty" check:"name"`
	Mode             string       `json:"mode" enum:"deny,mask"`
	Extract          hujson.Value `json:"extract,omitempty"`
	OnExtractNoMatch hujson.Value `json:"onExtractNoMatch,omitempty"`
	Decode           hujson.Value `json:"decode,omitempty"`
	MaskClaims       hujson.Value `json:"maskClaims,omitempty"`
	MaskDuplicates   hujson.Value `json:"maskDuplicates,omitempty"`
	InjectHosts      hujson.Value `json:"injectHosts,omitempty"`
}

// srt is one file of sandbox-runtime's settings, or the section of Claude Code's
// that has their form, whose keys begin with prefix.
type srt struct {
	section
	doc    *policy.Document
	prefix string
}

// sandboxRuntime translates sandbox-runtime's settings.
func (t *translator) sandboxRuntime(doc *policy.Document) error {
	var f srtFile
	origins, err := doc.Decode(&f)
	if err != nil {
		return err
	}
	s := srt{section: section{t, origins}, doc: doc}
	t.environment()
	s.filesystem(&f.Filesystem, s.paths(&f.Filesystem), s.credentials(&f.Credentials))
	s.network(&f.Network)
	s.hosts(hosts{allowed: s.allowedHosts(&f.Network), denied: s.list(keyDenied, f.Network.DeniedDomains), ports: true})
	s.localBinding(f.Network.AllowLocalBinding)
	s.sockets(f.Network.AllowUnixSockets, f.Network.AllowAllUnixSockets)
	s.macos(&f)
	s.idleKeys()
	return nil
}

// allowedHosts are the hosts that can be reached: every one, or those of a list.
func (s srt) allowedHosts(n *srtNetwork) []entry {
	if on(n.AllowAllDomains) {
		every := s.at("network.allowAllDomains")
		every.text = "*"
		return []entry{every}
	}
	return s.list(s.key(keyAllowed), n.AllowedDomains)
}

// key is a key of the file for people.
func (s srt) key(key string) string { return s.prefix + key }

func (s srt) at(key string) entry { return s.section.at(s.prefix + key) }

func (s srt) idleIf(key, why string) { s.translator.idleIf(s.origins, s.prefix+key, why) }

// paths reads the lists of files.
func (s srt) paths(f *srtFilesystem) files {
	return files{
		allowRead: s.pathList(keyAllowRead, f.AllowRead), denyRead: s.pathList(keyDenyRead, f.DenyRead),
		allowWrite: s.pathList(keyAllowWrite, f.AllowWrite), denyWrite: s.pathList(keyDenyWrite, f.DenyWrite),
		private: because(string(s.Tool)+" lets it be written", "~/.npm/_logs", "~/.claude/debug"),
	}
}

func (s srt) pathList(key string, list []hujson.Value) []entry {
	var out []entry
	for _, v := range list {
		e := entry{pos: s.doc.Pos(v)}
		var ok bool
		if e.text, ok = s.doc.Text(v); !ok {
			e.text, ok = s.literalPath(v)
			e.literal = true
		}
		if !ok || strings.TrimSpace(e.text) == "" {
			s.fail(e.pos, `%s: an entry is a path, or {"path": "...", "literal": true}`, s.key(key))
			continue
		}
		out = append(out, e)
	}
	return out
}

// literalPath reads {"path": P, "literal": true}.
func (s srt) literalPath(v hujson.Value) (path string, ok bool) {
	object, ok := v.Value.(*hujson.Object)
	if !ok || len(object.Members) != 2 {
		return "", false
	}
	literal := false
	for i := range object.Members {
		m := &object.Members[i]
		name, _ := s.doc.Text(m.Name)
		switch {
		case name == "path":
			path, ok = s.doc.Text(m.Value)
		case name == "literal" && m.Value.Value.Kind() == 't':
			literal = true
		}
	}
	return path, ok && literal
}

// filesystem carries what is said about files. Credentials stay hidden even if
// nothing is.
func (s srt) filesystem(f *srtFilesystem, w files, credentials []entry) {
	if on(f.Disabled) {
		e := s.at("filesystem.disabled")
		e.text = "/"
		w = files{allowWrite: []entry{e}}
		s.stricter("protected files stay protected")
	}
	w.denyRead = append(w.denyRead, credentials...)
	s.files(w)
	if on(f.AllowGitConfig) {
		set(s.translator, &s.Policy.Filesystem.AllowGitConfig, "filesystem.allowGitConfig", true, s.at("filesystem.allowGitConfig"))
	}
}

// credentials keeps what a file names as such out of the sandbox. To show a
// stand-in and to replace it on the way out is not to be had; to do without is.
func (s srt) credentials(f *srtCredentials) []entry {
	var hidden []entry
	pos, _ := place(s.origins, s.prefix+"credentials")
	mask := func(what string) {
		s.lose(pos, what, "is kept out instead of masked; network.inject adds a credential to requests outside of the sandbox")
	}
	for _, c := range f.Files {
		hidden = append(hidden, entry{text: c.Path, pos: pos, reason: "a credential"})
		if c.Path == "" {
			s.fail(pos, "%s lacks the path of a file", s.key("credentials.files"))
		}
		if c.Mode == "mask" {
			mask(c.Path)
		}
	}
	for _, c := range f.EnvVars {
		if c.Name == "" {
			s.fail(pos, "%s lacks the name of a variable", s.key("credentials.envVars"))
			continue
		}
		s.add(&s.Policy.Env.Deny, "env.deny", c.Name, entry{pos: pos, reason: "a credential"})
		if c.Mode == "mask" {
			mask(c.Name)
		}
	}
	return hidden
}

// network refuses what would forbid something and cannot be held, and carries
// the rest that is not about hosts.
func (s srt) network(f *srtNetwork) {
	n := &s.Policy.Network
	for _, r := range []struct {
		given bool
		key   string
		why   string
	}{
		{f.MITMProxy != nil, "network.mitmProxy", "some hosts cannot be led through a proxy of their own; network.upstreamProxy leads all of them"},
		{len(f.StripResponseHeaders) > 0, "network.stripResponseHeaders", "headers of answers are not taken out"},
		{on(f.RefuseOpaqueTunnels), "network.refuseOpaqueTunnels", "say it by rules with inspect"},
		{on(f.RequireHostMatch), "network.requireHostMatch", "say it by rules with inspect"},
	} {
		if pos, _ := place(s.origins, s.prefix+r.key); r.given {
			s.loseRestriction(pos, s.key(r.key), r.why)
		}
	}
	for _, e := range s.list(s.prefix+"network.deniedResolvedAddresses", f.DeniedResolvedAddresses) {
		if !isPrivate(e.text) {
			s.loseRestriction(e.pos, s.key("network.deniedResolvedAddresses")+" "+e.text, "only private addresses are refused to names, and those always are")
		}
	}
	if f.ParentProxy != nil {
		s.parentProxy(f.ParentProxy)
	}
	if f.HTTPProxyPort != nil {
		set(s.translator, &n.HTTPProxyPort, "network.httpProxyPort", *f.HTTPProxyPort, s.at("network.httpProxyPort"))
	}
	if f.SOCKSProxyPort != nil {
		set(s.translator, &n.SOCKSProxyPort, "network.socksProxyPort", *f.SOCKSProxyPort, s.at("network.socksProxyPort"))
	}
}

// isPrivate is true of ranges that no name leads to unless they are granted.
func isPrivate(text string) bool {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return false
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	for _, r := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15",
		"224.0.0.0/4", "240.0.0.0/4", "::1/128", "fc00::/7", "fe80::/10", "ff00::/8",
	} {
		if known := netip.MustParsePrefix(r); known.Bits() <= p.Bits() && known.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

func (s srt) parentProxy(f *srtParent) {
	const key = "network.parentProxy"
	proxy := f.HTTPS
	from := key + ".https"
	if proxy == nil {
		proxy, from = f.HTTP, key+".http"
	}
	pos, _ := place(s.origins, s.prefix+key)
	switch {
	case proxy == nil:
		s.idle(pos, s.key(key), "it names no proxy")
		return
	case f.HTTP != nil && *f.HTTP != *proxy:
		s.loseRestriction(pos, s.key(key), "there is one proxy for all connections; give http and https the same")
	}
	s.upstream(s.prefix+from, *proxy)
	if f.NoProxy != nil {
		s.idleIf(key+".noProxy", "every connection leaves through the proxy")
	}
}

// macos carries what only macOS has a use for.
func (s srt) macos(f *srtFile) {
	m := &s.Policy.MacOS
	s.texts(&m.Mach.Lookup, "macos.mach.lookup", "", s.list(s.prefix+"network.allowMachLookup", f.Network.AllowMachLookup))
	for _, b := range []struct {
		to        **bool
		key, from string
		value     *bool
	}{
		{&m.AllowTrustd, "macos.allowTrustd", "enableWeakerNetworkIsolation", f.EnableWeakerNetworkIsolation},
		{&m.AllowAppleEvents, "macos.allowAppleEvents", "allowAppleEvents", f.AllowAppleEvents},
		{&m.EnableWeakerSandbox, "macos.enableWeakerNestedSandbox", "enableWeakerNestedSandbox", f.EnableWeakerNestedSandbox},
	} {
		if on(b.value) {
			set(s.translator, b.to, b.key, true, s.at(b.from))
			s.idleIf(b.from, "no weaker sandbox is entered")
		}
	}
	if len(f.Network.AllowMachLookup) > 0 {
		s.idleIf("network.allowMachLookup", "only macOS has it")
	}
}

// idleKeys notes keys that only make sense for the tool itself.
func (s srt) idleKeys() {
	const helper = "the sandbox needs no program for that"
	for _, k := range [][2]string{
		{"ignoreViolations", "nothing is left out of what is told"},
		{"ripgrep", helper},
		{"mandatoryDenySearchDepth", "protected names are protected at every depth"},
		{"seccomp", helper},
		{"bwrapPath", helper},
		{"socatPath", helper},
		{"javaAgentJarPath", helper},
		{"windows", "only Windows has it"},
		{"git", "files keep their owners, so that git trusts them"},
		{"network.httpProxyDualStack", "only macOS has it"},
		{"network.deniedDomainReasons", "a denial names the rule"},
		{"network.tlsTerminate", "TLS is opened where rules or credentials need it"},
		{"network.allowPlaintextHeaderSet", "it is for programs that embed the tool"},
	} {
		s.idleIf(k[0], k[1])
	}
}
