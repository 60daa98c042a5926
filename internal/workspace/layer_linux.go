package workspace

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/archive"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
	"github.com/bailey-sandbox/bailey/internal/workspace/fault"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// MaxStack is how many layers a workspace lies on before a snapshot puts some of
// them together. The kernel takes 500; but a name that is in none of them is looked
// for in each.
const MaxStack = 30

// Store keeps codebases, layers and workspaces in a directory.
type Store struct{ delta.Store }

// Open opens the store in a directory, makes what is missing in it, and removes
// what killed processes left.
func Open(at delta.Store) (*Store, error) {
	if err := at.Make(); err != nil {
		return nil, err
	}
	if err := at.Sweep(); err != nil {
		return nil, err
	}
	return &Store{at}, nil
}

// Layer is what is written down about a layer.
type Layer struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Digest  string    `json:"digest,omitempty"` // of its archive; empty until somebody asks
	Created time.Time `json:"created"`
	Files   int64     `json:"files,omitempty"`
	Bytes   int64     `json:"bytes,omitempty"` // of content
}

const layerVersion = 1

// contentID is the id of a layer that is known by its content.
func contentID(digest string) string { return "sha256-" + digest }

// uniqueID is the id of a layer whose content nobody has looked at yet.
func uniqueID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return "sealed-" + hex.EncodeToString(b[:])
}

func (s *Store) layerDir(id string) string { return s.Dir() + "/layers/" + id }

// Layer returns what is known about a layer.
func (s *Store) Layer(id string) (Layer, error) {
	if !delta.ValidLayer(id) {
		return Layer{}, fmt.Errorf("%q is no layer", id)
	}
	var l Layer
	err := readJSON(s.layerDir(id)+"/manifest.json", &l)
	if errors.Is(err, io.EOF) { // the machine crashed just when it was sealed
		l, err = Layer{Version: layerVersion, ID: id}, nil
	}
	if err != nil {
		return l, fmt.Errorf("layer %s: %w", id, err)
	}
	if l.Version != layerVersion || l.ID != id {
		return l, fmt.Errorf("layer %s: its manifest is of another layer or version", id)
	}
	if _, err := os.Stat(s.LayerTree(id)); err != nil {
		return l, fmt.Errorf("layer %s: %w", id, err)
	}
	return l, nil
}

// Digest returns the digest of a layer, and notes it down if it was not known.
func (s *Store) Digest(id string) (string, error) {
	l, err := s.Layer(id)
	if err != nil || l.Digest != "" {
		return l.Digest, err
	}
	root, err := os.Open(s.LayerTree(id))
	if err != nil {
		return "", err
	}
	defer root.Close()
	if l.Digest, err = archive.Digest(root); err != nil {
		return "", fmt.Errorf("layer %s: %w", id, err)
	}
	return l.Digest, s.putSynced(s.layerDir(id)+"/manifest.json", l, true)
}

// building is a layer that is being made.
type building struct {
	store   *Store
	scratch *delta.Scratch
	root    *os.File // of its tree
	layer   Layer
}

func (s *Store) build() (*building, error) {
	scratch, err := s.Scratch("layer")
	if err != nil {
		return nil, err
	}
	b := &building{store: s, scratch: scratch, layer: Layer{Version: layerVersion, Created: time.Now().UTC()}}
	if err := os.Mkdir(scratch.Path()+"/tree", 0o700); err != nil {
		_ = scratch.Discard()
		return nil, err
	}
	if b.root, err = os.Open(scratch.Path() + "/tree"); err != nil {
		_ = scratch.Discard()
		return nil, err
	}
	return b, nil
}

// discard removes what was built, which is nothing once it is in its place.
func (b *building) discard() {
	_ = b.root.Close()
	if b.scratch != nil {
		_ = b.scratch.Discard() // or by the next Sweep
	}
}

// count notes down how far it is.
func (b *building) count(progress Progress) func(files, bytes int64) {
	return func(files, bytes int64) {
		b.layer.Files, b.layer.Bytes = files, bytes
		if progress != nil {
			progress(files, bytes)
		}
	}
}

// byContent gives the layer the id of its content.
func (b *building) byContent() error {
	digest, err := archive.Digest(b.root)
	if err != nil {
		return err
	}
	b.layer.Digest, b.layer.ID = digest, contentID(digest)
	return nil
}

// place puts the layer where layers are. An identical one that is there already is
// taken instead. Its files are on the disk before its name is. The caller holds
// the layers until something names this one.
func (b *building) place() error {
	if err := writeFile(b.scratch.Path()+"/manifest.json", b.layer); err != nil {
		return err
	}
	fault.Step("layer: manifest written")
	if err := unix.Syncfs(int(b.root.Fd())); err != nil {
		return os.NewSyscallError("syncfs", err)
	}
	fault.Step("layer: on the disk")
	err := b.scratch.Place(b.store.layerDir(b.layer.ID))
	if errors.Is(err, delta.ErrExists) {
		return nil // discard removes this one
	}
	if err != nil {
		return err
	}
	fault.Step("layer: in place")
	b.scratch.Close()
	b.scratch = nil
	return syncDir(b.store.Dir() + "/layers")
}

// open opens the trees of a stack, top first.
func (s *Store) open(stack []delta.Lower) (roots []*os.File, closeAll func(), err error) {
	closeAll = func() {
		for _, f := range roots {
			_ = f.Close()
		}
	}
	for _, l := range stack {
		dir := l.Dir
		if l.Layer != "" {
			dir = s.LayerTree(l.Layer)
		}
		f, err := os.Open(dir)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		roots = append(roots, f)
	}
	return roots, closeAll, nil
}

// Collect removes the layers that nothing names any more, and returns how many.
// If something cannot be read it removes nothing: it could name any.
func (s *Store) Collect() (removed int, err error) {
	release, err := s.LockLayers(true)
	if err != nil {
		return 0, err
	}
	defer release()
	named, err := s.named()
	if err != nil {
		return 0, fmt.Errorf("no layer was removed: %w", err)
	}
	entries, err := os.ReadDir(s.Dir() + "/layers")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if named[e.Name()] {
			continue
		}
		if err := s.removeLayer(e.Name()); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// removeLayer moves a layer away before it is taken apart: half a layer must not
// be found.
func (s *Store) removeLayer(id string) error {
	scratch, err := s.Scratch("layer")
	if err != nil {
		return err
	}
	if err := os.Rename(s.layerDir(id), scratch.Path()+"/removed"); err != nil {
		_ = scratch.Discard()
		return err
	}
	fault.Step("collect: moved away")
	return scratch.Discard()
}

// unfinished says whether a snapshot was cut short before the delta became its
// layer. It is no snapshot, and never will be one: who makes one holds the layers.
func (s *Store) unfinished(n Snapshot) bool {
	if len(n.Layers) == 0 {
		return false
	}
	_, err := os.Lstat(s.LayerTree(n.Layers[0]))
	return errors.Is(err, os.ErrNotExist)
}

// named are the layers that something names.
func (s *Store) named() (map[string]bool, error) {
	named := make(map[string]bool)
	add := func(stack []delta.Lower) {
		for _, l := range stack {
			if l.Layer != "" {
				named[l.Layer] = true
			}
		}
	}
	codebases, err := s.Codebases()
	if err != nil {
		return nil, err
	}
	for _, c := range codebases {
		add(c.stack())
	}
	records, err := s.Records()
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		add(r.Stack)
		named[r.Sealing] = true
		for _, id := range r.Base {
			named[id] = true
		}
	}
	for _, r := range records {
		snapshots, err := s.readSnapshots(r.Name)
		if err != nil {
			return nil, err
		}
		for _, n := range snapshots {
			if !s.unfinished(n) {
				add(n.stack())
			}
		}
	}
	return named, nil
}

// Usage is what a workspace's delta, or a layer, takes on the disk.
func Usage(dir string) (tree.Usage, error) {
	f, err := os.Open(dir)
	if err != nil {
		return tree.Usage{}, err
	}
	defer f.Close()
	return tree.Measure(f)
}
