package server

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFilesArePlacedWhatEverWasThere(t *testing.T) {
	regular := func(size int) func(t *testing.T, name string) {
		return func(t *testing.T, name string) {
			if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name   string
		before func(t *testing.T, name string)
		old    unix.Stat_t
		want   error
	}{
		{"nothing", func(*testing.T, string) {}, unix.Stat_t{}, nil},
		{"a small file", regular(3), unix.Stat_t{Mode: unix.S_IFREG, Size: 3}, nil},
		{"a large file", regular(smallFile + 1), unix.Stat_t{Mode: unix.S_IFREG, Size: smallFile + 1}, nil},
		{"a file that is gone", func(*testing.T, string) {}, unix.Stat_t{Mode: unix.S_IFREG}, nil},
		{"a directory by now", func(t *testing.T, name string) {
			if err := os.Mkdir(name, 0o700); err != nil {
				t.Fatal(err)
			}
		}, unix.Stat_t{Mode: unix.S_IFREG}, unix.EISDIR},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.before(t, dir+"/entry")
			if err := os.WriteFile(dir+"/temporary", []byte("new"), 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := place(int(d.Fd()), "temporary", "entry", &c.old); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			where := "/entry"
			if c.want != nil { // nothing has changed
				where = "/temporary"
			} else if _, err := os.Stat(dir + "/temporary"); !os.IsNotExist(err) {
				t.Errorf("the temporary name is left: %v", err)
			}
			if got, err := os.ReadFile(dir + where); err != nil || !bytes.Equal(got, []byte("new")) {
				t.Errorf("%s has %q, %v", where, got, err)
			}
		})
	}
}
