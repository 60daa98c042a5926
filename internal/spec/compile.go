package spec

import (
	"path"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Version is the version of the Spec this package compiles.
const Version = 1

// Compile decides what a policy means for one command on one machine. It is
// pure but for what it asks Facts, and stable for the same answers.
//
// In the Spec it returns:
//   - a path of the host can be read or written only if the policy's Filesystem
//     and every one of its Bounds allow it;
//   - what is denied or protected keeps its state whatever the command does to
//     the directories above it: every directory between it and the writable
//     mount around it is a mount of its own, which cannot be renamed;
//   - no symbolic link that the command can replace took part in a grant;
//   - no variable entered that the policy's list or the built-in one does not
//     let in.
//
// What cannot be held is an error, never left out: the error is a *Refused with
// all reasons.
func Compile(p policy.Policy, f Facts, cmd Command) (*Spec, error) {
	c := &compiler{
		policy:  p,
		host:    f.Host(),
		facts:   newLookups(f),
		command: cmd,
		spec:    &Spec{Version: Version},
	}
	if cmd.Image != nil {
		c.rooted = newRooted(f, cmd.Image, &p)
		c.facts = newLookups(c.rooted)
	}
	if p.Image != nil && cmd.Image == nil {
		c.refuse("image", *p.Image, "only commands that bailey itself runs can have one by their policy, and only on Linux", "use a policy without it")
	}
	c.spec.Identity = Identity{UID: c.host.UID, GID: c.host.GID, Full: c.host.UID == 0}
	c.network()
	c.limits()
	c.presentation()
	c.imageUser()
	if c.locateCaller() {
		c.searchPath()
		c.files()
		c.overlay()
		c.disk()
		if c.host.Authority == nil {
			c.drafted() // the gate has nothing to show
		}
		c.gate()
		c.certificates()
		c.drafted()
		c.program()
		c.checkAliases()
		c.broker()
		c.denialsForAdvice()
		c.landlock()
		c.environment()
	}
	c.spec.Seccomp.Families = []string{"unix", "inet", "inet6", "netlink"}
	if len(c.reasons) > 0 {
		return nil, Locate(&Refused{c.reasons}, p.Origins)
	}
	return c.spec, nil
}

// compiler carries one compilation.
type compiler struct {
	policy  policy.Policy
	host    Host
	facts   *lookups
	rooted  *rooted // what facts are about, if there is an image
	command Command
	spec    *Spec
	reasons []*Unsupported

	home    resolved
	dir     string // the working directory, without links
	project string
	// search is PATH inside, one directory an entry.
	search []string

	layers []*layer
	// missing are rules whose path does not exist, kept for the question
	// whether that can be left so.
	missing   []missingRule
	protected []protection
	// absent are names that would be protected if they existed, and guarded the
	// directories in which all of protectedNames and policyNames are.
	absent  []protection
	guarded []string
	// inside is what protected directories hold, and unvisited how much more of
	// it may be looked at; below zero something was left out.
	inside    []protection
	unvisited int
	pins      []string
	links     []link
	// socketPatterns are the unix sockets that can be reached.
	socketPatterns []string
	// gitDirs are git directories outside the project that belong to it.
	gitDirs []string
	// ruleLayer is the first layer that path permissions became, 0 if none did,
	// and ruleReasons which of them is about a path.
	ruleLayer   int
	ruleReasons map[string]string
	// hidden are denials inside /proc and /dev, which have no place among the
	// host's files.
	hidden []Mount
}

type missingRule struct {
	kind  ruleKind
	bound bool
	path  string
	entry string
	links []link
	// optional says that it is one of the default policy's, for machines that
	// have it.
	optional bool
}

func (c *compiler) warn(s string) {
	if !slices.Contains(c.spec.Warnings, s) {
		c.spec.Warnings = append(c.spec.Warnings, s)
	}
}

// files builds everything about files. The order matters: grants first, then
// what limits them, since protection depends on what can be written.
func (c *compiler) files() {
	c.readRules()
	c.readLayers()
	c.nameRules()
	c.hideWorkspaces()
	c.hideOwn()
	c.grantImage()
	c.grantPatterns()
	c.grantSockets()
	c.grantGitDirs()
	c.grantSearchPath()
	c.grantResolver()
	c.checkLinks()
	c.protect()
	c.checkMissing()
	c.checkHardLinks()
	c.mounts()
	c.ruleMounts()
	c.workingDir()
	c.placeImage()
}

// drafted shows what is decided so far to who waits for it, once.
func (c *compiler) drafted() {
	if show := c.command.Drafted; show != nil && len(c.reasons) == 0 {
		c.command.Drafted = nil
		show(c.spec)
	}
}

// readLayers resolves every path of the policy and its bounds.
func (c *compiler) readLayers() {
	c.missing = make([]missingRule, 0, 32)
	c.readLayer(c.policy.Filesystem, false)
	for _, b := range c.policy.Bounds {
		c.readLayer(b, true)
	}
}

func (c *compiler) readLayer(fs policy.Filesystem, bound bool) {
	l := newLayer(fs)
	l.rules = make([]rule, 0, 40)
	if c.rooted != nil {
		l.fallback = AccessNone // what everybody may read is the image
	}
	c.layers = append(c.layers, l)
	for _, k := range []struct {
		kind    ruleKind
		entries []string
	}{
		{allowRead, fs.AllowRead},
		{denyRead, fs.DenyRead},
		{allowWrite, fs.AllowWrite},
		{denyWrite, fs.DenyWrite},
		{privateWrite, fs.PrivateWrite},
	} {
		for _, entry := range k.entries {
			c.readRule(l, k.kind, entry, bound)
		}
	}
	if fs.AllowExecute == nil {
		return
	}
	l.execute = make([]rule, 0, len(fs.AllowExecute))
	for _, entry := range fs.AllowExecute {
		if r, ok := c.resolveEntry("filesystem.allowExecute", entry); ok && !r.missing {
			l.execute = append(l.execute, rule{resolved: r, entry: entry})
		}
	}
}

func (c *compiler) readRule(l *layer, kind ruleKind, entry string, bound bool) {
	if isPattern(entry) {
		c.readPattern(l, kind, entry)
		return
	}
	if !kind.denies() && c.isTooWide(entry) {
		return
	}
	res, ok := c.resolveEntry(kind.String(), entry)
	if !ok {
		return
	}
	r := rule{resolved: res, kind: kind, entry: entry}
	if IsOwn(r.path) {
		c.readSpecial(r)
		return
	}
	if c.isImages(kind, r.path) {
		return
	}
	if r.missing && (kind == allowRead || kind == privateWrite) {
		return // for machines that have it
	}
	if r.missing {
		c.missing = append(c.missing, missingRule{kind: kind, bound: bound, path: r.path, entry: entry, links: r.links})
		return
	}
	if r.info.Type == TypeSocket && !kind.denies() {
		c.refuseHere(kind.String(), entry, "is a socket", "name it in network.allowUnixSockets")
		return
	}
	if kind == privateWrite && r.info.Type != TypeDirectory {
		c.refuseHere(kind.String(), entry, "is not a directory, and only those can have private writes", "name the directory it is in")
		return
	}
	l.rules = append(l.rules, r)
}

// isTooWide says whether an entry relative to the project names a directory
// that is granted only on insistence, and warns.
func (c *compiler) isTooWide(entry string) bool {
	if strings.HasPrefix(entry, "/") || strings.HasPrefix(entry, "~") {
		return false
	}
	p, _ := pattern.Plain(entry)
	if p = path.Join(c.project, p); !c.wide(p) {
		return false
	}
	c.warn(plain.Text(p) + " is not a project, so nothing here is granted; cd into a project, or name a directory with --allow-write")
	return true
}

// readSpecial handles a rule about /proc or /dev, which are the sandbox's own
// and not the host's: grants of what they hold anyway are met already.
func (c *compiler) readSpecial(r rule) {
	inProc := Covers("/proc", r.path)
	switch {
	case r.kind == denyRead && !r.missing && (inProc || IsStandardDevice(r.path)):
		c.hidden = append(c.hidden, hide(r.path, r.info, r.reason()))
	case r.kind.denies() && inProc, r.kind == denyRead:
		// /proc is read-only, and what is not in /dev need not be hidden.
	case r.kind == denyWrite:
		c.refuseIf(r.path == "/dev" || IsStandardDevice(r.path), r.kind.String(), r.entry,
			"the sandbox's own device nodes can be written", "remove it")
	case inProc:
		c.refuseIf(r.kind != allowRead, r.kind.String(), r.entry, "/proc is read-only in a sandbox", "remove it")
	case r.path != "/dev" && !IsStandardDevice(r.path):
		c.refuse(r.kind.String(), r.entry, "the sandbox has a /dev of its own", "name the node in devices.allow")
	}
}

// IsOwn says whether a path is in /proc or /dev, of which the sandbox has its own.
// Below /dev/shm people keep projects, as in /tmp.
func IsOwn(p string) bool {
	return Covers("/proc", p) || Covers("/dev", p) && !below("/dev/shm", p)
}

// IsStandardDevice says whether every sandbox has this path in its /dev.
func IsStandardDevice(p string) bool {
	for _, name := range []string{
		"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx",
		"/dev/pts", "/dev/shm", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr",
	} {
		if Covers(name, p) {
			return true
		}
	}
	return false
}

// resolveEntry turns a path as it stands in a policy into a real one.
func (c *compiler) resolveEntry(key, entry string) (resolved, bool) {
	p, ok := c.absolute(key, entry)
	if !ok {
		return resolved{}, false
	}
	r, err := c.facts.resolve(p)
	if err != nil {
		c.refuseHere(key, entry, err.Error(), "name the file or directory itself")
		return resolved{}, false
	}
	return r, true
}

// absolute makes a policy's path absolute: from the root, the home directory,
// or the project.
func (c *compiler) absolute(key, entry string) (string, bool) {
	p, ok := pattern.Plain(entry)
	switch {
	case entry == "" || strings.IndexByte(p, 0) >= 0:
		c.refuse(key, entry, "is not a path", "remove it")
	case !ok:
		c.refuse(key, entry, "patterns are not possible here", "name the file or directory")
	case strings.HasPrefix(p, "/"):
		return clean(p), true
	case p == "~" || strings.HasPrefix(p, "~/"):
		if c.host.Home != "" {
			return clean(c.host.Home + p[1:]), true
		}
		c.refuseHere(key, entry, "there is no home directory", "set HOME, or name the path from /")
	case strings.HasPrefix(p, "~"):
		c.refuse(key, entry, "only ~/ stands for a home directory", "name the path from /")
	default:
		return path.Join(c.project, p), true
	}
	return "", false
}

// checkLinks refuses rules that go through a link which the command could point
// elsewhere before the next run: a grant would then show something else, and a
// denial no longer what it was written for.
func (c *compiler) checkLinks() {
	for _, l := range c.layers {
		for i := range l.rules {
			r := &l.rules[i]
			c.checkRuleLinks(r.kind.String(), r.entry, r.path, r.links)
		}
		for i := range l.patterns {
			r := &l.patterns[i]
			c.checkRuleLinks(r.kind.String(), r.entry, r.base.path, r.base.links)
		}
		for _, r := range l.execute {
			c.checkRuleLinks("filesystem.allowExecute", r.entry, r.path, r.links)
		}
	}
	for _, m := range c.missing {
		if m.kind.denies() {
			c.checkRuleLinks(m.kind.String(), m.entry, m.path, m.links)
		}
	}
}

func (c *compiler) checkRuleLinks(key, entry, target string, links []link) {
	if l, ok := c.replaceable(links); ok {
		c.refuseHere(key, entry, "goes through the link "+l.path+", which the sandbox can replace", "name its target "+target)
	}
}

// replaceable finds a link in a directory the command can write.
func (c *compiler) replaceable(links []link) (link, bool) {
	for _, l := range links {
		if c.granted(path.Dir(l.path)) == AccessWrite {
			return l, true
		}
	}
	return link{}, false
}

// checkMissing decides about entries whose path does not exist. A denial is a
// promise: where the command could create the path, the broker keeps it.
func (c *compiler) checkMissing() {
	var optional []string
	for i := range c.missing {
		m := &c.missing[i]
		switch {
		case m.kind == allowWrite:
			if !m.bound && c.layers[0].access(m.path) != AccessWrite {
				c.refuseHere(m.kind.String(), m.entry, "does not exist", "mkdir -p "+m.path)
			}
		case m.kind == denyRead:
			if optional == nil {
				optional = policy.Default().Filesystem.DenyRead
			}
			m.optional = slices.Contains(optional, m.entry)
		}
	}
}
