package bailey

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/workspace/change"
)

// Overlay is a private layer over the project: commands see the project as it is,
// and what they write goes to the layer, until Apply carries it over. It is a
// workspace, as "bailey --overlay" makes them: one that is closed and not discarded
// is listed by "bailey ws list".
type Overlay struct {
	manager *Manager

	mu     sync.Mutex
	w      *sandbox.Workspace
	busy   bool // a command runs in it, or a Box stands on it
	box    *Box
	closed bool
}

// Overlay makes a layer over the project that the Manager's commands run in, or
// goes on with the workspace of a name, if there is one. Without a name one is
// found. It belongs to the caller alone until Close or Discard.
func (m *Manager) Overlay(name string) (*Overlay, error) {
	if m.m == nil {
		return nil, fmt.Errorf("bailey: %w", errNotInitialized)
	}
	w, err := m.m.OpenWorkspace(name, false)
	if err != nil {
		return nil, fmt.Errorf("bailey: %w", err)
	}
	return &Overlay{manager: m, w: w}, nil
}

// Name is that of the workspace.
func (o *Overlay) Name() string { return o.w.Delta.Record.Name }

// Command returns a Cmd that runs a program on the Overlay, in a sandbox of its own.
// Only one can run at a time; for several, see Open.
func (o *Overlay) Command(name string, args ...string) *Cmd {
	return o.CommandContext(context.Background(), name, args...)
}

// CommandContext is like Command; the sandbox is ended when ctx is done. What the
// command has written counts when Wait has returned.
func (o *Overlay) CommandContext(ctx context.Context, name string, args ...string) *Cmd {
	if ctx == nil {
		panic("bailey: nil context")
	}
	return &Cmd{Args: append([]string{name}, args...), ctx: ctx, launch: o.launch, forget: o.ended}
}

// Open makes a Box on the Overlay. Until it is closed, the Overlay cannot be used
// otherwise.
func (o *Overlay) Open() (*Box, error) {
	if err := o.take(); err != nil {
		return nil, fmt.Errorf("bailey: %w", err)
	}
	b, err := o.manager.openBox(o, func() (*sandbox.Box, error) { return o.manager.m.OpenOver(&o.w.Over) })
	if err != nil {
		o.release()
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.box = b
	return b, nil
}

// Diff lists what is different from the project, at and below some paths, or
// without any, everywhere. What was applied is no difference.
func (o *Overlay) Diff(paths ...string) (list []Change, err error) {
	err = o.look(paths, func(_ *change.Comparison, found []change.Change) error {
		list = changesOf(found)
		return nil
	})
	return list, err
}

// WritePatch writes what Diff lists as a patch that "git apply" takes.
func (o *Overlay) WritePatch(w io.Writer, paths ...string) error {
	return o.look(paths, func(c *change.Comparison, found []change.Change) error { return c.WritePatch(w, found) })
}

// Apply carries what Diff lists over to the project: all of it, or where somebody
// else changed one of the files, nothing, and the error is a *ConflictError.
func (o *Overlay) Apply(paths ...string) ([]Change, error) {
	if err := o.take(); err != nil {
		return nil, fmt.Errorf("bailey: %w", err)
	}
	defer o.release()
	guard, err := sandbox.Guard(o.w.Delta)
	if err != nil {
		return nil, fmt.Errorf("bailey: %w", err)
	}
	r, err := change.Apply(o.w.Delta, change.Options{Paths: cleaned(paths), Guard: guard})
	var conflict *change.Conflict
	if errors.As(err, &conflict) {
		e := &ConflictError{Dir: conflict.Dir}
		for _, clash := range conflict.Clashes {
			e.Paths = append(e.Paths, clash.Path)
		}
		return nil, e
	}
	if err != nil {
		return nil, fmt.Errorf("bailey: %w", err)
	}
	return changesOf(r.Applied), nil
}

// Undo puts back what the last Apply replaced.
func (o *Overlay) Undo() error {
	if err := o.take(); err != nil {
		return fmt.Errorf("bailey: %w", err)
	}
	defer o.release()
	if _, err := change.Undo(o.w.Delta); err != nil {
		return fmt.Errorf("bailey: %w", err)
	}
	return nil
}

// Discard removes the Overlay with all that was written to it.
func (o *Overlay) Discard() error { return o.end((*sandbox.Workspace).Remove) }

// Close leaves the Overlay as a workspace, under its name.
func (o *Overlay) Close() error { return o.end((*sandbox.Workspace).Keep) }

func (o *Overlay) end(how func(*sandbox.Workspace) error) error {
	if err := o.take(); err != nil {
		return fmt.Errorf("bailey: %w", err)
	}
	defer o.release()
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	if err := how(o.w); err != nil {
		return fmt.Errorf("bailey: %w", err)
	}
	return nil
}

var (
	errOverlayBusy   = errors.New("a command runs in the overlay, or a Box stands on it; wait for its end, or close it")
	errOverlayClosed = errors.New("the overlay is closed")
)

// take holds the Overlay for one use.
func (o *Overlay) take() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return errOverlayClosed
	case o.busy:
		return errOverlayBusy
	}
	o.busy = true
	return nil
}

func (o *Overlay) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy, o.box = false, nil
}

// look compares with the project.
func (o *Overlay) look(paths []string, f func(*change.Comparison, []change.Change) error) error {
	if err := o.take(); err != nil {
		return fmt.Errorf("bailey: %w", err)
	}
	defer o.release()
	c, err := change.Of(o.w.Delta)
	if err == nil {
		err = f(c, change.Select(c.Changes, cleaned(paths)))
		c.Close()
	}
	if err != nil {
		return fmt.Errorf("bailey: %w", err)
	}
	return nil
}

// launch starts a command on the Overlay.
func (o *Overlay) launch(argv []string, streams [3]*os.File) (sandbox.Running, error) {
	if err := o.take(); err != nil {
		return nil, err
	}
	r, err := o.start(argv, streams)
	if err != nil {
		o.release()
	}
	return r, err
}

func (o *Overlay) start(argv []string, streams [3]*os.File) (sandbox.Running, error) {
	if err := o.w.Delta.Begin(); err != nil {
		return nil, err
	}
	if err := o.w.Measure(); err != nil {
		return nil, err
	}
	s, err := o.manager.m.CompileOver(argv, &o.w.Over)
	if err != nil {
		return nil, err
	}
	if err := o.w.Announce(s); err != nil {
		return nil, err
	}
	return o.manager.launch(s, streams)
}

// ended takes over what a command has written, and takes down the state of what
// that is about.
func (o *Overlay) ended(r sandbox.Running) error {
	defer o.release()
	err := o.manager.forget(r)
	if changes := r.State().Changes; changes != nil {
		err = errors.Join(err, o.w.Delta.Absorb(changes, nil), changes.Close())
	}
	return errors.Join(err, o.remember())
}

// boxClosed is ended for a Box. It may be called on nil, and more than once.
func (o *Overlay) boxClosed(b *Box) error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	mine := o.box == b
	o.box = nil
	o.mu.Unlock()
	if !mine {
		return nil
	}
	defer o.release()
	return o.remember()
}

func (o *Overlay) remember() error {
	c, err := change.Remember(o.w.Delta)
	if err != nil {
		return fmt.Errorf("bailey: %w", err)
	}
	c.Close()
	return nil
}

func changesOf(found []change.Change) []Change {
	list := make([]Change, len(found))
	for i := range found {
		list[i] = Change{found[i].Path, string(found[i].Kind)}
	}
	return list
}

func cleaned(paths []string) []string {
	list := make([]string, len(paths))
	for i, p := range paths {
		list[i] = filepath.Clean(p)
	}
	return list
}
