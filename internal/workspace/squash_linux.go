package workspace

import (
	"errors"
	"io"

	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
	"github.com/bailey-sandbox/bailey/internal/workspace/fault"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// Squash puts the layers of a workspace together, but for the lowest, which is the
// large one as a rule, or a directory of the host. What the workspace shows stays
// the same. The old layers stay as long as snapshots, or a base, need them.
func (s *Store) Squash(name string) error {
	d, err := s.Store.Open(name, delta.Write)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := s.squash(d); err != nil {
		return err
	}
	_, err = s.Collect()
	return err
}

func (s *Store) squash(d *delta.Delta) error {
	stack := d.Record.Stack
	upper, lowest := stack[:len(stack)-1], stack[len(stack)-1]
	if len(upper) < 2 {
		return nil
	}
	b, err := s.merge(upper)
	if err != nil {
		return err
	}
	defer b.discard()
	release, err := s.LockLayers(false)
	if err != nil {
		return err
	}
	defer release()
	if err := b.place(); err != nil {
		return err
	}
	fault.Step("squash: merged")
	old := d.Record.Stack
	d.Record.Stack = []delta.Lower{{Layer: b.layer.ID}, lowest}
	if err := d.Save(); err != nil {
		d.Record.Stack = old
		return err
	}
	fault.Step("squash: taken")
	return d.Sync()
}

// merge builds the layer that several layers are together. What is removed in them
// stays so: something may lie below.
func (s *Store) merge(layers []delta.Lower) (*building, error) {
	roots, closeAll, err := s.open(layers)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	b, err := s.build()
	if err != nil {
		return nil, err
	}
	b.layer.ID = uniqueID()
	fault.Step("squash: begun")
	options := tree.CopyOptions{Marks: tree.Preserve, Progress: b.count(nil)}
	if err := tree.CopyStack(b.root, roots, options); err != nil {
		b.discard()
		return nil, err
	}
	return b, nil
}

// shallow puts layers together, but for the lowest, where they are more than
// MaxStack. The caller holds the layers.
func (s *Store) shallow(ids []string) ([]string, error) {
	if len(ids) <= MaxStack {
		return ids, nil
	}
	var upper []delta.Lower
	for _, id := range ids[:len(ids)-1] {
		upper = append(upper, delta.Lower{Layer: id})
	}
	b, err := s.merge(upper)
	if err != nil {
		return nil, err
	}
	defer b.discard()
	return []string{b.layer.ID, ids[len(ids)-1]}, b.place()
}

// MakeCodebase makes a codebase of a workspace, as it was at a snapshot. The
// workspace must lie on layers alone: a directory of the host is part of no
// codebase until it is imported.
func (s *Store) MakeCodebase(name, snapshot, codebase string) (Codebase, error) {
	if err := s.checkNew(codebase); err != nil {
		return Codebase{}, err
	}
	release, err := s.LockLayers(false)
	if err != nil {
		return Codebase{}, err
	}
	defer release()
	n, err := s.snapshotOf(name, snapshot)
	if err != nil {
		return Codebase{}, err
	}
	if len(n.Live) > 0 {
		return Codebase{}, errors.New("the workspace lies on a directory of the host; import that first, and start from the codebase")
	}
	return s.saveCodebase(Codebase{Name: codebase, Source: "workspace " + name, Layers: n.Layers})
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
