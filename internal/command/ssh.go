package command

import (
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// sshRules are the rules about hosts, and about commands run there. No exec can
// be watched on another machine, so a remote command is looked at as a whole:
// every command in its text, and every command those are seen to run.
type sshRules struct {
	allowedHosts []Entry
	deniedHosts  []Entry
	denied       *Rules
	permitted    *Rules
	allowAll     bool
	inherited    *Rules // the rules for commands here, if they hold there too
}

func (s *SSH) compile(here *Rules) *sshRules {
	out := &sshRules{
		allowedHosts: s.AllowedHosts,
		deniedHosts:  s.DeniedHosts,
		denied:       &Rules{programs: map[string]*program{}},
		permitted:    &Rules{programs: map[string]*program{}},
		allowAll:     s.AllowAll,
	}
	for _, e := range s.DeniedCommands {
		out.denied.deny("ssh.deniedCommands", e)
	}
	for _, e := range s.AllowedCommands {
		out.permitted.allow("ssh.allowedCommands", e)
	}
	if s.InheritDeny {
		out.inherited = &Rules{programs: here.programs, defaults: here.defaults}
	}
	return out
}

func isSSH(names, same []string) bool {
	is := func(s string) bool { return s == "ssh" || s == "slogin" }
	return slices.ContainsFunc(names, is) || slices.ContainsFunc(same, is)
}

// judge looks at the arguments of ssh: first the hosts it would reach, then
// what it would run there. Without a command it is a session, which a person
// types into; whoever may reach a host may have one.
func (s *sshRules) judge(args []string) Verdict {
	t := parseSSH(args)
	for _, host := range t.hosts {
		if v := s.judgeHost(host); !v.Allowed {
			return v
		}
	}
	if t.command == "" || len(t.hosts) == 0 {
		return allowed
	}
	return s.judgeCommand(t.command)
}

func (s *sshRules) judgeHost(host string) Verdict {
	if isUnknown(host) {
		return allowed
	}
	v := Verdict{Command: summary([]string{"ssh", host})}
	for _, e := range s.deniedHosts {
		if hostMatches(e.Text, host) {
			v.Key, v.Rule, v.Where = "ssh.deniedHosts", e.Text, e.Where
			v.Fix = "remove the entry"
			return v
		}
	}
	for _, e := range s.allowedHosts {
		if hostMatches(e.Text, host) {
			return allowed
		}
	}
	v.Key, v.Reason = "ssh.allowedHosts", "it does not name this host"
	v.Fix = "add " + quote(summary([]string{host})) + " there"
	return v
}

// judgeCommand holds a remote text to all lists: each command in it must not be
// denied and, unless all are allowed, must be listed.
func (s *sshRules) judgeCommand(text string) Verdict {
	if s.allowAll && s.inherited == nil && len(s.denied.programs) == 0 {
		return allowed
	}
	if len(text) > maxTextBytes {
		return Verdict{
			Command: summary([]string{text}), Key: "ssh.allowedCommands", Reason: "the remote command is too long to look at",
			Fix: "put it into a script there, and allow that",
		}
	}
	for _, rules := range []*Rules{s.denied, s.inherited} {
		if rules == nil {
			continue
		}
		if v := rules.TypedText(text, Split); !v.Allowed {
			return v
		}
	}
	if s.allowAll {
		return allowed
	}
	return s.judgeListed(text)
}

// judgeListed wants every command of a remote text to be listed.
func (s *sshRules) judgeListed(text string) Verdict {
	unlisted := func(why string) Verdict {
		return Verdict{
			Command: summary([]string{text}), Key: "ssh.allowedCommands", Reason: why,
			Fix: "add it there",
		}
	}
	w := walk{
		split: Split, left: maxCommands, beyond: unlisted("the remote command is nested too deeply to look at"),
		visit: func(argv []string) Verdict {
			if s.permits(argv) {
				return allowed
			}
			return unlisted("it does not name " + quote(summary(argv[:1])))
		},
	}
	for _, c := range splitShell(text) {
		if c.writes {
			return unlisted("the remote command writes to a file")
		}
		if v := w.command(c.argv, 0); !v.Allowed {
			return v
		}
	}
	return allowed
}

// permits reports whether a remote command is listed. A program given by its
// path is only taken for the one of that name if it stands where those do.
func (s *sshRules) permits(argv []string) bool {
	name := baseName(argv[0])
	p := s.permitted.programs[name]
	if p == nil {
		return false
	}
	for i := range p.allow {
		ru := &p.allow[i]
		switch {
		case ru.path != "":
			if argv[0] != ru.path {
				continue
			}
		case strings.Contains(argv[0], "/") && !slices.Contains(systemDirs, path.Dir(argv[0])):
			continue
		}
		if ru.allows(findTool(name), argv[1:], false) {
			return true
		}
	}
	return false
}

var systemDirs = []string{"/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}

// sshTarget is where ssh goes, and what for.
type sshTarget struct {
	hosts   []string // the last one, and those on the way
	command string
}

// sshValued are the letters of ssh's options that take a value.
const sshValued = "BbcDEeFIiJLlmOoPpQRSWw"

// parseSSH reads arguments as ssh does: options may also follow the host, and
// after that everything is the remote command, joined by spaces.
func parseSSH(args []string) sshTarget {
	var t sshTarget
	host, realHost := "", ""
	options := true
	for len(args) > 0 {
		a := args[0]
		if a == Rest {
			break
		}
		if options && a == "--" {
			options = false
			args = args[1:]
			continue
		}
		if options && isOption(a) {
			letter, value, used := sshOption(args)
			args = args[used:]
			switch letter {
			case 'J':
				t.jump(value)
			case 'o':
				// Of a setting given twice, ssh takes the first.
				key, value := sshSetting(value)
				switch {
				case key == "hostname" && realHost == "":
					realHost = value
				case key == "proxyjump":
					t.jump(value)
				case key == "remotecommand" && t.command == "":
					t.command = value
				}
			}
			continue
		}
		if host != "" {
			t.command = strings.TrimSuffix(strings.Join(args, " "), Rest)
			break
		}
		host = sshHost(a)
		args = args[1:]
	}
	if host == "" {
		return sshTarget{}
	}
	if realHost != "" {
		host = strings.ReplaceAll(realHost, "%h", host)
	}
	t.hosts = append(t.hosts, host)
	return t
}

// sshOption reads the word of options at the front of args: the first letter in
// it that takes a value, that value, and how many words this used.
func sshOption(args []string) (letter byte, value string, used int) {
	a := args[0]
	for i := 1; i < len(a); i++ {
		if strings.IndexByte(sshValued, a[i]) < 0 {
			continue
		}
		switch {
		case i+1 < len(a):
			return a[i], a[i+1:], 1
		case len(args) > 1:
			return a[i], args[1], 2
		}
	}
	return 0, "", 1
}

// sshSetting reads "Key=value" and "Key value".
func sshSetting(s string) (key, value string) {
	s = strings.TrimSpace(s)
	i := strings.IndexAny(s, "= \t")
	if i < 0 {
		return strings.ToLower(s), ""
	}
	value = strings.TrimLeft(s[i:], " \t")
	value = strings.TrimSpace(strings.TrimPrefix(value, "="))
	return strings.ToLower(s[:i]), strings.Trim(value, `"`)
}

// jump adds the hosts on the way.
func (t *sshTarget) jump(list string) {
	if strings.EqualFold(list, "none") {
		return
	}
	for hop := range strings.SplitSeq(list, ",") {
		host := sshHost(hop)
		if name, port, ok := strings.Cut(host, ":"); ok && strings.Trim(port, "0123456789") == "" {
			host = name
		}
		if host != "" {
			t.hosts = append(t.hosts, host)
		}
	}
}

// sshHost takes the host out of host, user@host and ssh://user@host:port.
func sshHost(s string) string {
	uri, isURI := strings.CutPrefix(s, "ssh://")
	if isURI {
		s, _, _ = strings.Cut(uri, "/")
	}
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		s = s[i+1:]
	}
	if bare, ok := strings.CutPrefix(s, "["); ok {
		bare, _, _ = strings.Cut(bare, "]")
		return bare
	}
	if isURI {
		s, _, _ = strings.Cut(s, ":")
	}
	return s
}

// hostMatches compares a host with an entry: an exact name or address, *.suffix,
// which does not match the suffix itself, or *.
func hostMatches(pattern, host string) bool {
	pattern, host = canonicalHost(pattern), canonicalHost(host)
	if pattern == "*" || pattern == host {
		return true
	}
	suffix, wild := strings.CutPrefix(pattern, "*")
	return wild && strings.HasPrefix(suffix, ".") && strings.HasSuffix(host, suffix) && len(host) > len(suffix)
}

// canonicalHost gives the one spelling by which hosts are compared. Resolvers
// also read 127.1, 0x7f000001 and 017700000001 as an address.
func canonicalHost(s string) string {
	s = strings.ToLower(strings.TrimSuffix(s, "."))
	bare := strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	if a, err := netip.ParseAddr(bare); err == nil {
		return a.Unmap().WithZone("").String()
	}
	if a, ok := looseAddr(s); ok {
		return a.String()
	}
	return s
}

// looseAddr reads an IPv4 address of one to four numbers, of which the last
// fills the remaining bytes.
func looseAddr(s string) (netip.Addr, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return netip.Addr{}, false
	}
	parts := strings.SplitN(s, ".", 5)
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var out uint64
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 0, 32)
		last := i == len(parts)-1
		room := 8
		if last {
			room = 8 * (4 - i)
		}
		if err != nil || n>>room != 0 {
			return netip.Addr{}, false
		}
		out = out<<room | n
	}
	return netip.AddrFrom4([4]byte{byte(out >> 24), byte(out >> 16), byte(out >> 8), byte(out)}), true
}
