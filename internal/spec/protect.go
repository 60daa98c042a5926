package spec

import (
	"path"
	"slices"
	"strings"
)

// protection keeps a path from being written although it lies in a writable
// directory: something outside the sandbox acts on what it says.
type protection struct {
	path string
	info FileInfo
	name string // for messages and explain
	// always holds even if the policy names the path in allowWrite.
	always bool
}

// protectedNames are protected at the root of every writable directory. They
// are what shells, editors, agents and their tools start programs from when
// they enter or open a directory. Files that also say what to run, but are the
// project's own work (Makefile, package.json, CI), are not among them.
var protectedNames = []string{
	".aider.conf.yml",
	".amazonq",
	".amp",
	".augment",
	".bash_aliases",
	".bash_login",
	".bash_logout",
	".bash_profile",
	".bashrc",
	".claude",
	".claude.json",
	".codex",
	".config/autostart",
	".config/fish",
	".config/git",
	".config/helix",
	".config/nvim",
	".config/systemd",
	".config/zed",
	".continue",
	".copilot",
	".crush.json",
	".cshrc",
	".cursor",
	".devcontainer",
	".devcontainer.json",
	".dir-locals-2.el",
	".dir-locals.el",
	".emacs",
	".emacs.d",
	".emacs.el",
	".envrc",
	".exrc",
	".factory",
	".fleet",
	".gemini",
	".gitconfig",
	".gitmodules",
	".helix",
	".idea",
	".inputrc",
	".junie",
	".kilocode",
	".kiro",
	".kshrc",
	".login",
	".logout",
	".mcp.json",
	".nvim.lua",
	".nvimrc",
	".opencode",
	".profile",
	".qwen",
	".ripgreprc",
	".roo",
	".ssh",
	".tcshrc",
	".tmux.conf",
	".trae",
	".vim",
	".vimrc",
	".vscode",
	".windsurf",
	".zed",
	".zlogin",
	".zlogout",
	".zprofile",
	".zshenv",
	".zshrc",
	"crush.json",
	"opencode.json",
	"opencode.jsonc",
}

// policyNames are what Bailey looks for upwards from a working directory.
var policyNames = []string{"bailey.json", "bailey.jsonc"}

// IsProtectedName says whether a path ends like one that is protected although it
// may not exist.
func IsProtectedName(name string) bool {
	ends := func(protected string) bool {
		return Covers("/"+protected, "/"+name) || strings.HasSuffix("/"+name, "/"+protected)
	}
	base := path.Base(name)
	return slices.ContainsFunc(protectedNames, ends) || base == ".git" || slices.Contains(bareParts[:], base)
}

// protect finds everything that must stay as it is. What exists is held by a
// mount; names that must not come into being are the broker's.
func (c *compiler) protect() {
	for _, root := range c.roots() {
		c.facts.list(root)
		prefix := join(root, "")
		for _, name := range protectedNames {
			if first, _, _ := strings.Cut(name, "/"); !c.facts.lacks(prefix, first) {
				c.protectExisting(root, name, false)
			}
		}
		for _, name := range policyNames {
			c.protectExisting(root, name, true)
		}
		c.guarded = append(c.guarded, root)
		c.protectGit(root)
	}
	for _, dir := range c.gitDirs {
		c.protectGitDir(dir)
	}
	for _, p := range c.host.PolicyFiles {
		c.protectOwn("policy file", p)
	}
	if c.host.Self != "" {
		c.protectOwn("bailey itself", c.host.Self)
	}
	for _, p := range c.host.Companions {
		c.protectProgram("bailey's program", p)
	}
	c.protectCredentials()
	for _, p := range c.host.OwnDirs {
		c.protectOwn("bailey's directory", p)
	}
	c.protectLinksBelow()
	c.refuseClosed()
	c.refuseInsistence()
}

// refuseClosed refuses what could not be looked at inside a writable directory:
// the command may be able to open it, and nothing in it would be protected.
func (c *compiler) refuseClosed() {
	for _, p := range c.facts.closed {
		c.refuseIf(c.granted(p) == AccessWrite, "protected path", p,
			"cannot be looked at, so nothing in it could be protected", "chmod u+rwx "+path.Dir(p))
	}
}

// protectLinksBelow protects what symbolic links inside protected directories
// lead to: a hook is often a link to a script of the project. What else it meets
// there is kept for checkHardLinks.
func (c *compiler) protectLinksBelow() {
	c.unvisited = maxLinkChecks
	for i := 0; i < len(c.protected); i++ { // grows
		q := c.protected[i]
		if q.info.Type != TypeDirectory {
			continue
		}
		c.walk(q.path, func(p string, info FileInfo) {
			if info.Type != TypeLink {
				c.inside = append(c.inside, protection{p, info, q.name, q.always})
			} else if r, ok := c.protectLink(p, q.always); ok {
				c.addProtection(protection{r.path, r.info, c.inProject(p), q.always})
			}
		})
	}
}

// roots are the directories at which people keep the files above: those the
// policy makes writable, the project, and the working directory. Of the last
// two something may be writable though they are not.
func (c *compiler) roots() []string {
	roots := append(make([]string, 0, 8), c.project)
	add := func(dir string) {
		if !slices.Contains(roots, dir) {
			roots = append(roots, dir)
		}
	}
	add(c.dir)
	for i := range c.layers[0].rules {
		r := &c.layers[0].rules[i]
		if r.kind == allowWrite && r.info.Type == TypeDirectory && c.granted(r.path) == AccessWrite {
			add(r.path)
		}
	}
	return roots
}

// protectGit protects a directory's repository: the file or directory .git, and
// the directory itself as far as git could take it for one.
func (c *compiler) protectGit(root string) {
	c.protectBare(root)
	git := join(root, ".git")
	info, ok := c.facts.lstat(git)
	switch {
	case ok && info.Type == TypeDirectory:
		c.protectGitDir(git)
	case ok && info.Type == TypeLink:
		if r, ok := c.protectLink(git, true); ok && r.info.Type == TypeDirectory {
			c.protectGitDir(r.path)
		}
	case ok:
		c.protectIn(root, ".git", true)
	default:
		c.protectAbsent(git, false)
	}
}

// bareParts are what git knows a repository by.
var bareParts = [...]string{"HEAD", "refs", "objects"}

// protectBare keeps a directory from becoming a repository that the command has
// configured: git looks for one in the directory itself as soon as it makes nothing
// of .git. In one that is a repository, or lacks only a part that the command may
// have moved away, what makes git start programs is protected as in .git.
func (c *compiler) protectBare(root string) {
	var missing []string
	for _, part := range bareParts {
		if _, ok := c.facts.lstat(join(root, part)); !ok {
			missing = append(missing, part)
		}
	}
	if len(missing) > 0 {
		c.protectAbsent(join(root, missing[0]), false)
	}
	if len(missing) <= 1 {
		user := c.followUserConfigs(root)
		c.protectRepository(root, c.workTrees(root), user)
		c.protectModules(root, user)
	}
}

// protectAbsent protects a name that does not exist.
func (c *compiler) protectAbsent(p string, always bool) {
	same := func(q protection) bool { return q.path == p && q.always == always }
	if c.granted(p) == AccessWrite && !slices.ContainsFunc(c.absent, same) {
		c.absent = append(c.absent, protection{path: p, name: c.inProject(p), always: always})
	}
}

// protectIn protects root/name, whether or not it exists, and reports which.
func (c *compiler) protectIn(root, name string, always bool) bool {
	exists := c.protectExisting(root, name, always)
	if !exists {
		c.protectAbsent(join(root, name), always)
	}
	return exists
}

// protectExisting protects root/name if there is something of that name, and
// reports whether.
func (c *compiler) protectExisting(root, name string, always bool) bool {
	p, linked := root, false
	for rest := name; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		p = join(p, part)
		info, ok := c.facts.lstat(p)
		if !ok {
			if real := join(p, rest); linked {
				c.protectAbsent(strings.TrimSuffix(real, "/"), always)
			}
			return false
		}
		if info.Type == TypeLink {
			r, ok := c.protectLink(p, always)
			if !ok {
				return true
			}
			p, info, linked = r.path, r.info, true
		}
		if rest == "" {
			c.addProtection(protection{p, info, c.inProject(p), always})
		}
	}
	return true
}

// protectLink protects a symbolic link, and those it leads through: each is
// mounted on itself, and then can neither be removed nor replaced. It returns
// what the link leads to, if that exists.
func (c *compiler) protectLink(p string, always bool) (resolved, bool) {
	r, err := c.facts.resolve(p)
	if err != nil {
		c.refuse("protected path", p, err.Error(), "remove it")
		return r, false
	}
	for _, l := range r.links {
		c.addProtection(protection{l.path, FileInfo{Type: TypeLink}, c.inProject(p), always})
	}
	c.refuseIf(r.missing && c.granted(r.path) == AccessWrite, "protected path", p,
		"is a link to "+r.path+", which does not exist and which the sandbox could create", "create that, or remove the link")
	return r, !r.missing
}

// inProject shortens a path for people.
func (c *compiler) inProject(p string) string {
	if below(c.project, p) {
		return p[len(c.project)+1:]
	}
	return p
}

func (c *compiler) addProtection(q protection) {
	if c.granted(q.path) != AccessWrite {
		return
	}
	for i := range c.protected {
		if old := &c.protected[i]; old.path == q.path {
			old.always = old.always || q.always
			return
		}
	}
	c.protected = append(c.protected, q)
}

// protectOwn protects what Bailey itself will read or run next time.
func (c *compiler) protectOwn(name, p string) {
	if !strings.HasPrefix(p, "/") {
		c.refuse(name, p, "is not an absolute path", "")
		return
	}
	r, err := c.facts.resolve(path.Clean(p))
	if err != nil {
		c.refuse(name, p, err.Error(), "")
		return
	}
	if r.missing && c.granted(r.path) == AccessWrite {
		c.refuse(name, p, "does not exist and the sandbox could create it", "mkdir -p "+r.path)
	}
	c.protectResolved(name, r)
}

// protectProgram protects what is started outside. A program that does not exist
// must not come into being.
func (c *compiler) protectProgram(name, p string) {
	r, err := c.facts.resolve(path.Clean(p))
	switch {
	case err != nil:
		c.refuse(name, p, err.Error(), "")
	case r.missing && c.granted(r.path) == AccessWrite:
		c.absent = append(c.absent, protection{path: r.path, name: name, always: true})
	}
	if err == nil {
		c.protectResolved(name, r)
	}
}

func (c *compiler) protectResolved(name string, r resolved) {
	if l, ok := c.replaceable(r.links); ok {
		c.refuse(name, r.path, "is reached through the link "+l.path+", which the sandbox can replace", "put what it names in its place")
	}
	if !r.missing {
		c.addProtection(protection{r.path, r.info, name, true})
	}
}

// refuseInsistence refuses entries that would have to lift what is always
// protected, instead of leaving them without effect.
func (c *compiler) refuseInsistence() {
	for i := range c.layers[0].rules {
		r := &c.layers[0].rules[i]
		if r.kind != allowWrite || r.entry == "" {
			continue
		}
		for _, q := range c.protected {
			if q.always && Covers(q.path, r.path) {
				c.refuse(r.kind.String(), r.entry, "is always protected ("+q.name+")", "remove it")
			}
		}
	}
}
