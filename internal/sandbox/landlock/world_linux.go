package landlock

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// world is what can be reached here: the mounts of this process.
type world struct {
	places []place
}

// place is a mount.
type place struct {
	id       uint64
	dev      string
	root     string // of what is mounted, in its own file system
	target   string
	fs       string
	options  string // of the file system
	writable bool

	kind kind
}

// kind says what a place holds, as far as that matters.
type kind uint8

const (
	ordinary  kind = iota
	skeleton       // the root directory of a sandbox, with nothing in it but mounts
	scratch        // memory of the sandbox around this one
	layered        // files of the host, changes to which that sandbox keeps in memory
	processes      // /proc
	terminals      // /dev/pts
)

// look reads the mount table and finds out which mounts can be seen.
func look() (*world, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := parseMounts(f)
	if err != nil {
		return nil, err
	}
	w := &world{}
	for i := range all {
		if p := &all[i]; p.isVisible() {
			w.places = append(w.places, *p)
		}
	}
	w.classify()
	return w, nil
}

// parseMounts reads lines such as these, of which the number of fields before
// the hyphen varies:
//
//	67 43 0:40 /root / ro,nosuid,nodev,relatime - tmpfs tmpfs rw,mode=755
//	77 67 254:0 /etc /etc ro,nosuid shared:1 - ext4 /dev/vda rw,discard
func parseMounts(r io.Reader) ([]place, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var out []place
	for line := range strings.Lines(string(data)) {
		front, back, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, b := strings.Fields(front), strings.Fields(back)
		if !ok || len(f) < 6 || len(b) < 3 {
			return nil, errors.New("mountinfo: a line of an unknown form: " + line)
		}
		id, err := strconv.ParseUint(f[0], 10, 64)
		if err != nil {
			return nil, errors.New("mountinfo: a line without a number: " + line)
		}
		out = append(out, place{
			id: id, dev: f[2], root: spec.UnescapeMount(f[3]), target: spec.UnescapeMount(f[4]), fs: b[0], options: b[2],
			writable: hasOption(f[5], "rw") && hasOption(b[2], "rw"),
		})
	}
	return out, nil
}

func hasOption(list, name string) bool {
	for option := range strings.SplitSeq(list, ",") {
		if option == name {
			return true
		}
	}
	return false
}

// isVisible says whether a mount is what its path leads to. Another may cover it,
// or nobody may get that far.
func (p *place) isVisible() bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, p.target, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &st)
	// Before Linux 5.8 the answer has no number; then nothing is left out.
	return err == nil && (st.Mask&unix.STATX_MNT_ID == 0 || st.Mnt_id == p.id)
}

func mayAccess(path string, mode uint32) bool {
	return unix.Faccessat(unix.AT_FDCWD, path, mode, 0) == nil
}

// classify recognises a sandbox of Bailey's by how package native makes it: the
// root directory and everything private are parts of one file system in memory,
// and an overlay's changes go there too.
func (w *world) classify() {
	root := w.at("/")
	if root == nil || root.fs != "tmpfs" || root.root != "/root" || root.writable {
		root = nil
	}
	for i := range w.places {
		p := &w.places[i]
		switch {
		case p.fs == "proc" && p.target == "/proc":
			p.kind = processes
		case p.fs == "devpts" && p.target == "/dev/pts":
			p.kind = terminals
		case root == nil:
		case p.target == "/":
			p.kind = skeleton
		case p.fs == "tmpfs" && p.dev == root.dev && strings.HasPrefix(p.root, "/private/"):
			p.kind = scratch
		case p.fs == "overlay" && p.root == "/" && strings.Contains(","+p.options, ",upperdir=/proc/self/fd/"):
			p.kind = layered
		}
	}
}

// at returns the place a path lies in, or nil.
func (w *world) at(path string) *place {
	var best *place
	for i := range w.places {
		p := &w.places[i]
		if spec.Covers(p.target, path) && (best == nil || len(p.target) >= len(best.target)) {
			best = p
		}
	}
	return best
}

// isMount says whether something is mounted at a path, so that nobody here can
// rename or remove it.
func (w *world) isMount(path string) bool {
	return slices.ContainsFunc(w.places, func(p place) bool { return p.target == path })
}
