package tree

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// small is the size up to which a file is copied by one read and one write.
const small = 128 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, small); return &b }}

// Copier copies the content of files: by sharing blocks where the file system
// can, within the kernel where it can, and else by reading and writing. It
// remembers what did not work, and keeps holes.
type Copier struct {
	noClone bool
	noRange bool
}

// Copy copies a whole file to an empty one.
func (c *Copier) Copy(to, from *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	if !c.noClone {
		err := unix.IoctlFileClone(int(to.Fd()), int(from.Fd()))
		if err == nil {
			return nil
		}
		// Files of other sizes, or of other file systems, may still be cloned.
		c.noClone = err == unix.EOPNOTSUPP || err == unix.ENOTTY || err == unix.ENOSYS
	}
	if size <= small {
		return c.copySmall(to, from)
	}
	return c.copyData(to, from, size)
}

func (c *Copier) copySmall(to, from *os.File) error {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	for {
		n, err := from.Read(*b)
		if n > 0 {
			if _, err := to.Write((*b)[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// copyData copies what is not a hole.
func (c *Copier) copyData(to, from *os.File, size int64) error {
	fd := int(from.Fd())
	for at := int64(0); at < size; {
		data, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			break // a hole to the end
		}
		if err != nil {
			data = at // the file system does not know of holes
		}
		end, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil {
			end = size
		}
		end = min(end, size)
		if err := c.copyRange(to, from, data, end); err != nil {
			return err
		}
		at = max(end, at+1)
	}
	return to.Truncate(size)
}

func (c *Copier) copyRange(to, from *os.File, at, end int64) error {
	for at < end && !c.noRange {
		in, out := at, at
		n, err := unix.CopyFileRange(int(from.Fd()), &in, int(to.Fd()), &out, int(min(end-at, 1<<30)), 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			c.noRange = true
			break
		}
		if n == 0 {
			return nil // the file became shorter
		}
		at += int64(n)
	}
	return copyPlain(to, from, at, end)
}

func copyPlain(to, from *os.File, at, end int64) error {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	for at < end {
		n, err := from.ReadAt((*b)[:min(int64(len(*b)), end-at)], at)
		if n > 0 {
			if _, err := to.WriteAt((*b)[:n], at); err != nil {
				return err
			}
			at += int64(n)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
