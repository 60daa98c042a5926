package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// Kind is what has happened to a path.
type Kind int

const (
	// Made is a name that leads to something new: it was made, moved there, or
	// put in the place of something else.
	Made Kind = iota + 1
	// Changed is a file with other content, or something with other attributes.
	Changed
	// Removed is a name that has gone, also to another place.
	Removed
	// Lost means that something may have happened at the path and below of which
	// nothing is known: look again.
	Lost
)

// Change is something that happened.
type Change struct {
	Kind  Kind
	Path  string // relative to the tree; "." is its top
	IsDir bool
}

// ErrTooMany is what a watch ends with that would need more directories than it
// may have, or than the kernel lets this user watch.
var ErrTooMany = errors.New("too many directories to watch")

// Watch says what is watched, and how.
type Watch struct {
	// Open opens the tree for a moment. It is called each time the tree is looked
	// at, by the goroutine that calls release.
	Open func() (top *os.File, release func(), err error)
	// Path is a directory of the tree. Links in it are followed, below it none is.
	Path string
	// Recursive has everything below told, and not only entries of the directory.
	Recursive bool
	// Limit is how many directories may be watched.
	Limit int
	// Ignore says which names are not told of.
	Ignore func(name string) bool
	// Refresh is how often the tree is opened when nothing happens, so that what
	// shows it knows that somebody looks.
	Refresh time.Duration
}

// lull is how long nobody listens after something was told, so that a program that
// writes much is not told of by as many messages.
const lull = 10 * time.Millisecond

// Run tells of changes until the context is done or the directory has gone, which is
// told as well. Ready is called once nothing is missed any more. What is told of waits
// in the kernel while tell does, in a queue that has an end: then it is Lost.
func (w Watch) Run(ctx context.Context, ready func() error, tell func([]Change) error) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if errors.Is(err, unix.EMFILE) {
		return fmt.Errorf("%w: this user has as many watches as the kernel lets one have", ErrTooMany)
	}
	if err != nil {
		return os.NewSyscallError("inotify_init1", err)
	}
	r := &run{Watch: w, fd: fd, file: os.NewFile(uintptr(fd), "inotify"), dirs: map[int32]string{}, watches: map[string]int32{}}
	defer r.file.Close()
	stop := context.AfterFunc(ctx, func() { _ = r.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := r.begin(); err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	for {
		changes, err := r.next(ctx)
		if len(changes) > 0 {
			if err := tell(changes); err != nil {
				return err
			}
		}
		if err != nil || r.over {
			return err
		}
		if err := pause(ctx, lull); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run is a watch that is on.
type run struct {
	Watch
	fd      int // of file, which is not to be asked for it: that would make it block
	file    *os.File
	dirs    map[int32]string // what is watched, by the kernel's number
	watches map[string]int32 // the same, by the path relative to the tree
	over    bool             // the directory has gone

	// Of what was read last.
	changes []Change
	latest  map[string]Kind
	added   []string // directories that have to be watched as well
	stale   bool     // what is watched is not what there is
}

// interest is what the kernel is asked to tell of each directory.
const interest = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MODIFY | unix.IN_ATTRIB |
	unix.IN_MOVE_SELF | unix.IN_DELETE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

// begin watches what there is.
func (r *run) begin() error {
	return r.look(func(top *os.File) error { return r.cover(top, r.Path, false) })
}

// look opens the directory that is watched.
func (r *run) look(use func(dir *os.File) error) error {
	top, release, err := r.Open()
	if err != nil {
		return err
	}
	defer release()
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(int(top.Fd()), r.Path, how)
		if err == unix.EINTR || err == unix.EAGAIN { // a name was renamed on the way
			continue
		}
		if err != nil {
			return &os.PathError{Op: "watch", Path: r.Path, Err: err}
		}
		dir := os.NewFile(uintptr(fd), r.Path)
		defer dir.Close()
		return use(dir)
	}
}

// cover watches a directory and, if that is wanted, what is below. IsNew has what is
// found there told: it may have been made before the directory was watched.
func (r *run) cover(dir *os.File, name string, isNew bool) error {
	if _, ok := r.watches[name]; !ok && len(r.watches) >= r.Limit {
		return fmt.Errorf("%w: there are more than %d", ErrTooMany, r.Limit)
	}
	number, err := unix.InotifyAddWatch(r.fd, "/proc/self/fd/"+strconv.Itoa(int(dir.Fd())), interest)
	if errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%w: this user has as many as the kernel lets one have", ErrTooMany)
	}
	if err != nil {
		return &os.PathError{Op: "watch", Path: name, Err: err}
	}
	if old, ok := r.dirs[int32(number)]; ok { // it was moved
		delete(r.watches, old)
	}
	r.dirs[int32(number)], r.watches[name] = name, int32(number)
	if !r.Recursive && !isNew {
		return nil
	}
	return r.coverBelow(dir, name, isNew)
}

func (r *run) coverBelow(dir *os.File, name string, isNew bool) error {
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil // it has gone meanwhile, which is told
	}
	for _, e := range entries {
		full := path.Join(name, e.Name())
		if isNew {
			r.add(Change{Made, full, e.IsDir()})
		}
		if !e.IsDir() || !r.Recursive {
			continue
		}
		below, err := tree.OpenBelow(dir, e.Name(), unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			continue // it has gone meanwhile, or nobody may look into it
		}
		err = r.cover(below, full, isNew)
		_ = below.Close()
		if errors.Is(err, ErrTooMany) {
			return err
		}
	}
	return nil
}

// next waits for something to happen. It returns nothing if that concerns nobody.
func (r *run) next(ctx context.Context) ([]Change, error) {
	buf := make([]byte, 64<<10)
	_ = r.file.SetReadDeadline(time.Now().Add(r.Refresh))
	if err := ctx.Err(); err != nil { // it may have been done before the deadline was set
		return nil, err
	}
	n, err := r.file.Read(buf)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, r.refresh()
	case err != nil:
		return nil, err
	}
	r.changes, r.latest, r.added, r.stale = nil, map[string]Kind{}, nil, false
	eachEvent(buf[:n], r.heard)
	err = r.follow()
	return r.changes, err
}

// refresh opens the tree, so that what shows it stays.
func (r *run) refresh() error {
	_, release, err := r.Open()
	if err == nil {
		release()
	}
	return err
}

// follow watches what is new, or everything again.
func (r *run) follow() error {
	if r.stale {
		return r.again()
	}
	if len(r.added) == 0 || !r.Recursive {
		return nil
	}
	err := r.look(func(top *os.File) error {
		for _, name := range r.added {
			below, err := tree.OpenBelow(top, relative(r.Path, name), unix.O_RDONLY|unix.O_DIRECTORY)
			if err != nil {
				continue // it has gone again, which is told
			}
			err = r.cover(below, name, true)
			_ = below.Close()
			if errors.Is(err, ErrTooMany) {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil // the directory itself has gone, which will be told
	}
	return err
}

// relative is a path below a directory, from there.
func relative(dir, name string) string {
	if dir == "." {
		return name
	}
	return strings.TrimPrefix(name, dir+"/")
}

// again watches everything anew, since events were lost or the mounts have gone. What
// is watched already stays so: to end a watch is an event too, of which there would
// be too many again.
func (r *run) again() error {
	before := r.dirs
	r.dirs, r.watches = map[int32]string{}, map[string]int32{}
	err := r.begin()
	for number := range before {
		if _, ok := r.dirs[number]; !ok {
			_, _ = unix.InotifyRmWatch(r.fd, uint32(number)) // the kernel may have
		}
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		r.over = true
		r.add(Change{Removed, r.Path, true})
		return nil
	}
	r.add(Change{Lost, r.Path, true})
	return err
}

func (r *run) forget(name string) {
	number := r.watches[name]
	delete(r.watches, name)
	delete(r.dirs, number)
	_, _ = unix.InotifyRmWatch(r.fd, uint32(number)) // the kernel may have
}

// forgetBelow stops watching a directory that has another name now, or none.
func (r *run) forgetBelow(dir string) {
	for name := range r.watches {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			r.forget(name)
		}
	}
}

// heard takes note of an event.
func (r *run) heard(number int32, mask uint32, name string) {
	dir, ok := r.dirs[number]
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0:
		r.stale = true
	case !ok: // it is not watched any more
	case mask&unix.IN_UNMOUNT != 0:
		r.stale = true
	case mask&(unix.IN_MOVE_SELF|unix.IN_DELETE_SELF) != 0:
		r.stale = r.stale || dir == r.Path // of others the directory above tells
	case mask&unix.IN_IGNORED != 0:
		delete(r.dirs, number)
		delete(r.watches, dir)
	case name == "":
		if dir == r.Path {
			r.add(Change{Changed, dir, true})
		}
	case r.Ignore == nil || !r.Ignore(name):
		r.happened(path.Join(dir, name), mask)
	}
}

func (r *run) happened(full string, mask uint32) {
	isDir := mask&unix.IN_ISDIR != 0
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		r.add(Change{Made, full, isDir})
		if isDir {
			r.added = append(r.added, full)
		}
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		r.add(Change{Removed, full, isDir})
		if isDir {
			r.forgetBelow(full)
		}
	default:
		r.add(Change{Changed, full, isDir})
	}
}

// add tells of a change, unless the last that is told of the path says as much.
func (r *run) add(c Change) {
	last := r.latest[c.Path]
	if last == c.Kind || last == Made && c.Kind == Changed {
		return
	}
	r.latest[c.Path] = c.Kind
	r.changes = append(r.changes, c)
}
