package workspace

import (
	"errors"
	"io"
	"slices"

	"github.com/bailey-sandbox/bailey/internal/workspace/archive"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// ExportCodebase writes a codebase as an archive: plain with everything in it; as a
// layer of a container image all its layers put together.
func (s *Store) ExportCodebase(w io.Writer, name string, form archive.Form) error {
	release, err := s.LockLayers(false)
	if err != nil {
		return err
	}
	defer release()
	c, err := s.Codebase(name)
	if err != nil {
		return err
	}
	return s.export(w, c.stack(), form)
}

// Export writes a workspace as an archive, as it is or as it was at a snapshot if
// one is named. A plain archive has everything that is to be seen. A layer has what
// differs from the lowest layer, or from the directory, that the workspace lies
// on.
func (s *Store) Export(w io.Writer, name, snapshot string, form archive.Form) error {
	release, err := s.LockLayers(false)
	if err != nil {
		return err
	}
	defer release()
	if snapshot != "" {
		n, err := s.snapshotOf(name, snapshot)
		if err != nil {
			return err
		}
		stack := n.stack()
		if form == archive.OCI {
			stack = above(stack)
		}
		return s.export(w, stack, form)
	}
	d, err := s.Store.Open(name, delta.Read)
	if err != nil {
		return err
	}
	defer d.Close()
	stack := d.Record.Stack
	if form == archive.OCI {
		stack = above(stack)
	}
	return s.export(w, slices.Insert(slices.Clone(stack), 0, delta.Lower{Dir: d.Upper()}), form)
}

// above is a stack without its lowest.
func above(stack []delta.Lower) []delta.Lower { return stack[:len(stack)-1] }

func (s *Store) export(w io.Writer, stack []delta.Lower, form archive.Form) error {
	if len(stack) == 0 {
		return errors.New("nothing was written yet that could be a layer")
	}
	roots, closeAll, err := s.open(stack)
	if err != nil {
		return err
	}
	defer closeAll()
	return archive.Write(w, roots, form)
}

// ImportLayer puts an archive of a layer, as Export writes it, on top of a
// codebase, and gives the whole a name.
func (s *Store) ImportLayer(r io.Reader, base string, o ImportOptions) (Codebase, error) {
	if err := s.checkNew(o.Name); err != nil {
		return Codebase{}, err
	}
	if err := s.withinFree(&o.Limits); err != nil {
		return Codebase{}, err
	}
	b, err := s.build()
	if err != nil {
		return Codebase{}, err
	}
	defer b.discard()
	options := archive.ReadOptions{Form: archive.OCI, Limits: o.Limits, Progress: b.count(o.Progress)}
	if err := archive.Read(r, b.root, options); err != nil {
		return Codebase{}, err
	}
	if err := b.byContent(); err != nil {
		return Codebase{}, err
	}
	b.share()
	release, err := s.LockLayers(false)
	if err != nil {
		return Codebase{}, err
	}
	defer release()
	below, err := s.Codebase(base)
	if err != nil {
		return Codebase{}, err
	}
	if err := b.place(); err != nil {
		return Codebase{}, err
	}
	return s.saveCodebase(Codebase{Name: o.Name, Source: o.Source, Layers: slices.Insert(below.Layers, 0, b.layer.ID)})
}
