package keeper

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/rulefs/views"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Show asks for a view of a workspace, for as long as the connection stands.
type Show struct {
	Rules spec.Rules
	GID   int // of the sandbox, which must be the keeper's
}

// Shown is a view that the keeper holds for this process.
type Shown struct {
	// Mount is attached by who starts the sandbox.
	Mount *os.File

	conn *conn
}

// Close ends the view. So does the end of this process, in whatever way.
func (s *Shown) Close() { s.conn.close() }

// OpenView asks the keeper for a view: of a directory, or if that is nil, of what
// the rules are about.
func OpenView(r *spec.Rules, dir *os.File) (*Shown, error) {
	var files []*os.File
	if dir != nil {
		files = append(files, dir)
	}
	c, answer, err := ask(askShow, Show{*r, os.Getegid()}, true, files...)
	if err != nil {
		return nil, err
	}
	if answer.kind != tellShown || len(answer.files) != 1 {
		answer.close()
		c.close()
		return nil, errors.New("the keeper sent no view")
	}
	return &Shown{answer.files[0], c}, nil
}

// gallery is the keeper's one server of views, started when the first is wanted.
// A keeper that ends takes it along, and then whoever still has a view gets
// errors.
type gallery struct {
	mu     sync.Mutex
	server *views.Server
}

// open makes a view of a directory, or if that is nil, of what the rules are about.
func (g *gallery) open(r *spec.Rules, dir *os.File) (_ *views.View, err error) {
	if dir == nil {
		// The name is taken once, and nobody can put a link in its place.
		how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
		fd, err := unix.Openat2(unix.AT_FDCWD, r.Root, how)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: r.Root, Err: err}
		}
		dir = os.NewFile(uintptr(fd), r.Root)
		defer dir.Close()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.server != nil {
		select {
		case <-g.server.Done():
			g.server.Close()
			g.server = nil
		default:
		}
	}
	if g.server == nil {
		if g.server, err = views.Start("/proc/self/exe"); err != nil {
			return nil, fmt.Errorf("workspace.rules: %w", err)
		}
	}
	return g.server.Open(dir, r.Lists)
}

// show holds a view until the client goes.
func (k *Keeper) show(c *conn, r *received) error {
	var s Show
	if err := r.decode(&s); err != nil {
		return err
	}
	if s.GID != os.Getegid() {
		return fmt.Errorf("workspace.rules: the keeper of views runs as group %d and this command as group %d; run it as the same group, or end the sandboxes that run: bailey box stop --all", os.Getegid(), s.GID)
	}
	var dir *os.File
	if len(r.files) > 0 {
		dir = r.files[0]
	}
	v, err := k.gallery.open(&s.Rules, dir)
	r.close() // the view has its own
	if err != nil {
		return err
	}
	defer v.Close()
	if err := c.send(tellShown, nil, v.Mount); err != nil {
		return nil // it is gone
	}
	// The mount is the client's: while this process has it, it is not gone with
	// the sandbox.
	_ = v.Mount.Close()
	<-c.watch()
	return nil
}

// openView makes the view of a sandbox that stays.
func (b *box) openView(r *spec.Rules, dir *os.File) (*os.File, error) {
	if b.view != nil {
		b.view.Close() // of an attempt that failed
	}
	v, err := b.keeper.gallery.open(r, dir)
	if err != nil {
		return nil, err
	}
	b.view = v
	return v.Mount, nil
}

// closeView ends the view with the sandbox.
func (b *box) closeView() {
	if b.view != nil {
		b.view.Close()
	}
}
