package archive

import (
	"errors"
	"fmt"
	"strings"
)

// Form says what a tree is to whoever reads the archive.
type Form int

const (
	// Plain is a tree of its own: nothing in it is a sign of something removed.
	Plain Form = iota
	// OCI is a layer as container images have them: a file .wh.NAME is the sign
	// that NAME was removed, and .wh..wh..opq that a directory hides what is below.
	OCI
)

const (
	whiteoutPrefix = ".wh."
	opaqueName     = ".wh..wh..opq"
	// escapePrefix stands before names in layers that would be signs, and before
	// those that would be taken for such names.
	escapePrefix = ".bailey"
)

// maxDepth is how many directories may lie in each other: as many as a tree is
// walked.
const maxDepth = 1000

// needsEscape says whether a name, once its escapes are taken off, is a sign.
func needsEscape(name string) bool {
	for strings.HasPrefix(name, escapePrefix+".") {
		name = name[len(escapePrefix):]
	}
	return strings.HasPrefix(name, whiteoutPrefix)
}

// escapePath gives the parts of a path that would be signs a name that is none.
func (f Form) escapePath(path string) string {
	if f == Plain || !strings.Contains(path, whiteoutPrefix) {
		return path
	}
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if needsEscape(p) {
			parts[i] = escapePrefix + p
		}
	}
	return strings.Join(parts, "/")
}

// unescape undoes what escapePath did to one part.
func unescape(name string) string {
	if rest, ok := strings.CutPrefix(name, escapePrefix); ok && needsEscape(name) {
		return rest
	}
	return name
}

var errOutside = errors.New("leads out of the archive")

// split takes a name in an archive apart and refuses what could be something else
// than a file in the tree.
func (f Form) split(name string) ([]string, error) {
	if strings.HasPrefix(name, "/") {
		return nil, errors.New("an absolute name")
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			return nil, errOutside
		case strings.IndexByte(part, 0) >= 0:
			return nil, errors.New("a zero byte in a name")
		}
		parts = append(parts, part)
	}
	if len(parts) > maxDepth {
		return nil, fmt.Errorf("more than %d directories in each other", maxDepth)
	}
	if f == Plain {
		return parts, nil
	}
	for i, part := range parts {
		if strings.HasPrefix(part, whiteoutPrefix) && i < len(parts)-1 {
			return nil, errors.New("a file in the sign of a removed file")
		}
		parts[i] = unescape(part)
	}
	return parts, nil
}

// sign says what the last part of a name in a layer means, if it is a sign: a file
// that was removed, or that the directory is opaque.
func (f Form) sign(last string) (removed string, opaque, is bool, err error) {
	if f == Plain || !strings.HasPrefix(last, whiteoutPrefix) {
		return "", false, false, nil
	}
	if last == opaqueName {
		return "", true, true, nil
	}
	removed = last[len(whiteoutPrefix):]
	if removed == "" || removed == "." || removed == ".." || strings.HasPrefix(removed, whiteoutPrefix) {
		return "", false, true, errors.New("a sign of something removed that has no meaning")
	}
	return removed, false, true, nil
}
