package delta

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/fault"
)

// Seal turns what was written so far into a layer, on top of which the workspace
// goes on. Nothing is copied: it takes as long for a million files as for one.
// The directory of the layer, with its manifest and without a tree, must be
// there.
//
// The record says first what is about to happen. The rename is the moment in
// which it has happened; what remains to be done then, recover does as well.
func (d *Delta) Seal(layer string) error {
	d.Record.Sealing = layer
	if err := d.Save(); err != nil {
		return err
	}
	fault.Step("seal: announced")
	if err := moveDir(d.Upper(), d.store.LayerTree(layer)); err != nil {
		d.Record.Sealing = ""
		return errors.Join(err, d.Save())
	}
	fault.Step("seal: renamed")
	return d.sealed()
}

// sealed finishes after the rename. The new upper directory is there before the
// record says that the delta is a layer: a workspace has always one.
func (d *Delta) sealed() error {
	layer := d.Record.Sealing
	if err := os.Mkdir(d.Upper(), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := d.likeSealed(layer); err != nil {
		return err
	}
	fault.Step("seal: new upper")
	d.Record.Stack = append([]Lower{{Layer: layer}}, d.Record.Stack...)
	d.Record.Sealing = ""
	return d.Save()
}

// likeSealed gives the new upper directory the mode of the old one.
func (d *Delta) likeSealed(layer string) error {
	var st unix.Stat_t
	if err := unix.Lstat(d.store.LayerTree(layer), &st); err != nil {
		return &os.PathError{Op: "stat", Path: d.store.LayerTree(layer), Err: err}
	}
	return chmod(d.Upper(), st.Mode)
}

// recover finishes what was cut short: a Reset, or a Seal after its rename. A Seal
// that had not come so far is forgotten.
func (d *Delta) recover() error {
	if d.Record.Resetting {
		return d.reset()
	}
	_, err := os.Lstat(d.store.LayerTree(d.Record.Sealing))
	if err == nil {
		return d.sealed()
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	layer := d.Record.Sealing
	d.Record.Sealing = ""
	if err := d.Save(); err != nil {
		return err
	}
	return removeAt(d.store.dir+"/layers", layer)
}

// moveDir renames a directory. The kernel demands that it can be written to, since
// it knows its parent; a project may be one that cannot.
func moveDir(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return &os.PathError{Op: "stat", Path: from, Err: err}
	}
	if st.Mode&0o200 != 0 {
		return os.Rename(from, to)
	}
	if err := chmod(from, st.Mode|0o200); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return chmod(to, st.Mode)
}

// Reset throws the delta away and puts the workspace on another stack. The record
// says first that this happens; from then on the old delta counts for nothing.
func (d *Delta) Reset(stack []Lower) error {
	if err := checkStack(stack); err != nil {
		return err
	}
	old := d.Record
	d.Record.Stack, d.Record.Resetting = stack, true
	if err := d.Save(); err != nil {
		d.Record = old
		return err
	}
	fault.Step("reset: announced")
	return d.reset()
}

// reset removes the old delta and makes a new one. What was kept about the source,
// and about an apply, is about the host and stays.
func (d *Delta) reset() error {
	scratch, err := d.store.Scratch(d.Record.Name)
	if err != nil {
		return err
	}
	for _, name := range []string{"upper", "work"} {
		err := moveDir(d.dir+"/"+name, scratch.Path()+"/"+name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return errors.Join(err, scratch.Discard())
		}
		fault.Step("reset: moved " + name)
	}
	for _, dir := range []string{d.Upper(), d.Work()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return errors.Join(err, scratch.Discard())
		}
	}
	err = d.likeLowest()
	if err == nil {
		d.Record.Resetting = false
		err = d.Save()
	}
	return errors.Join(err, scratch.Discard())
}
