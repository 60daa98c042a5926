package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// overlaid answers for a machine on which an overlay lies over a directory: what
// is decided about the files in there must be decided about those that the
// command finds.
type overlaid struct {
	*Facts
	source string
	layers []string // the topmost first
}

var _ spec.Facts = (*overlaid)(nil)

// Overlay is the machine as it is seen through an overlay.
func Overlay(f *Facts, over *spec.Overlay) spec.Facts {
	layers := append([]string{over.Upper}, over.Lowers...)
	for len(layers) > 1 && isEmpty(layers[0]) {
		layers = layers[1:]
	}
	if len(layers) == 1 && layers[0] == over.Source {
		return f
	}
	return &overlaid{f, over.Source, layers}
}

func isEmpty(dir string) bool {
	names, err := new(Facts).ReadDir(dir, 2)
	return err == nil && len(names) == 0 || errors.Is(err, fs.ErrNotExist)
}

// find returns where a path really is: in the first layer that has it and that no
// layer above hides.
func (o *overlaid) find(path string) (string, error) {
	real, _, err := o.stack(path)
	return real, err
}

// stack is find, with the places of a directory in all layers that it is made
// of.
func (o *overlaid) stack(path string) (real string, all []string, err error) {
	if !spec.Covers(o.source, path) {
		return path, []string{path}, nil
	}
	all = o.layers
	for name := range strings.SplitSeq(strings.Trim(path[len(o.source):], "/"), "/") {
		if name == "" {
			break
		}
		if all = descend(all, name); len(all) == 0 {
			return "", nil, unix.ENOENT
		}
	}
	return all[0], all, nil
}

// descend follows a name in the directories that show together. What is not a
// directory, a whiteout, and a directory that replaces another end the list.
func descend(dirs []string, name string) (found []string) {
	for _, dir := range dirs {
		var st unix.Stat_t
		p := dir + "/" + name
		if unix.Lstat(p, &st) != nil {
			continue
		}
		isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		if isWhiteout(&st) || !isDir && len(found) > 0 {
			break
		}
		found = append(found, p)
		if !isDir || isOpaque(p) {
			break
		}
	}
	return found
}

// isWhiteout says whether an entry of a layer means that there is nothing: a
// character device with number 0.
func isWhiteout(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

func isOpaque(dir string) bool {
	var value [2]byte
	n, err := unix.Lgetxattr(dir, "user.overlay.opaque", value[:])
	return err == nil && n == 1 && value[0] == 'y'
}

func (o *overlaid) Lstat(path string) (spec.FileInfo, error) {
	real, err := o.find(path)
	if err != nil {
		return spec.FileInfo{}, err
	}
	return o.Facts.Lstat(real)
}

func (o *overlaid) Readlink(path string) (string, error) {
	real, err := o.find(path)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: path, Err: err}
	}
	return o.Facts.Readlink(real)
}

func (o *overlaid) ReadFile(path string) ([]byte, error) {
	real, err := o.find(path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return o.Facts.ReadFile(real)
}

func (o *overlaid) Readable(path string) bool {
	real, err := o.find(path)
	return err == nil && o.Facts.Readable(real)
}

// ReadDir puts the names of all layers together. It may name what a layer above
// has removed; who asks further finds that out.
func (o *overlaid) ReadDir(path string, limit int) ([]string, error) {
	_, all, err := o.stack(path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var names []string
	for _, dir := range all {
		more, err := o.Facts.ReadDir(dir, limit)
		if err != nil {
			return nil, err
		}
		names = append(names, more...)
	}
	if filepath.Dir(o.source) == path {
		names = append(names, filepath.Base(o.source)) // which the host need not have
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > limit {
		return nil, &fs.PathError{Op: "readdir", Path: path, Err: errTooMany}
	}
	return names, nil
}
