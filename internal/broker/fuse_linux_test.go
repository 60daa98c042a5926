package broker_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// A file system in memory whose names are the same in any case, as those are that
// a virtual machine gets from other systems. It is served by a process of its own.

const fuseWord = "serve-files-in-any-case"

func init() {
	if len(os.Args) == 2 && os.Args[1] == fuseWord {
		(&fuse{fd: 3, nodes: []*node{nil, {mode: unix.S_IFDIR | 0o755, children: map[string]*entry{}}}}).serve()
		unix.Exit(0)
	}
}

// mountAnyCase mounts one on a directory until the test ends.
func mountAnyCase(t *testing.T, dir string) {
	t.Helper()
	testenv.Requires(t, testenv.Root, testenv.File("/dev/fuse"))
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	device := os.NewFile(uintptr(fd), "/dev/fuse")
	defer device.Close()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other,default_permissions", fd, os.Getuid(), os.Getgid())
	if err := unix.Mount("test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatal(err)
	}
	server := exec.Command("/proc/self/exe", fuseWord)
	server.ExtraFiles, server.Stderr = []*os.File{device}, os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		_ = server.Process.Kill() // it may have ended with the mount
		_ = server.Wait()
	})
}

type fuse struct {
	fd    int
	nodes []*node // by number, from 1
}

type node struct {
	mode     uint32
	data     []byte
	children map[string]*entry // by small name
}

type entry struct {
	name string
	id   uint64
}

// request is a message of the kernel: struct fuse_in_header, and what follows.
type request struct {
	opcode uint32
	unique uint64
	node   uint64
	body   []byte
}

func (f *fuse) serve() {
	buf := make([]byte, 1<<20)
	for {
		n, err := unix.Read(f.fd, buf)
		if err == unix.EINTR || err == unix.ENOENT {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		u := binary.NativeEndian
		r := &request{u.Uint32(buf[4:]), u.Uint64(buf[8:]), u.Uint64(buf[16:]), buf[40:n]}
		if answer, errno := f.answer(r); r.opcode != opForget && r.opcode != opBatchForget {
			f.reply(r, answer, errno)
		}
	}
}

func (f *fuse) reply(r *request, answer []byte, errno unix.Errno) {
	u := binary.NativeEndian
	out := u.AppendUint32(nil, uint32(16+len(answer)))
	out = u.AppendUint32(out, uint32(-int32(errno)))
	out = u.AppendUint64(out, r.unique)
	_, _ = unix.Write(f.fd, append(out, answer...))
}

const (
	opLookup, opForget, opGetattr, opSetattr, opReadlink, opSymlink = 1, 2, 3, 4, 5, 6
	opMknod, opMkdir, opUnlink, opRmdir, opRename, opOpen, opRead   = 8, 9, 10, 11, 12, 14, 15
	opWrite, opStatfs, opRelease, opFlush, opInit, opOpendir        = 16, 17, 18, 25, 26, 27
	opReaddir, opReleasedir, opCreate, opBatchForget, opRename2     = 28, 29, 35, 42, 45
)

func (f *fuse) answer(r *request) ([]byte, unix.Errno) {
	u := binary.NativeEndian
	n := f.nodes[max(r.node, 1)]
	switch r.opcode {
	case opInit:
		out := make([]byte, 64)
		u.PutUint32(out, 7)
		u.PutUint32(out[4:], 31)
		u.PutUint32(out[20:], 1<<16) // the largest write
		return out, 0
	case opLookup:
		e := n.children[strings.ToLower(text(r.body))]
		if e == nil {
			return nil, unix.ENOENT
		}
		return f.entry(e.id), 0
	case opGetattr:
		return append(make([]byte, 16), f.attributes(r.node)...), 0
	case opSetattr:
		if u.Uint32(r.body)&(1<<3) != 0 { // the size
			n.data = append(n.data, make([]byte, 1<<16)...)[:u.Uint64(r.body[16:])]
		}
		return append(make([]byte, 16), f.attributes(r.node)...), 0
	case opReadlink:
		return n.data, 0
	case opSymlink:
		name, target, _ := bytes.Cut(r.body, []byte{0})
		return f.add(n, string(name), &node{mode: unix.S_IFLNK | 0o777, data: bytes.TrimRight(target, "\x00")})
	case opMknod:
		return f.add(n, text(r.body[16:]), &node{mode: u.Uint32(r.body)})
	case opMkdir:
		return f.add(n, text(r.body[8:]), &node{mode: unix.S_IFDIR | u.Uint32(r.body)&0o7777, children: map[string]*entry{}})
	case opCreate:
		out, errno := f.add(n, text(r.body[16:]), &node{mode: unix.S_IFREG | u.Uint32(r.body[4:])&0o7777})
		return append(out, make([]byte, 16)...), errno
	case opUnlink, opRmdir:
		delete(n.children, strings.ToLower(text(r.body)))
		return nil, 0
	case opRename:
		return nil, f.rename(n, u.Uint64(r.body), r.body[8:])
	case opRename2:
		return nil, f.rename(n, u.Uint64(r.body), r.body[16:])
	case opOpen, opOpendir:
		return make([]byte, 16), 0
	case opRead:
		from := min(u.Uint64(r.body[8:]), uint64(len(n.data)))
		return n.data[from:min(from+uint64(u.Uint32(r.body[16:])), uint64(len(n.data)))], 0
	case opWrite:
		at, data := u.Uint64(r.body[8:]), r.body[40:]
		if grow := int(at) + len(data) - len(n.data); grow > 0 {
			n.data = append(n.data, make([]byte, grow)...)
		}
		copy(n.data[at:], data)
		return u.AppendUint64(nil, uint64(len(data))), 0
	case opReaddir:
		return n.list(u.Uint64(r.body[8:])), 0
	case opStatfs:
		return make([]byte, 80), 0
	case opRelease, opReleasedir, opFlush, opForget, opBatchForget:
		return nil, 0
	}
	return nil, unix.ENOSYS
}

func text(body []byte) string {
	name, _, _ := bytes.Cut(body, []byte{0})
	return string(name)
}

func (f *fuse) add(dir *node, name string, n *node) ([]byte, unix.Errno) {
	if dir.children[strings.ToLower(name)] != nil {
		return nil, unix.EEXIST
	}
	f.nodes = append(f.nodes, n)
	id := uint64(len(f.nodes) - 1)
	dir.children[strings.ToLower(name)] = &entry{name, id}
	return f.entry(id), 0
}

func (f *fuse) rename(from *node, newDir uint64, names []byte) unix.Errno {
	old, to, _ := bytes.Cut(names, []byte{0})
	e := from.children[strings.ToLower(string(old))]
	if e == nil {
		return unix.ENOENT
	}
	delete(from.children, strings.ToLower(string(old)))
	f.nodes[newDir].children[strings.ToLower(text(to))] = &entry{text(to), e.id}
	return 0
}

// entry is struct fuse_entry_out, to be forgotten at once.
func (f *fuse) entry(id uint64) []byte {
	out := binary.NativeEndian.AppendUint64(nil, id)
	return append(append(out, make([]byte, 32)...), f.attributes(id)...)
}

// attributes are struct fuse_attr.
func (f *fuse) attributes(id uint64) []byte {
	n, u := f.nodes[id], binary.NativeEndian
	out := u.AppendUint64(nil, id)
	out = u.AppendUint64(out, uint64(len(n.data)))
	out = append(out, make([]byte, 44)...) // blocks and times
	for _, word := range []uint32{n.mode, 1, uint32(os.Getuid()), uint32(os.Getgid()), 0, 4096, 0} {
		out = u.AppendUint32(out, word)
	}
	return out
}

func (n *node) list(from uint64) []byte {
	var out []byte
	at, u := uint64(0), binary.NativeEndian
	for _, e := range n.children {
		if at++; at <= from || len(out) > 3000 {
			continue
		}
		out = u.AppendUint64(u.AppendUint64(out, e.id), at)
		out = u.AppendUint32(u.AppendUint32(out, uint32(len(e.name))), 0)
		out = append(out, e.name...)
		out = append(out, make([]byte, -len(out)&7)...)
	}
	return out
}
