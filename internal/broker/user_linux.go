package broker

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// User is who the command is, as this process counts users. In a container that root
// started it is none of the host's, and what root owns among the granted files is the
// command's by the container's mounts. So that what the broker makes there belongs to the
// same, and it can open no more than the command, its threads look at files as that user.
// They stay root otherwise, without capabilities: looking at processes of the container
// takes their own user namespace's maker.
type User struct {
	UID, GID uint32
	// Traces says that the command has no user namespace of its own, so that looking at
	// its processes takes a capability, which the broker's threads keep for that.
	Traces bool
}

// unchanged is an id that setresuid and its kin leave as it is.
const unchanged = ^uint32(0)

// become makes the calling thread fit to act for the user, for good, and gives up its
// capabilities: what the command cannot open, its broker must not, also as root. A nil
// user is this process's own.
func (u *User) become() error {
	if u == nil {
		return setCapabilities(0)
	}
	// Not by package syscall, which would change every thread of the program.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return os.NewSyscallError("setgroups", errno)
	}
	if err := setIDs([3]uint32{unchanged, unchanged, u.GID}, [3]uint32{unchanged, unchanged, u.UID}); err != nil {
		return err
	}
	if err := u.lookAtFiles(); err != nil {
		return err
	}
	if u.Traces {
		return setCapabilities(1 << unix.CAP_SYS_PTRACE)
	}
	return setCapabilities(0)
}

// act performs something that others see the actor of, such as a connection, wholly as
// the user. The calling thread must have become it.
func (u *User) act(perform func()) {
	if u == nil {
		perform()
		return
	}
	root := uint32(0)
	if err := setIDs([3]uint32{u.GID, u.GID, root}, [3]uint32{u.UID, u.UID, root}); err != nil {
		panic(err)
	}
	defer func() {
		err := setIDs([3]uint32{root, root, u.GID}, [3]uint32{root, root, u.UID})
		if err == nil {
			err = u.lookAtFiles()
		}
		if err != nil {
			panic(err) // it can do no more than the user from here on
		}
	}()
	perform()
}

// kill sends a signal to a process of the user's, which root without capabilities may do only
// where that has a user namespace of its own.
func (u *User) kill(pid int, sig unix.Signal) (err error) {
	u.act(func() { err = unix.Kill(pid, sig) })
	return err
}

// apart has something done that is not for the user, such as to write to a log of this
// process's own, by another thread, and waits for it.
func (u *User) apart(do func()) {
	if u == nil {
		do()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	<-done
}

// lookAtFiles has the calling thread look at files as the user.
func (u *User) lookAtFiles() error {
	for _, id := range []struct {
		call uintptr
		want uint32
	}{{unix.SYS_SETFSGID, u.GID}, {unix.SYS_SETFSUID, u.UID}} {
		_, _, _ = unix.RawSyscall(id.call, uintptr(id.want), 0, 0)
		// It tells no error, but what was before.
		if now, _, _ := unix.RawSyscall(id.call, uintptr(unchanged), 0, 0); uint32(now) != id.want {
			return fmt.Errorf("broker: look at files as %d: %w", id.want, unix.EPERM)
		}
	}
	return nil
}

// setIDs sets the real, effective and saved ids of the calling thread: the group's first,
// since the user may be what allows it.
func setIDs(group, user [3]uint32) error {
	for _, ids := range []struct {
		call uintptr
		to   [3]uint32
	}{{unix.SYS_SETRESGID, group}, {unix.SYS_SETRESUID, user}} {
		if _, _, errno := unix.RawSyscall(ids.call, uintptr(ids.to[0]), uintptr(ids.to[1]), uintptr(ids.to[2])); errno != 0 {
			return os.NewSyscallError("change ids", errno)
		}
	}
	return nil
}

// setCapabilities leaves the calling thread these and no others.
func setCapabilities(only uint32) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	sets := [2]unix.CapUserData{{Effective: only, Permitted: only}}
	_, _, errno := unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&sets)), 0)
	if errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	return nil
}
