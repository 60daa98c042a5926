package broker

import (
	"path"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// In some directories names that differ in case are the same file: of ext4, f2fs
// and tmpfs if they were made so, of file systems that come from elsewhere
// always. What is denied there is denied in every spelling. Whether a directory is
// one of these is looked at only when a spelling would be denied: hardly ever.

// folded is a list's denials, for paths that are folded too.
type folded struct {
	once  sync.Once
	names []names
	set   *pattern.Set
	index []int // of the set's patterns in the list's rules
}

// build folds the denials of a list. A pattern that is none any more when it is
// folded, because of a range of characters, stays as it is.
func (f *folded) build(l *list, a access) {
	var texts []string
	for i, r := range l.rules {
		if verdict(r, a) != spec.Denied {
			continue
		}
		if dir, in, ok := spec.NamesIn(r.Pattern); ok {
			f.names = append(f.names, names{i, fold(dir), in})
			continue
		}
		text := strings.Map(foldRune, r.Pattern)
		if !isPattern(text) {
			text = r.Pattern
		}
		f.index = append(f.index, i)
		texts = append(texts, text)
	}
	f.set, _ = pattern.NewSet(texts) // each was compiled before
}

// first returns the index of the first denial that is about a folded path, or
// the number of rules.
func (f *folded) first(l *list, path string) int {
	best := len(l.rules)
	if n := f.set.First(path); n >= 0 {
		best = f.index[n]
	}
	for i := range f.names {
		if n := &f.names[i]; n.index < best && n.match(path) {
			best = n.index
		}
	}
	return best
}

// judgeSpelling returns the rule that denies a path in another spelling, or nil.
// What a rule before it allows in this very spelling stays allowed.
func (r *rules) judgeSpelling(a access, path string) *spec.PathRule {
	small := fold(path)
	if small == path && !r.capitals {
		return nil
	}
	for i := range r.layers {
		l := r.layers[i][a]
		l.folded.once.Do(func() { l.folded.build(l, a) })
		if n := l.folded.first(l, small); n < l.firstIndex(path) {
			return l.rules[n]
		}
	}
	return nil
}

// fold gives all spellings of a path the same form. It knows more of them than
// any one file system: capitals, characters that are not seen, and blanks and
// dots at the end of a name.
func fold(p string) string {
	if isFolded(p) {
		return p
	}
	parts := strings.Split(p, "/")
	for i, part := range parts {
		part = strings.Map(foldRune, part)
		if trimmed := strings.TrimRight(part, ". "); trimmed != "" {
			part = trimmed
		}
		parts[i] = part
	}
	return strings.Join(parts, "/")
}

func isFolded(p string) bool {
	for i := range len(p) {
		switch c := p[i]; {
		case 'A' <= c && c <= 'Z', c >= utf8.RuneSelf:
			return false
		case (c == '.' || c == ' ') && (i+1 == len(p) || p[i+1] == '/'):
			return false
		}
	}
	return true
}

// foldRune returns one for all the characters that differ only in case, and drops
// what Unicode lets one ignore.
func foldRune(r rune) rune {
	if r < utf8.RuneSelf {
		return unicode.ToLower(r)
	}
	if isIgnorable(r) {
		return -1
	}
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return unicode.ToLower(least)
}

// isIgnorable says whether a character is one of Default_Ignorable_Code_Point.
func isIgnorable(r rune) bool {
	switch {
	case r == 0xad, r == 0x34f, r == 0x61c, r == 0x3164, r == 0xfeff, r == 0xffa0:
		return true
	case 0x115f <= r && r <= 0x1160, 0x17b4 <= r && r <= 0x17b5, 0x180b <= r && r <= 0x180f,
		0x200b <= r && r <= 0x200f, 0x202a <= r && r <= 0x202e, 0x2060 <= r && r <= 0x206f,
		0xfe00 <= r && r <= 0xfe0f, 0xfff0 <= r && r <= 0xfff8, 0x1bca0 <= r && r <= 0x1bca3,
		0x1d173 <= r && r <= 0x1d17a, 0xe0000 <= r && r <= 0xe0fff:
		return true
	}
	return false
}

// isSuspect says whether a path is denied, or would be in another spelling.
func (r *rules) isSuspect(a access, path string) bool {
	return r.judge(a, path) != nil || r.judgeSpelling(a, path) != nil
}

// judge returns the rule that denies a path, or nil. The directory is the one
// that holds the last name of it, or -1 for one that has to be found.
func (w *worker) judge(a access, dir int, p string) *spec.PathRule {
	if rule := w.rules.judge(a, p); rule != nil {
		return rule
	}
	rule := w.rules.judgeSpelling(a, p)
	if rule == nil {
		return nil
	}
	if dir < 0 {
		own, errno := w.openInside(path.Dir(p), unix.O_DIRECTORY)
		if errno != 0 {
			return rule
		}
		defer func() { _ = unix.Close(own) }()
		dir = own
	}
	if ignoresCase(dir, path.Dir(p)) {
		return rule
	}
	return nil
}

// ignoresCase says whether a directory, or one above it, has one file for names
// that differ in case. What cannot be found out counts as that.
func ignoresCase(dir int, real string) bool {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	for next := "."; ; next = ".." {
		at, err := unix.Openat(dir, next, flags, 0)
		if next == ".." {
			_ = unix.Close(dir)
			real = path.Dir(real)
		}
		if err != nil {
			return true
		}
		if dir = at; folds(dir, path.Base(real)) {
			break
		}
		if real == "/" {
			_ = unix.Close(dir)
			return false
		}
	}
	_ = unix.Close(dir)
	return true
}

// Numbers of file systems that package unix does not have, and the flag of a
// directory.
const (
	magicNTFS    = 0x5346544e
	magicNTFS3   = 0x7366746e
	magicHFS     = 0x4244
	magicHFSPlus = 0x482b
	magicVboxsf  = 0x786f4256

	flagCasefold = 0x40000000 // FS_CASEFOLD_FL
)

// folds says whether a single directory does. It has this name in the one above
// it.
func folds(dir int, name string) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(dir, &st) != nil {
		return true
	}
	switch uint32(st.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.RAMFS_MAGIC:
		return hasFoldFlag(dir)
	case unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.SQUASHFS_MAGIC, unix.EROFS_SUPER_MAGIC_V1, unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC:
		return false
	case unix.MSDOS_SUPER_MAGIC, unix.EXFAT_SUPER_MAGIC, magicNTFS, magicNTFS3, magicHFS, magicHFSPlus, magicVboxsf,
		unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.SMB_SUPER_MAGIC:
		return true
	}
	return answersToOtherCase(dir, name)
}

func hasFoldFlag(dir int) bool {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer func() { _ = unix.Close(fd) }()
	var flags uint32
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.FS_IOC_GETFLAGS, uintptr(unsafe.Pointer(&flags)))
	if errno == unix.ENOTTY || errno == unix.EOPNOTSUPP {
		return false // it has no such flags
	}
	return errno != 0 || flags&flagCasefold != 0
}

// answersToOtherCase tries names that the directory holds, and its own in the one
// above it, in other case. If there is no letter in any of them, it cannot tell.
func answersToOtherCase(dir int, name string) bool {
	if same, known := isSameInOtherCase(dir, "../", name); known {
		return same
	}
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, 4096)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err != nil || n <= 0 {
			return true
		}
		_, _, entries := unix.ParseDirent(buf[:n], -1, nil)
		for _, entry := range entries {
			if same, known := isSameInOtherCase(dir, "", entry); known {
				return same
			}
		}
	}
}

// isSameInOtherCase says whether a name in a directory leads to the same file in
// other case, if it is on the same file system and that can be told.
func isSameInOtherCase(dir int, above, name string) (same, known bool) {
	other := strings.ToUpper(name)
	if other == name {
		other = strings.ToLower(name)
	}
	var own, one, two unix.Stat_t
	if other == name || unix.Fstat(dir, &own) != nil ||
		unix.Fstatat(dir, above+name, &one, unix.AT_SYMLINK_NOFOLLOW) != nil || one.Dev != own.Dev ||
		above != "" && unix.Fstatat(dir, above, &two, 0) == nil && two.Dev != own.Dev {
		return false, false
	}
	switch err := unix.Fstatat(dir, above+other, &two, unix.AT_SYMLINK_NOFOLLOW); err {
	case nil:
		return one.Dev == two.Dev && one.Ino == two.Ino, true
	case unix.ENOENT:
		return false, true
	}
	return false, false
}

// judgeOpen judges a path for all that a file is opened for.
func (w *worker) judgeOpen(dir int, path string, flags int) *spec.PathRule {
	for _, a := range w.rules.asked(flags) {
		if rule := w.judge(a, dir, path); rule != nil {
			return rule
		}
	}
	return nil
}

// isSuspectToOpen is isSuspect for all that a file is opened for.
func (r *rules) isSuspectToOpen(path string, flags int) bool {
	for _, a := range r.asked(flags) {
		if r.isSuspect(a, path) {
			return true
		}
	}
	return false
}

// asked are the rules that have to be asked for a file that is opened.
func (r *rules) asked(flags int) []access {
	mode := flags & unix.O_ACCMODE
	reads := mode != unix.O_WRONLY && r.reads
	writes := mode != unix.O_RDONLY || flags&(unix.O_CREAT|unix.O_TRUNC) != 0
	switch {
	case reads && writes:
		return both
	case reads:
		return both[:1]
	case writes:
		return both[1:]
	}
	return nil
}

var both = []access{reading, writing}

// isMountPoint says whether something is mounted at a spot or below it.
func (w *worker) isMountPoint(s *spot) bool {
	if w.rules.isMountPoint(s.path()) {
		return true
	}
	return w.rules.isMountPointInOtherCase(s.path()) && ignoresCase(s.dir, s.real)
}

func (r *rules) isMountPointInOtherCase(path string) bool {
	small := fold(path)
	for _, m := range r.mounts {
		if spec.Covers(small, fold(m)) {
			return true
		}
	}
	return false
}

// leadsOn says whether a rule is about something below a spot, but not below any
// other name beside it.
func (w *worker) leadsOn(s *spot) bool {
	if w.rules.leadsOn(s) {
		return true
	}
	small := spot{dir: s.dir, real: fold(s.real), name: fold(s.name)}
	return small.path() != s.path() && w.rules.leadsOn(&small) && ignoresCase(s.dir, s.real)
}
