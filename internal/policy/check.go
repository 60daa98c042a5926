package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/bailey-sandbox/bailey/internal/policy/notation"
)

// check reports what is wrong with a string, by the name in a field's check
// tag. A field without one holds text.
func check(kind, s string) error {
	if err := checkText(s); err != nil {
		return err
	}
	switch kind {
	case "":
		return nil
	case "path":
		return checkPath(s)
	case "rule":
		return checkRule(s)
	case "domain":
		return checkDomain(s)
	case "host":
		if strings.HasPrefix(s, "@") {
			return errors.New("groups are for network.allowedDomains")
		}
		return checkDomain(s)
	case "port":
		_, err := parsePorts(s)
		return err
	case "exposure":
		_, err := ParseExposure(s)
		return err
	case "cidr":
		_, err := parseCIDR(s)
		return err
	case "device":
		if err := checkPath(s); err != nil {
			return err
		}
		if !strings.HasPrefix(path.Clean(s), "/dev/") {
			return errors.New("a device node is a path below /dev")
		}
		return nil
	case "command":
		return CheckCommand(strings.TrimPrefix(s, "!"))
	case "name":
		return checkName(s)
	case "names":
		if s == "*" {
			return nil
		}
		return checkName(strings.TrimSuffix(s, "*"))
	case "placeholder":
		return checkPlaceholder(s)
	case checkedProxy:
		_, err := notation.ParseProxy(s)
		return err
	case "method":
		return notation.CheckMethod(s)
	case "urlPath":
		return notation.CheckPath(s)
	case "image":
		return checkImage(s)
	}
	panic("policy: unknown check " + kind)
}

// checkedProxy is the check of what may hold a password: no message repeats it.
const checkedProxy = "proxy"

// checkImage refuses what a program that is told of an image would take for something else.
func checkImage(s string) error {
	if strings.HasPrefix(s, "-") {
		return errors.New("an image is a reference such as debian:12, or a path such as ./image.tar")
	}
	return nil
}

// checkText refuses what no string of a policy has a use for, except the
// values in env.set.
func checkText(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("empty string")
	}
	for _, r := range s {
		switch {
		case r == 0:
			return errors.New("NUL byte in string")
		case r == '\n' || r == '\r':
			return errors.New("newline in string")
		case unicode.IsControl(r):
			return fmt.Errorf("control character %U in string", r)
		}
	}
	return nil
}

func checkPath(s string) error {
	switch {
	case strings.HasPrefix(s, "~") && s != "~" && !strings.HasPrefix(s, "~/"):
		return errors.New("only ~/ is known, the home directory of whoever runs the command")
	case strings.HasPrefix(s, "$"):
		return errors.New("variables are not expanded in paths; write ~/ for the home directory, or ./ before a name that starts with $")
	case !doublestar.ValidatePattern(s):
		return errors.New(`bad pattern: unbalanced [ ] or { }, or a \ at the end; write \[ for a bracket in a name`)
	}
	return nil
}

// checkRule checks the pattern of a path permission, which is about the project.
func checkRule(s string) error {
	s, negated := strings.CutPrefix(s, "!")
	if strings.HasPrefix(s, "~") || strings.HasPrefix(s, "/") {
		return errors.New("path permissions are about the project: write a path relative to it; others belong in filesystem")
	}
	names := strings.Split(s, "/")
	if slices.Contains(names, "..") {
		return errors.New(`path permissions are about the project, and no path in it has ".." for a name; write the path without it`)
	}
	if negated && !slices.ContainsFunc(names, func(name string) bool { return name != "" && name != "." && name != "**" }) {
		return errors.New("this is about no path: ! stands for what the rest does not match, and the rest matches all; write what is left out after it, as in !src")
	}
	return checkPath(s)
}

// CheckCommand says why an entry about commands can never match: it is written as a
// shell would read it, and entries are plain words.
func CheckCommand(s string) error {
	words := strings.Fields(s)
	switch {
	case len(words) == 0:
		return errors.New("empty string")
	case strings.Contains(words[0], "*"):
		return errors.New("a program is named in full, one in each entry; * is for arguments: git push *")
	case strings.ContainsAny(s, "\"'`\\"):
		return errors.New("an entry is plain words, and a quote or backslash is taken as itself; leave it away")
	}
	for _, w := range words {
		if strings.Trim(w, ";|&<>") == "" || strings.HasSuffix(w, ";") {
			return errors.New("an entry is about one program and its words; write one entry for each command: git push")
		}
	}
	return nil
}

func checkName(s string) error {
	if s == "" {
		return errors.New("empty variable name")
	}
	for i, r := range s {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return fmt.Errorf("bad variable name: %q is not allowed there", r)
		}
	}
	return nil
}

// checkPlaceholder refuses variables that programs, shells and the dynamic linker
// need, or go by: a placeholder in their place would break every command.
func checkPlaceholder(s string) error {
	if err := checkName(s); err != nil {
		return err
	}
	taken := slices.Contains(takenNames, s) || strings.HasSuffix(strings.ToLower(s), "_proxy")
	for _, prefix := range []string{"LD_", "DYLD_", "LC_", "BASH_", "BAILEY"} {
		taken = taken || strings.HasPrefix(s, prefix)
	}
	if taken {
		return errors.New("every command goes by this variable; name the one that holds the credential, such as API_TOKEN")
	}
	return nil
}

var takenNames = []string{
	"ENV", "HOME", "IFS", "LANG", "LOGNAME", "PATH", "PS4", "PWD", "SHELL", "SHELLOPTS", "TERM", "TMPDIR", "USER",
}

// domainGroups stand for hosts that are looked up in the tools' own
// configuration on the user's machine.
var domainGroups = []string{"@npm", "@pip", "@go", "@cargo", "@apt", "@git-remotes"}

// Groups are the names of all groups of hosts.
func Groups() []string { return slices.Clone(domainGroups) }

func checkDomain(s string) error {
	if s == "*" {
		return nil
	}
	if s[0] == '@' {
		for _, g := range domainGroups {
			if s == g {
				return nil
			}
		}
		hint := didYouMean(s, domainGroups)
		if hint == "" {
			hint = "known are " + strings.Join(domainGroups, ", ")
		}
		return fmt.Errorf("unknown group; %s", hint)
	}
	if _, ok := hostAddr(s); ok {
		return nil
	}
	return checkHostName(strings.TrimPrefix(s, "*."))
}

// CheckHost says why something is not a single host, by its name or address.
func CheckHost(s string) error {
	if err := checkText(s); err != nil {
		return err
	}
	if _, ok := hostAddr(s); ok {
		return nil
	}
	return checkHostName(strings.TrimSuffix(s, "."))
}

func checkHostName(s string) error {
	switch {
	case strings.Contains(s, "://"):
		return errors.New("a host is written without a scheme")
	case strings.Contains(s, "/"):
		return errors.New("a host is written without a path; ranges of addresses belong in network.allowedCIDRs, paths in network.rules")
	case strings.ContainsAny(s, " \t"):
		return errors.New("space in host")
	case strings.Contains(s, "*"):
		return errors.New(`"*" is only allowed alone, or as the whole first label: *.example.com`)
	case strings.Contains(s, ":"):
		return errors.New("a host is written without a port; ports belong in network.rules")
	case strings.Contains(s, "@"):
		return errors.New("a host is written without a user")
	case len(s) > 253:
		return errors.New("host is longer than 253 characters")
	}
	last := ""
	for l := range strings.SplitSeq(s, ".") {
		if err := checkLabel(l); err != nil {
			return err
		}
		last = l
	}
	// Resolvers read 127.1, 0x7f.1 and 2130706433 as addresses. None of them
	// is a name that could ever match one.
	lower := strings.ToLower(last)
	if notation.IsNumber(lower) || startsWithDigit(last) && isNumber(lower) {
		return errors.New("neither a name nor a full address such as 192.0.2.1")
	}
	return nil
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 0, 64)
	return err == nil || strings.Trim(s, "0123456789") == ""
}

func checkLabel(l string) error {
	if l == "" {
		return errors.New("empty label in host: a dot too many")
	}
	if len(l) > 63 {
		return errors.New("label in host is longer than 63 characters")
	}
	for _, r := range l {
		switch {
		case r >= utf8.RuneSelf:
			return errors.New("hosts are matched in their ASCII form; write the xn-- form of the name")
		case r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z'):
			return fmt.Errorf("%q is not allowed in a host", r)
		}
	}
	return notation.CheckPunycode(l)
}

// ports is a range, both ends included.
type ports struct{ from, to int }

func (p ports) String() string {
	switch {
	case p == ports{1, 65535}:
		return "*"
	case p.from == p.to:
		return strconv.Itoa(p.from)
	}
	return fmt.Sprintf("%d-%d", p.from, p.to)
}

func parsePorts(s string) (ports, error) {
	if s == "*" {
		return ports{1, 65535}, nil
	}
	first, last, ranged := strings.Cut(s, "-")
	if !ranged {
		last = first
	}
	from, err1 := parseDigits(first)
	to, err2 := parseDigits(last)
	if err1 != nil || err2 != nil || from < 1 || to > 65535 || from > to {
		return ports{}, errors.New(`want a port from 1 to 65535, a range such as "8000-8100", or "*"`)
	}
	return ports{int(from), int(to)}, nil
}

// parseCIDR reads a range of addresses, or a single one.
func parseCIDR(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return p, errors.New("want a range of addresses such as 10.0.0.0/8 or fd00::/8")
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p.Addr().Is4In6() {
		return p, errors.New("write an IPv4 range in its IPv4 form")
	}
	if p != p.Masked() {
		return p, fmt.Errorf("address has bits beyond the range; write %v", p.Masked())
	}
	return p, nil
}
