package sandbox

import (
	"errors"
	"path/filepath"

	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// Workspace is where a command's changes to the project go. Its owner holds the
// delta alone.
type Workspace struct {
	Delta *delta.Delta
	Over  spec.Overlay
	Fresh bool // it was made just now
}

// OpenWorkspace makes a workspace over the project, or opens the one that is named
// if there is such. A dry one has no name and goes with its owner.
func (m *Manager) OpenWorkspace(name string, dry bool) (*Workspace, error) {
	project, err := m.OverlaidProject()
	if err != nil {
		return nil, err
	}
	store, err := delta.Place(m.Home())
	if err != nil {
		return nil, err
	}
	w := &Workspace{}
	if err := w.open(store, name, project, dry); err != nil {
		return nil, err
	}
	if err := w.place(m); err != nil {
		return nil, errors.Join(err, w.Abandon())
	}
	return w, nil
}

func (w *Workspace) open(store delta.Store, name, project string, dry bool) (err error) {
	if name != "" {
		w.Delta, err = store.Open(name, delta.Write)
		if err == nil {
			return w.reopen()
		}
		if !errors.Is(err, delta.ErrNotFound) {
			return err
		}
	}
	if err := store.Sweep(); err != nil {
		return err
	}
	o := delta.Options{Name: name, Stack: []delta.Lower{{Dir: project}}, Target: project}
	if dry {
		o.State = delta.DryRun
	}
	w.Fresh = true
	w.Delta, err = store.Create(o)
	return err
}

// reopen goes on in a workspace.
func (w *Workspace) reopen() error {
	if err := w.Delta.CheckApplied(); err != nil {
		w.Delta.Close()
		return err
	}
	return w.Delta.Begin()
}

// KeptOverlay is the overlay of a sandbox that stays, in the workspace of a name,
// which is made if there is none. It may be in use already: by that sandbox.
func (m *Manager) KeptOverlay(name string) (over *spec.Overlay, fresh bool, err error) {
	project, err := m.OverlaidProject()
	if err != nil {
		return nil, false, err
	}
	store, err := delta.Place(m.Home())
	if err != nil {
		return nil, false, err
	}
	d, err := store.Peek(name)
	if errors.Is(err, delta.ErrNotFound) {
		fresh = true
		d, err = store.Create(delta.Options{Name: name, Stack: []delta.Lower{{Dir: project}}, Target: project, State: delta.Kept})
	}
	if err != nil {
		return nil, false, err
	}
	d.Close()
	w := Workspace{Delta: d}
	if err := w.place(m); err != nil {
		return nil, false, err
	}
	w.Over.Held = true
	return &w.Over, fresh, nil
}

// place says where the workspace is, as the compiler wants to know it.
func (w *Workspace) place(m *Manager) error {
	dir, err := filepath.EvalSymlinks(w.Delta.Dir())
	if err != nil {
		return err
	}
	w.Over = spec.Overlay{
		Name: w.Delta.Record.Name, Source: w.Delta.Record.Target, Lowers: w.Delta.Lowers(), Upper: dir + "/upper", Work: dir + "/work",
	}
	if m.loaded.Policy.Resources.Disk == nil || w.Fresh {
		return nil
	}
	return w.Measure()
}

// Measure counts what a limit on files counts of what was written before.
func (w *Workspace) Measure() (err error) {
	w.Over.Used, err = w.Delta.Used()
	return err
}

// Abandon removes a workspace in which nothing has run, unless it was there
// before.
func (w *Workspace) Abandon() error {
	if w.Fresh {
		return w.Remove()
	}
	return w.Keep()
}

// Remove removes it with all that is in it.
func (w *Workspace) Remove() error {
	err := w.Delta.Remove()
	w.Delta.Close()
	return err
}

// Keep lets it wait for its owner.
func (w *Workspace) Keep() error {
	w.Delta.Record.State, w.Delta.Record.InMemory = delta.Kept, false
	err := w.Delta.Save()
	w.Delta.Close()
	return err
}

// Announce tells others what a Spec means for the workspace while it runs.
func (w *Workspace) Announce(s *spec.Spec) error {
	if !s.Overlay.HeldInMemory() {
		return nil
	}
	return w.Delta.HoldInMemory()
}
