package workspace

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// Codebase is a named stack of layers.
type Codebase struct {
	Version int       `json:"version"`
	Name    string    `json:"name"`
	Owner   int       `json:"owner"`
	Created time.Time `json:"created"`
	Source  string    `json:"source,omitempty"` // where it came from, for people
	Dir     []byte    `json:"dir,omitempty"`    // the directory of this host that it was imported from, without links in it
	Layers  []string  `json:"layers"`           // top first
}

const codebaseVersion = 1

func (c *Codebase) stack() []delta.Lower {
	var list []delta.Lower
	for _, id := range c.Layers {
		list = append(list, delta.Lower{Layer: id})
	}
	return list
}

func (c *Codebase) check(name string) error {
	if c.Version != codebaseVersion || c.Name != name || len(c.Layers) == 0 {
		return fmt.Errorf("codebase %s: what is written down about it is of another, or of another version", name)
	}
	for _, id := range c.Layers {
		if !delta.ValidLayer(id) {
			return fmt.Errorf("codebase %s: %q is no layer", name, id)
		}
	}
	return nil
}

func (s *Store) codebasePath(name string) string { return s.Dir() + "/codebases/" + name + ".json" }

// ErrNoCodebase is returned for a name that no codebase has.
var ErrNoCodebase = errors.New("there is no such codebase")

// Codebase returns a codebase by its name.
func (s *Store) Codebase(name string) (Codebase, error) {
	if err := delta.ValidName(name); err != nil {
		return Codebase{}, err
	}
	var c Codebase
	err := readJSON(s.codebasePath(name), &c)
	if errors.Is(err, os.ErrNotExist) {
		return c, fmt.Errorf("%s: %w", name, ErrNoCodebase)
	}
	if err != nil {
		return c, err
	}
	return c, c.check(name)
}

// Codebases returns all codebases, sorted by name.
func (s *Store) Codebases() ([]Codebase, error) {
	entries, err := os.ReadDir(s.Dir() + "/codebases")
	if err != nil {
		return nil, err
	}
	var list []Codebase
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		c, err := s.Codebase(name)
		if errors.Is(err, ErrNoCodebase) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// saveCodebase writes down a codebase. The caller holds its layers.
func (s *Store) saveCodebase(c Codebase) (Codebase, error) {
	c.Version, c.Owner, c.Created = codebaseVersion, os.Geteuid(), time.Now().UTC()
	var err error
	if c.Layers, err = s.distinct(c.Layers); err == nil {
		c.Layers, err = s.shallow(c.Layers)
	}
	if err != nil {
		return c, err
	}
	err = s.putSynced(s.codebasePath(c.Name), c, false)
	if errors.Is(err, delta.ErrExists) {
		return c, fmt.Errorf("codebase %s %w", c.Name, err)
	}
	return c, err
}

// distinct makes a stack of layers one that overlayfs takes: none may be there
// twice. On top of itself a layer changes nothing; elsewhere it is copied. The
// caller holds the layers.
func (s *Store) distinct(ids []string) ([]string, error) {
	var list []string
	for _, id := range slices.Compact(slices.Clone(ids)) {
		if slices.Contains(list, id) {
			var err error
			if id, err = s.copyLayer(id); err != nil {
				return nil, err
			}
		}
		list = append(list, id)
	}
	return list, nil
}

func (s *Store) copyLayer(id string) (string, error) {
	l, err := s.Layer(id)
	if err != nil {
		return "", err
	}
	b, err := s.merge([]delta.Lower{{Layer: id}})
	if err != nil {
		return "", err
	}
	defer b.discard()
	b.layer.Digest = l.Digest
	return b.layer.ID, b.place()
}

// checkNew refuses a name for a codebase before much work is done for it.
func (s *Store) checkNew(name string) error {
	if err := delta.ValidName(name); err != nil {
		return err
	}
	if _, err := os.Lstat(s.codebasePath(name)); err == nil {
		return fmt.Errorf("codebase %s %w", name, delta.ErrExists)
	}
	return nil
}

// RemoveCodebase removes a codebase. Workspaces on it keep its layers; those that
// nothing needs any more are removed.
func (s *Store) RemoveCodebase(name string) error {
	if _, err := s.Codebase(name); err != nil {
		return err
	}
	if err := os.Remove(s.codebasePath(name)); err != nil {
		return err
	}
	if err := syncDir(s.Dir() + "/codebases"); err != nil {
		return err
	}
	_, err := s.Collect()
	return err
}

// Start makes a workspace on a codebase. It costs the same for every codebase.
func (s *Store) Start(codebase string, o delta.Options) (*delta.Delta, error) {
	c, err := s.Codebase(codebase)
	if err != nil {
		return nil, err
	}
	o.Stack, o.Base, o.Source = c.stack(), c.Layers, string(c.Dir)
	return s.Create(o)
}
