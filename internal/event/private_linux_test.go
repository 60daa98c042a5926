package event

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOnlyPlainFilesOfOnesOwnAreWritten, so that what is recorded goes nowhere
// else and nobody waits for the other end of a pipe.
func TestOnlyPlainFilesOfOnesOwnAreWritten(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		syscall.Mkfifo(in("pipe"), 0o600),
		os.WriteFile(in("other"), nil, 0o600),
		os.Symlink("other", in("symlink")),
		os.Link(in("other"), in("hardlink")),
		os.WriteFile(in("open"), nil, 0o600),
		os.Chmod(in("open"), 0o666),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"pipe": "is not a file; remove it", "symlink": "is a symbolic link", "hardlink": "is a hard link", "open": "can be written by others",
	} {
		f, err := openPrivate(in(name), os.O_RDWR)
		if err == nil {
			_ = f.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	f, err := openPrivate(in("new"), os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatalf("a new file: %v", err)
	}
	_ = f.Close()
}
