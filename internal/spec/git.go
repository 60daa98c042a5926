package spec

import (
	"path"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// grantGitDirs gives the project its git directory where .git is a file that
// points to it: a linked worktree, or a submodule. The pointer is believed only
// if what it points to points back. The sandbox can write a .git file, and must
// not gain by it in the next run; it cannot write what lies at the other end.
func (c *compiler) grantGitDirs() {
	file := join(c.project, ".git")
	info, ok := c.facts.lstat(file)
	if !ok || info.Type != TypeRegular || c.granted(c.project) == AccessNone {
		return
	}
	dir, ok := c.pointedDir(c.project, file)
	if !ok {
		return
	}
	common, ok := c.commonDir(dir, file)
	if !ok && c.isSubmoduleDir(dir) {
		common, ok = dir, true
	}
	if !ok {
		c.warn(plain.Text(file) + " names a git directory that does not name it in turn; it is not granted")
		return
	}
	c.gitDirs = append(c.gitDirs, common)
	// Each layer grants it as far as it grants the project.
	for _, l := range c.layers {
		kind := allowRead
		switch l.access(c.project) {
		case AccessNone:
			continue
		case AccessPrivate:
			kind = privateWrite
		case AccessWrite:
			kind = allowWrite
		}
		r, _ := c.facts.resolve(common)
		l.rules = append(l.rules, rule{resolved: r, kind: kind, why: "git directory of the project"})
	}
}

// pointedDir reads "gitdir: PATH".
func (c *compiler) pointedDir(from, file string) (string, bool) {
	data, err := c.facts.ReadFile(file)
	if err != nil {
		return "", false
	}
	p, ok := strings.CutPrefix(string(data), "gitdir: ")
	if !ok {
		return "", false
	}
	return c.realPath(from, strings.TrimRight(p, "\r\n"))
}

// realPath resolves a path found in a git file, relative to a directory. It is
// not ok if nothing is there.
func (c *compiler) realPath(from, p string) (string, bool) {
	if p == "" || strings.IndexByte(p, 0) >= 0 {
		return "", false
	}
	if !strings.HasPrefix(p, "/") {
		// Not cleaned: a ".." after a link means what the kernel makes of it.
		p = from + "/" + p
	}
	r, err := c.facts.resolve(p)
	return r.path, err == nil && !r.missing
}

// commonDir returns the repository a linked worktree's directory belongs to, if
// that directory names file as its worktree and lies where git puts it.
func (c *compiler) commonDir(dir, file string) (string, bool) {
	back, err := c.facts.ReadFile(join(dir, "gitdir"))
	if err != nil {
		return "", false
	}
	if p, ok := c.realPath(dir, strings.TrimRight(string(back), "\r\n")); !ok || p != file {
		return "", false
	}
	text, err := c.facts.ReadFile(join(dir, "commondir"))
	if err != nil {
		return "", false
	}
	common, ok := c.realPath(dir, strings.TrimRight(string(text), "\r\n"))
	if !ok || path.Dir(dir) != join(common, "worktrees") || !c.isRepository(common) {
		return "", false
	}
	return common, true
}

// isSubmoduleDir says whether dir is a repository whose configuration names the
// project as its worktree.
func (c *compiler) isSubmoduleDir(dir string) bool {
	p, ok := c.worktreeOf(dir)
	return ok && p == c.project && c.isRepository(dir)
}

// worktreeOf reads core.worktree.
func (c *compiler) worktreeOf(dir string) (string, bool) {
	data, err := c.facts.ReadFile(join(dir, "config"))
	if err != nil {
		return "", false
	}
	var value string
	for _, s := range parseGitConfig(data) {
		if s.section == "core" && s.subsection == "" && s.key == "worktree" {
			value = s.value
		}
	}
	return c.realPath(dir, value)
}

// isRepository says whether dir has the parts without which git would not take
// it for one. None may be a link: what is granted is dir.
func (c *compiler) isRepository(dir string) bool {
	head, ok := c.facts.lstat(join(dir, "HEAD"))
	if !ok || head.Type != TypeRegular {
		return false
	}
	for _, name := range []string{"objects", "refs"} {
		if info, ok := c.facts.lstat(join(dir, name)); !ok || info.Type != TypeDirectory {
			return false
		}
	}
	return true
}

// maxGitEntries bounds how much of a repository's administration is looked at
// entry by entry; beyond it the whole part is protected.
const maxGitEntries = 512

// protectGitDir protects what makes git start programs: hooks, configuration,
// and the pointers that lead git to another configuration. The directory itself
// is pinned, so that no other can take its place.
func (c *compiler) protectGitDir(dir string) {
	if slices.Contains(c.pins, dir) {
		return
	}
	c.pins = append(c.pins, dir)
	user := c.followUserConfigs(dir)
	c.protectRepository(dir, c.workTrees(dir), user)
	c.protectModules(dir, user)
}

// workTrees guesses where a repository's files are: beside .git, or else in the
// project's own directory; in both if the project is a linked worktree.
func (c *compiler) workTrees(dir string) []string {
	if path.Base(dir) != ".git" {
		return []string{c.project}
	}
	trees := []string{path.Dir(dir)}
	if slices.Contains(c.gitDirs, dir) {
		trees = append(trees, c.project)
	}
	return trees
}

// protectRepository protects one git directory, and the hooks that run in its
// worktrees; user are those the user's own configuration names.
func (c *compiler) protectRepository(dir string, trees []string, user []hooksPath) {
	if hooks := join(dir, "hooks"); !c.protectIn(dir, "hooks", true) && c.granted(hooks) == AccessWrite {
		c.warnMissing(hooks, "mkdir")
	}
	if !c.gitConfigAllowed() {
		c.protectIn(dir, "config", true)
	}
	c.protectIn(dir, "config.worktree", true)
	c.protectIn(dir, "commondir", true)
	hooks := append(slices.Clip(user), c.followConfig(dir, join(dir, "config"))...)
	own := c.followConfig(dir, join(dir, "config.worktree"))
	for _, tree := range trees {
		c.protectHooks(tree, hooks)
		c.protectHooks(tree, own)
	}
	c.protectWorktrees(dir, hooks)
}

func (c *compiler) warnMissing(p, how string) {
	if c.protectsMissing() {
		c.protectAbsent(p, true)
		return
	}
	c.warn(plain.Text(p) + " does not exist, so the command can create it and git will act on what it holds; " + how + " it to have it protected")
}

// gitConfigAllowed needs the word of every layer.
func (c *compiler) gitConfigAllowed() bool {
	for _, b := range c.policy.Bounds {
		if !isTrue(b.AllowGitConfig) {
			return false
		}
	}
	return isTrue(c.policy.Filesystem.AllowGitConfig)
}

// hooksPath is a core.hooksPath and the file that sets it.
type hooksPath struct {
	value, file string
}

// protectHooks protects hooks that are kept elsewhere than git keeps them, as
// they are found from the top of a worktree.
func (c *compiler) protectHooks(tree string, hooks []hooksPath) {
	for _, h := range hooks {
		p, ok := c.gitPath(h.value, tree)
		if !ok {
			continue
		}
		name := "core.hooksPath of " + c.inProject(h.file)
		// The hooks that husky puts into a directory _ do nothing but run the
		// script of their own name in the directory around it.
		if around, ok := strings.CutSuffix(strings.TrimRight(p, "/"), "/_"); ok {
			if r, err := c.facts.resolve(around); err == nil && !Covers(r.path, tree) {
				c.protectPath(name, around, true)
			}
		}
		if r, _ := c.protectPath(name, p, true); r.missing && c.access(r.path) == AccessWrite {
			c.warnMissing(r.path, "mkdir")
		}
	}
}

// protectPath protects what is found at a path, and the links that lead there.
// It reports whether something is found.
func (c *compiler) protectPath(name, p string, always bool) (resolved, bool) {
	r, err := c.facts.resolve(p)
	for _, l := range r.links {
		c.addProtection(protection{l.path, FileInfo{Type: TypeLink}, name, always})
	}
	if r.missing {
		c.protectAbsent(r.path, always)
	}
	if r.missing || err != nil {
		return r, false
	}
	c.addProtection(protection{r.path, r.info, name, always})
	return r, true
}

// protectModules protects the repositories of submodules, which lie below
// modules/ under names that may hold slashes, and the .git files that lead to
// them.
func (c *compiler) protectModules(dir string, user []hooksPath) {
	modules := join(dir, "modules")
	info, ok := c.facts.lstat(modules)
	if !ok || info.Type != TypeDirectory || c.granted(modules) != AccessWrite {
		return
	}
	var repositories []string
	left := maxGitEntries
	if !c.findModules(modules, &left, &repositories) {
		c.protectIn(dir, "modules", true)
		return
	}
	for _, m := range repositories {
		var trees []string
		if tree, ok := c.worktreeOf(m); ok {
			trees = append(trees, tree)
			if info, found := c.facts.lstat(join(tree, ".git")); found && info.Type == TypeRegular {
				c.protectIn(tree, ".git", true)
			}
		}
		c.pins = append(c.pins, m)
		c.protectRepository(m, trees, user)
	}
}

// findModules collects repositories below dir. It reports false if there are
// too many entries to look at.
func (c *compiler) findModules(dir string, left *int, found *[]string) bool {
	names, err := c.facts.ReadDir(dir, *left)
	if err != nil {
		return false
	}
	for _, name := range names {
		if *left--; *left < 0 {
			return false
		}
		p := join(dir, name)
		info, ok := c.facts.lstat(p)
		if !ok || info.Type != TypeDirectory {
			continue
		}
		next := p
		if c.looksLikeRepository(p) {
			*found = append(*found, p)
			next = join(p, "modules")
			if info, ok := c.facts.lstat(next); !ok || info.Type != TypeDirectory {
				continue
			}
		}
		if !c.findModules(next, left, found) {
			return false
		}
	}
	return true
}

// looksLikeRepository goes by any part of a repository: the command can move
// some of them away for a while.
func (c *compiler) looksLikeRepository(dir string) bool {
	for _, name := range []string{"HEAD", "config", "hooks", "objects", "refs", "commondir"} {
		if _, ok := c.facts.lstat(join(dir, name)); ok {
			return true
		}
	}
	return false
}

// protectWorktrees protects the pointers of linked worktrees, at both ends, and
// the hooks that run in them: those of the repository, and of each its own.
func (c *compiler) protectWorktrees(dir string, hooks []hooksPath) {
	worktrees := join(dir, "worktrees")
	info, ok := c.facts.lstat(worktrees)
	if !ok || info.Type != TypeDirectory {
		return
	}
	names, err := c.facts.ReadDir(worktrees, maxGitEntries)
	if err != nil {
		c.protectIn(dir, "worktrees", true)
		return
	}
	for _, name := range names {
		w := join(worktrees, name)
		if info, ok := c.facts.lstat(w); !ok || info.Type != TypeDirectory {
			continue
		}
		for _, file := range []string{"commondir", "config.worktree", "gitdir"} {
			c.protectIn(w, file, true)
		}
		data, err := c.facts.ReadFile(join(w, "gitdir"))
		if err != nil {
			continue
		}
		if p, ok := c.realPath(w, strings.TrimRight(string(data), "\r\n")); ok && path.Base(p) == ".git" {
			tree := path.Dir(p)
			c.protectIn(tree, ".git", true)
			c.protectHooks(tree, hooks)
			c.protectHooks(tree, c.followConfig(dir, join(w, "config.worktree")))
		}
	}
}
