package native

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Helper is another program that begins a sandbox: it makes the namespaces and
// shows the host's files, and then becomes the program on descriptor FDStage, as
// process 1 with every capability in those namespaces. That program makes the
// rest, in the same way as without a helper: what is mounted inside directories
// that the command can write, the network, the terminal, Landlock, the filter.
type Helper struct {
	// Runtime is what Specs call it.
	Runtime string
	// Argv is the program, as a path, and its arguments. It finds its orders on
	// descriptor FDOrder, and has no environment.
	Argv []string
	// Refuses says which parts of a Spec it cannot hold.
	Refuses func(s *spec.Spec) error
	// Order is what it is told to do.
	Order func(s *spec.Spec, outer []spec.Mount) []byte
}

// Descriptors of a helper besides streams that lead nowhere. It hands on
// everything below FDOrder.
const (
	fdRuleset = 6 // of Landlock
	fdStreams = 7 // the command's three
	FDOrder   = 10
	FDBlock   = 11 // when it has done its part it waits here for a byte
	FDStage   = 12 // the program to become
)

// HelperError is what a helper said before it ended, with nothing run.
type HelperError struct{ Text string }

func (e *HelperError) Error() string { return e.Text }

// helped is the part of an Embryo that a helper plays.
type helped struct {
	Helper
	embryo  *Embryo
	outer   []spec.Mount
	inner   []spec.Mount
	ruleset int
	stage   int
	pidfd   int
	pid     int

	says, order, block pipe
	drafted            []byte // the order, if it was given before the Spec was whole
}

// pipe has an end of ours and one of the helper's; -1 if it is closed.
type pipe struct{ ours, theirs int }

// StartIn is Start with the help of another program.
func StartIn(s *spec.Spec, o Options, help Helper) (*Process, error) {
	e, err := BeginIn(o, help)
	if err != nil {
		return nil, err
	}
	return e.Start(s)
}

// BeginIn is Begin with the help of another program, which is started and waits
// for its orders.
func BeginIn(o Options, help Helper) (*Embryo, error) {
	h := &helped{Helper: help, ruleset: -1, stage: -1, pidfd: -1}
	for _, p := range h.pipes() {
		*p = pipe{-1, -1}
	}
	mask, err := currentUmask()
	if err != nil {
		return nil, err
	}
	umask, uid := uintptr(mask), os.Geteuid()
	e := &Embryo{
		o: o, id: spec.Identity{UID: uid, GID: os.Getegid(), Full: uid == 0}, fail: new(failure), umask: &umask, helped: h,
		proc:    &Process{pidfd: -1, status: -1, trace: o.Trace},
		prelude: builder{plan: newPlan(0), tree: tree{made: make(map[string]bool)}},
	}
	h.embryo = e
	if err = h.open(); err == nil {
		err = h.spawn()
	}
	if err != nil {
		h.abandon()
		return nil, err
	}
	Discard() // what was begun for another
	o.Trace.Mark("prepare")
	return e, nil
}

func (h *helped) pipes() []*pipe { return []*pipe{&h.says, &h.order, &h.block} }

// start has the helper make the sandbox of a Spec and waits for the command to
// run.
func (h *helped) start(s *spec.Spec) (*Process, error) {
	e := h.embryo
	err := h.run(s)
	if err == nil {
		h.close()
		closeAll(&e.pipes.release, &e.pipes.socket)
		e.proc.umask = int(*e.umask)
		return e.proc, nil
	}
	h.abandon()
	switch {
	case errors.Is(err, errChanged):
		return StartIn(s, e.o, h.Helper)
	case lacksIPv6(err):
		e.o.onlyIPv4 = true
		return StartIn(s, e.o, h.Helper)
	case isOptional(s, err):
		return withoutCapture(s, func(s *spec.Spec) (*Process, error) { return StartIn(s, e.o, h.Helper) })
	}
	return nil, err
}

// errChanged says that the Spec is not what the helper was told.
var errChanged = errors.New("the spec changed")

func (h *helped) run(s *spec.Spec) error {
	e := h.embryo
	if err := h.Refuses(s); err != nil {
		return err
	}
	l, err := e.compile(s)
	if err != nil {
		return err
	}
	if h.drafted != nil && !bytes.Equal(h.drafted, h.Order(s, h.outer)) {
		return errChanged
	}
	if _, err := unix.Write(h.stage, stageImage(l.plan)); err != nil {
		return &LaunchError{Step: "write the program that goes on", Errno: ErrnoOf(err), Wall: WallInit}
	}
	// A file that somebody can still write cannot be executed.
	closeAll(&h.stage, &e.pipes.in.init)
	e.o.Trace.Mark("plan")
	if err := h.proceed(s); err != nil {
		return err
	}
	_, _ = unix.Write(h.block.ours, []byte{1}) // as with the order
	h.adopt()
	err = e.hear(l)
	runtime.KeepAlive(l)
	return err
}

// proceed lets the helper do its part, once everything of the sandbox will be in
// the right control group.
func (h *helped) proceed(s *spec.Spec) error {
	h.embryo.proc.Pid = h.pid
	if err := h.embryo.confine(s); err != nil {
		return err
	}
	if h.drafted == nil {
		h.instruct(h.Order(s, h.outer))
	}
	return nil
}

// open makes what the helper is given.
func (h *helped) open() (err error) {
	e := h.embryo
	if e.pipes, err = openPipes(e.o); err != nil {
		return err
	}
	e.proc.status = e.pipes.status
	for _, p := range h.pipes() {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return os.NewSyscallError("pipe2", err)
		}
		*p = pipe{fds[0], fds[1]}
	}
	for _, p := range []*pipe{&h.order, &h.block} { // which we write
		p.ours, p.theirs = p.theirs, p.ours
	}
	if h.ruleset, err = newRuleset(); err != nil {
		return err
	}
	h.stage, err = initFile()
	return err
}

// spawn starts the helper, in a session of its own: what the caller's terminal
// sends is for the command, which gets it from us. It dies with this thread, if it
// sees to that, and process 1 with our pipe.
func (h *helped) spawn() error {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	defer func() { _ = unix.Close(null) }()
	in := &h.embryo.pipes.in
	var files []uintptr
	for _, fd := range []int{
		null, null, h.says.theirs, in.status, in.init, in.socket, h.ruleset,
		in.stdio[0], in.stdio[1], in.stdio[2], h.order.theirs, h.block.theirs, h.stage,
	} {
		files = append(files, uintptr(fd))
	}
	attr, err := h.namespace()
	if err != nil {
		return err
	}
	h.pid, err = syscall.ForkExec(h.Argv[0], h.Argv, &syscall.ProcAttr{Dir: "/", Env: []string{}, Files: files, Sys: attr})
	switch errno := ErrnoOf(err); {
	case err != nil && attr.Cloneflags != 0 && errno != unix.ENOENT && errno != unix.EACCES:
		return &LaunchError{Step: "start " + h.Argv[0] + " in a new user namespace", Errno: errno, Wall: WallUser}
	case err != nil:
		return &LaunchError{Step: "start " + h.Argv[0], Errno: errno, Wall: WallInit}
	}
	h.embryo.proc.helper = h.pid
	closeAll(&h.says.theirs, &h.order.theirs, &h.block.theirs, &in.status, &in.socket, &in.proceed)
	return nil
}

// namespace puts the helper into a user namespace where all ids are mapped, which
// only the launcher can do. Otherwise it makes its own.
func (h *helped) namespace() (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Setsid: true, PidFD: &h.pidfd, Pdeathsig: syscall.SIGKILL}
	if !h.embryo.id.Full {
		return attr, nil
	}
	attr.Cloneflags = syscall.CLONE_NEWUSER
	for name, to := range map[string]*[]syscall.SysProcIDMap{"uid_map": &attr.UidMappings, "gid_map": &attr.GidMappings} {
		own, err := readFile("/proc/self/" + name)
		if err != nil {
			return nil, &LaunchError{Step: "read /proc/self/" + name, Errno: ErrnoOf(err), Wall: WallUser}
		}
		*to = identityMappings(own)
	}
	return attr, nil
}

// identityMappings is identityMap in the form that package syscall takes.
func identityMappings(own string) (list []syscall.SysProcIDMap) {
	for line := range strings.Lines(identityMap(own)) {
		f := strings.Fields(line)
		first, _ := strconv.Atoi(f[0]) // the kernel's own numbers
		size, _ := strconv.Atoi(f[2])
		list = append(list, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: size})
	}
	return list
}

// draft has the helper begin with what is known of a Spec. Should that change,
// run begins anew.
func (h *helped) draft(s *spec.Spec) {
	e := h.embryo
	if s.Runtime != h.Runtime || s.Identity != e.id || s.Limits != nil || e.o.Account || h.Refuses(s) != nil {
		return
	}
	if outer, _, err := Divide(h.Runtime, s); err == nil {
		h.drafted = h.Order(s, outer)
		h.instruct(h.drafted)
		e.o.Trace.Mark("mounts")
	}
}

// instruct tells the helper what to do. If it has ended, what it said will be
// known later.
func (h *helped) instruct(order []byte) {
	_, _ = unix.Write(h.order.ours, order)
	closeAll(&h.order.ours)
}

// adopt takes the descriptor of process 1, which is the helper's child. If there
// is none, it will be known soon why.
func (h *helped) adopt() {
	p := h.embryo.proc
	p.pidfd = receiveDescriptor(h.embryo.pipes.socket)
	if p.pidfd < 0 {
		return
	}
	info, _ := readFile("/proc/self/fdinfo/" + strconv.Itoa(p.pidfd))
	_, rest, _ := strings.Cut(info, "\nPid:\t")
	number, _, _ := strings.Cut(rest, "\n")
	if pid, err := strconv.Atoi(number); err == nil {
		p.Pid = pid
	}
	h.embryo.begun()
	_, _ = unix.Write(h.embryo.pipes.socket, []byte{1}) // if it has ended, that will be known
}

// failed says why the command does not run.
func (h *helped) failed(l *launcher, m message, told bool) error {
	if told {
		h.embryo.fail = l.staged(m)
		return h.embryo.failed(l)
	}
	f := os.NewFile(uintptr(h.says.ours), "stderr")
	h.says.ours = -1
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 4096)) // what there is of it
	if line := strings.TrimSpace(string(text)); line != "" {
		return &HelperError{line}
	}
	return &LaunchError{Step: "start process 1 in " + h.Argv[0], Errno: unix.ECHILD, Wall: WallInit}
}

func (h *helped) close() {
	for _, p := range h.pipes() {
		closeAll(&p.ours, &p.theirs)
	}
	closeAll(&h.ruleset, &h.stage, &h.pidfd)
}

// abandon ends the helper, and with it what it has begun.
func (h *helped) abandon() {
	e := h.embryo
	if h.pid != 0 {
		_ = unix.PidfdSendSignal(h.pidfd, unix.SIGKILL, nil, 0) // it may have ended
		if e.proc.pidfd >= 0 {
			_ = e.proc.Kill()
		}
	}
	h.close()
	if e.pipes != nil {
		e.pipes.close()
		e.proc.status = -1
	}
	if h.pid != 0 {
		e.proc.reap()
	}
	if e.proc.Terminal != nil {
		_ = e.proc.Terminal.Close()
	}
	for _, l := range e.proc.Listeners {
		_ = l.File.Close()
	}
}

// child is the process to be waited for.
func (p *Process) child() int {
	if p.helper != 0 {
		return p.helper
	}
	return p.Pid
}

// throughHelper is how process 1 ended, as a helper tells it by its own end: as
// shells do.
func throughHelper(ws unix.WaitStatus) unix.WaitStatus {
	const signalled = 128
	if ws.Exited() && ws.ExitStatus() > signalled {
		return unix.WaitStatus(ws.ExitStatus() - signalled)
	}
	return ws
}

// Helped says whether another program begins the sandbox.
func (e *Embryo) Helped() bool { return e.helped != nil }

// runtime is the one that an Embryo is.
func (e *Embryo) runtime() string {
	if e.helped != nil {
		return e.helped.Runtime
	}
	return spec.RuntimeNative
}

// currentUmask reads the file mode mask, without setting it for a moment as
// umask(2) would, for every thread:
//
//	Umask:	0022
func currentUmask() (int, error) {
	text, err := readFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(text, "\nUmask:\t")
	digits, _, _ := strings.Cut(rest, "\n")
	mask, err := strconv.ParseUint(digits, 8, 32)
	return int(mask), err
}

// build adds every step that is left to process 1, in order.
func (h *helped) build(l *launcher) error {
	var err error
	if h.outer, h.inner, err = Divide(h.Runtime, l.spec); err != nil {
		return err
	}
	left, err := h.rules(l)
	if err != nil {
		return err
	}
	l.trace = nil // its clock is in another address space
	umask := l.take()
	l.shown = h.shown()
	l.made["/dev/pts"], l.made["/dev/shm"] = true, true
	if g := l.spec.Gate; g != nil {
		l.made[path.Dir(g.Socket)] = true
	}
	l.scratchHere()
	l.gateway()
	l.layersHere()
	l.mounts(h.inner, nil)
	l.begin(WallProc, "make read-only", "/proc", "")
	l.setattrPath("/proc", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	l.devpts()
	l.terminal()
	l.settle(umask)
	l.limits()
	l.rules(num(fdRuleset), handledRights(l.abi), left)
	l.restrict(num(fdRuleset))
	l.bound()
	l.privileges()
	l.begin(WallInit, "wait for the launcher", "", "")
	l.call(unix.SYS_READ, num(fdSocket), l.ptr(l.alloc(1)), num(1)) // see adopt
	l.filter()
	l.exec()
	return nil
}

// take puts the descriptors in their places, blocks all signals, which process 1
// expects, and hands out a descriptor of this process.
func (l *launcher) take() (umask cell) {
	l.begin(WallInit, "arrange descriptors", "", "")
	all := place(l.plan, ^uint64(0))
	l.call(unix.SYS_RT_SIGPROCMASK, num(unix.SIG_BLOCK), l.ptr(unsafe.Pointer(all)), num(0), num(8))
	for i := range 3 {
		l.call(unix.SYS_DUP3, num(fdStreams+i), num(i), num(0))
	}
	for _, fd := range []int{fdInit, fdSocket, fdRuleset} {
		l.call(unix.SYS_FCNTL, num(fd), num(unix.F_SETFD), num(unix.FD_CLOEXEC))
	}
	l.call(unix.SYS_CLOSE_RANGE, num(fdOld), num(uint32(1<<32-1)), num(0))
	l.timers()
	l.begin(WallInit, "hand out process 1", "", "")
	msg := l.message(1)
	self := l.result(l.call(unix.SYS_GETPID))
	l.call(unix.SYS_PIDFD_OPEN, from(self), num(0)).out = uintptr(unsafe.Pointer(msg.descriptor(0)))
	l.send(msg, 0)
	l.call(unix.SYS_CLOSE, from(cell(msg.descriptor(0))))
	// Directories below get exactly the mode asked for; see descriptors.
	l.begin(WallInit, "change the file mode mask", "", "")
	umask = l.result(l.call(unix.SYS_UMASK, num(0)))
	l.begin(WallMount, "open", "/", "")
	l.openDir("/") // the lowest free number: fdOld, for what is left the root that the helper made
	return umask
}

// scratchHere makes the memory file system from which private directories are
// taken. It needs a place, and gets one that devpts covers afterwards.
func (l *launcher) scratchHere() {
	l.begin(WallMount, "mount tmpfs", "", scratchPlace)
	l.call(unix.SYS_MOUNT, l.str("tmpfs"), l.str(scratchPlace), l.str("tmpfs"), num(unix.MS_NOSUID|unix.MS_NODEV), l.str("mode=0755"))
	l.openDir(scratchPlace) // fdScratch
}

const scratchPlace = "/dev/pts"

// layerPlace is where a helper shows the layers of an overlay, below a directory that
// is covered afterwards.
const layerPlace = "/dev/shm/"

// layerMounts are what a helper has to show for an overlay to be made of it. Upper and
// work are one mount, as overlayfs wants them.
func layerMounts(o *spec.Overlay) (list []spec.Mount) {
	if o == nil {
		return nil
	}
	for i, dir := range o.Lowers {
		list = append(list, spec.Mount{Kind: spec.Bind, Source: dir, Target: layerPlace + strconv.Itoa(i)})
	}
	return append(list, spec.Mount{Kind: spec.Bind, Source: path.Dir(o.Upper), Target: layerPlace + "delta", Write: true})
}

// layersHere lays the overlay of a Spec over what the helper has shown, of which
// nothing but the overlay is left.
func (l *launcher) layersHere() {
	if l.spec.Overlay == nil {
		return
	}
	shown := layerMounts(l.spec.Overlay)
	over := *l.spec.Overlay
	over.Lowers = nil
	for _, m := range shown[:len(shown)-1] {
		over.Lowers = append(over.Lowers, m.Target)
	}
	delta := shown[len(shown)-1].Target
	over.Upper, over.Work = path.Join(delta, path.Base(over.Upper)), path.Join(delta, path.Base(over.Work))
	l.layers(&over)
	for _, m := range shown {
		l.call(unix.SYS_UMOUNT2, l.str(m.Target), num(unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
	}
}

// settle leaves nothing open and enters the command's directory.
func (l *launcher) settle(umask cell) {
	l.begin(WallInit, "close descriptors", "", "")
	l.call(unix.SYS_CLOSE_RANGE, num(fdOld), num(uint32(1<<32-1)), num(0))
	l.begin(WallDir, "change to", l.spec.Dir, "")
	l.call(unix.SYS_CHDIR, l.str(l.spec.Dir))
	l.begin(WallInit, "restore the file mode mask", "", "")
	l.call(unix.SYS_UMASK, from(umask))
}

// shown is what stands when process 1 begins.
func (h *helped) shown() []shownMount {
	list := []shownMount{{"/", true}}
	for i := range h.outer {
		m := &h.outer[i]
		list = append(list, shownMount{m.Target, m.Kind != spec.Bind && m.Kind != spec.Proc})
	}
	return list
}

// newRuleset makes a ruleset as every Spec wants it.
func newRuleset() (int, error) {
	abi, errno := landlockABI()
	attr := rulesetAttr{fs: handledRights(abi)}
	size := uintptr(8)
	if abi >= 6 {
		size, attr.scoped = unsafe.Sizeof(attr), scopeAbstract|scopeSignals
	}
	var fd uintptr
	if errno == 0 {
		fd, _, errno = unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	}
	if errno != 0 {
		return -1, &LaunchError{Step: "create the landlock ruleset", Errno: errno, Wall: WallLandlock}
	}
	return int(fd), nil
}

// rules adds those rules to the ruleset that are about files of the host: rules
// are about files, not paths, so should a helper show other files than those that
// were decided about, because somebody exchanged them meanwhile, none of them can
// be used. The rest is left to process 1.
func (h *helped) rules(l *launcher) (left []spec.LandlockRule, err error) {
	handled := handledRights(l.abi)
	for _, r := range l.spec.Landlock.Rules {
		path, ok := hostPath(l.spec, r.Path)
		if !ok {
			left = append(left, r)
			continue
		}
		if err := h.allow(path, rightsOf(&r)&handled); err != nil {
			return nil, &LaunchError{Step: "landlock rule " + path, Errno: ErrnoOf(err), Wall: WallLandlock}
		}
	}
	return left, nil
}

// allow adds a rule about a file of the host.
func (h *helped) allow(path string, rights uint64) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	const pathBeneath = 1 // LANDLOCK_RULE_PATH_BENEATH
	rule := pathAttr{rights, uintptr(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(h.ruleset), pathBeneath, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// hostPath is the path of the host that a path inside shows.
func hostPath(s *spec.Spec, path string) (string, bool) {
	_, m := s.Access(path)
	if m == nil || m.Kind != spec.Bind || s.Overlay.Covers(m.Source) {
		return "", false
	}
	return m.Source + strings.TrimPrefix(path, m.Target), true
}

// Divide says which mounts the helper makes, and which are left to process 1:
// those inside a directory that the command of another sandbox could write at the
// same time, and those that take more than showing a directory.
func Divide(name string, s *spec.Spec) (outer, inner []spec.Mount, err error) {
	var reasons []*spec.Unsupported
	refuse := func(m *spec.Mount) {
		key, value, _ := strings.Cut(m.Why, " ")
		reasons = append(reasons, &spec.Unsupported{
			Key: key, Value: value, Reason: "the " + name + " runtime cannot show anything else inside a directory that is granted to be written, or kept private",
			Fix: "remove it, or use --runtime native",
		})
	}
	outer = layerMounts(s.Overlay)
	covered := make(map[string]bool) // by a directory in memory that process 1 makes
	for i := range s.Mounts {
		m := s.Mounts[i]
		over := coveringMount(s.Mounts[:i], m.Target)
		within := over != nil && (over.Kind == spec.Private || over.Kind == spec.Bind && over.Write || covered[over.Target])
		shows := m.Kind == spec.Bind || m.Kind == spec.Private
		switch {
		case shows && s.Overlay.Covers(m.Source):
			inner = append(inner, m) // taken from there
		case within && shows && (over.Kind != spec.Bind || over.Source+strings.TrimPrefix(m.Target, over.Target) != m.Source):
			refuse(&m)
		case within:
			if shows {
				m.Source = m.Target
			}
			covered[m.Target] = m.Kind == spec.Tmpfs
			inner = append(inner, m)
		case m.Kind == spec.Private:
			outer = append(outer, spec.Mount{Kind: spec.Bind, Source: m.Source, Target: m.Target, Why: m.Why})
			m.Source = m.Target
			inner = append(inner, m)
		case m.Kind == spec.Hide:
			inner = append(inner, m)
		default:
			outer = append(outer, m)
		}
	}
	if len(reasons) > 0 {
		return nil, nil, &spec.Refused{Reasons: reasons}
	}
	return outer, inner, nil
}

// coveringMount is the last that a path is on.
func coveringMount(list []spec.Mount, path string) *spec.Mount {
	for i := len(list) - 1; i >= 0; i-- {
		if k := list[i].Kind; k != spec.Dir && k != spec.Symlink && hasPrefix(path, list[i].Target) && path != list[i].Target {
			return &list[i]
		}
	}
	return nil
}
