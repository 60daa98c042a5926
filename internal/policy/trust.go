package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Status says whether a file that was found is trusted.
type Status string

const (
	Trusted Status = "trusted"
	// NeverTrusted files were not pinned.
	NeverTrusted Status = "never trusted"
	// Changed files were pinned with another content.
	Changed Status = "changed since it was trusted"
)

// Project is a policy file that was found in a working tree.
type Project struct {
	Path   string
	Policy Policy // what the file grants, on its own
	Bundle Bundle
	Status Status

	chain   []Link
	layers  []layer
	outside *Error
}

// Inspect reads a policy file that came with the code, for a person to look at
// before pinning it.
func Inspect(o Options, path string) (*Project, error) {
	return (&loader{Options: o}).inspect(path, true)
}

// Without is the policy that holds where no project has one: the user's own, or the
// default. It reports whether the user has one.
func Without(o Options) (p Policy, own bool, err error) {
	l, err := newLoader(o)
	if err != nil {
		return p, false, err
	}
	_, p, err = l.effective(source{kind: KindUser})
	if err != nil {
		return p, false, err
	}
	_, err = os.Lstat(l.userFile())
	return p, err == nil, nil
}

// inspect first reads only what lies in the file's own directory. What it
// extends elsewhere is followed if the pinned content names it, or if a person
// asked; otherwise the Project's policy is not complete, and refuse says so.
func (l *loader) inspect(path string, asked bool) (*Project, error) {
	tree, err := realPath(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	real, err := realPath(path)
	if err != nil {
		return nil, err
	}
	if !within(tree, real) {
		return nil, fmt.Errorf("%s leads out of its directory, to %s; name that file with --settings if you mean it", plain.Text(path), plain.Text(real))
	}
	w := &walk{loader: l, tree: tree}
	if err := w.visit(source{KindFile, path}, nil, Pos{File: path}); err != nil {
		return nil, err
	}
	p := &Project{Path: path, Bundle: bundleOf(real, w.layers), outside: w.outside}
	if p.Status, err = NewStore(l.StateHome).Status(p.Bundle); err != nil {
		return nil, err
	}
	if w.outside != nil {
		if p.Status != Trusted && !asked {
			return p, nil
		}
		if w, err = l.follow(path, p.Bundle); err != nil {
			return nil, err
		}
	}
	p.layers = w.layers
	p.chain, p.Policy, err = w.fold()
	for i := range p.chain {
		p.chain[i].Trusted = p.Status == Trusted
	}
	return p, err
}

// follow reads a file again, with what it extends outside its directory. The
// files inside must be those of the bundle, which is what gets pinned.
func (l *loader) follow(path string, pinned Bundle) (*walk, error) {
	w := &walk{loader: l, tree: "/"}
	if err := w.visit(source{KindFile, path}, nil, Pos{File: path}); err != nil {
		return nil, err
	}
	dir := filepath.Dir(pinned.Path)
	for _, layer := range w.layers {
		if layer.found && within(dir, layer.real) && !pinned.holds(layer) {
			return nil, fmt.Errorf("%s cannot be pinned: it changed just now, or is reached only through a file outside its directory", plain.Text(layer.name))
		}
	}
	return w, nil
}

// refuse reports the first thing in an untrusted file that is neither a grant
// nor a restriction, so that no intersection could make it harmless.
func (p *Project) refuse() error {
	hint := "look at it and pin it with: bailey trust " + plain.Word(p.Path)
	if p.outside != nil {
		e := *p.outside
		e.Hint = hint
		return &e
	}
	for _, l := range p.layers {
		if !l.found {
			continue
		}
		for _, key := range []string{
			"network.httpProxyPort", "network.socksProxyPort", "network.upstreamProxy",
			"network.inject", "runtime", "image", "env.set",
		} {
			if pos, said := firstPlace(l.policy.Origins, key); said {
				return &Error{
					File: pos.File, Line: pos.Line, Column: pos.Column,
					Msg:  key + " is refused in a file that is not trusted",
					Hint: hint,
				}
			}
		}
	}
	return nil
}

func firstPlace(origins Origins, key string) (first Pos, ok bool) {
	for o, pos := range origins {
		if o.Key != key {
			continue
		}
		if !ok || pos.Line < first.Line || pos.Line == first.Line && pos.Column < first.Column {
			first, ok = pos, true
		}
	}
	return first, ok
}

// Bundle is a policy file and the files it extends in its own directory.
type Bundle struct {
	Path  string // of the policy file, without symbolic links
	files []bundled
}

type bundled struct {
	path string
	data []byte
}

func bundleOf(path string, layers []layer) Bundle {
	b := Bundle{Path: path}
	for _, l := range layers {
		if l.found {
			b.files = append(b.files, bundled{l.real, l.data})
		}
	}
	return b
}

func (b Bundle) holds(l layer) bool {
	return slices.ContainsFunc(b.files, func(f bundled) bool {
		return f.path == l.real && bytes.Equal(f.data, l.data)
	})
}

// Hash identifies the names and contents of all files. Each part is preceded by
// its length, so that no two bundles have the same encoding.
func (b Bundle) Hash() string {
	h := sha256.New()
	part := func(data []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(data))))
		h.Write(data)
	}
	part([]byte("bailey policy bundle 1"))
	for _, f := range b.files {
		part([]byte(f.path))
		part(f.data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Text is the bundle for people, and what Diff compares.
func (b Bundle) Text() string {
	var s strings.Builder
	for _, f := range b.files {
		if len(b.files) > 1 {
			s.WriteString("// file " + f.path + "\n")
		}
		s.Write(f.data)
		if !bytes.HasSuffix(f.data, []byte("\n")) {
			s.WriteByte('\n')
		}
	}
	return s.String()
}

// Store remembers which policy files a person trusts. It lies outside every
// working tree, in a directory that only its owner can read. trust.json holds
// the pins; a copy of what was pinned lies beside it, so that a start reads
// only the pins.
type Store struct{ dir string }

// NewStore returns the store below a state directory. Nothing is created until
// something is pinned.
func NewStore(stateHome string) *Store {
	return &Store{filepath.Join(stateHome, "bailey")}
}

// Pin is one trusted file.
type Pin struct {
	Path   string    `json:"path"`
	SHA256 string    `json:"sha256"`
	Time   time.Time `json:"time"`
}

// Path is the file that holds the pins.
func (s *Store) Path() string { return filepath.Join(s.dir, "trust.json") }

// List returns the pins, sorted by path.
func (s *Store) List() ([]Pin, error) {
	if err := checkPrivate(s.dir, fs.ModeDir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	err := checkPrivate(s.Path(), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(s.Path())
	if err != nil {
		return nil, err
	}
	pins, err := decodePins(data)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; remove it, and trust your projects again", plain.Text(s.Path()), err)
	}
	return pins, nil
}

// Status says whether exactly this bundle is pinned.
func (s *Store) Status(b Bundle) (Status, error) {
	pins, err := s.List()
	if err != nil {
		return NeverTrusted, err
	}
	for _, pin := range pins {
		if pin.Path != b.Path {
			continue
		}
		if pin.SHA256 == b.Hash() {
			return Trusted, nil
		}
		return Changed, nil
	}
	return NeverTrusted, nil
}

// Trust pins a bundle, in the place of an earlier one of the same path.
func (s *Store) Trust(b Bundle) error {
	return s.change(func(pins []Pin) ([]Pin, error) {
		pin := Pin{b.Path, b.Hash(), time.Now().UTC().Truncate(time.Second)}
		if err := replaceFile(s.copyPath(pin), []byte(b.Text())); err != nil {
			return nil, err
		}
		pins = slices.DeleteFunc(pins, func(p Pin) bool { return p.Path == b.Path })
		return append(pins, pin), nil
	})
}

// Revoke forgets a file, and reports whether it was pinned. The file need not
// exist any more.
func (s *Store) Revoke(path string) (bool, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	found := false
	err := s.change(func(pins []Pin) ([]Pin, error) {
		return slices.DeleteFunc(pins, func(p Pin) bool {
			found = found || p.Path == path
			return p.Path == path
		}), nil
	})
	return found, err
}

// Pinned returns the text of what was pinned for a path.
func (s *Store) Pinned(path string) (string, error) {
	pins, err := s.List()
	if err != nil {
		return "", err
	}
	for _, pin := range pins {
		if pin.Path == path {
			data, err := os.ReadFile(s.copyPath(pin))
			return string(data), err
		}
	}
	return "", fmt.Errorf("%s: %w", plain.Text(path), fs.ErrNotExist)
}

func (s *Store) copyPath(p Pin) string {
	return filepath.Join(s.dir, "trusted-"+p.SHA256)
}

// change rewrites the pins under a lock, so that two writers do not lose each
// other's pin. Readers need none: they see the old file or the new one.
func (s *Store) change(edit func([]Pin) ([]Pin, error)) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	if err := checkPrivate(s.dir, fs.ModeDir); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(s.dir, "trust.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := lockFile(lock); err != nil {
		return fmt.Errorf("%s: %w", lock.Name(), err)
	}
	before, err := s.List()
	if err != nil {
		return err
	}
	after, err := edit(slices.Clone(before))
	if err != nil {
		return err
	}
	if err := replaceFile(s.Path(), encodePins(after)); err != nil {
		return err
	}
	for _, pin := range before {
		if !slices.ContainsFunc(after, func(p Pin) bool { return p.SHA256 == pin.SHA256 }) {
			if err := os.Remove(s.copyPath(pin)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

type pinFile struct {
	Version int   `json:"version"`
	Pins    []Pin `json:"pins"`
}

func encodePins(pins []Pin) []byte {
	slices.SortFunc(pins, func(a, b Pin) int { return strings.Compare(a.Path, b.Path) })
	data, err := json.MarshalIndent(pinFile{1, pins}, "", "  ")
	if err != nil {
		panic(err) // a year beyond 9999
	}
	return append(data, '\n')
}

// decodePins takes nothing for granted: what it lets through is trusted.
func decodePins(data []byte) ([]Pin, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var f pinFile
	if err := d.Decode(&f); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more data after the pins")
	}
	if f.Version != 1 {
		return nil, fmt.Errorf("version is %d, want 1", f.Version)
	}
	seen := map[string]bool{}
	for _, p := range f.Pins {
		sum, err := hex.DecodeString(p.SHA256)
		switch {
		case !filepath.IsAbs(p.Path) || filepath.Clean(p.Path) != p.Path:
			return nil, fmt.Errorf("path %s is not absolute and clean", quote(p.Path))
		case seen[p.Path]:
			return nil, fmt.Errorf("path %s is pinned twice", quote(p.Path))
		case err != nil || len(sum) != sha256.Size || strings.ToLower(p.SHA256) != p.SHA256:
			return nil, fmt.Errorf("bad sha256 %s", quote(p.SHA256))
		}
		seen[p.Path] = true
	}
	return f.Pins, nil
}

// checkPrivate requires that path is of the given type, is no symbolic link,
// belongs to the caller and can be written by nobody else.
func checkPrivate(path string, kind fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode().Type() != kind {
		return fmt.Errorf("trust store: %s is a %s; remove it", plain.Text(path), typeName(info.Mode()))
	}
	if uid, ok := fileOwner(info); ok && uid != os.Geteuid() {
		return fmt.Errorf("trust store: %s belongs to another user (uid %d); remove it, or run as that user", plain.Text(path), uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("trust store: %s can be written by others; look at what it pins, then run: chmod go-w %s", plain.Text(path), plain.Word(path))
	}
	return nil
}

func typeName(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "directory"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	case m.IsRegular():
		return "file"
	}
	return "special file"
}

// replaceFile writes a private file so that it is seen whole or not at all.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
