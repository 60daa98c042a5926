package change

import (
	"cmp"
	"slices"
	"strings"
)

// Kind says how a path differs.
type Kind string

const (
	Added   Kind = "added"
	Changed Kind = "changed" // its content
	Deleted Kind = "deleted"
	Mode    Kind = "mode"    // or its owner or attributes
	Symlink Kind = "symlink" // where it leads
	Type    Kind = "type"    // what it is
)

// FileType is what a file is.
type FileType string

const (
	File   FileType = "file"
	Dir    FileType = "directory"
	Link   FileType = "symlink"
	Fifo   FileType = "fifo"
	Socket FileType = "socket"
	Device FileType = "device"
)

// Entry is one side of a change.
type Entry struct {
	Type   FileType
	Mode   uint32 // permissions, with the set-id and sticky bits
	Size   int64
	Target string // of a symbolic link

	layer int // which of the directories of its side has it
}

// Change is a path that differs. Old is nil where there was nothing, and New where
// there is nothing any more.
type Change struct {
	Path string // from the root, any bytes but NUL
	Kind Kind
	Old  *Entry
	New  *Entry
}

// entry is what the change is about, which one side has at least.
func (c *Change) entry() *Entry {
	if c.New != nil {
		return c.New
	}
	return c.Old
}

// Summary counts changes. Directories do not count: what is in them does.
type Summary struct {
	Added   int   `json:"added"`
	Changed int   `json:"changed"`
	Deleted int   `json:"deleted"`
	Bytes   int64 `json:"bytes"` // of files that were added or changed
}

// Summarize counts a list of changes.
func Summarize(list []Change) Summary {
	var s Summary
	for i := range list {
		c := &list[i]
		switch {
		case c.Kind == Added && c.New.Type != Dir:
			s.Added++
		case c.Kind == Deleted && c.Old.Type != Dir:
			s.Deleted++
		case c.Kind != Added && c.Kind != Deleted:
			s.Changed++
		}
		if c.New != nil && c.New.Type == File && c.Kind != Mode {
			s.Bytes += c.New.Size
		}
	}
	return s
}

// Select returns the changes at and below the given paths, with the new
// directories on the way to them. Without paths it returns all.
func Select(list []Change, paths []string) []Change {
	if len(paths) == 0 {
		return list
	}
	var out []Change
	for _, c := range list {
		way := c.New != nil && c.New.Type == Dir && c.Kind != Mode
		if slices.ContainsFunc(paths, func(p string) bool { return covers(p, c.Path) || way && covers(c.Path, p) }) {
			out = append(out, c)
		}
	}
	return out
}

// covers says whether a path is another or lies below it.
func covers(dir, p string) bool {
	return dir == "" || dir == "." || strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/')
}

// order sorts by path, a directory before what is in it.
func order(list []Change) {
	slices.SortStableFunc(list, func(a, b Change) int { return cmp.Compare(sortKey(a.Path), sortKey(b.Path)) })
}

// sortKey lets a slash come before every other byte.
func sortKey(p string) string { return strings.ReplaceAll(p, "/", "\x00") }
