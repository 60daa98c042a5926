package broker

import (
	"bytes"
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// What the kernel reads for an exec is not opened by anybody: the first line of a
// script, which becomes arguments, and what it maps into the process, where it can be
// read: the program, which may be the interpreter of a script, and the loader that the
// program names. All of it must be what may be read.

// unreadable returns what may not be, and the rule that says so.
func (w *worker) unreadable(n *notification, x *program) (string, *spec.PathRule) {
	if !w.rules.reads {
		return "", nil
	}
	paths := []string{x.Real}
	for i := range x.Interpreters {
		paths = append(paths, x.Interpreters[i].Real)
	}
	if x.loader != "" {
		paths = append(paths, w.realProgram(n, x.loader))
	}
	for _, path := range paths {
		if rule := w.judge(reading, -1, path); rule != nil && path != "" {
			return path, rule
		}
	}
	return "", nil
}

// realProgram returns where a name leads that the kernel looks up for the caller, or
// "".
func (w *worker) realProgram(n *notification, name string) string {
	fd, errno := w.openNamedProgram(n, atCwd, name, 0)
	if errno != 0 {
		return "" // the kernel will not find it either
	}
	defer func() { _ = unix.Close(fd) }()
	path, _ := w.realPath(fd)
	return path
}

// loaderOf returns the name of the loader that a program asks for, or "".
func (w *worker) loaderOf(program int) string {
	fd, err := w.openContent(program)
	if err != nil {
		return "" // the kernel maps it with the same rights
	}
	defer func() { _ = unix.Close(fd) }()
	return loaderIn(func(buf []byte, at uint64) int {
		n, _ := unix.Pread(fd, buf, int64(at))
		return max(n, 0)
	})
}

// elf says where a file of one kind has what loaderIn looks for.
type elf struct {
	magic                   string
	entries, count          int // in the header
	size                    int // of an entry
	offset, length, pointer int // in an entry; bytes of a number
}

var elves = []elf{
	{"\x7fELF\x02", 32, 56, 56, 8, 32, 8},
	{"\x7fELF\x01", 28, 44, 32, 4, 16, 4},
}

// loaderIn returns the name of the loader in an ELF file.
func loaderIn(read func(buf []byte, at uint64) int) string {
	const asksFor = 3 // PT_INTERP
	var head [64]byte
	size := read(head[:], 0)
	for _, e := range elves {
		if size < len(head) || string(head[:len(e.magic)]) != e.magic {
			continue
		}
		at := e.number(head[e.entries:])
		for range binary.NativeEndian.Uint16(head[e.count:]) {
			entry := make([]byte, e.size)
			if read(entry, at) < e.size {
				return ""
			}
			if binary.NativeEndian.Uint32(entry) == asksFor {
				name := make([]byte, min(e.number(entry[e.length:]), unix.PathMax))
				name, _, _ = bytes.Cut(name[:read(name, e.number(entry[e.offset:]))], []byte{0})
				return string(name)
			}
			at += uint64(e.size)
		}
	}
	return ""
}

func (e *elf) number(b []byte) uint64 {
	if e.pointer == 4 {
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

// maxMaps is more than the kernel says about the memory of a process that has just
// been executed.
const maxMaps = 1 << 20

// mapsReadable says whether all that is mapped into a process may be read. It is
// looked at before its first instruction, when that is the program and its loader.
func (w *worker) mapsReadable(proc string) bool {
	text, ok := readWhole(proc+"maps", maxMaps)
	if !ok {
		return false
	}
	for line := range strings.Lines(string(text)) {
		i := strings.IndexByte(line, '/')
		if i < 0 {
			continue // no file
		}
		for _, path := range spellings(strings.TrimSuffix(line[i:], "\n")) {
			if w.judge(reading, -1, path) != nil {
				return false
			}
		}
	}
	return true
}

// spellings are the paths that a name in a list of mappings may stand for: the kernel
// adds to that of a file which was removed meanwhile, and writes a line feed in
// digits, though a name can have both by itself.
func spellings(name string) []string {
	list := []string{name}
	if rest, ok := strings.CutSuffix(name, " (deleted)"); ok {
		list = append(list, rest)
	}
	for _, s := range list {
		if strings.Contains(s, `\012`) {
			list = append(list, strings.ReplaceAll(s, `\012`, "\n"))
		}
	}
	return list
}
