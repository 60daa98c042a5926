package learn

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// tree holds needed paths by their components.
type tree struct{ root node }

type node struct {
	children map[string]*node
	needed   bool // by itself, with everything below it
	by       programs
	note     string
}

// add notes that a program needs a path.
func (t *tree) add(p, program, note string) {
	n := &t.root
	for name := range strings.SplitSeq(strings.Trim(p, "/"), "/") {
		child := n.children[name]
		if child == nil {
			child = &node{}
			if n.children == nil {
				n.children = map[string]*node{}
			}
			n.children[name] = child
		}
		n = child
	}
	n.needed = true
	if n.by == nil {
		n.by = programs{}
	}
	n.by[program] = true
	if note != "" {
		n.note = note
	}
}

// dropBelow forgets what grants of writing cover.
func (t *tree) dropBelow(grants []Grant) {
	for _, g := range grants {
		dir, name := path.Split(g.Path)
		if n := t.find(dir); n != nil {
			delete(n.children, name)
		}
	}
}

func (t *tree) find(p string) *node {
	n := &t.root
	if p = strings.Trim(p, "/"); p == "" {
		return n
	}
	for name := range strings.SplitSeq(p, "/") {
		if n = n.children[name]; n == nil {
			return nil
		}
	}
	return n
}

// grants folds a tree, sorted by path.
func (b *builder) grants(t *tree) []Grant {
	var out []Grant
	for _, name := range slices.Sorted(maps.Keys(t.root.children)) {
		out = append(out, b.fold(t.root.children[name], "/"+name)...)
	}
	return out
}

// fold returns the grants for a node. It goes from the leaves upwards, so that a
// directory that was folded counts as one thing in the directory above it.
func (b *builder) fold(n *node, p string) []Grant {
	if n.needed {
		return []Grant{n.whole(p)}
	}
	var below []Grant
	things := 0
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		grants := b.fold(n.children[name], path.Join(p, name))
		below = append(below, grants...)
		if len(grants) > 0 && isChild(p, grants) {
			things++
		}
	}
	if (things >= several || len(n.children) >= many) && b.foldable(p) {
		return []Grant{n.whole(p)}
	}
	return below
}

// isChild says whether grants are a single one, of something right in a
// directory.
func isChild(dir string, grants []Grant) bool {
	return len(grants) == 1 && path.Dir(grants[0].Path) == dir
}

// whole grants a node with everything below it.
func (n *node) whole(p string) Grant {
	by := programs{}
	n.collect(by)
	return Grant{Path: p, For: by.sorted(), Note: n.note}
}

func (n *node) collect(by programs) {
	maps.Copy(by, n.by)
	for _, child := range n.children {
		child.collect(by)
	}
}

// foldable says whether a directory may stand for things in it: it is not too
// wide, and holds no secret that is known or can be seen by its name.
func (b *builder) foldable(dir string) bool {
	if isWide(b.Home, b.Project, dir) {
		return false
	}
	holds := func(p string) bool { return covered([]Grant{{Path: dir}}, p) }
	if slices.ContainsFunc(b.secrets, holds) || slices.ContainsFunc(SecretPaths(b.Home), holds) {
		return false
	}
	return !slices.ContainsFunc(b.Files.Names(dir), func(name string) bool { return isSecretName(strings.ToLower(name)) })
}
