package native

import (
	"path"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/trace"
)

// Descriptors the child gives fixed numbers. Everything else it inherits is
// closed at once, so that from then on nothing of the launcher can leak.
const (
	fdStatus  = 3 // pipe to the launcher; the only one process 1 keeps
	fdInit    = 4 // the program of process 1
	fdSocket  = 5 // socket over which descriptors go out
	fdGo      = 6 // pipe: a byte when the launcher has done its next part
	fdOld     = 7 // root directory of the host
	fdScratch = 8 // directory in memory that private directories are taken from
	fdSpare   = 9 // the next one opened, closed again before another is
	fdFirst   = 10
)

// stage is where the memory file system is attached for a moment. Any
// directory that every host has would do.
const stage = "/tmp"

// inherited are the launcher's descriptors that the child gets; -1 is none.
type inherited struct {
	stdio   [3]int
	status  int
	init    int
	socket  int
	proceed int
}

// builder adds calls to a plan. A launch has three: the birth and the prelude,
// which are the same for every Spec and run while the launcher still compiles it,
// and the rest.
type builder struct {
	*plan
	trace *trace.Log
	marks []mark
	tree
}

// tree is the new root directory as far as it is built.
type tree struct {
	made   map[string]bool // directories and files that exist in it
	shown  []shownMount    // mounts so far, to find what covers a path
	serial int             // names for scratch directories
	over   *spec.Overlay   // that stands at the scratch directory overAt, or nil
	overAt string
	// upperAt is the scratch directory that its changes go to, if that is one.
	upperAt string
	view    *spec.Rules // that stands at the scratch directory viewAt, or nil
	viewAt  string
}

// shownMount is a mount that stands, and whether its content can be added to.
type shownMount struct {
	target string
	fresh  bool
}

// birth makes the namespaces, which is all that can be done before anything is
// known.
func (b *builder) birth(p *pipes, network spec.Network) (next *[2]uintptr) {
	b.mark("clone")
	b.mortal()
	b.begin(WallInit, "close the launcher's descriptors", "", "")
	// So that they are closed once the launcher is gone.
	for _, fd := range [...]int{p.status, p.release, p.socket} {
		b.call(unix.SYS_CLOSE, num(fd))
	}
	b.namespaces()
	if network.IsOwn() {
		b.network()
	}
	b.mark("namespaces")
	return b.pause(p.in.proceed, "wait for the prelude")
}

// prelude leaves the host's root directory, and starts the new one with what every
// sandbox has.
func (b *builder) prelude(in inherited, id spec.Identity) (umask cell) {
	b.timers()
	umask = b.descriptors(in)
	b.identity(id)
	b.bound()
	b.stage()
	b.root()
	b.proc()
	b.dev()
	b.mark("root, proc, dev")
	return umask
}

// launcher builds the rest of the plan, for one Spec.
type launcher struct {
	builder
	spec    *spec.Spec
	tty     *Terminal
	stays   bool   // it is a resident sandbox
	grouped bool   // a control group of its own holds it
	files   uint64 // soft limit of open files, or 0
	abi     int
	streams [3]uint64 // landlock rights on the streams' own files
	sockets []gateSocket

	connected bool // its network was made before; see Foresee
	mounted   bool // its mounts were made before; see Draft
}

// build adds every step after the prelude, in order.
func (l *launcher) build(umask cell) {
	l.mark("wait for spec")
	l.group()
	l.storage()
	if !l.connected {
		l.gateway()
	}
	if !l.mounted {
		l.ruled()
		l.mounts(l.spec.Mounts, l.spec.Overlay)
		l.handOutChanges()
		l.mark("mounts")
	}
	l.terminal()
	l.leaveHost(umask)
	l.limits()
	l.mark("terminal, old root")
	l.landlock()
	l.mark("landlock")
	l.privileges()
	l.mark("capabilities")
	l.filter()
	l.mark("seccomp")
	l.exec()
}

// mortal ties the child to the launcher's thread. Should that have died before,
// the child finds the other end of its pipe closed where it waits for the Spec.
func (b *builder) mortal() {
	b.begin(WallInit, "die with the launcher", "", "")
	b.call(unix.SYS_PRCTL, num(unix.PR_SET_PDEATHSIG), num(int(unix.SIGKILL)), num(0), num(0), num(0))
}

// descriptors moves the streams and the launcher's pipe to their numbers and
// closes all others. Sources are moved up first, so that no target overwrites
// a source that is still needed.
func (b *builder) descriptors(in inherited) (umask cell) {
	b.begin(WallInit, "arrange descriptors", "", "")
	sources := [...]int{in.stdio[0], in.stdio[1], in.stdio[2], in.status, in.init, in.socket, in.proceed}
	var high [len(sources)]cell
	for i, fd := range sources {
		high[i] = b.result(b.call(unix.SYS_FCNTL, num(fd), num(unix.F_DUPFD), num(fdFirst)))
	}
	for i, c := range high {
		flags := unix.O_CLOEXEC
		if i <= fdStatus {
			flags = 0
		}
		b.call(unix.SYS_DUP3, from(c), num(i), num(flags))
	}
	b.call(unix.SYS_CLOSE_RANGE, num(fdOld), num(uint32(1<<32-1)), num(0))
	// Directories below get exactly the mode asked for; the command's own mask
	// comes back at the end.
	return b.result(b.call(unix.SYS_UMASK, num(0)))
}

// namespaces leaves the host's. The user and pid namespaces came with the
// clone: the first is what allows the others, the second only takes children.
func (b *builder) namespaces() {
	for _, ns := range [...]struct {
		wall Wall
		flag int
	}{
		{WallMount, unix.CLONE_NEWNS},
		{WallIPC, unix.CLONE_NEWIPC},
		{WallUTS, unix.CLONE_NEWUTS},
		{WallCgroup, unix.CLONE_NEWCGROUP},
	} {
		b.begin(ns.wall, "enter a new", string(ns.wall), "")
		b.call(unix.SYS_UNSHARE, num(ns.flag))
	}
}

// network enters a network with nothing in it, and brings up its loopback, so
// that programs that talk to themselves work.
func (b *builder) network() {
	b.begin(WallNetwork, "enter a new", string(WallNetwork), "")
	b.call(unix.SYS_UNSHARE, num(unix.CLONE_NEWNET))
	b.begin(WallNetwork, "bring up loopback", "", "")
	req := (*[40]byte)(b.alloc(40)) // struct ifreq
	copy(req[:], "lo")
	*(*uint16)(unsafe.Pointer(&req[16])) = unix.IFF_UP | unix.IFF_RUNNING
	fd := b.result(b.call(unix.SYS_SOCKET, num(unix.AF_INET), num(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC), num(0)))
	b.call(unix.SYS_IOCTL, from(fd), num(unix.SIOCSIFFLAGS), b.ptr(unsafe.Pointer(req)))
	b.call(unix.SYS_CLOSE, from(fd))
}

// identity maps the caller to itself, or to whom it is shown as. An ordinary user may write that map
// alone; for root the launcher has written it, since only a process in the parent
// namespace may map every id.
func (b *builder) identity(id spec.Identity) {
	if id.Full {
		return
	}
	uid, gid := strconv.Itoa(id.UID), strconv.Itoa(id.GID)
	insideUID, insideGID := id.Inside()
	// The kernel wants setgroups off before a user writes its own group map.
	b.write(WallUser, "/proc/self/setgroups", "deny")
	b.write(WallUser, "/proc/self/gid_map", strconv.Itoa(insideGID)+" "+gid+" 1\n")
	b.write(WallUser, "/proc/self/uid_map", strconv.Itoa(insideUID)+" "+uid+" 1\n")
}

func (b *builder) write(w Wall, file, text string) {
	b.begin(w, "write", file, "")
	fd := b.result(b.call(unix.SYS_OPENAT, num(unix.AT_FDCWD), b.str(file), num(unix.O_WRONLY|unix.O_CLOEXEC), num(0)))
	b.call(unix.SYS_WRITE, from(fd), b.str(text), num(len(text)))
	b.call(unix.SYS_CLOSE, from(fd))
}

// stage puts a memory file system in the place of the host's root, which moves
// below it, so that it covers nothing of the host. Two descriptors lead on from
// here: fdOld, from which grants are taken, and fdScratch, from which private
// directories are.
func (b *builder) stage() {
	b.begin(WallMount, "make mounts private", "/", "")
	// Private, not slave: what the host mounts later below a granted directory
	// would otherwise appear inside, without the grant's read-only flag.
	b.call(unix.SYS_MOUNT, num(0), b.str("/"), num(0), num(unix.MS_REC|unix.MS_PRIVATE), num(0))
	b.begin(WallMount, "open", "/", "")
	b.openDir("/") // the lowest free number: fdOld

	b.begin(WallMount, "mount tmpfs", "", stage)
	b.call(unix.SYS_MOUNT, b.str("tmpfs"), b.str(stage), b.str("tmpfs"),
		num(unix.MS_NOSUID|unix.MS_NODEV), b.str("mode=0755"))
	b.call(unix.SYS_CHDIR, b.str(stage))
	for _, name := range []string{"host", "private", "root"} {
		b.call(unix.SYS_MKDIRAT, num(unix.AT_FDCWD), b.str(name), num(0o755))
	}
	b.openDir("private") // fdScratch
	b.begin(WallMount, "pivot_root", "", stage)
	b.call(unix.SYS_PIVOT_ROOT, b.str("."), b.str("host"))
}

func (b *builder) openDir(name string) {
	b.call(unix.SYS_OPENAT, num(unix.AT_FDCWD), b.str(name), num(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC), num(0))
}

// root enters the new root directory. The stage and the host's root stay
// attached underneath, out of reach of every path, until leaveHost.
func (b *builder) root() {
	b.begin(WallMount, "make the new root", "", "")
	b.shown = append(b.shown, shownMount{"/", true})
	b.attach(b.clone(num(unix.AT_FDCWD), "/root", 0), "/root")
	b.call(unix.SYS_CHDIR, b.str("/root"))
	b.call(unix.SYS_PIVOT_ROOT, b.str("."), b.str("."))
}

// proc mounts a fresh /proc for the new pid namespace, which the kernel allows
// only while the host's own is still in the namespace. It is read-only: as root
// the kernel would otherwise let the owner of its files write to /proc/sys and
// /proc/sysrq-trigger without any capability.
func (b *builder) proc() {
	b.begin(WallProc, "mount proc", "", "/proc")
	b.ensureDir("/proc")
	b.call(unix.SYS_MOUNT, b.str("proc"), b.str("/proc"), b.str("proc"),
		num(unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY), num(0))
	b.shown = append(b.shown, shownMount{"/proc", false})
}

// devices every program may expect. All are harmless and the same for every
// process; mknod is refused in a user namespace, so they are the host's.
var devices = [...]string{"null", "zero", "full", "random", "urandom", "tty"}

var deviceLinks = [...][2]string{
	{"/proc/self/fd", "fd"},
	{"/proc/self/fd/0", "stdin"},
	{"/proc/self/fd/1", "stdout"},
	{"/proc/self/fd/2", "stderr"},
	{"pts/ptmx", "ptmx"},
}

// dev makes a minimal /dev with pseudo-terminals and shared memory of its own.
// It is made read-only with the root directory, of which it is a part.
func (b *builder) dev() {
	for _, name := range devices {
		b.bind(&spec.Mount{Kind: spec.Bind, Source: "/dev/" + name, Target: "/dev/" + name, File: true, Write: true, Devices: true})
	}
	for _, link := range deviceLinks {
		b.symlink(link[0], "/dev/"+link[1])
	}
	b.devpts()
	b.private("/dev/shm", 0o1777)
}

// devpts makes pseudo-terminals of the sandbox's own.
func (b *builder) devpts() {
	b.begin(WallMount, "mount devpts", "", "/dev/pts")
	b.ensureDir("/dev/pts")
	// No gid=5: the group tty has no number in the namespace of a user.
	b.call(unix.SYS_MOUNT, b.str("devpts"), b.str("/dev/pts"), b.str("devpts"),
		num(unix.MS_NOSUID|unix.MS_NOEXEC), b.str("newinstance,ptmxmode=0666,mode=0620"))
	b.shown = append(b.shown, shownMount{"/dev/pts", false})
}

// mounts makes everything a Spec lists. What of it lies in the overlay, if there
// is one, is taken from there.
func (b *builder) mounts(list []spec.Mount, over *spec.Overlay) {
	if over != nil && b.over == nil { // a view may have wanted it before
		b.layers(over)
	}
	for i := range list {
		m := &list[i]
		switch m.Kind {
		case spec.Proc, spec.Dev: // stand already
		case spec.Dir:
			b.directory(m.Target, modeOf(m))
		case spec.Symlink:
			b.symlink(m.Source, m.Target)
		case spec.Tmpfs:
			b.private(m.Target, modeOf(m))
		case spec.Bind:
			b.bind(m)
		case spec.Private:
			b.overlay(m)
		case spec.Hide:
			b.hide(m)
		}
	}
	for i := range list {
		if m := &list[i]; m.Way { // what is in it stands by now
			b.begin(WallMount, "make read-only", m.Target, "")
			at := b.open(unix.AT_FDCWD, m.Target)
			b.setattrAt(from(at), "", unix.AT_EMPTY_PATH, unix.MOUNT_ATTR_RDONLY)
			b.call(unix.SYS_CLOSE, from(at))
		}
	}
	b.begin(WallMount, "make read-only", "/", "")
	b.setattrPath("/", unix.MOUNT_ATTR_RDONLY)
}

// bind shows a path of the host. It is opened without following any symbolic
// link, so that it cannot be exchanged between the decision and now.
func (b *builder) bind(m *spec.Mount) {
	b.begin(WallMount, "bind", m.Source, m.Target)
	switch {
	case m.File:
		b.ensureFile(m.Target)
	case m.Write:
		// What is written beside a granted directory would vanish, so there
		// nothing can be.
		b.ensureDirs(m.Target, 0o555)
	default:
		b.ensureDir(m.Target)
	}
	var tree cell
	if !b.isBorrowed(m.Source) && (m.Devices || strings.Count(m.Source, "/") <= 2) {
		// Nobody who could be meant to be kept out can put a link before the
		// last element, and one at the end is not followed.
		tree = b.clone(num(fdOld), m.Source[1:], unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW)
	} else {
		src := b.openSource(m.Source)
		tree = b.clone(from(src), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
		b.call(unix.SYS_CLOSE, from(src))
	}
	b.setattr(from(tree), unix.AT_RECURSIVE, attrsOf(m))
	b.attach(tree, m.Target)
	b.shown = append(b.shown, shownMount{m.Target, false})
}

// private gives the target a writable directory of its own, taken from the
// memory file system that all private directories share.
func (b *builder) private(target string, mode uint32) {
	b.begin(WallMount, "make private", target, "")
	b.ensureDir(target)
	name := b.scratch(mode)
	b.attach(b.clone(num(fdScratch), name, 0), target)
	b.shown = append(b.shown, shownMount{target, true})
}

// overlay shows a directory of the host whose changes stay in memory.
func (b *builder) overlay(m *spec.Mount) {
	b.begin(WallPrivate, "overlay", m.Source, m.Target)
	b.ensureDir(m.Target)
	upper, work := b.scratch(0o755), b.scratch(0o755)
	lower := b.openSource(m.Source) // the lowest free number: fdSpare
	const fds = "/proc/self/fd/"
	scratch := fds + strconv.Itoa(fdScratch) + "/"
	// Named through descriptors, the paths need no quoting and follow no link.
	b.call(unix.SYS_MOUNT, b.str("overlay"), b.str(m.Target), b.str("overlay"), num(unix.MS_NOSUID|unix.MS_NODEV),
		b.str("lowerdir="+fds+strconv.Itoa(fdSpare)+",upperdir="+scratch+upper+",workdir="+scratch+work+",userxattr"))
	b.call(unix.SYS_CLOSE, from(lower))
	b.shown = append(b.shown, shownMount{m.Target, false})
}

// hide covers a path with an empty file or directory that nobody may open. The
// first of each kind is made read-only where it lies, and its copies are too.
func (b *builder) hide(m *spec.Mount) {
	b.begin(WallMount, "hide", m.Target, "")
	name := "hidden-" + m.Source
	if !b.made[name] {
		b.made[name] = true
		if m.Source == "dir" {
			b.call(unix.SYS_MKDIRAT, num(fdScratch), b.str(name), num(0))
		} else {
			b.call(unix.SYS_MKNODAT, num(fdScratch), b.str(name), num(unix.S_IFREG), num(0))
		}
		b.call(unix.SYS_FCHDIR, num(fdScratch))
		first := b.clone(num(fdScratch), name, 0)
		b.setattr(from(first), 0, unix.MOUNT_ATTR_RDONLY)
		b.call(unix.SYS_MOVE_MOUNT, from(first), b.str(""), num(fdScratch), b.str(name), num(unix.MOVE_MOUNT_F_EMPTY_PATH))
		b.call(unix.SYS_CLOSE, from(first))
	}
	if hasPrefix(m.Target, "/proc") || hasPrefix(m.Target, "/etc") {
		// Only the host's administrator puts links there. One call then does
		// what takes five elsewhere; the name is below fdScratch.
		b.call(unix.SYS_MOUNT, b.str(name), b.str(m.Target), num(0), num(unix.MS_BIND), num(0))
	} else {
		b.attach(b.clone(num(fdScratch), name, 0), m.Target)
	}
	b.shown = append(b.shown, shownMount{m.Target, false})
}

// terminal opens a pseudo-terminal in the sandbox's own /dev/pts, gives its
// other end to the launcher, and puts it in the place of the streams that were
// the caller's terminal.
func (l *launcher) terminal() {
	if l.tty == nil {
		return
	}
	l.begin(WallTerminal, "open a terminal", "/dev/pts/ptmx", "")
	msg := l.message(1)
	master := cell(msg.descriptor(0))
	l.call(unix.SYS_OPENAT, num(unix.AT_FDCWD), l.str("/dev/pts/ptmx"), num(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC), num(0)).out = uintptr(unsafe.Pointer(msg.descriptor(0)))
	l.call(unix.SYS_IOCTL, from(master), num(unix.TIOCSPTLCK), l.ptr(l.alloc(4)))
	if l.tty.Termios != nil {
		l.call(unix.SYS_IOCTL, from(master), num(unix.TCSETS), l.ptr(unsafe.Pointer(place(l.plan, *l.tty.Termios))))
	}
	if l.tty.Size != nil {
		l.call(unix.SYS_IOCTL, from(master), num(unix.TIOCSWINSZ), l.ptr(unsafe.Pointer(place(l.plan, *l.tty.Size))))
	}
	peer := l.result(l.call(unix.SYS_IOCTL, from(master), num(unix.TIOCGPTPEER), num(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)))
	for i, use := range l.tty.Streams {
		if use {
			l.call(unix.SYS_DUP3, from(peer), num(i), num(0))
		}
	}
	l.call(unix.SYS_CLOSE, from(peer))

	l.send(msg, 0)
	l.call(unix.SYS_CLOSE, from(master))
}

// leaveHost detaches the old root: from here on no path and no descriptor leads
// to anything but the Spec's mounts.
func (l *launcher) leaveHost(umask cell) {
	l.begin(WallMount, "detach the old root", "", "")
	l.call(unix.SYS_CHDIR, l.str("/"))
	l.call(unix.SYS_UMOUNT2, l.str("."), num(unix.MNT_DETACH))
	l.call(unix.SYS_CLOSE_RANGE, num(fdGo), num(uint32(1<<32-1)), num(0))
	l.begin(WallDir, "change to", l.spec.Dir, "")
	l.call(unix.SYS_CHDIR, l.str(l.spec.Dir))
	l.begin(WallInit, "restore the file mode mask", "", "")
	l.call(unix.SYS_UMASK, from(umask))
}

// bound gives up what could be got by an exec: the capabilities that the child
// has stay with it until privileges takes them.
func (b *builder) bound() {
	b.begin(WallUser, "bound capabilities", "", "")
	// A keyring of the session's own: the caller's is no longer possessed.
	const joinSessionKeyring = 1
	b.call(unix.SYS_KEYCTL, num(joinSessionKeyring), num(0)).tolerate = uintptr(unix.ENOSYS)
	for c := range lastCapability + 1 {
		b.call(unix.SYS_PRCTL, num(unix.PR_CAPBSET_DROP), num(c)).tolerate = uintptr(unix.EINVAL) // this kernel has fewer
	}
}

// privileges gives up every capability in the other four sets, for good: the
// securebits keep an exec by user 0 from getting them back.
func (l *launcher) privileges() {
	l.begin(WallUser, "drop capabilities", "", "")
	const secbits = 0xef // no root magic, no setuid fix-up, no ambient set; all locked
	l.call(unix.SYS_PRCTL, num(unix.PR_SET_SECUREBITS), num(secbits))
	l.call(unix.SYS_PRCTL, num(unix.PR_CAP_AMBIENT), num(unix.PR_CAP_AMBIENT_CLEAR_ALL), num(0), num(0), num(0))
	hdr := place(l.plan, unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3})
	l.call(unix.SYS_CAPSET, l.ptr(unsafe.Pointer(hdr)), l.ptr(unsafe.Pointer(place(l.plan, [2]unix.CapUserData{}))))
}

// lastCapability is past the newest a kernel has (40), so that one that comes
// with an update is dropped too.
const lastCapability = 47

// filter installs the system call filter, last, so that it need not allow what
// only the launch itself calls.
func (l *launcher) filter() {
	l.begin(WallSeccomp, "install the system call filter", "", "")
	options := filterOptions(l.spec)
	fprog := l.program(seccomp.New(options))
	if l.spec.Broker == nil {
		l.call(unix.SYS_SECCOMP, num(unix.SECCOMP_SET_MODE_FILTER), num(0), fprog)
		return
	}
	// A call that was taken by the broker is not interrupted by signals, or it
	// would be performed twice.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	msg := l.message(1)
	l.call(unix.SYS_SECCOMP, num(unix.SECCOMP_SET_MODE_FILTER), num(flags), fprog).out = uintptr(unsafe.Pointer(msg.descriptor(0)))
	l.begin(WallSeccomp, "hand out the listener", "", "")
	if !options.Datagrams {
		l.send(msg, 0)
		return
	}
	// Nobody can be asked about this message yet. What lets it through is taken
	// back at once.
	l.send(msg, seccomp.HandOut)
	l.call(unix.SYS_SECCOMP, num(unix.SECCOMP_SET_MODE_FILTER), num(0), l.program(seccomp.HandedOut()))
}

func filterOptions(s *spec.Spec) seccomp.Options {
	options := seccomp.Options{Families: families(s.Seccomp.Families)}
	if broker := s.Broker; broker != nil {
		options.Writes = len(broker.Areas) > 0
		options.Reads, options.Sockets, options.Execs = broker.Read, !broker.Sockets.All, broker.Commands != nil
		options.Execs = options.Execs || broker.Read
		options.Removes, options.Observe = broker.Strict, broker.Observe
		options.Datagrams = options.Sockets && broker.Sockets.Datagrams
	}
	return options
}

// program is a filter in the kernel's form.
func (l *launcher) program(p seccomp.Profile) arg {
	prog := seccomp.Assemble(p)
	size := len(prog) * int(unsafe.Sizeof(prog[0]))
	at := l.alloc(size)
	copy(unsafe.Slice((*byte)(at), size), unsafe.Slice((*byte)(unsafe.Pointer(&prog[0])), size))
	f := place(l.plan, unix.SockFprog{Len: uint16(len(prog)), Filter: (*unix.SockFilter)(at)})
	l.inner = append(l.inner, (*uintptr)(unsafe.Pointer(&f.Filter)))
	return l.ptr(unsafe.Pointer(f))
}

// send gives descriptors to the launcher.
func (l *launcher) send(msg *rightsMessage, flags int) {
	l.call(unix.SYS_SENDMSG, num(fdSocket), l.ptr(unsafe.Pointer(&msg.hdr)), num(flags))
}

func families(names []string) []uint32 {
	var out []uint32
	for _, n := range names {
		switch n {
		case "unix":
			out = append(out, seccomp.FamilyUnix)
		case "inet":
			out = append(out, seccomp.FamilyInet)
		case "inet6":
			out = append(out, seccomp.FamilyInet6)
		case "netlink":
			out = append(out, seccomp.FamilyNetlink)
		}
	}
	return out
}

// exec becomes process 1. It gets the command's argv and environment, which it
// hands on. That of a resident sandbox gets them with each command.
func (l *launcher) exec() {
	l.begin(WallInit, "execute process 1", "", "")
	argv, env := l.spec.Argv, l.spec.Env
	if l.stays {
		argv, env = []string{"bailey-init"}, nil
	}
	l.call(unix.SYS_EXECVEAT, num(fdInit), l.str(""), l.vector(argv), l.vector(env), num(unix.AT_EMPTY_PATH))
}

// open opens a path below a directory without following any symbolic link. A
// link at its end is opened itself: a protected link is mounted on itself, and
// then cannot be replaced.
func (b *builder) open(dir int, name string) cell {
	fd := (*uintptr)(b.alloc(8))
	b.openInto(fd, dir, name)
	return fd
}

func (b *builder) openInto(fd *uintptr, dir int, name string) {
	if dir == fdOld {
		name = strings.TrimPrefix(name, "/")
	}
	if name == "" {
		name = "."
	}
	how := (*unix.OpenHow)(b.alloc(unix.SizeofOpenHow))
	how.Flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	how.Resolve = unix.RESOLVE_NO_SYMLINKS
	b.call(unix.SYS_OPENAT2, num(dir), b.str(name), b.ptr(unsafe.Pointer(how)), num(unix.SizeofOpenHow)).out = uintptr(unsafe.Pointer(fd))
}

// clone returns a detached copy of the mount at a path.
func (b *builder) clone(dir arg, name string, flags int) cell {
	return b.result(b.call(unix.SYS_OPEN_TREE, dir, b.str(name), num(flags|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)))
}

// attach puts a detached mount at a path of the new root. In what the host
// shows the path is opened without following links first; in the directories
// made here there are none but our own.
func (b *builder) attach(tree cell, target string) {
	if b.fresh(target) {
		b.call(unix.SYS_MOVE_MOUNT, from(tree), b.str(""), num(unix.AT_FDCWD), b.str(target), num(unix.MOVE_MOUNT_F_EMPTY_PATH))
	} else {
		at := b.open(unix.AT_FDCWD, target)
		b.call(unix.SYS_MOVE_MOUNT, from(tree), b.str(""), from(at), b.str(""),
			num(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
		b.call(unix.SYS_CLOSE, from(at))
	}
	b.call(unix.SYS_CLOSE, from(tree))
}

// setattr sets flags of a detached mount.
func (b *builder) setattr(tree arg, flags int, set uint64) {
	b.setattrAt(tree, "", flags|unix.AT_EMPTY_PATH, set)
}

// setattrPath sets flags of the mount at a path, and of nothing below it.
func (b *builder) setattrPath(target string, set uint64) {
	b.setattrAt(num(unix.AT_FDCWD), target, 0, set)
}

func (b *builder) setattrAt(dir arg, name string, flags int, set uint64) {
	const size = int(unsafe.Sizeof(unix.MountAttr{}))
	attr := (*unix.MountAttr)(b.alloc(size))
	attr.Attr_set = set
	b.call(unix.SYS_MOUNT_SETATTR, dir, b.str(name), num(flags), b.ptr(unsafe.Pointer(attr)), num(size))
}

func attrsOf(m *spec.Mount) uint64 {
	set := uint64(unix.MOUNT_ATTR_NOSUID)
	if !m.Write {
		set |= unix.MOUNT_ATTR_RDONLY
	}
	if !m.Devices {
		set |= unix.MOUNT_ATTR_NODEV
	}
	return set
}

// scratch makes a new directory in the shared memory file system.
func (b *builder) scratch(mode uint32) string {
	b.serial++
	name := strconv.Itoa(b.serial)
	b.call(unix.SYS_MKDIRAT, num(fdScratch), b.str(name), num(mode))
	return name
}

func (b *builder) symlink(text, target string) {
	b.begin(WallMount, "link", text, target)
	b.ensureDir(path.Dir(target))
	b.call(unix.SYS_SYMLINKAT, b.str(text), num(unix.AT_FDCWD), b.str(target))
}

func (b *builder) directory(target string, mode uint32) {
	b.begin(WallMount, "make directory", target, "")
	b.ensureDir(path.Dir(target))
	if b.fresh(target) && !b.made[target] {
		b.made[target] = true
		b.call(unix.SYS_MKDIRAT, num(unix.AT_FDCWD), b.str(target), num(mode))
	}
}

// ensureDir makes a directory and its parents where the new root is ours to
// fill. Below a grant of the host everything needed exists already.
func (b *builder) ensureDir(target string) { b.ensureDirs(target, 0o755) }

func (b *builder) ensureDirs(target string, mode uint32) {
	if target == "/" || b.made[target] || !b.fresh(target) {
		return
	}
	b.ensureDirs(path.Dir(target), mode)
	b.made[target] = true
	b.call(unix.SYS_MKDIRAT, num(unix.AT_FDCWD), b.str(target), num(mode))
}

func (b *builder) ensureFile(target string) {
	b.ensureDir(path.Dir(target))
	if b.fresh(target) && !b.made[target] {
		b.made[target] = true
		b.call(unix.SYS_MKNODAT, num(unix.AT_FDCWD), b.str(target), num(unix.S_IFREG|0o444), num(0))
	}
}

// fresh reports whether the directory that holds target is one of ours. The
// last mount that covers it decides.
func (t *tree) fresh(target string) bool {
	for i := len(t.shown) - 1; i >= 0; i-- {
		if m := t.shown[i]; m.target == "/" || hasPrefix(target, m.target) {
			return m.fresh && target != m.target
		}
	}
	return true
}

// hasPrefix reports whether a path is a directory or lies below it.
func hasPrefix(name, dir string) bool {
	return strings.HasPrefix(name, dir) && (len(name) == len(dir) || name[len(dir)] == '/')
}

func modeOf(m *spec.Mount) uint32 {
	if m.Mode == 0 {
		return 0o755
	}
	return m.Mode
}
