package spec

import (
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/command"
	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Broker is what has to be decided while the command runs, by a process outside
// that the kernel asks. Nil in a Spec: nothing has, and nothing is asked.
type Broker struct {
	// Areas are directories in which the command makes and writes files only
	// through the broker: those of the host, and private ones around them.
	// Landlock grants them no more than reading, executing
	// and removing, so that a call which changes its arguments after it was
	// judged fails.
	Areas []string `json:"areas"`
	// Layers are lists of rules about paths inside the sandbox. In each list the
	// first rule that says something about an operation decides, and one that
	// none mentions is allowed; what every layer allows is done.
	Layers [][]PathRule `json:"layers"`
	// Read says that there are rules about reading, so that opening files for
	// reading is judged as well.
	Read bool `json:"read,omitempty"`
	// Strict says that there are rules about more than protected names, so that
	// removing files and changing their attributes is judged as well, and that
	// private directories are areas too: they show files of the host.
	Strict bool `json:"strict,omitempty"`
	// Sockets says which unix sockets can be connected to.
	Sockets Sockets `json:"sockets"`
	// Commands are rules about programs and their arguments, asked at every
	// exec; nil if there are none.
	Commands *command.List `json:"commands,omitempty"`
	// Observe lets the broker see what else the command does with files. It
	// decides nothing by it.
	Observe bool `json:"observe,omitempty"`
}

// PathRule is about every path that its pattern names, and all below it. A
// pattern is absolute; see package pattern.
type PathRule struct {
	Pattern string  `json:"pattern"`
	Read    Verdict `json:"read,omitempty"`
	Write   Verdict `json:"write,omitempty"`
	// Why names the rule for people: "protected .envrc", "filesystem.denyRead
	// **/.env".
	Why string `json:"why,omitempty"`
	// Fix is the flag that would allow it, with its value or, if LacksPath, to be
	// followed by the path; empty if nothing would.
	Fix string `json:"fix,omitempty"`
}

// Verdict is what a rule says about an operation; empty if nothing.
type Verdict string

const (
	Allowed Verdict = "allow"
	Denied  Verdict = "deny"
)

// Sockets are unix sockets of the host. Those that the sandbox itself makes can
// always be reached.
type Sockets struct {
	// All lets every socket in a granted directory be reached.
	All bool `json:"all,omitempty"`
	// Allowed are patterns of paths.
	Allowed []string `json:"allowed,omitempty"`
	// Datagrams lets sockets for datagrams exist, under the same rules. Everything
	// that is sent by sendmsg, also by streams, then costs a question.
	Datagrams bool `json:"datagrams,omitempty"`
}

// broker collects what mounts cannot hold.
func (c *compiler) broker() {
	if len(c.reasons) > 0 {
		return
	}
	b := &Broker{Sockets: c.sockets(), Commands: c.commandRules()}
	for i, l := range c.layers {
		b.Layers = append(b.Layers, c.layerRules(i, l))
	}
	b.Strict = c.hasDenials()
	writes := b.Strict
	for _, rules := range b.Layers {
		for i := range rules {
			b.Read = b.Read || rules[i].Read == Denied
			writes = writes || rules[i].Write == Denied
		}
	}
	if writes || c.canNameSockets() {
		b.Areas = c.areas(b.Strict)
	}
	if len(b.Areas) > 0 || b.Read || !b.Sockets.All || b.Commands != nil {
		c.spec.Broker = b
	}
}

// layerRules are in the order in which they are asked: what nothing lifts, what
// a person insists on, what is denied, and what patterns grant inside a
// directory that is not granted as a whole.
func (c *compiler) layerRules(i int, l *layer) []PathRule {
	rules := make([]PathRule, 0, 16)
	names := i == 0 && c.protectsMissing()
	if names {
		rules = c.lastingNames(rules)
	}
	rules = l.exceptions(rules)
	rules = c.denials(rules, l, i > 0)
	if names {
		rules = c.otherNames(rules)
	}
	return l.narrowings(rules)
}

// protectsMissing needs one layer that does not say otherwise.
func (c *compiler) protectsMissing() bool {
	off := func(fs *policy.Filesystem) bool { return fs.ProtectMissing != nil && !*fs.ProtectMissing }
	for i := range c.policy.Bounds {
		if !off(&c.policy.Bounds[i]) {
			return true
		}
	}
	return !off(&c.policy.Filesystem)
}

// areas are the writable directories of the host, without those inside another,
// and what is writable around them: Landlock grants what lies below a path with
// it, other mounts included.
func (c *compiler) areas(strict bool) []string {
	var areas []string
	covered := func(p string) bool {
		return slices.ContainsFunc(areas, func(a string) bool { return Covers(a, p) })
	}
	for i := range c.spec.Mounts {
		m := &c.spec.Mounts[i]
		if covered(m.Target) || m.access() < AccessPrivate || m.File || m.Kind == Dev {
			continue
		}
		if c.spec.holdsArea(m.Target, strict) {
			areas = append(areas, m.Target)
		}
	}
	return areas
}

// hasDenials says whether the policy denies anything that mounts do not hold.
func (c *compiler) hasDenials() bool {
	for _, l := range c.layers {
		if len(l.narrow) > 0 || slices.ContainsFunc(l.patterns, func(r patternRule) bool { return r.kind.denies() }) {
			return true
		}
	}
	return slices.ContainsFunc(c.missing, func(m missingRule) bool {
		return m.kind.denies() && !m.optional && c.granted(m.path) >= AccessPrivate
	})
}

// holdsArea says whether a writable directory of the host is at a path or below,
// or in the strict case one whose changes stay in memory.
func (s *Spec) holdsArea(p string, strict bool) bool {
	return slices.ContainsFunc(s.Mounts, func(m Mount) bool {
		return (m.Kind == Bind && m.Write && !m.File || m.Kind == Private && strict) && Covers(p, m.Target)
	})
}

// IsFree says whether a mount is a private directory in which the command needs
// no broker.
func (s *Spec) IsFree(m *Mount) bool {
	return (m.Kind == Private || m.Kind == Tmpfs) && !s.holdsArea(m.Target, s.Broker.Strict)
}

// lastingNames keep names from coming into being whatever the policy grants, and
// what exists from being written when the host has put another file in its
// place, under which no mount stands any more.
func (c *compiler) lastingNames(rules []PathRule) []PathRule {
	rules = c.denyNames(rules, true)
	for _, root := range c.guarded {
		rules = append(rules, PathRule{Pattern: join(pattern.Quote(root), allPolicyNames), Write: Denied, Why: "protected name"})
	}
	return rules
}

// otherNames do the same for names that a grant can name.
func (c *compiler) otherNames(rules []PathRule) []PathRule {
	for i := range c.layers[0].rules {
		if r := &c.layers[0].rules[i]; r.kind == allowWrite {
			rules = c.insist(rules, r.path, r.entry)
		}
	}
	for _, m := range c.missing {
		if m.kind == allowWrite && !m.bound {
			rules = c.insist(rules, m.path, m.entry)
		}
	}
	rules = c.denyNames(rules, false)
	for _, root := range c.guarded {
		rules = append(rules, PathRule{Pattern: join(pattern.Quote(root), allProtectedNames), Write: Denied, Why: "protected name", Fix: fixWrite})
	}
	return rules
}

// fixWrite and fixRead are the flags that lift a denial, with the path after it.
const (
	fixWrite = "--allow-write"
	fixRead  = "--allow-read"
)

// LacksPath says that a fix is a flag which the path is to follow.
func LacksPath(fix string) bool {
	return strings.HasPrefix(fix, "--") && !strings.Contains(fix, " ")
}

var (
	allProtectedNames = "{" + strings.Join(protectedNames, ",") + "}"
	allPolicyNames    = "{" + strings.Join(policyNames, ",") + "}"
)

// NameLists are the alternatives that NamesIn takes apart.
func NameLists() []string { return []string{allProtectedNames, allPolicyNames} }

// NamesIn takes apart a pattern that means protected names in a directory. Every
// Spec has some, and they are quicker asked about as they are than as a pattern.
func NamesIn(text string) (dir string, names []string, ok bool) {
	if dir, ok = strings.CutSuffix(text, "/"+allProtectedNames); ok {
		names = protectedNames
	} else if dir, ok = strings.CutSuffix(text, "/"+allPolicyNames); ok {
		names = policyNames
	}
	return dir, names, ok && dir != "" && pattern.Quote(dir) == dir
}

func (c *compiler) denyNames(rules []PathRule, always bool) []PathRule {
	for _, list := range [][]protection{c.protected, c.absent} {
		for i := range list {
			q := &list[i]
			if q.always != always {
				continue
			}
			r := PathRule{Pattern: pattern.Quote(q.path), Write: Denied, Why: "protected " + q.name}
			if !always {
				r.Fix = fixWrite
			}
			rules = append(rules, r)
		}
	}
	return rules
}

// insist adds a rule for a grant that names something protected, or something
// in it: a person who writes that means it.
func (c *compiler) insist(rules []PathRule, p, entry string) []PathRule {
	if !c.isGuardedName(p) {
		return rules
	}
	return append(rules, PathRule{Pattern: pattern.Quote(p), Write: Allowed, Why: "filesystem.allowWrite " + entry})
}

func (c *compiler) isGuardedName(p string) bool {
	for _, root := range c.guarded {
		if !below(root, p) {
			continue
		}
		for _, name := range protectedNames {
			if Covers(join(root, name), p) {
				return true
			}
		}
	}
	covers := func(q protection) bool { return Covers(q.path, p) }
	return slices.ContainsFunc(c.protected, covers) || slices.ContainsFunc(c.absent, covers)
}

// commandRules are nil if the policy forbids nothing: asking at every exec costs
// something.
func (c *compiler) commandRules() *command.List {
	p := &c.policy.Command
	ssh := &c.policy.SSH
	reachable := c.spec.Network != NetworkNone && (ssh.AllowedHosts != nil || ssh.AllowedCommands != nil)
	if len(p.Deny) == 0 && !isTrue(p.UseDefaults) && ssh.DeniedCommands == nil && ssh.DeniedHosts == nil && !reachable {
		return nil
	}
	l := command.FromPolicy(c.policy)
	if l.Reach == command.ReachOff {
		return nil
	}
	for _, w := range l.Warnings() {
		c.warn(w)
	}
	return &l
}

// grantSockets shows the sockets that the policy names one by one, and notes
// which may be connected to.
func (c *compiler) grantSockets() {
	const key = "network.allowUnixSockets"
	for _, entry := range c.policy.Network.AllowUnixSockets {
		if isPattern(entry) {
			if r, ok := c.resolvePattern(key, entry); ok {
				c.socketPatterns = append(c.socketPatterns, r.text)
			}
			continue
		}
		r, ok := c.resolveEntry(key, entry)
		if !ok {
			continue
		}
		c.checkRuleLinks(key, entry, r.path, r.links)
		c.socketPatterns = append(c.socketPatterns, pattern.Quote(r.path))
		if r.info.Type != TypeSocket {
			continue // it may come, or the directory is meant
		}
		c.links = append(c.links, r.links...)
		for _, l := range c.layers {
			if l.access(r.path) == AccessNone {
				l.rules = append(l.rules, rule{resolved: r, kind: allowRead, why: key + " " + entry})
			}
		}
	}
}

// canNameSockets says whether the command could, but for the broker, give a socket
// of the host a name that the policy allows, because it may write there.
func (c *compiler) canNameSockets() bool {
	return !isTrue(c.policy.Network.AllowAllUnixSockets) && slices.ContainsFunc(c.socketPatterns, func(text string) bool {
		path, ok := pattern.Literal(text)
		return !ok || slices.ContainsFunc(c.spec.Mounts, func(m Mount) bool {
			return m.Kind == Bind && m.Write && !m.File && below(m.Target, path)
		})
	})
}

// sockets says which unix sockets can be reached.
func (c *compiler) sockets() Sockets {
	allowed := c.socketPatterns
	if c.spec.Gate != nil && c.spec.Gate.Socket != "" {
		allowed = append(allowed, pattern.Quote(c.spec.Gate.Socket))
	}
	return Sockets{All: isTrue(c.policy.Network.AllowAllUnixSockets), Allowed: allowed, Datagrams: len(c.policy.Network.AllowUnixSockets) > 0}
}
