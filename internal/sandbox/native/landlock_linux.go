package native

import (
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Landlock rights, grouped by what a rule grants.
const (
	rightsRead    = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	rightsExecute = unix.LANDLOCK_ACCESS_FS_EXECUTE
	rightsWrite   = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
	rightsRemove = unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE
	rightsDevice = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// Rights that are handled, and so refused, but that no rule grants.
	rightsNever = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK

	// What a rule on something other than a directory may contain.
	rightsOfFile = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// handledRights returns the file rights that exist from an interface on.
func handledRights(abi int) uint64 {
	all := uint64(rightsRead | rightsExecute | rightsWrite | rightsDevice | rightsNever)
	if abi < 2 {
		all &^= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi < 3 {
		all &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi < 5 {
		all &^= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return all
}

// landlockABI asks the kernel for its interface; 0 means Landlock is missing.
func landlockABI() (int, unix.Errno) {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0, errno
	}
	return int(abi), 0
}

// Scopes of interface 6.
const (
	scopeAbstract = 1 << 0
	scopeSignals  = 1 << 1
)

type rulesetAttr struct{ fs, net, scoped uint64 }

type pathAttr struct {
	access uint64
	fd     uintptr // the kernel reads the low half, which comes first
}

// landlock confines what follows to the Spec's rules. It is a second wall: a
// file that slipped past the mounts would meet it.
func (l *launcher) landlock() {
	handled := handledRights(l.abi)
	attr := place(l.plan, rulesetAttr{fs: handled})
	size := 8
	if l.abi >= 6 {
		size, attr.scoped = int(unsafe.Sizeof(*attr)), scopesOf(&l.spec.Landlock)
	}
	l.begin(WallLandlock, "create the landlock ruleset", "", "")
	set := l.result(l.call(unix.SYS_LANDLOCK_CREATE_RULESET, l.ptr(unsafe.Pointer(attr)), num(size), num(0)))
	l.rules(from(set), handled, l.spec.Landlock.Rules)
	l.restrict(from(set))
}

// scopesOf are what stays within, from interface 6 on.
func scopesOf(l *spec.Landlock) (scopes uint64) {
	if l.ScopeAbstract {
		scopes |= scopeAbstract
	}
	if l.ScopeSignals {
		scopes |= scopeSignals
	}
	return scopes
}

// rules adds rules for paths as they lead inside, and for the streams.
func (l *launcher) rules(set arg, handled uint64, list []spec.LandlockRule) {
	for i := range list {
		r := &list[i]
		l.begin(WallLandlock, "landlock rule", r.Path, "")
		rule := (*pathAttr)(l.alloc(16))
		rule.access = rightsOf(r) & handled
		l.openInto(&rule.fd, unix.AT_FDCWD, r.Path)
		l.allow(set, rule)
		l.call(unix.SYS_CLOSE, from(&rule.fd))
	}
	for fd, access := range l.streams {
		if access &= handled; access != 0 {
			l.begin(WallLandlock, "landlock rule for stream", strconv.Itoa(fd), "")
			rule := (*pathAttr)(l.alloc(16))
			*rule = pathAttr{access, uintptr(fd)}
			l.allow(set, rule)
		}
	}
}

// restrict enters a ruleset.
func (l *launcher) restrict(set arg) {
	l.begin(WallLandlock, "no new privileges", "", "")
	l.call(unix.SYS_PRCTL, num(unix.PR_SET_NO_NEW_PRIVS), num(1), num(0), num(0), num(0))
	l.begin(WallLandlock, "enter the landlock ruleset", "", "")
	l.call(unix.SYS_LANDLOCK_RESTRICT_SELF, set, num(0))
	l.call(unix.SYS_CLOSE, set)
}

func (l *launcher) allow(set arg, rule *pathAttr) {
	const pathBeneath = 1 // LANDLOCK_RULE_PATH_BENEATH
	l.call(unix.SYS_LANDLOCK_ADD_RULE, set, num(pathBeneath), l.ptr(unsafe.Pointer(rule)), num(0))
}

func rightsOf(r *spec.LandlockRule) uint64 {
	var access uint64
	if r.List {
		access |= unix.LANDLOCK_ACCESS_FS_READ_DIR
	}
	if r.Read {
		access |= rightsRead
	}
	if r.Write {
		access |= rightsWrite
	}
	if r.Remove {
		access |= rightsRemove
	}
	if r.Execute {
		access |= rightsExecute
	}
	if r.Device {
		access |= rightsDevice
	}
	if r.Truncate {
		access |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if r.File {
		access &= rightsOfFile
	}
	return access
}

// streamRights are the rights to open one of the command's own streams again,
// through /dev/stdout and its kin: what the stream itself can do, if it is a
// file or a device such as /dev/null or a terminal. Pipes and sockets need no
// rule.
func streamRights(fd int) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return 0, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR || flags&unix.O_PATH != 0 {
		return 0, ErrDirectory
	}
	var access uint64
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFCHR:
		access = rightsDevice
	default:
		return 0, nil
	}
	if flags&unix.O_ACCMODE != unix.O_WRONLY {
		access |= unix.LANDLOCK_ACCESS_FS_READ_FILE
	}
	if flags&unix.O_ACCMODE != unix.O_RDONLY {
		access |= unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	return access, nil
}

// isTruncatable says whether a stream that can only be read could be cut short
// by its name in /proc, because Landlock does not know of that yet.
func isTruncatable(access uint64, abi int) bool {
	return access == unix.LANDLOCK_ACCESS_FS_READ_FILE && handledRights(abi)&unix.LANDLOCK_ACCESS_FS_TRUNCATE == 0
}
