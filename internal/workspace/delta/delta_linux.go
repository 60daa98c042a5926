package delta

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/fault"
)

// Delta is a workspace that somebody holds.
type Delta struct {
	Record Record

	store     Store
	dir       string
	held      *os.File // the lock
	scratch   *Scratch // of a dry run, and while it is made
	exclusive bool
}

// Dir is the directory of the workspace.
func (d *Delta) Dir() string { return d.dir }

// Upper is where overlayfs puts what is written.
func (d *Delta) Upper() string { return d.dir + "/upper" }

// Work is a directory that overlayfs needs for itself.
func (d *Delta) Work() string { return d.dir + "/work" }

// Lowers are the directories below, top first.
func (d *Delta) Lowers() []string {
	var list []string
	for _, l := range d.Record.Stack {
		if l.Layer != "" {
			list = append(list, d.store.LayerTree(l.Layer))
		} else {
			list = append(list, l.Dir)
		}
	}
	return list
}

// Live is the directory of the host that the workspace lies on, or empty if it
// lies on layers alone.
func (d *Delta) Live() string { return d.Record.Stack[len(d.Record.Stack)-1].Dir }

// Source is the directory of the host that the workspace is applied to: the one
// that it lies on, or that its codebase was imported from. It is empty if there is
// none.
func (d *Delta) Source() string {
	if live := d.Live(); live != "" {
		return live
	}
	return d.Record.Source
}

// Bases are the directories of the layers that its changes are changes of, top
// first.
func (d *Delta) Bases() []string {
	var list []string
	for _, id := range d.Record.Base {
		list = append(list, d.store.LayerTree(id))
	}
	return list
}

// Begin writes down that a run begins, in a workspace that was opened for
// writing.
func (d *Delta) Begin() error {
	d.Record.State, d.Record.Started, d.Record.InMemory = Running, time.Now(), false
	return d.Save()
}

// CheckApplied refuses a workspace that is just being applied: it is not what it
// will be.
func (d *Delta) CheckApplied() error {
	if _, err := os.Lstat(d.dir + "/journal/plan"); err != nil {
		return nil
	}
	name := d.Record.Name
	return errors.New("workspace " + name + ": applying it was cut short; finish that first: bailey ws apply " + name)
}

// NameFirst writes down which process is the first of the sandbox that runs in the
// workspace, for a holder that has several. It counts for as long as the holder has
// the workspace.
func (d *Delta) NameFirst(pid int) error {
	_, err := d.held.WriteAt([]byte(strconv.Itoa(pid)+"\n"), 0)
	return err
}

// First is the process that the holder of a workspace has named by NameFirst, or 0.
func (d *Delta) First() int {
	data, err := os.ReadFile(d.dir + "/lock")
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data))) // nothing is 0
	return pid
}

// HoldInMemory writes down that what the run writes is to be had only from Absorb.
func (d *Delta) HoldInMemory() error {
	d.Record.InMemory = true
	return d.Save()
}

// Keep writes down that the workspace waits for its owner, and waits until that
// is on the disk.
func (d *Delta) Keep() error {
	d.Record.State, d.Record.InMemory = Kept, false
	if err := d.Save(); err != nil {
		return err
	}
	return syncPath(filepath.Dir(d.dir))
}

// Sync waits until the workspace's record is on the disk, which may take as long
// as a command. Until then a crash of the machine can lose a workspace that was
// just made, with what was written; a crash of Bailey cannot.
func (d *Delta) Sync() error {
	if err := syncPath(d.dir + "/record"); err != nil {
		return err
	}
	if err := syncPath(d.dir); err != nil {
		return err
	}
	return syncPath(filepath.Dir(d.dir))
}

// Save replaces the record: what it says is on the disk before its name is, and
// both when Save returns. So a crash of the machine leaves the old one or the new
// one, and nothing that is done afterwards is there without it.
func (d *Delta) Save() error {
	if !d.exclusive {
		return fmt.Errorf("workspace %s is open for reading", d.Record.Name)
	}
	if err := os.WriteFile(d.dir+"/record.new", d.Record.append(nil), 0o600); err != nil {
		return err
	}
	if err := syncPath(d.dir + "/record.new"); err != nil {
		return err
	}
	fault.Step("record: written")
	if err := os.Rename(d.dir+"/record.new", d.dir+"/record"); err != nil {
		return err
	}
	return syncPath(d.dir)
}

// Remove removes the workspace. It is gone at once; what takes time is done
// where Sweep finds it if it is cut short.
func (d *Delta) Remove() error {
	if !d.exclusive {
		return fmt.Errorf("workspace %s is open for reading", d.Record.Name)
	}
	if d.scratch != nil {
		d.unlock()
		return d.scratch.Discard()
	}
	scratch, err := d.store.Scratch(d.Record.Name)
	if err != nil {
		return err
	}
	if err := os.Rename(d.dir, scratch.Path()+"/removed"); err != nil {
		_ = scratch.Discard()
		return err
	}
	fault.Step("remove: moved away")
	d.unlock()
	return scratch.Discard()
}

// Close lets others use the workspace. A dry run is removed.
func (d *Delta) Close() {
	if d.scratch != nil {
		_ = d.scratch.Discard() // or by the next Sweep
	}
	d.unlock()
}

// furnish makes what is in a workspace.
func (d *Delta) furnish() error {
	for _, dir := range []string{d.Upper(), d.Work()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	if err := d.likeLowest(); err != nil {
		return err
	}
	if err := os.WriteFile(d.dir+"/record", d.Record.append(nil), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(d.dir+"/lock", nil, 0o600); err != nil {
		return err
	}
	return d.lock()
}

// likeLowest gives the upper directory the mode of the one below: in an overlay
// it is the upper one's that counts.
func (d *Delta) likeLowest() error {
	var st unix.Stat_t
	if err := unix.Stat(d.Lowers()[0], &st); err != nil {
		return &os.PathError{Op: "stat", Path: d.Lowers()[0], Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return &os.PathError{Op: "overlay", Path: d.Lowers()[0], Err: syscall.ENOTDIR}
	}
	return chmod(d.Upper(), st.Mode)
}

// chmod also sets the bits for which os.FileMode has names of its own.
func chmod(path string, mode uint32) error {
	if err := unix.Chmod(path, mode&0o7777); err != nil {
		return &os.PathError{Op: "chmod", Path: path, Err: err}
	}
	return nil
}

// settle moves the workspace from where it was made to its place.
func (d *Delta) settle() error {
	err := d.scratch.Place(d.store.workspace(d.Record.Name))
	if errors.Is(err, ErrExists) {
		return fmt.Errorf("workspace %s %w", d.Record.Name, err)
	}
	if err != nil {
		return err
	}
	d.dir = d.scratch.Path()
	d.scratch.Close()
	d.scratch = nil
	return nil
}

// lock takes the lock, and makes sure that it is still that of the workspace of
// this name: another may have been made since.
func (d *Delta) lock() error {
	f, err := os.OpenFile(d.dir+"/lock", os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return ErrNotFound
	}
	if err != nil {
		return err
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, d.wants()); err != nil {
		_ = f.Close()
		if err == unix.EAGAIN || err == unix.EACCES {
			return ErrBusy
		}
		return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	held, err := f.Stat()
	if err == nil {
		var now os.FileInfo
		if now, err = os.Stat(f.Name()); err == nil && !os.SameFile(held, now) {
			err = ErrBusy
		}
	}
	if err != nil {
		_ = f.Close()
		if errors.Is(err, os.ErrNotExist) {
			return ErrNotFound
		}
		return err
	}
	d.held = f
	if d.exclusive {
		return f.Truncate(0) // what the holder before has named
	}
	return nil
}

// wants is the lock on the whole file. It belongs to the open file, as that of
// flock(2) does; but somebody can look whether there is one without taking it.
func (d *Delta) wants() *unix.Flock_t {
	if d.exclusive {
		return &unix.Flock_t{Type: unix.F_WRLCK}
	}
	return &unix.Flock_t{Type: unix.F_RDLCK}
}

// inUse says whether somebody holds the workspace, without getting in the way of
// who wants to.
func (d *Delta) inUse() bool {
	f, err := os.OpenFile(d.dir+"/lock", os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock) == nil && lock.Type != unix.F_UNLCK
}

func (d *Delta) unlock() {
	if d.held != nil {
		_ = d.held.Close()
	}
}

func (d *Delta) load() error {
	data, err := os.ReadFile(d.dir + "/record")
	if errors.Is(err, os.ErrNotExist) {
		return ErrNotFound
	}
	if err != nil {
		return err
	}
	d.Record, err = parseRecord(data)
	if err != nil {
		return fmt.Errorf("%s/record: %w", d.dir, err)
	}
	if d.Record.Name != filepath.Base(d.dir) && !strings.HasPrefix(filepath.Base(d.dir), d.Record.Name+".") {
		return fmt.Errorf("%s/record is that of %s", d.dir, d.Record.Name)
	}
	return nil
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
