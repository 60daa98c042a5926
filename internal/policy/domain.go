package policy

import (
	"net/netip"
	"path"
	"strings"
)

// This file answers, for each kind of pattern, which pattern grants exactly
// what two others both grant. A meet that would need a third pattern to express
// is reported as empty, so that an answer is never wider than either side.

// meetLists returns what both lists grant: for each pair the narrower entry.
func meetLists(a, b []string, meet func(x, y string) (string, bool)) []string {
	var out []string
	seen := map[string]bool{}
	for _, x := range a {
		for _, y := range b {
			if m, ok := meet(x, y); ok && !seen[m] {
				seen[m] = true
				out = append(out, m)
			}
		}
	}
	return out
}

// narrower makes a meet out of a relation "x grants all that y does".
func narrower(covers func(x, y string) bool) func(x, y string) (string, bool) {
	return func(x, y string) (string, bool) {
		switch {
		case covers(x, y):
			return y, true
		case covers(y, x):
			return x, true
		}
		return "", false
	}
}

// coversDomain reports whether every host that y matches is matched by x, where
// y may be a host itself. A group is only covered by itself and by "*".
func coversDomain(x, y string) bool {
	x, y = canonicalHost(x), canonicalHost(y)
	if x == "*" || x == y {
		return true
	}
	suffix, wild := strings.CutPrefix(x, "*")
	if !wild || y == "*" || strings.HasPrefix(y, "@") {
		return false
	}
	if _, address := hostAddr(y); address {
		return false
	}
	// "*.example.com" matches a.example.com and a.b.example.com, and covers
	// "*.b.example.com", but neither matches nor covers example.com.
	return strings.HasSuffix(strings.TrimPrefix(y, "*"), suffix) && len(y) > len(suffix)
}

// DeniedBy is the entry that denies a host whatever else is granted, as
// "network.deniedDomains ENTRY", or "". What groups stand for is not known here.
func (n *Network) DeniedBy(host string) string {
	for _, entry := range n.DeniedDomains {
		if coversDomain(entry, host) {
			return "network.deniedDomains " + entry
		}
	}
	return ""
}

// canonicalHost gives the one spelling by which hosts are compared.
func canonicalHost(s string) string {
	if a, ok := hostAddr(s); ok {
		return a.String()
	}
	return strings.ToLower(strings.TrimSuffix(s, "."))
}

// hostAddr reads an address as it stands in the place of a host. An IPv4
// address in IPv6 clothes is the IPv4 address.
func hostAddr(s string) (netip.Addr, bool) {
	bare, bracket := strings.CutPrefix(s, "[")
	if bracket {
		if bare, bracket = strings.CutSuffix(bare, "]"); !bracket || !strings.Contains(bare, ":") {
			return netip.Addr{}, false
		}
	}
	if !strings.Contains(bare, ":") && !startsWithDigit(bare) {
		return netip.Addr{}, false // as nearly all hosts are
	}
	a, err := netip.ParseAddr(bare)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

func startsWithDigit(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }

// meetCIDR keeps the smaller of two ranges that overlap.
func meetCIDR(x, y string) (string, bool) {
	p, err1 := parseCIDR(x)
	q, err2 := parseCIDR(y)
	if err1 != nil || err2 != nil || !p.Overlaps(q) {
		return "", false
	}
	if p.Bits() > q.Bits() {
		return x, true
	}
	return y, true
}

// meetPorts keeps the common part of two ranges.
func meetPorts(x, y string) (string, bool) {
	p, err1 := parsePorts(x)
	q, err2 := parsePorts(y)
	both := ports{max(p.from, q.from), min(p.to, q.to)}
	if err1 != nil || err2 != nil || both.from > both.to {
		return "", false
	}
	return both.String(), true
}

// coversPath reports whether x is y or a directory above it. Patterns, and
// paths that climb, cover only themselves.
func coversPath(x, y string) bool {
	if x == y {
		return true
	}
	if !plainPath(x) || !plainPath(y) {
		return false
	}
	x, y = path.Clean(x), path.Clean(y)
	return x == y || strings.HasPrefix(y, strings.TrimSuffix(x, "/")+"/")
}

func plainPath(s string) bool {
	return !strings.ContainsAny(s, `*?[{\`) && !strings.Contains("/"+s+"/", "/../") && path.Clean(s) != "."
}

// coversCommand reports whether x is a prefix of y, word by word.
func coversCommand(x, y string) bool {
	xs, ys := strings.Fields(x), strings.Fields(y)
	if len(xs) > len(ys) {
		return false
	}
	for i := range xs {
		if xs[i] != ys[i] {
			return false
		}
	}
	return true
}

// coversStar reports whether y is x, or begins with what stands before the "*"
// at the end of x.
func coversStar(x, y string) bool {
	if x == y {
		return true
	}
	prefix, wild := strings.CutSuffix(x, "*")
	return wild && strings.HasPrefix(y, prefix)
}

// meetEnv is the meet of two entries of env.allow. An exact name lets in even
// what looks like a secret, and a pattern does not, so an exact name on one
// side only is worth no more than the pattern on the other; no entry says that,
// and nothing is granted.
func meetEnv(x, y string) (string, bool) {
	m, ok := narrower(coversStar)(x, y)
	if ok && x != y && !strings.HasSuffix(m, "*") {
		return "", false
	}
	return m, ok
}
