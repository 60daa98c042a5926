// Package blob keeps bytes by name in a place that several machines can share.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"
)

// ErrNotFound is returned for a name under which there is nothing.
var ErrNotFound = errors.New("there is no such object")

// Store keeps objects. An object is there whole or not at all; putting one that
// exists replaces it. Names are parts of small letters, digits, hyphens, dots and
// underscores, with slashes between.
type Store interface {
	Put(ctx context.Context, name string, content io.Reader) error
	// Get returns an object's content, which is to be closed.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	Has(ctx context.Context, name string) (bool, error)
	Remove(ctx context.Context, name string) error
	// List returns the sorted names that begin with a prefix.
	List(ctx context.Context, prefix string) ([]string, error)
}

// Open opens the store that an address names: file:///DIRECTORY or
// s3://BUCKET/PREFIX, see OpenS3.
func Open(address string) (Store, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" || !strings.HasPrefix(u.Path, "/") {
			return nil, fmt.Errorf("%s: a directory is named as file:///PATH", address)
		}
		return OpenDirectory(u.Path)
	case "s3":
		return OpenS3(u)
	}
	return nil, fmt.Errorf("%s: must begin with file:/// or s3://", address)
}

// checkName refuses what could be more than a name.
func checkName(name string) error {
	if !fs.ValidPath(name) || name == "." {
		return fmt.Errorf("%q is no name of an object", name)
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._/", rune(c)) {
			return fmt.Errorf("%q is no name of an object", name)
		}
	}
	return nil
}
