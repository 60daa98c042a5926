package probe

import (
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// make tries to bring a name into being.
func (p *plan) make(how op, name, to string) outcome {
	var out outcome
	switch how {
	case opCreate:
		out = errnoOf(p.file(name, unix.O_EXCL))
	case opMkdir:
		out = errnoOf(unix.Mkdir(name, 0o700))
	case opSymlink:
		out = errnoOf(unix.Symlink(p.Token, name))
	case opMove, opLink:
		out = p.rename(how, name, to)
	case opThrough:
		out.Control = number(unix.Symlink(to, name))
		out.Errno = number(p.file(name, 0))
		_ = unix.Unlink(name) // the target is what counts
		name = to
	}
	if out.Errno != 0 {
		out.Second = number(unix.Access(path.Dir(name), unix.W_OK))
	}
	return out
}

// file makes a file that holds the token.
func (p *plan) file(name string, flags int) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC|flags, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return writeAll(fd, []byte(p.Token))
}

// rename gives a file with a harmless name another one.
func (p *plan) rename(how op, name, from string) (out outcome) {
	out.Control = number(p.file(from, unix.O_EXCL))
	if how == opMove {
		out.Errno = number(unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, name, unix.RENAME_NOREPLACE))
	} else {
		out.Errno = number(unix.Link(from, name))
	}
	_ = unix.Unlink(from) // gone if it was moved
	return out
}

// away renames something, and if that works puts it back.
func away(name, to string) outcome {
	if err := unix.Rename(name, to); err != nil {
		return outcome{Errno: number(err), Second: number(unix.Access(path.Dir(name), unix.W_OK))}
	}
	return outcome{Control: number(unix.Rename(to, name))}
}

// openOnly opens a file or directory and does nothing with it.
func openOnly(name string, flags int, mode uint32) outcome {
	fd, err := unix.Open(name, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return outcome{Errno: number(err), Second: number(unix.Access(name, mode))}
	}
	defer func() { _ = unix.Close(fd) }()
	return inode("/proc/self/fd/" + strconv.Itoa(fd))
}

// sameMode changes nothing but the time of the last change, if it gets through.
// A program that runs cannot be opened to write anyway, so that is no question.
func sameMode(name string) outcome {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return errnoOf(err)
	}
	if err := unix.Chmod(name, st.Mode&0o777); err != nil {
		return outcome{Errno: number(err), Second: number(unix.Access(name, unix.W_OK))}
	}
	return inode(name)
}

func inode(name string) outcome {
	text, err := inodeOf(name)
	if err != nil {
		return errnoOf(err)
	}
	return outcome{Values: []string{text}}
}

// inodeOf tells a file from every other one.
func inodeOf(name string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return "", err
	}
	return strconv.FormatUint(st.Dev, 16) + ":" + strconv.FormatUint(st.Ino, 10), nil
}

// setuid tries every call that can set the bit, on a file of its own.
func setuid(name string) outcome {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o700)
	if err != nil {
		return outcome{Errno: number(err), Control: number(err)}
	}
	defer func() { _ = unix.Close(fd) }()
	defer func() { _ = unix.Unlink(name) }()
	out := outcome{Control: number(unix.Fchmod(fd, 0o755))}
	for _, try := range []func() error{
		func() error { return unix.Fchmod(fd, 0o4755) },
		func() error { return unix.Chmod(name, 0o4755) },
		func() error { return unix.Fchmodat(unix.AT_FDCWD, name, 0o2755, 0) },
	} {
		if out.Errno = number(try()); out.Errno == 0 {
			break
		}
	}
	// Nothing but the filter refuses the bit to the owner of a file.
	_, _, errno := unix.Syscall(unix.SYS_FCHMOD, ^uintptr(0), 0o4755, 0)
	out.Second = int(errno)
	return out
}

// node tries the null device, and the number that every user may make a node of
// and that means "deleted" to an overlay file system.
func node(name string) (out outcome) {
	if out.Control = number(unix.Mknod(name, unix.S_IFIFO|0o600, 0)); out.Control == 0 {
		_ = unix.Unlink(name)
	}
	for _, dev := range []uint64{unix.Mkdev(1, 3), 0} {
		if out.Errno = number(unix.Mknod(name, unix.S_IFCHR|0o600, int(dev))); out.Errno == 0 {
			_ = unix.Unlink(name)
			break
		}
	}
	_, _, errno := unix.Syscall6(unix.SYS_MKNODAT, ^uintptr(0), ^uintptr(0), unix.S_IFCHR, 0, 0, 0)
	out.Second = int(errno)
	return out
}
