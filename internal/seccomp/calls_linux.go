package seccomp

import "golang.org/x/sys/unix"

const (
	nrClone      = unix.SYS_CLONE
	nrIoctl      = unix.SYS_IOCTL
	nrSocket     = unix.SYS_SOCKET
	nrSocketpair = unix.SYS_SOCKETPAIR
	nrConnect    = unix.SYS_CONNECT
	nrSendto     = unix.SYS_SENDTO
	nrSendmsg    = unix.SYS_SENDMSG
	nrSendmmsg   = unix.SYS_SENDMMSG
	nrExecve     = unix.SYS_EXECVE
	nrExecveat   = unix.SYS_EXECVEAT
)

// Lists are written out, here what every architecture has and beside it the rest:
// put together while the program starts they would cost every command.

// refused calls fail with EPERM.
var refused = []uint32{
	// Namespaces and the mount table.
	unix.SYS_UNSHARE, unix.SYS_SETNS,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_TREE_ATTR,
	// Files by handle go around every path check.
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
	// Keyrings are shared by all processes of a user.
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	// Kernel programs, tracing and fault handling.
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT,
	// Modules, other kernels, the machine's power, swap, accounting and clock.
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SYSLOG, unix.SYS_VHANGUP,
	unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_NFSSERVCTL,
	// Memory of other processes moved between nodes.
	unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	// NUMA and profiling buffers left from old kernels.
	unix.SYS_LOOKUP_DCOOKIE,
}

// absent calls answer ENOSYS, because programs that try them have another way.
var absent = []uint32{
	unix.SYS_CLONE3,
	unix.SYS_OPENAT2, // its mode is in memory, out of the filter's sight
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

// modeCalls give a file a mode.
var modeCalls = []modeCall{
	{nr: unix.SYS_FCHMOD, mode: 1, flags: -1},
	{nr: unix.SYS_FCHMODAT, mode: 2, flags: -1, named: true},
	{nr: unix.SYS_FCHMODAT2, mode: 2, flags: -1, named: true},
	{nr: unix.SYS_OPENAT, mode: 3, flags: 2},
	{nr: unix.SYS_MKNODAT, mode: 2, flags: -1, node: true, makes: true},
}

// nameCalls make, move or cut files by name.
var nameCalls = []uint32{
	unix.SYS_MKDIRAT, unix.SYS_SYMLINKAT, unix.SYS_LINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_TRUNCATE,
	unix.SYS_BIND,  // a socket's name is a file
	unix.SYS_UMASK, // the broker makes files in the caller's stead
}

// removeCalls remove files or change their attributes. Those that give a
// mode are among the modeCalls.
var removeCalls = []uint32{
	unix.SYS_UNLINKAT, unix.SYS_FCHOWNAT, unix.SYS_FCHOWN, unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT,
	unix.SYS_FILE_SETATTR,
}

// lookCalls look at files by name, remove them or change their attributes.
var lookCalls = []uint32{
	nrFstatat, unix.SYS_STATX, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_READLINKAT,
	unix.SYS_CHDIR, unix.SYS_UNLINKAT, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_SETXATTRAT, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_REMOVEXATTRAT,
}

const openDirectory = unix.O_DIRECTORY

// maxNr is the newest call known to be harmless or listed above: file_setattr
// of Linux 6.17, the same number on every architecture Bailey runs on.
const maxNr = 469
