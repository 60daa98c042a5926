package workspace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
	"github.com/bailey-sandbox/bailey/internal/workspace/fault"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// Snapshot is the state of a workspace at one time. It belongs to the workspace,
// and goes with it.
type Snapshot struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Layers  []string  `json:"layers"`         // top first
	Live    []byte    `json:"live,omitempty"` // directory of the host below them, which is not part of it
}

const snapshotVersion = 1

func (n *Snapshot) stack() []delta.Lower {
	var list []delta.Lower
	for _, id := range n.Layers {
		list = append(list, delta.Lower{Layer: id})
	}
	if len(n.Live) > 0 {
		list = append(list, delta.Lower{Dir: string(n.Live)})
	}
	return list
}

func newSnapshot(stack []delta.Lower) Snapshot {
	n := Snapshot{Version: snapshotVersion, Created: time.Now().UTC()}
	for _, l := range stack {
		if l.Layer != "" {
			n.Layers = append(n.Layers, l.Layer)
		} else {
			n.Live = []byte(l.Dir)
		}
	}
	return n
}

// Freezer stops everything that writes to a workspace until it is thawed.
type Freezer interface {
	Freeze() (thaw func(), err error)
}

// Snapshot keeps the state of a workspace. If nobody uses it, the delta becomes a
// layer by a rename, so the number of files does not matter. Every MaxStack
// snapshots the layers above the lowest are put together, which takes as long as
// copying them. If a sandbox uses it, see SnapshotRunning.
func (s *Store) Snapshot(name string) (Snapshot, error) {
	d, err := s.Store.Open(name, delta.Write)
	if errors.Is(err, delta.ErrBusy) {
		if sandbox, notRunning := s.Holder(name); notRunning == nil {
			return s.SnapshotRunning(name, sandbox)
		}
	}
	if err != nil {
		return Snapshot{}, err
	}
	defer d.Close()
	if len(d.Record.Stack) >= MaxStack {
		if err := s.squash(d); err != nil {
			return Snapshot{}, err
		}
	}
	return s.snapshot(d)
}

func (s *Store) snapshot(d *delta.Delta) (Snapshot, error) {
	release, err := s.LockLayers(false)
	if err != nil {
		return Snapshot{}, err
	}
	defer release()
	empty, err := isEmpty(d.Upper())
	if err != nil {
		return Snapshot{}, err
	}
	if empty {
		n, err := s.putSnapshot(d.Dir()+"/snapshots", newSnapshot(d.Record.Stack), s.put)
		if err == nil {
			err = s.settle(d, "")
		}
		return n, err
	}
	id := uniqueID()
	if err := s.makeRoom(id); err != nil {
		return Snapshot{}, err
	}
	fault.Step("snapshot: room made")
	// Before the delta is sealed: without its layer it counts for nothing.
	n, err := s.putSnapshot(d.Dir()+"/snapshots", newSnapshot(slices.Insert(slices.Clone(d.Record.Stack), 0, delta.Lower{Layer: id})), s.put)
	if err != nil {
		return n, err
	}
	if err := d.Seal(id); err != nil {
		return n, err
	}
	fault.Step("snapshot: sealed")
	return n, s.settle(d, id)
}

// settle waits until the names of a snapshot are on the disk: its own, that of its
// layer if it has made one, and that of the workspace, which may be new.
func (s *Store) settle(d *delta.Delta, layer string) error {
	paths := []string{d.Dir() + "/snapshots", d.Dir(), filepath.Dir(d.Dir())}
	if layer != "" {
		paths = append(paths, s.layerDir(layer), s.Dir()+"/layers")
	}
	for _, path := range paths {
		if err := syncDir(path); err != nil {
			return err
		}
	}
	return nil
}

// makeRoom makes the directory of a layer without its tree, which is no layer yet. What
// it says of the layer is on the disk before there can be one.
func (s *Store) makeRoom(id string) error {
	dir := s.layerDir(id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := writeFile(dir+"/manifest.json", Layer{Version: layerVersion, ID: id, Created: time.Now().UTC()}); err != nil {
		return err
	}
	return syncDir(dir + "/manifest.json")
}

func isEmpty(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if n, err := unix.Fgetxattr(int(f.Fd()), tree.Opaque, make([]byte, 8)); err == nil && n > 0 {
		return false, nil
	}
	names, err := f.Readdirnames(1)
	return len(names) == 0, ignoreEOF(err)
}

// SnapshotRunning keeps the state of a workspace that a sandbox uses. Everything
// in it stands still while the delta, and only that, is copied or shares its
// blocks.
func (s *Store) SnapshotRunning(name string, sandbox Freezer) (Snapshot, error) {
	record, upper, err := s.look(name)
	if err != nil {
		return Snapshot{}, err
	}
	defer upper.Close()
	if record.InMemory {
		return Snapshot{}, fmt.Errorf("workspace %s: what runs in it has a limit on files, and its changes are in memory until it ends; wait for that", name)
	}
	b, err := s.build()
	if err != nil {
		return Snapshot{}, err
	}
	defer b.discard()
	b.layer.ID = uniqueID()
	if err := copyFrozen(b, upper, sandbox); err != nil {
		return Snapshot{}, err
	}
	release, err := s.LockLayers(false)
	if err != nil {
		return Snapshot{}, err
	}
	defer release()
	if err := b.place(); err != nil {
		return Snapshot{}, err
	}
	stack := slices.Insert(slices.Clone(record.Stack), 0, delta.Lower{Layer: b.layer.ID})
	return s.putSnapshot(s.snapshotDir(name), newSnapshot(stack), s.putSynced)
}

// Held is how long the files of a workspace's snapshot are together, beside those of what
// the workspace was made on. A layer that the delta has become by a rename is looked through,
// as far as its files can be seen.
func (s *Store) Held(name string, n Snapshot) (bytes int64, err error) {
	d, err := s.Peek(name)
	if err != nil {
		return 0, err
	}
	for _, id := range n.Layers {
		if slices.Contains(d.Record.Base, id) {
			continue
		}
		l, err := s.Layer(id)
		if err != nil {
			return 0, err
		}
		if l.Files == 0 {
			u, _ := Usage(s.LayerTree(id))
			l.Bytes = u.Length
		}
		bytes += l.Bytes
	}
	return bytes, nil
}

func copyFrozen(b *building, upper *os.File, sandbox Freezer) error {
	thaw, err := sandbox.Freeze()
	if err != nil {
		return err
	}
	defer thaw()
	return tree.Copy(b.root, upper, tree.CopyOptions{Marks: tree.Preserve, Progress: b.count(nil)})
}

// look reads the record of a workspace that somebody else holds, and opens its
// delta. Opened, it stays the same directory whatever it is called later.
func (s *Store) look(name string) (delta.Record, *os.File, error) {
	list, err := s.List()
	if err != nil {
		return delta.Record{}, nil, err
	}
	i := slices.IndexFunc(list, func(l delta.Listed) bool { return l.Name == name })
	if i < 0 {
		return delta.Record{}, nil, fmt.Errorf("%s: %w", name, delta.ErrNotFound)
	}
	if list[i].Err != nil {
		return delta.Record{}, nil, list[i].Err
	}
	f, err := os.Open(s.Dir() + "/workspaces/" + name + "/upper")
	return list[i].Record, f, err
}

func (s *Store) snapshotDir(name string) string {
	return s.Dir() + "/workspaces/" + name + "/snapshots"
}

// putSnapshot gives a snapshot the next free number.
func (s *Store) putSnapshot(dir string, n Snapshot, put func(path string, v any, replace bool) error) (Snapshot, error) {
	if err := makeSnapshotDir(dir); err != nil {
		return n, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return n, err
	}
	for number := len(entries) + 1; ; number++ {
		n.ID = fmt.Sprintf("s%d", number)
		err := put(dir+"/"+n.ID+".json", n, false)
		if !errors.Is(err, delta.ErrExists) {
			return n, err
		}
	}
}

// makeSnapshotDir makes the directory of a workspace's snapshots, if it has none. Its name
// is on the disk then.
func makeSnapshotDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// Snapshots returns the snapshots of a workspace, the oldest first. One whose
// layer is not there was never finished, and is left out.
func (s *Store) Snapshots(name string) ([]Snapshot, error) {
	if err := delta.ValidName(name); err != nil {
		return nil, err
	}
	list, err := s.readSnapshots(name)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(n Snapshot) bool { return s.checkSnapshot(n) != nil })
	slices.SortFunc(list, func(a, b Snapshot) int { return a.Created.Compare(b.Created) })
	return list, nil
}

func (s *Store) readSnapshots(name string) ([]Snapshot, error) {
	entries, err := os.ReadDir(s.snapshotDir(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []Snapshot
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		n, err := s.readSnapshot(name, id)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

func (s *Store) readSnapshot(name, id string) (Snapshot, error) {
	var n Snapshot
	err := readJSON(s.snapshotDir(name)+"/"+id+".json", &n)
	if errors.Is(err, io.EOF) {
		err = os.ErrNotExist // the machine crashed before it was on the disk
	}
	if err != nil {
		return n, fmt.Errorf("snapshot %s of %s: %w", id, name, err)
	}
	if n.Version != snapshotVersion || n.ID != id {
		return n, fmt.Errorf("snapshot %s of %s: it is of another version", id, name)
	}
	return n, nil
}

// checkSnapshot makes sure that its layers are there.
func (s *Store) checkSnapshot(n Snapshot) error {
	for _, layer := range n.Layers {
		if _, err := s.Layer(layer); err != nil {
			return err
		}
	}
	return nil
}

// snapshotOf returns a snapshot by its id.
func (s *Store) snapshotOf(name, id string) (Snapshot, error) {
	if err := delta.ValidName(name); err != nil {
		return Snapshot{}, err
	}
	if err := delta.ValidName(id); err != nil {
		return Snapshot{}, err
	}
	n, err := s.readSnapshot(name, id)
	if errors.Is(err, os.ErrNotExist) {
		return n, fmt.Errorf("snapshot %s of %s: there is no such snapshot; see: bailey ws snapshots %[2]s", id, name)
	}
	if err != nil {
		return n, err
	}
	return n, s.checkSnapshot(n)
}

// RemoveSnapshot forgets a snapshot. Layers that nothing needs any more are
// removed.
func (s *Store) RemoveSnapshot(name, id string) error {
	if _, err := s.snapshotOf(name, id); err != nil {
		return err
	}
	if err := os.Remove(s.snapshotDir(name) + "/" + id + ".json"); err != nil {
		return err
	}
	_, err := s.Collect()
	return err
}

// Fork makes a workspace on what another is now, or was at one of its snapshots if
// one is named. Nothing is copied, unless a sandbox uses the other. What that has
// written since its last snapshot is made one first.
func (s *Store) Fork(name, snapshot string, o delta.Options) (*delta.Delta, error) {
	n, from, err := s.forkFrom(name, snapshot)
	if err != nil {
		return nil, err
	}
	o.Stack, o.Base, o.Source = n.stack(), from.Base, from.Source
	if o.Target == "" {
		o.Target = from.Target
	}
	return s.Create(o)
}

func (s *Store) forkFrom(name, snapshot string) (Snapshot, delta.Record, error) {
	if snapshot != "" {
		n, err := s.snapshotOf(name, snapshot)
		if err != nil {
			return n, delta.Record{}, err
		}
		record, upper, err := s.look(name)
		if err != nil {
			return n, delta.Record{}, err
		}
		return n, record, upper.Close()
	}
	d, err := s.Store.Open(name, delta.Write)
	if errors.Is(err, delta.ErrBusy) {
		return s.forkFromRunning(name, err)
	}
	if err != nil {
		return Snapshot{}, delta.Record{}, err
	}
	defer d.Close()
	if empty, err := isEmpty(d.Upper()); err != nil {
		return Snapshot{}, delta.Record{}, err
	} else if empty {
		return newSnapshot(d.Record.Stack), d.Record, nil
	}
	n, err := s.snapshot(d)
	return n, d.Record, err
}

func (s *Store) forkFromRunning(name string, busy error) (Snapshot, delta.Record, error) {
	sandbox, err := s.Holder(name)
	if err != nil {
		return Snapshot{}, delta.Record{}, busy
	}
	n, err := s.SnapshotRunning(name, sandbox)
	if err != nil {
		return n, delta.Record{}, err
	}
	return s.forkFrom(name, n.ID)
}

// Rollback makes a workspace what it was at a snapshot. What was written since is
// gone, but for what other snapshots keep.
func (s *Store) Rollback(name, snapshot string) error {
	n, err := s.snapshotOf(name, snapshot)
	if err != nil {
		return err
	}
	d, err := s.Store.Open(name, delta.Write)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Reset(n.stack()); err != nil {
		return err
	}
	return d.Sync()
}
