package delta

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/fault"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// Absorb puts changes that lie on the delta, in a directory that is not the
// workspace's own, into it: all of them, or if it is cut short, none. Nothing may
// use either any more. Left is told of sockets, which are not kept.
func (d *Delta) Absorb(changes *os.File, left func(path, why string)) error {
	if !d.exclusive {
		return fmt.Errorf("workspace %s is open for reading", d.Record.Name)
	}
	scratch, err := d.store.Scratch(d.Record.Name)
	if err != nil {
		return err
	}
	merged := scratch.Path() + "/upper"
	err = d.merge(merged, changes, left)
	if err == nil {
		err = syncAll(merged)
	}
	if err == nil {
		fault.Step("absorb: merged")
		err = exchange(merged, d.Upper())
		fault.Step("absorb: exchanged")
	}
	return errors.Join(err, scratch.Discard())
}

// merge makes a directory of what changes and the delta are together. What is
// removed in them stays so: something may lie below.
func (d *Delta) merge(dir string, changes *os.File, left func(path, why string)) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	to, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer to.Close()
	old, err := os.Open(d.Upper())
	if err != nil {
		return err
	}
	defer old.Close()
	return tree.CopyStack(to, []*os.File{changes, old}, tree.CopyOptions{Marks: tree.Preserve, Own: true, Left: left})
}

// syncAll waits until everything of a file system is on the disk. What is merged are
// copies, also of what was there to stay.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd())))
}

// exchange lets two directories change places at once.
func exchange(a, b string) error {
	modes := [2]uint32{}
	for i, dir := range []string{a, b} { // see moveDir
		var st unix.Stat_t
		if err := unix.Lstat(dir, &st); err != nil {
			return &os.PathError{Op: "stat", Path: dir, Err: err}
		}
		modes[i] = st.Mode
		if err := chmod(dir, st.Mode|0o200); err != nil {
			return err
		}
	}
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
	return chmod(b, modes[0])
}

// Used is how many bytes what is in the delta takes.
func (d *Delta) Used() (int64, error) {
	upper, err := os.Open(d.Upper())
	if err != nil {
		return 0, err
	}
	defer upper.Close()
	u, err := tree.Measure(upper)
	if err != nil {
		return 0, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(upper.Fd()), &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: upper.Name(), Err: err}
	}
	return u.Bytes - st.Blocks*512, nil // the directory itself was not written by anybody
}
