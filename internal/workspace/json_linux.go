package workspace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
	"github.com/bailey-sandbox/bailey/internal/workspace/fault"
)

// readJSON reads a file that Bailey wrote. What it does not know it refuses.
func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func writeFile(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o600)
}

// putSynced is put, and waits until the name is on the disk as well.
func (s *Store) putSynced(path string, v any, replace bool) error {
	if err := s.put(path, v, replace); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// put puts a file in its place, all of it or nothing: it is on the disk before its
// name is. Without replace, a file that exists is an error.
func (s *Store) put(path string, v any, replace bool) error {
	scratch, err := s.Scratch("file")
	if err != nil {
		return err
	}
	defer func() { _ = scratch.Discard() }()
	written := scratch.Path() + "/file"
	if err := writeFile(written, v); err != nil {
		return err
	}
	if err := syncDir(written); err != nil {
		return err
	}
	fault.Step("file: written")
	flags := uint(unix.RENAME_NOREPLACE)
	if replace {
		flags = 0
	}
	err = unix.Renameat2(unix.AT_FDCWD, written, unix.AT_FDCWD, path, flags)
	if errors.Is(err, unix.EEXIST) {
		return delta.ErrExists
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: written, New: path, Err: err}
	}
	fault.Step("file: in place")
	return nil
}

// syncDir waits until a file, or the names in a directory, are on the disk.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
