package seccomp

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	permission  = Errno | 1  // EPERM
	noCall      = Errno | 38 // ENOSYS
	noProtocol  = Errno | 93 // EPROTONOSUPPORT
	noFamily    = Errno | 97 // EAFNOSUPPORT
	garbage     = 0xdeadbeef << 32
	otherArch32 = 0x40000003 // AUDIT_ARCH_I386
)

// The walls, by name, written down again: a call that falls out of the
// package's tables by accident is missed here.
var refusedByName = map[string]uint32{
	"unshare": unix.SYS_UNSHARE, "setns": unix.SYS_SETNS,
	"mount": unix.SYS_MOUNT, "umount2": unix.SYS_UMOUNT2, "pivot_root": unix.SYS_PIVOT_ROOT, "chroot": unix.SYS_CHROOT,
	"fsopen": unix.SYS_FSOPEN, "fsconfig": unix.SYS_FSCONFIG, "fsmount": unix.SYS_FSMOUNT, "fspick": unix.SYS_FSPICK,
	"move_mount": unix.SYS_MOVE_MOUNT, "open_tree": unix.SYS_OPEN_TREE, "mount_setattr": unix.SYS_MOUNT_SETATTR,
	"open_tree_attr":    unix.SYS_OPEN_TREE_ATTR,
	"open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT, "name_to_handle_at": unix.SYS_NAME_TO_HANDLE_AT,
	"add_key": unix.SYS_ADD_KEY, "request_key": unix.SYS_REQUEST_KEY, "keyctl": unix.SYS_KEYCTL,
	"bpf": unix.SYS_BPF, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "userfaultfd": unix.SYS_USERFAULTFD,
	"fanotify_init": unix.SYS_FANOTIFY_INIT,
	"init_module":   unix.SYS_INIT_MODULE, "finit_module": unix.SYS_FINIT_MODULE, "delete_module": unix.SYS_DELETE_MODULE,
	"kexec_load": unix.SYS_KEXEC_LOAD, "kexec_file_load": unix.SYS_KEXEC_FILE_LOAD, "reboot": unix.SYS_REBOOT,
	"swapon": unix.SYS_SWAPON, "swapoff": unix.SYS_SWAPOFF, "acct": unix.SYS_ACCT,
	"settimeofday": unix.SYS_SETTIMEOFDAY, "clock_settime": unix.SYS_CLOCK_SETTIME,
	"clock_adjtime": unix.SYS_CLOCK_ADJTIME, "adjtimex": unix.SYS_ADJTIMEX,
	"sethostname": unix.SYS_SETHOSTNAME, "setdomainname": unix.SYS_SETDOMAINNAME,
	"syslog": unix.SYS_SYSLOG, "vhangup": unix.SYS_VHANGUP,
	"quotactl": unix.SYS_QUOTACTL, "quotactl_fd": unix.SYS_QUOTACTL_FD, "nfsservctl": unix.SYS_NFSSERVCTL,
	"migrate_pages": unix.SYS_MIGRATE_PAGES, "move_pages": unix.SYS_MOVE_PAGES,
	"lookup_dcookie": unix.SYS_LOOKUP_DCOOKIE,
}

var absentByName = map[string]uint32{
	"clone3": unix.SYS_CLONE3, "openat2": unix.SYS_OPENAT2,
	"io_uring_setup": unix.SYS_IO_URING_SETUP, "io_uring_enter": unix.SYS_IO_URING_ENTER,
	"io_uring_register": unix.SYS_IO_URING_REGISTER,
}

// sample is a call whose answer depends on its arguments.
type sample struct {
	name string
	nr   uint32
	args [6]uint64
	want Action
}

func samples() []sample {
	list := []sample{
		{"clone of a thread", unix.SYS_CLONE, [6]uint64{0x3d0f00}, Allow},
		{"fork", unix.SYS_CLONE, [6]uint64{unix.CLONE_CHILD_SETTID | uint64(unix.SIGCHLD)}, Allow},
		{"clone with the bit of a new time namespace", unix.SYS_CLONE, [6]uint64{unix.CLONE_NEWTIME}, Allow},
		{"fork with garbage above", unix.SYS_CLONE, [6]uint64{garbage | uint64(unix.SIGCHLD)}, Allow},
	}
	for _, flag := range []uint64{
		unix.CLONE_NEWNS, unix.CLONE_NEWCGROUP, unix.CLONE_NEWUTS, unix.CLONE_NEWIPC,
		unix.CLONE_NEWUSER, unix.CLONE_NEWPID, unix.CLONE_NEWNET,
	} {
		list = append(list,
			sample{fmt.Sprintf("clone %#x", flag), unix.SYS_CLONE, [6]uint64{flag | uint64(unix.SIGCHLD)}, permission},
			sample{fmt.Sprintf("clone %#x with garbage above", flag), unix.SYS_CLONE, [6]uint64{garbage | flag}, permission})
	}
	const btrfsSnapshot, btrfsSnapshot2 = 0x50009401, 0x50009417
	for _, cmd := range []uint64{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCCONS, unix.TIOCSETD, btrfsSnapshot, btrfsSnapshot2} {
		list = append(list,
			sample{fmt.Sprintf("ioctl %#x", cmd), unix.SYS_IOCTL, [6]uint64{0, cmd}, permission},
			sample{fmt.Sprintf("ioctl %#x with garbage above", cmd), unix.SYS_IOCTL, [6]uint64{garbage, garbage | cmd}, permission},
			sample{fmt.Sprintf("ioctl on descriptor %#x", cmd), unix.SYS_IOCTL, [6]uint64{cmd, unix.TCGETS, cmd}, Allow})
	}
	for _, cmd := range []uint64{unix.TCGETS, unix.TIOCGWINSZ, unix.TIOCSPGRP, unix.TIOCINQ, unix.TIOCSTI << 1} {
		list = append(list, sample{fmt.Sprintf("ioctl %#x", cmd), unix.SYS_IOCTL, [6]uint64{1, cmd}, Allow})
	}
	for family := range uint64(64) {
		pair := noFamily
		if family == unix.AF_UNIX {
			pair = Allow
		}
		list = append(list, sample{fmt.Sprintf("socketpair %d", family), unix.SYS_SOCKETPAIR, [6]uint64{garbage | family, 1}, pair})
	}
	list = append(list, nodeSamples(unix.SYS_MKNODAT, 2)...)
	list = append(list, modeSamples(unix.SYS_FCHMOD, 1)...)
	list = append(list, modeSamples(unix.SYS_FCHMODAT, 2)...)
	list = append(list, modeSamples(unix.SYS_FCHMODAT2, 2)...)
	return append(list, openSamples(unix.SYS_OPENAT, 2)...)
}

// modeSamples are calls whose argument i is a file's mode.
func modeSamples(nr uint32, i int) []sample {
	var list []sample
	for mode, want := range map[uint64]Action{
		0: Allow, 0o644: Allow, 0o1777: Allow, garbage | 0o755: Allow,
		0o4755: permission, 0o2755: permission, 0o6000: permission, garbage | 0o4000: permission,
	} {
		s := sample{name: fmt.Sprintf("call %d mode %#o", nr, mode), nr: nr, want: want}
		s.args[i] = mode
		list = append(list, s)
	}
	return list
}

// openSamples are opens, whose flags are argument i and whose mode, which
// counts only if a file may be made, is the next.
func openSamples(nr uint32, i int) []sample {
	var list []sample
	for _, flags := range []uint64{unix.O_RDONLY, unix.O_RDWR | unix.O_TRUNC, unix.O_DIRECTORY, unix.O_CREAT, unix.O_RDWR | unix.O_TMPFILE, garbage | unix.O_CREAT} {
		creates := flags&unix.O_CREAT != 0 || flags&unix.O_TMPFILE == unix.O_TMPFILE
		for _, s := range modeSamples(nr, i+1) {
			s.name += fmt.Sprintf(" flags %#x", flags)
			s.args[i] = flags
			if !creates {
				s.want = Allow
			}
			list = append(list, s)
		}
	}
	return list
}

// nodeSamples are calls of the mknod family, whose mode is argument i.
func nodeSamples(nr uint32, i int) []sample {
	var list []sample
	for mode, want := range map[uint64]Action{
		unix.S_IFREG: Allow, unix.S_IFIFO: Allow, unix.S_IFSOCK: Allow, 0: Allow,
		unix.S_IFCHR: permission, unix.S_IFBLK: permission,
	} {
		for _, extra := range []uint64{0, 0o644, 0o4777, 1<<16 | 0o600, garbage} {
			s := sample{name: fmt.Sprintf("mknod %d mode %#o", nr, mode|extra), nr: nr, want: want}
			if extra&0o6000 != 0 {
				s.want = permission
			}
			s.args[i] = mode | extra
			list = append(list, s)
		}
	}
	return list
}

// socketSamples are calls of socket under a set of families.
func socketSamples(families []uint32) []sample {
	var list []sample
	allowed := map[uint64]bool{}
	for _, f := range families {
		allowed[uint64(f)] = true
	}
	for family := range uint64(64) {
		for _, protocol := range []uint64{0, 6, 15, garbage} {
			want := noFamily
			switch {
			case allowed[family] && family == unix.AF_NETLINK && uint32(protocol) != 0:
				want = noProtocol
			case allowed[family]:
				want = Allow
			}
			for _, above := range []uint64{0, garbage} {
				list = append(list, sample{
					fmt.Sprintf("socket %#x protocol %#x", above|family, protocol),
					unix.SYS_SOCKET,
					[6]uint64{above | family, 1, protocol},
					want,
				})
			}
		}
	}
	return list
}

var familySets = [][]uint32{
	nil,
	{FamilyUnix},
	{FamilyUnix, FamilyInet, FamilyInet6},
	{FamilyUnix, FamilyInet, FamilyInet6, FamilyNetlink},
	{FamilyNetlink},
}

func TestEveryCallNumberIsDecidedByName(t *testing.T) {
	byArguments := map[uint32]bool{unix.SYS_CLONE: true, unix.SYS_IOCTL: true, unix.SYS_SOCKET: true, unix.SYS_SOCKETPAIR: true}
	want := map[uint32]Action{}
	for _, nr := range refusedByName {
		want[nr] = permission
	}
	for _, nr := range archRefusedByName {
		want[nr] = permission
	}
	for _, nr := range absentByName {
		want[nr] = noCall
	}
	for _, families := range familySets {
		prog := Assemble(New(Options{Families: families}))
		for nr := range uint32(1001) {
			expected, listed := want[nr]
			switch {
			case byArguments[nr]:
				continue
			case !listed && nr <= 469:
				expected = Allow
			case !listed:
				expected = noCall
			}
			for _, args := range [][6]uint64{{}, {garbage, garbage, garbage, garbage, garbage, garbage}} {
				if got := run(prog, call{nr, auditArch, args}); got != expected {
					t.Errorf("call %d of %v: got %#x, want %#x", nr, families, got, expected)
				}
			}
		}
	}
}

func TestArgumentsDecideWhateverTheUpperHalvesHold(t *testing.T) {
	for _, families := range familySets {
		prog := Assemble(New(Options{Families: families}))
		list := append(append(samples(), archSamples...), socketSamples(families)...)
		for _, s := range list {
			if got := run(prog, call{s.nr, auditArch, s.args}); got != s.want {
				t.Errorf("%s of %v: got %#x, want %#x", s.name, families, got, s.want)
			}
		}
	}
}

func TestAnotherArchitectureKills(t *testing.T) {
	prog := Assemble(New(Options{}))
	for _, arch := range []uint32{0, otherArch32, auditArch ^ 0x80000000, 0xc000003e ^ 0xc00000b7 ^ auditArch} {
		for nr := range uint32(1001) {
			if got := run(prog, call{nr: nr, arch: arch}); got != KillProcess {
				t.Fatalf("call %d of architecture %#x: got %#x, want a kill", nr, arch, got)
			}
		}
	}
}

func TestX32NumbersDoNotExist(t *testing.T) {
	prog := Assemble(New(Options{Families: []uint32{FamilyUnix}}))
	for nr := range uint32(1001) {
		for _, bits := range []uint32{x32Bit, 1 << 31, 3 << 30} {
			if got := run(prog, call{nr: bits | nr, arch: auditArch}); got != noCall {
				t.Fatalf("call %#x: got %#x, want ENOSYS", bits|nr, got)
			}
		}
	}
}

// The kernel takes filters of up to 4096 instructions; a filter this package
// makes walks few of them for any call.
func TestFilterIsShort(t *testing.T) {
	prog := Assemble(New(Options{Families: familySets[3]}))
	if len(prog) > 512 {
		t.Errorf("the filter has %d instructions", len(prog))
	}
	for i, in := range prog {
		if in.Code&7 == 5 && (i+1+int(in.JT) >= len(prog) || i+1+int(in.JF) >= len(prog)) {
			t.Errorf("instruction %d jumps out of the filter", i)
		}
	}
	if last := prog[len(prog)-1]; last.Code != opRet {
		t.Errorf("the filter ends with %+v", last)
	}
}
