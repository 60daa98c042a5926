package spec

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Facts is everything Compile knows about the machine. Paths given to it are
// absolute and clean. The answers may come from a live file system, so Compile
// asks each question once.
type Facts interface {
	Host() Host
	// Lstat describes a path without following a link at its end.
	Lstat(path string) (FileInfo, error)
	Readlink(path string) (string, error)
	// ReadDir returns the names in a directory, sorted. A directory with more
	// than limit of them is an error.
	ReadDir(path string, limit int) ([]string, error)
	// ReadFile returns the content of a small regular file; a large one is an
	// error.
	ReadFile(path string) ([]byte, error)
	// Readable says whether the caller may read the file, or list or enter the
	// directory.
	Readable(path string) bool
	// Mounts returns the host's mount table, in its order.
	Mounts() ([]MountPoint, error)
}

// Host is what is known about the caller without looking at files.
type Host struct {
	UID, GID int
	Home     string // as the caller names it; may go through links
	Dir      string // the working directory, absolute
	// Root, if set and at or above Dir, is what relative paths in the policy
	// are relative to, instead of the project that is found from Dir.
	Root    string
	Environ []string // "NAME=value"
	Self    string   // the bailey executable; empty if it is not a file
	// Companions are the other programs of Bailey's, which it starts without a
	// sandbox: where they are, or would be looked for.
	Companions []string
	// OwnDirs hold Bailey's configuration, state and cache: what it will believe
	// in the next run.
	OwnDirs []string
	// DataDir holds workspaces: what other commands wrote, and have not been
	// allowed to write elsewhere. Nobody sees it.
	DataDir string
	// Hidden are files and directories that are nothing of any sandbox's, whatever the
	// policy grants in them.
	Hidden []string
	// Closed are hidden as well, as far as they are there, because other users cannot
	// read them: nor can they by any other name.
	Closed []string
	// PolicyFiles are the files this policy was read from.
	PolicyFiles []string
	// Authority is the certificate authority of the network gate; nil if the
	// policy needs none.
	Authority *Authority
}

// Authority signs for hosts whose TLS the network gate opens.
type Authority struct {
	Dir string // where its secret is, outside
	// Bundle is a file with its certificate and those that the host trusts, and
	// Replaces are files of the host in whose place it stands inside.
	Bundle   string
	Replaces []string
	// Store is the same for Java.
	Store string
}

// FileInfo describes one file.
type FileInfo struct {
	Type  FileType
	Mode  uint32 // permission bits with setuid, setgid and sticky
	UID   int
	GID   int
	Dev   uint64
	Ino   uint64
	Nlink uint64
}

// FileType is the kind of a file.
type FileType uint8

const (
	TypeOther FileType = iota
	TypeRegular
	TypeDirectory
	TypeLink
	TypeSocket
	TypeDevice
)

// MountPoint is one line of the mount table: the directory Root of the file
// system Dev appears at Target.
type MountPoint struct {
	Dev    string // "major:minor"
	Root   string
	Target string
	Type   string // of the file system
}

// UnescapeMount undoes what the kernel does to white space in paths of its mount
// table: \040 is a space.
func UnescapeMount(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Command is what is to be run.
type Command struct {
	Argv []string
	// Later says that there is none yet: the sandbox stays, and commands come
	// while it stands.
	Later bool
	// Overlay is where the changes to the project go; nil if there is no such
	// place.
	Overlay *Overlay
	// Image is the root directory, if that is not made of the host's; nil otherwise.
	Image *Image
	// View leaves path permissions to a view also where mounts could hold them, and where
	// there are none: it is for a sandbox that stands, and has one.
	View bool
	// Drafted, if not nil, is called once, as soon as the root directory is
	// decided, with the Spec so far. It is for who carries it out: making the
	// mounts takes longer than compiling the rest. Mounts can still be added
	// after it, and the Spec be refused.
	Drafted func(*Spec)
}

// lookups asks Facts each question about a path once: policies name many paths
// with the same beginning, and every component of each is looked at.
type lookups struct {
	Facts
	stats  map[string]stat
	listed []listing
	// closed are paths that could not be looked at although they may exist.
	closed []string
}

type stat struct {
	info FileInfo
	ok   bool
	text string // of a link, once it was read
}

// listing holds all names of a directory that many questions will be about.
type listing struct {
	prefix string // the directory with a slash at its end
	names  []string
}

func newLookups(f Facts) *lookups {
	return &lookups{Facts: f, stats: make(map[string]stat, 96)}
}

// lstat reports a path that cannot be looked at as absent, and remembers it:
// the command cannot look at it either, unless it owns the directory that is in
// the way and opens it.
func (l *lookups) lstat(p string) (FileInfo, bool) {
	if s, ok := l.stats[p]; ok {
		return s.info, s.ok
	}
	if l.isKnownAbsent(p) {
		return FileInfo{}, false
	}
	info, err := l.Lstat(p)
	l.stats[p] = stat{info: info, ok: err == nil}
	if err != nil && !isAbsence(err) {
		l.closed = append(l.closed, p)
	}
	return info, err == nil
}

// isAbsence says whether an error means that there is nothing of that name.
func isAbsence(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func (l *lookups) readlink(p string) (string, error) {
	s := l.stats[p]
	if s.text != "" {
		return s.text, nil
	}
	text, err := l.Readlink(p)
	s.text = text
	l.stats[p] = s
	return text, err
}

// maxListing is how many names cost about as much to read as the questions they
// answer would.
const maxListing = 192

// list reads the names in a directory, so that questions about others need not
// be asked. If it cannot, or they are many, the questions are asked.
func (l *lookups) list(dir string) {
	prefix := join(dir, "")
	for i := range l.listed {
		if l.listed[i].prefix == prefix {
			return
		}
	}
	if names, err := l.ReadDir(dir, maxListing); err == nil {
		l.listed = append(l.listed, listing{prefix, names})
	}
}

func (l *lookups) isKnownAbsent(p string) bool {
	cut := strings.LastIndexByte(p, '/') + 1
	return l.lacks(p[:cut], p[cut:])
}

// lacks says whether a directory, given with a slash at its end, is listed
// without the name.
func (l *lookups) lacks(prefix, name string) bool {
	for i := range l.listed {
		if d := &l.listed[i]; d.prefix == prefix {
			_, found := slices.BinarySearch(d.names, name)
			return !found
		}
	}
	return false
}

// link is a symbolic link met on the way to a path. Path names the link itself
// and holds no links before its last component.
type link struct {
	path string
	text string
}

// resolved is a path without symbolic links.
type resolved struct {
	path  string
	links []link
	info  FileInfo
	// missing is set if path does not exist; then path is the real path of its
	// last existing ancestor with the rest appended.
	missing bool
}

const maxLinks = 40 // the kernel's own limit

var errLinks = errors.New("too many levels of symbolic links")

// resolve follows every symbolic link of an absolute path.
func (l *lookups) resolve(p string) (resolved, error) {
	r := resolved{path: "/"}
	rest := p
	for {
		rest = strings.TrimLeft(rest, "/")
		if rest == "" {
			break
		}
		name := rest
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			name, rest = rest[:i], rest[i+1:]
		} else {
			rest = ""
		}
		switch name {
		case ".":
			continue
		case "..":
			r.path = path.Dir(r.path)
			continue
		}
		next := step(p, r.path, name)
		info, ok := l.lstat(next)
		if !ok || info.Type != TypeDirectory && info.Type != TypeLink && strings.Trim(rest, "/") != "" {
			r.missing = true
			if r.path = clean(p); len(r.links) > 0 {
				r.path = path.Join(next, rest)
			}
			return r, nil
		}
		if info.Type != TypeLink {
			r.path, r.info = next, info
			continue
		}
		text, err := l.readlink(next)
		if err != nil {
			return r, err
		}
		if r.links = append(r.links, link{next, text}); len(r.links) > maxLinks {
			return r, errLinks
		}
		if strings.HasPrefix(text, "/") {
			r.path = "/"
		}
		rest = text + "/" + rest
	}
	// The last step may have been upwards, or none at all.
	r.info, _ = l.lstat(r.path)
	return r, nil
}

// step is join, but takes the result from p if it stands there: most paths hold
// no links, and then nothing has to be copied.
func step(p, dir, name string) string {
	n := len(dir) + 1 + len(name)
	if dir == "/" {
		n--
	}
	if n <= len(p) && strings.HasPrefix(p, dir) && p[n-len(name):n] == name && p[n-len(name)-1] == '/' {
		return p[:n]
	}
	return join(dir, name)
}

// clean is path.Clean without the work if there is none.
func clean(p string) string {
	for i := 0; i < len(p); i++ {
		if p[i] != '/' {
			continue
		}
		end := i + 1
		for end < len(p) && p[end] == '.' {
			end++
		}
		// An empty name, or one of dots alone.
		if end < len(p) && p[end] == '/' || end == len(p) && len(p) > 1 {
			return path.Clean(p)
		}
	}
	return p
}

func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// Covers says whether p is dir or lies below it. Both are clean and absolute.
func Covers(dir, p string) bool {
	if dir == "/" {
		return true
	}
	return strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/')
}

// below says whether p lies below dir and is not dir.
func below(dir, p string) bool { return p != dir && Covers(dir, p) }

// comparePaths orders paths so that a directory is followed by everything below
// it before anything else.
func comparePaths(a, b string) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] == b[i] {
			continue
		}
		if a[i] == '/' {
			return -1
		}
		if b[i] == '/' {
			return 1
		}
		return int(a[i]) - int(b[i])
	}
	return len(a) - len(b)
}
