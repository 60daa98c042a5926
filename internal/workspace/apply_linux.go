package workspace

import (
	"errors"
	"slices"

	"github.com/bailey-sandbox/bailey/internal/workspace/change"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// Compare finds what a workspace has changed of its base. Nothing may write to it
// meanwhile.
func (s *Store) Compare(name string) (*change.Comparison, error) {
	d, err := s.Store.Open(name, delta.Read)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return change.Compare(change.StackOf(d))
}

// between is the comparison of layers with others, which they lie on as a rule.
func (s *Store) between(layers, base []string) change.Stack {
	return change.Between(s.trees(layers), s.trees(base))
}

func (s *Store) trees(ids []string) (list []string) {
	for _, id := range ids {
		list = append(list, s.LayerTree(id))
	}
	return list
}

// ApplyOptions say what is applied to a codebase.
type ApplyOptions struct {
	Workspace, Snapshot string
	Paths               []string // empty for everything
	Merge               change.MergeMode
	Codebase            string // which may have changed since the workspace began
	Name                string // of the codebase that is made
}

// ErrNoChange is returned where nothing was changed.
var ErrNoChange = errors.New("nothing was changed")

// Apply makes a codebase of another and of what a workspace had changed of its
// base at a snapshot. Where both have changed the same, it is a *change.Conflict,
// and nothing is made. Once the new codebase is the one that counts, see Rebase.
func (s *Store) Apply(o ApplyOptions) (Codebase, *change.Result, error) {
	if err := s.checkNew(o.Name); err != nil {
		return Codebase{}, nil, err
	}
	onto, err := s.Codebase(o.Codebase)
	if err != nil {
		return Codebase{}, nil, err
	}
	b, result, err := s.layerOf(&o, onto.Layers)
	if err != nil {
		return Codebase{}, nil, err
	}
	defer b.discard()
	release, err := s.LockLayers(false)
	if err != nil {
		return Codebase{}, nil, err
	}
	defer release()
	if err := b.place(); err != nil {
		return Codebase{}, nil, err
	}
	made, err := s.saveCodebase(Codebase{Name: o.Name, Source: "workspace " + o.Workspace, Layers: slices.Insert(onto.Layers, 0, b.layer.ID)})
	return made, result, err
}

// layerOf builds the layer that shows changes of a workspace on top of others. With
// no others it is on top of its base.
func (s *Store) layerOf(o *ApplyOptions, onto []string) (*building, *change.Result, error) {
	n, base, err := s.baseAt(o)
	if err != nil {
		return nil, nil, err
	}
	if onto == nil {
		onto = base
	}
	ours, err := change.Compare(s.between(n.Layers, base))
	if err != nil {
		return nil, nil, err
	}
	defer ours.Close()
	theirs, err := change.Compare(s.between(onto, base))
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	list := change.Select(ours.Changes, o.Paths)
	if len(list) == 0 {
		return nil, nil, ErrNoChange
	}
	b, err := s.build()
	if err != nil {
		return nil, nil, err
	}
	result, err := ours.WriteLayer(b.root, list, theirs, o.Merge)
	if err == nil {
		err = b.byContent()
	}
	if err != nil {
		b.discard()
		return nil, nil, err
	}
	sum := change.Summarize(list)
	b.layer.Files, b.layer.Bytes = int64(sum.Added+sum.Changed), sum.Bytes
	return b, result, nil
}

func (s *Store) baseAt(o *ApplyOptions) (n Snapshot, base []string, err error) {
	if n, err = s.snapshotOf(o.Workspace, o.Snapshot); err != nil {
		return n, nil, err
	}
	record, upper, err := s.look(o.Workspace)
	if err != nil {
		return n, nil, err
	}
	if len(record.Base) == 0 || len(n.Live) > 0 {
		err = errors.New("workspace " + o.Workspace + " was not made from a codebase")
	}
	return n, record.Base, errors.Join(err, upper.Close())
}

// Rebase lets what was applied be part of the base of its workspace, and so no
// change any more.
func (s *Store) Rebase(o ApplyOptions) error {
	b, _, err := s.layerOf(&o, nil)
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
	d, err := s.Store.Open(o.Workspace, delta.Write)
	if err != nil {
		return err
	}
	defer d.Close()
	if d.Record.Base, err = s.shallow(slices.Insert(d.Record.Base, 0, b.layer.ID)); err != nil {
		return err
	}
	if err := d.Save(); err != nil {
		return err
	}
	return d.Sync()
}
