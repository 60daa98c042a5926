package rulefs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// actor does random things to a tree, and says how each ended.
type actor struct {
	*rand.Rand
	root string
}

func newActor(root string, seed uint64) *actor {
	return &actor{rand.New(rand.NewPCG(seed, 1)), root}
}

// name is one of few, so that they meet often.
func (a *actor) name() string {
	names := []string{"a", "b", "c"}
	p := a.root
	for range 1 + a.IntN(3) {
		p = filepath.Join(p, names[a.IntN(len(names))])
	}
	return p
}

func errnoOf(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return fmt.Sprint(err)
}

// act does one thing. What it says must not depend on where the tree is.
func (a *actor) act() string {
	p, q := a.name(), a.name()
	mode := []uint32{0o644, 0o600, 0o444, 0o755, 0o000, 0o700}[a.IntN(6)]
	did := func(what string, err error) string {
		return fmt.Sprintf("%s %s %s %o: %s", what, strings.TrimPrefix(p, a.root), strings.TrimPrefix(q, a.root), mode, errnoOf(err))
	}
	switch a.IntN(15) {
	case 0:
		return did("mkdir", unix.Mkdir(p, mode|0o700))
	case 1:
		return did("rmdir", unix.Rmdir(p))
	case 2:
		return did("unlink", unix.Unlink(p))
	case 3:
		flags := []uint{0, unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE}[a.IntN(3)]
		return did(fmt.Sprintf("rename %d", flags), unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, q, flags))
	case 4:
		return did("link", unix.Link(p, q))
	case 5:
		return did("symlink", unix.Symlink(filepath.Base(q), p))
	case 6:
		target, err := os.Readlink(p)
		return did("readlink "+target, err)
	case 7:
		return did("chmod", unix.Fchmodat(unix.AT_FDCWD, p, mode, 0))
	case 8:
		return did("truncate", unix.Truncate(p, int64(a.IntN(5000))))
	case 9:
		return did("mkfifo", unix.Mkfifo(p, mode))
	case 10, 11:
		return a.open(p, mode, did)
	case 12:
		return did("utimes", unix.Utimes(p, []unix.Timeval{{Sec: 5}, {Sec: int64(a.IntN(9))}}))
	case 13:
		return did("list "+strings.Join(names(p), " "), nil)
	}
	return did(a.look(p), nil)
}

// open opens a file with random flags, and writes to it if it can.
func (a *actor) open(p string, mode uint32, did func(string, error) string) string {
	flags := []int{unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR}[a.IntN(3)]
	for _, f := range []int{unix.O_CREAT, unix.O_CREAT, unix.O_EXCL, unix.O_TRUNC, unix.O_APPEND, unix.O_NOFOLLOW, unix.O_DIRECTORY} {
		if a.IntN(3) == 0 {
			flags |= f
		}
	}
	if flags&unix.O_CREAT != 0 && flags&unix.O_DIRECTORY != 0 {
		flags &^= unix.O_DIRECTORY // file systems differ
	}
	at, data := int64(a.IntN(3000)), bytes.Repeat([]byte{byte(a.IntN(256))}, a.IntN(3000))
	fd, err := unix.Open(p, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, mode)
	if err != nil {
		return did(fmt.Sprintf("open %#x", flags), err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		n, err := unix.Pwrite(fd, data, at)
		return did(fmt.Sprintf("write %#x %d", flags, n), err)
	}
	return did(fmt.Sprintf("open %#x", flags), nil)
}

func names(dir string) (list []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return []string{errnoOf(err)}
	}
	for _, e := range entries {
		list = append(list, e.Name()+e.Type().String())
	}
	return list
}

// look tells what can be seen of a file.
func (a *actor) look(p string) string {
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return "stat " + errnoOf(err)
	}
	size := st.Size
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		size = 0
	}
	content := ""
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		data, err := os.ReadFile(p)
		content = fmt.Sprintf("%x %s", data, errnoOf(errors.Unwrap(err)))
		if err == nil {
			content = fmt.Sprintf("%x", data)
		}
	}
	return fmt.Sprintf("stat %o %d %d %s", st.Mode, st.Nlink, size, content)
}

// What a program does in a view that permits everything ends as it does without.
func TestBehavesLikeTheFileSystemBelow(t *testing.T) {
	w := newWorld(t, rule("**/never", pathrule.None))
	for round := range testenv.Count(8, 200) {
		native, seed := t.TempDir(), uint64(round)
		t.Cleanup(func() {
			for _, dir := range []string{native, w.host} {
				_ = exec.Command("chmod", "-R", "u+rwX", dir).Run()
			}
		})
		if err := os.Mkdir(w.out(fmt.Sprint(round)), 0o755); err != nil {
			t.Fatal(err)
		}
		viewed := w.in(fmt.Sprint(round))
		eventually(t, "the directory is there", func() bool { return unix.Access(viewed, unix.F_OK) == nil })
		a, b := newActor(native, seed), newActor(viewed, seed)
		var log []string
		for i := range 600 {
			want, got := a.act(), b.act()
			if log = append(log, want); got != want {
				t.Fatalf("round %d, step %d: got %s\nwant %s\nafter\n%s", round, i, got, want, strings.Join(log[max(0, len(log)-12):], "\n"))
			}
		}
	}
}

// fsx does random things to one file, and compares it with what it should hold.
type fsx struct {
	*rand.Rand
	t    *testing.T
	name string
	file *os.File
	want []byte
}

const fsxMost = 256 << 10

func (x *fsx) step(i int) {
	ops := []struct {
		name string
		do   func() error
	}{
		{"write", x.write},
		{"read", x.read},
		{"truncate", x.truncate},
		{"mapped write", x.mapWrite},
		{"mapped read", x.mapRead},
		{"punch", x.punch},
		{"copy", x.copyRange},
		{"reopen", x.reopen},
		{"fsync", func() error { return x.file.Sync() }},
		{"append", x.append},
	}
	op := ops[x.IntN(len(ops))]
	if err := op.do(); err != nil {
		x.t.Fatalf("step %d: %s: %v", i, op.name, err)
	}
}

func (x *fsx) piece() (at, size int) {
	at = x.IntN(fsxMost)
	return at, x.IntN(min(16<<10, fsxMost-at) + 1)
}

// grow makes the model at least n bytes long.
func (x *fsx) grow(n int) {
	if n > len(x.want) {
		x.want = append(x.want, make([]byte, n-len(x.want))...)
	}
}

func (x *fsx) random(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(x.Uint32())
	}
	return data
}

func (x *fsx) write() error {
	at, size := x.piece()
	data := x.random(size)
	if size > 0 {
		x.grow(at + size)
	}
	copy(x.want[min(at, len(x.want)):], data)
	_, err := x.file.WriteAt(data, int64(at))
	return err
}

func (x *fsx) append() error {
	if len(x.want) >= fsxMost {
		return nil
	}
	data := x.random(x.IntN(1000))
	f, err := os.OpenFile(x.name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	x.want = append(x.want, data...)
	_, err = f.Write(data)
	return err
}

func (x *fsx) check(at int, got []byte) error {
	end := min(at+len(got), len(x.want))
	if at >= end {
		return nil
	}
	if want := x.want[at:end]; !bytes.Equal(got[:len(want)], want) {
		i := 0
		for got[i] == want[i] {
			i++
		}
		return fmt.Errorf("byte %d is %x, want %x", at+i, got[i], want[i])
	}
	return nil
}

func (x *fsx) read() error {
	at, size := x.piece()
	buf := make([]byte, size)
	n, err := unix.Pread(int(x.file.Fd()), buf, int64(at))
	if err != nil {
		return err
	}
	if want := max(0, min(at+size, len(x.want))-at); n != want {
		return fmt.Errorf("%d bytes at %d, want %d", n, at, want)
	}
	return x.check(at, buf[:n])
}

func (x *fsx) truncate() error {
	size := x.IntN(fsxMost)
	x.grow(size)
	x.want = x.want[:size]
	return x.file.Truncate(int64(size))
}

func (x *fsx) mapped(write bool, use func(m []byte)) error {
	if len(x.want) == 0 {
		return nil
	}
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	m, err := unix.Mmap(int(x.file.Fd()), 0, len(x.want), prot, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	use(m)
	if write {
		err = unix.Msync(m, unix.MS_SYNC)
	}
	return errors.Join(err, unix.Munmap(m))
}

func (x *fsx) mapWrite() error {
	return x.mapped(true, func(m []byte) {
		at := x.IntN(len(m))
		data := x.random(x.IntN(min(5000, len(m)-at) + 1))
		copy(m[at:], data)
		copy(x.want[at:], data)
	})
}

func (x *fsx) mapRead() (err error) {
	return errors.Join(x.mapped(false, func(m []byte) { err = x.check(0, m) }), err)
}

func (x *fsx) punch() error {
	at, size := x.piece()
	if size == 0 {
		return nil
	}
	clear(x.want[min(at, len(x.want)):min(at+size, len(x.want))])
	return unix.Fallocate(int(x.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(at), int64(size))
}

func (x *fsx) copyRange() error {
	from, size := x.piece()
	to := x.IntN(fsxMost)
	size = min(size, max(0, len(x.want)-from), fsxMost-to)
	if size <= 0 || from < to+size && to < from+size {
		return nil
	}
	data := bytes.Clone(x.want[from : from+size])
	x.grow(to + size)
	copy(x.want[to:], data)
	in, out := int64(from), int64(to)
	for size > 0 {
		n, err := unix.CopyFileRange(int(x.file.Fd()), &in, int(x.file.Fd()), &out, size, 0)
		if err != nil || n == 0 {
			return fmt.Errorf("copied %d: %w", n, err)
		}
		size -= n
	}
	return nil
}

func (x *fsx) reopen() (err error) {
	_ = x.file.Close()
	x.file, err = os.OpenFile(x.name, os.O_RDWR, 0)
	return err
}

func TestRandomUseOfAFile(t *testing.T) {
	w := newWorld(t, rule("**/never", pathrule.None))
	x := &fsx{Rand: rand.New(rand.NewPCG(3, 4)), t: t, name: w.in("f")}
	var err error
	if x.file, err = os.OpenFile(x.name, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = x.file.Close() }()
	for i := range testenv.Count(4000, 100000) {
		x.step(i)
	}
	for _, p := range []string{w.in("f"), w.out("f")} {
		if data, err := os.ReadFile(p); !bytes.Equal(data, x.want) {
			t.Errorf("%s holds something else: %d bytes, want %d, %v", p, len(data), len(x.want), err)
		}
	}
}
