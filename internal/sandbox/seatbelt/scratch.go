package seatbelt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Scratch is a directory of one run's own. Seatbelt cannot show an empty directory
// in the place of another, so HOME and TMPDIR name directories here, and those of
// the host stay closed.
type Scratch struct{ Dir string }

// NewScratch makes one for a Spec, in a directory that only this user can enter.
// What is granted below the home directory is found in the private one by links.
func NewScratch(s *spec.Spec) (*Scratch, error) {
	dir, err := os.MkdirTemp("", "bailey-")
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	c := &Scratch{dir}
	if err := c.fill(s); err != nil {
		c.Remove()
		return nil, err
	}
	return c, nil
}

func (c *Scratch) home() string { return filepath.Join(c.Dir, "home") }

func (c *Scratch) temp() string { return filepath.Join(c.Dir, "tmp") }

func (c *Scratch) fill(s *spec.Spec) error {
	for _, dir := range []string{c.home(), c.temp()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	home := privateHome(s)
	if home == "" {
		return nil
	}
	linked := ""
	for i := range s.Mounts {
		m := &s.Mounts[i]
		rest, below := strings.CutPrefix(m.Target, home+"/")
		if m.Kind != spec.Bind || !below || linked != "" && spec.Covers(linked, m.Target) {
			continue
		}
		linked = m.Target
		at := filepath.Join(c.home(), rest)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return err
		}
		if err := os.Symlink(m.Target, at); err != nil {
			return err
		}
	}
	return nil
}

// privateHome is the home directory of a Spec that has one of its own.
func privateHome(s *spec.Spec) string {
	for i := range s.Mounts {
		if m := &s.Mounts[i]; m.Kind == spec.Tmpfs && m.Why == spec.PrivateHome {
			return m.Target
		}
	}
	return ""
}

// Environ is the Spec's environment with the places of the scratch directory, where
// the Spec has private ones.
func (c *Scratch) Environ(s *spec.Spec) []string {
	env := slices.Clone(s.Env)
	for i, v := range env {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case name == "HOME" && privateHome(s) != "":
			env[i] = "HOME=" + c.home()
		case name == "TMPDIR" && isPrivate(s, value):
			env[i] = "TMPDIR=" + c.temp()
		}
	}
	return env
}

// isPrivate says whether a path, which may be a link's, is in a private directory.
func isPrivate(s *spec.Spec, p string) bool {
	_, m := s.Access(p)
	if m != nil && m.Kind == spec.Symlink {
		_, m = s.Access(filepath.Join(filepath.Dir(m.Target), m.Source))
	}
	return m != nil && m.Kind == spec.Tmpfs
}

// Remove removes it with all that the command left there.
func (c *Scratch) Remove() { _ = os.RemoveAll(c.Dir) }
