package rulefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
)

// Open is answered once: from then on the kernel opens files by itself, by what it
// knows of their mode, and keeps their pages. Whether something may be read or
// written is judged again when it is.
func (fs *FS) Open(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.ENOSYS }

// OpenDir is Open for directories.
func (fs *FS) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.ENOSYS }

// Flush has nothing to do when a file is closed: nothing is kept back.
func (fs *FS) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.ENOSYS }

// Release is told of files that were made before the kernel knew that.
func (fs *FS) Release(<-chan struct{}, *fuse.ReleaseIn) {}

// ReleaseDir is Release for directories.
func (fs *FS) ReleaseDir(*fuse.ReleaseIn) {}

// openFor opens a regular file for one call.
func (fs *FS) openFor(id uint64, want pathrule.Permission, flags int) (*node, int, error) {
	n := fs.get(id)
	if n == nil || n.view == nil {
		return nil, -1, unix.ESTALE
	}
	if n.kind != unix.S_IFREG {
		return nil, -1, unix.EINVAL
	}
	if p := n.allows(); p < want {
		return nil, -1, refusal(p)
	}
	fd, err := fs.open(n, flags)
	return n, fd, err
}

// Read reads what the kernel does not have.
func (fs *FS) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	_, fd, err := fs.openFor(in.NodeId, pathrule.Read, unix.O_RDONLY)
	if err != nil {
		return nil, status(err)
	}
	defer unix.Close(fd)
	n, err := unix.Pread(fd, buf[:min(int(in.Size), len(buf))], int64(in.Offset))
	if err != nil {
		return nil, status(err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// Write writes at once, so that the host sees it, and a file that was closed can
// be executed.
func (fs *FS) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	n, fd, err := fs.openFor(in.NodeId, pathrule.Write, unix.O_WRONLY)
	if err != nil {
		return 0, status(err)
	}
	defer unix.Close(fd)
	written, err := unix.Pwrite(fd, data, int64(in.Offset))
	fs.changed(n)
	return uint32(max(written, 0)), status(err)
}

// Fsync has the host's file system keep what was written.
func (fs *FS) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	_, fd, err := fs.openFor(in.NodeId, pathrule.Read, unix.O_RDONLY)
	if err != nil {
		return status(err)
	}
	defer unix.Close(fd)
	if in.FsyncFlags&1 != 0 { // only the data
		return status(unix.Fdatasync(fd))
	}
	return status(unix.Fsync(fd))
}

// FsyncDir is Fsync for directories.
func (fs *FS) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	n := fs.get(in.NodeId)
	if n == nil || n.view == nil {
		return fuse.Status(unix.ESTALE)
	}
	fd, err := fs.openDir(n)
	if err != nil {
		return status(err)
	}
	defer unix.Close(fd)
	return status(unix.Fsync(fd))
}

// Fallocate reserves space, or makes holes.
func (fs *FS) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	n, fd, err := fs.openFor(in.NodeId, pathrule.Write, unix.O_WRONLY)
	if err != nil {
		return status(err)
	}
	defer unix.Close(fd)
	err = unix.Fallocate(fd, in.Mode, int64(in.Offset), int64(in.Length))
	fs.changed(n)
	return status(err)
}

// Lseek finds data and holes.
func (fs *FS) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	_, fd, err := fs.openFor(in.NodeId, pathrule.Read, unix.O_RDONLY)
	if err != nil {
		return status(err)
	}
	defer unix.Close(fd)
	at, err := unix.Seek(fd, int64(in.Offset), int(in.Whence))
	out.Offset = uint64(max(at, 0))
	return status(err)
}

// CopyFileRange lets the host's file system share what is copied.
func (fs *FS) CopyFileRange(_ <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	_, from, err := fs.openFor(in.NodeId, pathrule.Read, unix.O_RDONLY)
	if err != nil {
		return 0, status(err)
	}
	defer unix.Close(from)
	n, to, err := fs.openFor(in.NodeIdOut, pathrule.Write, unix.O_WRONLY)
	if err != nil {
		return 0, status(err)
	}
	defer unix.Close(to)
	const most = 1 << 30 // what is copied at once has to be counted in 32 bits
	offIn, offOut := int64(in.OffIn), int64(in.OffOut)
	copied, err := unix.CopyFileRange(from, &offIn, to, &offOut, int(min(in.Len, most)), 0)
	fs.changed(n)
	return uint32(max(copied, 0)), status(err)
}
