package sandbox

import (
	"errors"
	"os"
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

// reopen goes on in a workspace. One that is just being applied is not what it
// will be.
func (w *Workspace) reopen() error {
	name := w.Delta.Record.Name
	if _, err := os.Lstat(w.Delta.Dir() + "/journal/plan"); err == nil {
		w.Delta.Close()
		return errors.New("workspace " + name + ": applying it was cut short; finish that first: bailey ws apply " + name)
	}
	return w.Delta.Begin()
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
	if m.loaded.Policy.Resources.Disk == nil {
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
