package landlock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// haven is a directory with what is the command's own: a home and one for
// temporary files. It is locked for as long as its owner lives, so that one whose
// owner was killed can be told from the others, and removed.
type haven struct {
	dir  string
	lock int
}

const havenName = "bailey-haven-"

// newHaven makes one, and removes those that were left behind.
func newHaven() (*haven, error) {
	parent, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return nil, err
	}
	if parent, err = filepath.Abs(parent); err != nil {
		return nil, err
	}
	sweep(parent)
	dir, err := os.MkdirTemp(parent, havenName)
	if err != nil {
		return nil, err
	}
	h := &haven{dir: dir}
	if h.lock, err = lockDir(dir); err != nil {
		_ = os.Remove(dir)
		return nil, err
	}
	for _, name := range []string{"home", "tmp"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			h.remove()
			return nil, err
		}
	}
	return h, nil
}

// lockDir opens a directory of this user's and locks it.
func lockDir(dir string) (int, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && int(st.Uid) != os.Geteuid() {
		err = unix.EPERM
	}
	if err == nil {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// sweep removes what nobody holds any more. One that was made a moment ago and is
// not locked yet is empty, and an empty one is left alone.
func sweep(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, havenName+"*")) // the pattern is a good one
	for _, dir := range left {
		fd, err := lockDir(dir)
		if err != nil {
			continue
		}
		if names, err := os.ReadDir(dir); err == nil && len(names) > 0 {
			removeTree(dir)
		}
		_ = unix.Close(fd)
	}
}

func (h *haven) remove() {
	removeTree(h.dir)
	_ = unix.Close(h.lock)
}

// removeTree removes a directory of this user's. What the command has left in it
// may have modes that keep its owner out.
func removeTree(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	open, err := os.OpenRoot(dir) // links in it, which others may make, lead nowhere else
	if err != nil {
		return
	}
	defer open.Close()
	_ = fs.WalkDir(open.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil && e != nil && e.IsDir() {
			_ = open.Chmod(path, 0o700) // its content is looked at in the next round
		}
		return nil
	})
	_ = os.RemoveAll(dir) // what is left the next start tries again
}

// furnish fills the home: what is granted in the real one is linked to, and what
// would be private in it starts empty.
func (h *haven) furnish(home string, mounts []spec.Mount, private []string) error {
	if home == "" {
		return nil
	}
	for i := range mounts {
		m := &mounts[i]
		rest, ok := strings.CutPrefix(m.Target, home+"/")
		if !ok || m.Kind != spec.Bind || spec.Covers(m.Target, h.dir) || h.covers(home, mounts[:i], m.Target) {
			continue
		}
		at := filepath.Join(h.dir, "home", rest)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return err
		}
		if err := os.Symlink(m.Target, at); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for _, dir := range private {
		if err := os.MkdirAll(filepath.Join(h.dir, "home", strings.TrimPrefix(dir, home+"/")), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// covers says whether something around a path is linked to already.
func (h *haven) covers(home string, earlier []spec.Mount, path string) bool {
	for i := range earlier {
		m := &earlier[i]
		if m.Kind == spec.Bind && m.Target != home && spec.Covers(home, m.Target) && spec.Covers(m.Target, path) {
			return true
		}
	}
	return false
}

// environ has the environment name the command's own directories.
func (h *haven) environ(env []string, home string) []string {
	out := make([]string, 0, len(env)+1)
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case name == "TMPDIR":
			continue
		case name == "HOME" && home != "" && isSameDir(value, home):
			v = "HOME=" + filepath.Join(h.dir, "home")
		}
		out = append(out, v)
	}
	return append(out, "TMPDIR="+filepath.Join(h.dir, "tmp"))
}

func isSameDir(path, real string) bool {
	resolved, err := filepath.EvalSymlinks(path)
	return err == nil && resolved == real
}
