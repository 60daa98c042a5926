package broker

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
)

// programFor is the beginning of a program that asks for a loader: with a note before
// that, as some have.
func programFor(e elf, loader string) []byte {
	const entries = 64
	b := make([]byte, entries+2*e.size)
	copy(b, e.magic)
	put := func(at, n int) {
		if e.pointer == 4 {
			binary.NativeEndian.PutUint32(b[at:], uint32(n))
		} else {
			binary.NativeEndian.PutUint64(b[at:], uint64(n))
		}
	}
	put(e.entries, entries)
	binary.NativeEndian.PutUint16(b[e.count:], 2)
	binary.NativeEndian.PutUint32(b[entries:], 4)
	at := entries + e.size
	binary.NativeEndian.PutUint32(b[at:], 3)
	put(at+e.offset, len(b))
	put(at+e.length, len(loader)+1)
	return append(b, loader+"\x00and more"...)
}

func from(data []byte) func([]byte, uint64) int {
	return func(buf []byte, at uint64) int {
		n, _ := bytes.NewReader(data).ReadAt(buf, int64(min(at, 1<<30)))
		return n
	}
}

func TestLoaderIsTheOneThatAProgramAsksFor(t *testing.T) {
	for _, e := range elves {
		data := programFor(e, "/lib/ld.so")
		if got := loaderIn(from(data)); got != "/lib/ld.so" {
			t.Errorf("got %q", got)
		}
		for size := range data {
			_ = loaderIn(from(data[:size])) // it must end, and not panic
		}
	}
	for _, text := range []string{"", "#!/bin/sh\n", "\x7fELF"} {
		if got := loaderIn(from([]byte(text))); got != "" {
			t.Errorf("%q: got %q", text, got)
		}
	}
}

func FuzzLoader(f *testing.F) {
	for _, e := range elves {
		f.Add(programFor(e, "/lib/ld.so"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if got := loaderIn(from(data)); got != "" && !bytes.Contains(data, []byte(got)) {
			t.Errorf("%q is not in the program", got)
		}
	})
}

func TestMappingsAreReadInEverySpelling(t *testing.T) {
	for name, want := range map[string][]string{
		"/a b":              {"/a b"},
		"/a (deleted)":      {"/a (deleted)", "/a"},
		`/a\012b`:           {`/a\012b`, "/a\nb"},
		`/a\012b (deleted)`: {`/a\012b (deleted)`, `/a\012b`, "/a\nb (deleted)", "/a\nb"},
	} {
		if got := spellings(name); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

// What depends on the namespaces of who opens it says something about the host.
func TestFilesOfTheHostsNamespacesAreNotOpenedForOthers(t *testing.T) {
	for path, want := range map[string]bool{
		"/proc/sys/net/ipv4/conf/eth0/forwarding": false, "/proc/sys/user/max_user_namespaces": false, "/proc/sysvipc/shm": false,
		"/proc/sys/kernel/hostname": true, "/proc/meminfo": true, "/proc/sys": true,
	} {
		if got := new(worker).isHarmless(nil, path); got != want {
			t.Errorf("%s: got %v", path, got)
		}
	}
}
