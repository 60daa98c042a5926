package spec

import (
	"path"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Rules are path permissions that mounts cannot hold. Every mount whose Source
// lies in Root is taken from a view of that directory, or of the overlay that lies
// over it, that holds them, and not from the host. A runtime that does not do so must refuse the Spec: all its other
// mounts are the same with rules and without.
type Rules struct {
	// Root is the workspace, which is seen under its own name.
	Root string `json:"root"`
	// Lists must all agree: of each path the least is permitted that any of them
	// does. Their patterns are relative to Root.
	Lists [][]pathrule.Rule `json:"lists"`
}

const keyRules = "workspace.rules"

// Covers says whether a path of the host is seen through the rules. It may be
// called on nil.
func (r *Rules) Covers(p string) bool { return r != nil && Covers(r.Root, p) }

// Refused is the answer of a runtime that cannot hold such rules; nil if there
// are none to hold.
func (r *Rules) Refused(runtime string) *Unsupported {
	if r == nil {
		return nil
	}
	return &Unsupported{
		Key: keyRules, Reason: "the " + runtime + " runtime cannot show a file under permissions of its own",
		Fix: "use --runtime native, or write rules that are paths, with none, read or write",
	}
}

// Decide says what the rules permit at a path of the host that they cover.
func (r *Rules) Decide(p string) (pathrule.Decision, error) {
	set, err := pathrule.NewSet(r.Lists...)
	if err != nil {
		return pathrule.Decision{}, err
	}
	return set.Decide(inside(r.Root, p)), nil
}

// inside is a path as rules see it.
func inside(root, p string) string {
	if rest := strings.TrimPrefix(p, root); rest != "" {
		return "/" + strings.TrimPrefix(rest, "/")
	}
	return "/"
}

// readRules takes the policy's path permissions: those that are plain subtrees
// become one more bound on files, and only where one is not, all of them are left
// to a view.
func (c *compiler) readRules() {
	var bounds []policy.Filesystem
	c.ruleReasons = make(map[string]string)
	var lists [][]pathrule.Rule
	needsView := c.command.View
	for _, rules := range append([][]policy.WorkspaceRule{c.policy.Workspace.Rules}, c.policy.RuleBounds...) {
		if len(rules) == 0 {
			continue
		}
		list, compiled, ok := c.compileRules(rules)
		if !ok {
			return
		}
		lists = append(lists, list)
		if needsView {
			continue
		}
		if fs, ok := c.asMounts(compiled, list); ok {
			bounds = append(bounds, fs)
		} else {
			needsView = true
		}
	}
	if !needsView {
		c.ruleLayer = 1 + len(c.policy.Bounds)
		c.policy.Bounds = append(slices.Clone(c.policy.Bounds), bounds...)
		return
	}
	c.needView(lists)
}

func (c *compiler) compileRules(rules []policy.WorkspaceRule) ([]pathrule.Rule, *pathrule.List, bool) {
	list := make([]pathrule.Rule, len(rules))
	for i, r := range rules {
		p, err := pathrule.Parse(r.Permission)
		if err != nil {
			c.refuse(keyRules, r.Pattern, err.Error(), "")
			return nil, nil, false
		}
		list[i] = pathrule.Rule{Pattern: r.Pattern, Permission: p}
		if r.Priority != nil {
			list[i].Priority = *r.Priority
		}
		if _, err := pathrule.Compile(list[i : i+1]); err != nil {
			c.refuse(keyRules, r.Pattern, err.Error(), "see docs/path-permissions.md on patterns")
			return nil, nil, false
		}
	}
	compiled, err := pathrule.Compile(list)
	if err != nil {
		c.refuse(keyRules, "", err.Error(), "see docs/path-permissions.md on patterns")
		return nil, nil, false
	}
	return list, compiled, true
}

// asMounts says a list in terms of files that are granted and denied, if it can be
// said so: every pattern is a path that exists, nothing is writable inside what is
// not, and no path could be taken for a pattern.
func (c *compiler) asMounts(l *pathrule.List, rules []pathrule.Rule) (policy.Filesystem, bool) {
	fs := policy.Filesystem{AllowRead: []string{"/"}, AllowWrite: []string{"/", c.project}}
	for _, b := range barriers {
		if b != "/proc" && b != "/dev" {
			fs.AllowWrite = append(fs.AllowWrite, b)
		}
	}
	trees, ok := l.Subtrees()
	if !ok {
		return fs, false
	}
	slices.SortFunc(trees, func(a, b pathrule.Subtree) int { return comparePaths(a.Path, b.Path) })
	for _, t := range trees {
		p := path.Join(c.project, t.Path)
		if info, ok := c.facts.lstat(p); !ok || info.Type == TypeLink || isPattern(p) {
			return fs, false
		}
		c.ruleReasons[p] = RuleReason(rules[t.Rule])
		around, _ := l.Decide(path.Dir(t.Path))
		switch {
		case t.Permission == pathrule.None:
			fs.DenyRead = append(fs.DenyRead, p)
		case t.Permission == pathrule.Read:
			fs.AllowRead = append(fs.AllowRead, p)
			fs.DenyWrite = append(fs.DenyWrite, p)
		case t.Path != "/" && around != pathrule.Write:
			return fs, false
		}
	}
	return fs, true
}

// nameRules has the bounds that rules became say which rules they were.
func (c *compiler) nameRules() {
	if c.ruleLayer == 0 {
		return
	}
	for _, l := range c.layers[c.ruleLayer:] {
		for i := range l.rules {
			if why, ok := c.ruleReasons[l.rules[i].entry]; ok {
				l.rules[i].why = why
			}
		}
	}
}

// RuleReason names a path permission for people.
func RuleReason(r pathrule.Rule) string {
	return keyRules + " " + r.Pattern + " (" + r.Permission.String() + ")"
}

// needView leaves rules to a view, if one can be had.
func (c *compiler) needView(lists [][]pathrule.Rule) {
	r := &Rules{Root: c.project, Lists: lists}
	switch {
	case c.spec.Runtime != "" && c.spec.Runtime != RuntimeNative:
		c.reasons = append(c.reasons, r.Refused(c.spec.Runtime))
	case c.wide(c.project):
		c.refuse(keyRules, "", c.project+" is not a project", "cd into a project")
	}
	c.spec.Rules = r
}

// ruleMounts leaves out mounts below the workspace that have no place in a view:
// what is hidden there need not be hidden again, and is not there to be mounted
// on.
func (c *compiler) ruleMounts() {
	r := c.spec.Rules
	if r == nil {
		return
	}
	set, err := pathrule.NewSet(r.Lists...)
	if err != nil {
		return // it was compiled before
	}
	c.spec.Mounts = slices.DeleteFunc(c.spec.Mounts, func(m Mount) bool {
		if !below(r.Root, m.Target) || !r.Covers(m.Target) {
			return false
		}
		return !reachable(set, r.Root, m.Target, !m.File)
	})
}

// reachable says whether a path can be reached in a view.
func reachable(set *pathrule.Set, root, p string, isDir bool) bool {
	for at := inside(root, p); ; at, isDir = path.Dir(at), true {
		if !set.Decide(at).IsVisible(isDir) {
			return false
		}
		if at == "/" {
			return true
		}
	}
}

// permissionRows are the rules that a view holds.
func permissionRows(r *Rules) (rows [][2]string) {
	if r == nil {
		return nil
	}
	for _, list := range r.Lists {
		for _, rule := range list {
			rows = append(rows, [2]string{plain.Text(rule.Pattern), rule.Permission.String()})
		}
	}
	return append(rows, [2]string{"everything else in " + plain.Text(r.Root), "as granted above"})
}
