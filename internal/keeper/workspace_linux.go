package keeper

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// hold holds what must stay as it is while the sandbox stands: the image that its
// system is, and the workspace.
func (b *box) hold() error {
	if err := b.holdImage(); err != nil {
		return err
	}
	err := b.holdWorkspace()
	if err != nil {
		b.leave()
	}
	return err
}

// holdWorkspace holds the workspace that the sandbox's changes go to, if its owner
// wants that, and makes sure that it still is what the plan was made for.
func (b *box) holdWorkspace() error {
	over := b.spec.Overlay
	if over == nil || !over.Held {
		return nil
	}
	dir := filepath.Dir(over.Upper)
	d, err := delta.At(filepath.Dir(filepath.Dir(dir))).Open(over.Name, delta.Write)
	if errors.Is(err, delta.ErrBusy) {
		return fmt.Errorf("workspace %w: a command runs in it, or an earlier sandbox of this name has still commands; wait for those", err)
	}
	if err != nil {
		return err
	}
	if err = d.CheckApplied(); err == nil && !slices.Equal(d.Lowers(), over.Lowers) {
		err = fmt.Errorf("workspace %s was changed just now; try it again", over.Name)
	}
	if err == nil {
		err = d.Begin()
	}
	if err != nil {
		d.Close()
		return err
	}
	b.workspace = d
	return nil
}

// holdImage keeps the image that the sandbox's system is from being removed.
func (b *box) holdImage() (err error) {
	if i := b.spec.Image; i != nil && i.ID != "" {
		b.image, err = image.Hold(i.Dir)
	}
	if err != nil {
		return fmt.Errorf("image %s: %w", plain.Text(b.spec.Image.Name), err)
	}
	return nil
}

// nameSandbox tells who wants to stop what writes to the workspace for a moment
// which sandbox that is.
func (b *box) nameSandbox() error {
	if b.workspace == nil {
		return nil
	}
	return b.workspace.NameFirst(b.resident.Pid)
}

// leave lets others have the workspace, and remove the image.
func (b *box) leave() {
	if b.image != nil {
		_ = b.image.Close() // it was only locked
	}
	if b.workspace == nil {
		return
	}
	_ = b.workspace.Keep() // otherwise it counts as interrupted, which it is
	b.workspace.Close()
}
