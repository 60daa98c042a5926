package oci

import (
	"cmp"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Names in a bundle's root directory and beside it.
const (
	rootName   = "rootfs"
	sourceName = "sources"
	initName   = "init"          // among the sources: the program of the first process
	initPath   = "/.bailey-init" // and where it is inside
	gateName   = "gate"          // among the sources: the network gate's socket
)

// Identity says who the command is, outside and inside.
//
// As root, no process of the sandbox is root of the host, whatever a runtime does
// wrong: ids 0 to 65535 inside are a range of the host that belongs to nobody, and the
// command is Guest in it. What root owns among the granted files is the command's
// all the same: they are mounted with root's id and Guest's exchanged.
//
// An ordinary user can map no id but the own one. Runtimes want an id 0 inside, so
// it is that one.
type Identity struct {
	First uint32 // id of the host that is 0 inside
	Count uint32
	UID   uint32 // of the command, inside
	GID   uint32
}

// Guest is the command's user and group inside, if the caller is root: that of
// nobody, which every /etc/passwd has.
const Guest = 65534

// Ranges of ids that belong to nobody, above those that systemd gives to
// containers.
const (
	firstRange = 1879048192
	rangeSize  = 65536
	rangeCount = 4096
	// Those from here on are for sandboxes that wait, many of which one process starts.
	firstWaiting = rangeCount / 2
)

// IdentityOf is the identity for a caller. Sandboxes of root whose serials differ, but
// for a multiple of the number of ranges, have no user in common.
func IdentityOf(id spec.Identity, serial uint32) Identity {
	return identityIn(id, serial%firstWaiting)
}

// identityIn is the identity in a range.
func identityIn(id spec.Identity, number uint32) Identity {
	if id.UID == 0 {
		i := Identity{First: firstRange + number*rangeSize, Count: rangeSize, UID: Guest, GID: Guest}
		if id.Shown.Set {
			i.UID, i.GID = uint32(id.Shown.UID), uint32(id.Shown.GID)
		}
		return i
	}
	return Identity{First: uint32(id.UID), Count: 1}
}

// Options are what a bundle needs besides the Spec.
type Options struct {
	// Dir is where the bundle is.
	Dir string
	// Runtime is who runs it.
	Runtime string
	// Identity is who the command is.
	Identity Identity
	// Group is the host's id of the caller's group, for an ordinary user.
	Group uint32
	// Console gives the command a terminal that the runtime makes.
	Console bool
	// Size is that terminal's, in rows and columns.
	Size [2]uint16
	// Stream is the first of the command's streams that is its terminal, or -1.
	Stream int
	// Cgroup is the path of the control group that holds the Spec's limits.
	Cgroup string
	// Umask is the command's.
	Umask uint32
	// Waits says that the command is not known yet: the first process waits for it.
	Waits bool
	// Stays says that there will be many: the first process is native.GuestProgram.
	Stays bool
}

// Config is the configuration of a bundle, and what has to be at its sources. One that
// lacks a wall is an error.
func Config(s *spec.Spec, o Options) (*specs.Spec, []Source, error) {
	c, sources, err := Compose(s, o)
	if err != nil {
		return nil, nil, err
	}
	return c, sources, Check(c, sources, s, o)
}

// Compose is Config for who says the same to somebody else than a runtime, and looks for
// the walls there.
func Compose(s *spec.Spec, o Options) (*specs.Spec, []Source, error) {
	b := &builder{spec: s, options: o, sources: []Source{{Mount: spec.Mount{Kind: spec.Dir, Target: "/"}, Files: []string{initPath}}}}
	b.mounts()
	if socket := gateSocket(s); socket != "" {
		b.out = append(b.out, ownMount(o.Dir, gateName, socket))
		b.point(&spec.Mount{Target: socket, File: true})
	}
	b.out = append(b.out, ownMount(o.Dir, initName, initPath))
	calls, err := filter(s, o.Runtime)
	if err != nil {
		return nil, nil, err
	}
	c := &specs.Spec{
		Version: "1.0.2",
		Process: b.process(),
		Root:    &specs.Root{Path: rootName, Readonly: true},
		Mounts:  b.out,
		Linux: &specs.Linux{
			UIDMappings:   []specs.LinuxIDMapping{{ContainerID: 0, HostID: o.Identity.First, Size: o.Identity.Count}},
			GIDMappings:   []specs.LinuxIDMapping{{ContainerID: 0, HostID: cmp.Or(o.Group, o.Identity.First), Size: o.Identity.Count}},
			Namespaces:    namespaces(s.Network),
			Seccomp:       calls,
			MaskedPaths:   maskedPaths(s),
			ReadonlyPaths: slices.Clone(readonlyPaths),
			Resources:     resources(s.Limits),
			CgroupsPath:   o.Cgroup,
			// A grant of the host is private already where it is taken from.
			RootfsPropagation: "private",
		},
	}
	return c, b.sources, nil
}

// profile is the native filter. The command's own asks a broker, on top of this one. Where
// there is no such filter, and the Spec does not let every unix socket be reached, there
// are none but connected pairs.
func profile(s *spec.Spec, walls bool) seccomp.Profile {
	families := native.Families(s.Seccomp.Families)
	if walls || allowsUnix(s) {
		return seccomp.New(seccomp.Options{Families: families})
	}
	families = slices.DeleteFunc(families, func(f uint32) bool { return f == seccomp.FamilyUnix })
	p := seccomp.New(seccomp.Options{Families: families, Sockets: true})
	// Of what Sockets asks for only the question is taken back: there is no socket
	// that could be connected to a path.
	p.Rules = slices.DeleteFunc(p.Rules, func(r seccomp.Rule) bool { return len(r.Checks) == 0 && r.Else == seccomp.Notify })
	return p
}

func allowsUnix(s *spec.Spec) bool { return s.Broker == nil || s.Broker.Sockets.All }

func (b *builder) process() *specs.Process {
	id, umask := b.options.Identity, b.options.Umask
	none := []string{}
	p := &specs.Process{
		Terminal:        b.options.Console,
		User:            specs.User{UID: id.UID, GID: id.GID, Umask: &umask},
		Args:            b.args(),
		Env:             slices.Clone(b.spec.Env),
		Cwd:             b.spec.Dir,
		NoNewPrivileges: true,
		Capabilities: &specs.LinuxCapabilities{
			Bounding: none, Effective: none, Inheritable: none, Permitted: none, Ambient: none,
		},
	}
	if b.options.Console {
		p.ConsoleSize = &specs.Box{Height: uint(b.options.Size[0]), Width: uint(b.options.Size[1])}
	}
	for _, r := range b.spec.Rlimits {
		p.Rlimits = append(p.Rlimits, specs.POSIXRlimit{Type: "RLIMIT_" + strings.ToUpper(r.Name), Hard: r.Value, Soft: r.Value})
	}
	return p
}

func (b *builder) args() []string {
	if b.options.Stays {
		return []string{initPath}
	}
	walls := bareWord
	if HasWalls(b.options.Runtime) {
		walls = wallsWord
	}
	if b.options.Waits {
		return []string{initPath, walls, waitWord}
	}
	return initArgs(b.spec, walls, b.options.Stream)
}

// namespaces are all there are. Without one for the network in the list, runtimes
// share the host's.
func namespaces(n spec.Network) []specs.LinuxNamespace {
	list := []specs.LinuxNamespace{
		{Type: specs.UserNamespace},
		{Type: specs.PIDNamespace},
		{Type: specs.MountNamespace},
		{Type: specs.IPCNamespace},
		{Type: specs.UTSNamespace},
		{Type: specs.CgroupNamespace},
	}
	if n.IsOwn() {
		list = append(list, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	return list
}

// alwaysMasked tell about the whole machine, or change it.
var alwaysMasked = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/kpagecgroup", "/proc/kpagecount",
	"/proc/kpageflags", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/slabinfo", "/proc/timer_list",
	"/proc/timer_stats", "/proc/vmallocinfo", "/sys/firmware",
}

var readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// maskedPaths are those, and what the Spec hides in /proc.
func maskedPaths(s *spec.Spec) []string {
	paths := slices.Clone(alwaysMasked)
	for i := range s.Mounts {
		if m := &s.Mounts[i]; m.Kind == spec.Hide && spec.Covers("/proc", m.Target) {
			paths = append(paths, m.Target)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// resources are the limits on everything together; nil if there are none.
func resources(l *spec.Limits) *specs.LinuxResources {
	if !l.NeedGroup() {
		return nil
	}
	r := &specs.LinuxResources{}
	if l.Memory > 0 {
		// With what is swapped out, so that swapping gains nothing.
		r.Memory = &specs.LinuxMemory{Limit: &l.Memory, Swap: &l.Memory}
	}
	if l.CPU > 0 {
		period := uint64(100_000)
		quota := l.CPU * int64(period) / 1000
		r.CPU = &specs.LinuxCPU{Quota: &quota, Period: &period}
	}
	if l.Pids > 0 {
		pids := int64(l.Pids) + 1 // and process 1
		r.Pids = &specs.LinuxPids{Limit: &pids}
	}
	return r
}

// Source is what a bundle expects at a name in its directory of sources.
type Source struct {
	Name  string     // in that directory
	Mount spec.Mount // what it is to be
	// Links are symbolic links in a private directory, by their path inside.
	Links []spec.Mount
	// Dirs are directories in a private directory that mounts lie in or on, by
	// their path inside, and Files those that are no directories. Parents come
	// first.
	Dirs, Files []string
}

// builder turns the mounts of a Spec into those of a bundle.
type builder struct {
	spec    *spec.Spec
	options Options
	out     []specs.Mount
	sources []Source
}

// mounts goes through the Spec's in their order: parents stand before children.
func (b *builder) mounts() {
	for i := range b.spec.Mounts {
		m := &b.spec.Mounts[i]
		switch m.Kind {
		case spec.Proc:
			b.out = append(b.out, specs.Mount{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev", "ro"}})
			b.point(m)
		case spec.Dev:
			b.dev()
			b.point(m)
		case spec.Dir, spec.Symlink:
			b.entry(m)
		case spec.Tmpfs:
			b.private(m)
		case spec.Bind:
			if !m.Link { // see PinLinks
				b.bind(m)
			}
		case spec.Hide:
			if !spec.Covers("/proc", m.Target) {
				b.bind(m)
			}
		default:
			b.bind(m)
		}
	}
}

// dev is the minimal /dev. Runtimes add the devices every program expects.
func (b *builder) dev() {
	b.out = append(b.out,
		specs.Mount{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "strictatime", "mode=755", "size=65536k"}},
		// No gid=5: the group tty has no number in the namespace of a user.
		specs.Mount{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
		specs.Mount{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777"}})
}

// private is a directory in memory. One that something stands in has to be made
// before, so that what leads there belongs to the command.
func (b *builder) private(m *spec.Mount) {
	if b.isPlain(m) && !m.Way {
		b.out = append(b.out, specs.Mount{Destination: m.Target, Type: "tmpfs", Source: "tmpfs", Options: []string{
			"nosuid", "nodev", "mode=" + strconv.FormatUint(uint64(modeOf(m)), 8),
			"uid=" + strconv.Itoa(int(b.options.Identity.UID)), "gid=" + strconv.Itoa(int(b.options.Identity.GID)),
			executing(b.spec, m),
		}})
		b.point(m)
		return
	}
	b.bind(m)
}

// ownMount shows something of Bailey's own, which is no grant: the program of the first
// process, or the socket of the gate.
func ownMount(dir, name, target string) specs.Mount {
	return specs.Mount{
		Destination: target, Type: "bind", Source: filepath.Join(dir, sourceName, name),
		Options: []string{"bind", "nosuid", "rprivate", "nodev", "ro"},
	}
}

// gateSocket is where the network gate is inside, or "".
func gateSocket(s *spec.Spec) string {
	if s.Gate == nil {
		return ""
	}
	return s.Gate.Socket
}

// isPlain says whether a private directory is empty, and may be as large as it
// likes.
func (b *builder) isPlain(m *spec.Mount) bool {
	if l := b.spec.Limits; l != nil && l.Disk > 0 {
		return false
	}
	return !slices.ContainsFunc(b.spec.Mounts, func(other spec.Mount) bool {
		return other.Target != m.Target && spec.Covers(m.Target, other.Target)
	})
}

// bind shows a source at its target.
func (b *builder) bind(m *spec.Mount) {
	name := strconv.Itoa(len(b.sources))
	options := []string{"rbind", "nosuid", "rprivate"}
	if !m.Devices {
		options = append(options, "nodev")
	}
	if isWritable(m) {
		options = append(options, "rw")
	} else {
		options = append(options, "ro")
	}
	options = append(options, executing(b.spec, m))
	b.out = append(b.out, specs.Mount{Destination: m.Target, Type: "bind", Source: filepath.Join(b.options.Dir, sourceName, name), Options: options})
	b.point(m)
	b.sources = append(b.sources, Source{Name: name, Mount: *m})
}

// executing says whether programs in a mount can be executed. It is all that holds this
// where there is no Landlock; where there is, a mount may hold more than what can be.
func executing(s *spec.Spec, m *spec.Mount) string {
	can := func(r spec.LandlockRule) bool {
		return r.Execute && (spec.Covers(r.Path, m.Target) || HasWalls(s.Runtime) && !m.File && spec.Covers(m.Target, r.Path))
	}
	if m.Kind == spec.Hide || !slices.ContainsFunc(s.Landlock.Rules, can) {
		return "noexec"
	}
	return "exec"
}

func isWritable(m *spec.Mount) bool {
	return m.Kind == spec.Tmpfs && !m.Way || m.Kind == spec.Private || m.Kind == spec.Bind && m.Write
}

// point makes sure that a mount has a place to stand on. What is in a directory of
// the host exists there.
func (b *builder) point(m *spec.Mount) {
	if in := b.holder(m.Target); in != nil {
		if m.File {
			in.Files = append(in.Files, m.Target)
		}
		in.leadTo(m.Target, !m.File)
	}
}

// entry is a directory or a link that is part of the root directory, or of a private
// one.
func (b *builder) entry(m *spec.Mount) {
	in := b.holder(m.Target)
	if in == nil {
		return
	}
	if m.Kind == spec.Symlink {
		in.Links = append(in.Links, *m)
	}
	in.leadTo(m.Target, m.Kind == spec.Dir)
}

// holder is the source that a path is to be made in; nil if the path is not ours to
// make. The root directory is the source without a name, the first.
func (b *builder) holder(p string) *Source {
	for i := len(b.sources) - 1; i >= 0; i-- {
		s := &b.sources[i]
		if s.Name != "" && (s.Mount.Target == p || !spec.Covers(s.Mount.Target, p)) {
			continue
		}
		if s.Name != "" && s.Mount.Kind != spec.Tmpfs || s.Name == "" && p != "/dev" && spec.Covers("/dev", p) {
			return nil
		}
		return s
	}
	return nil
}

// leadTo adds the directories above a path, and itself if it is one.
func (s *Source) leadTo(p string, isDir bool) {
	var dirs []string
	if !isDir {
		p = path.Dir(p)
	}
	for ; p != s.Mount.Target && p != "/"; p = path.Dir(p) {
		dirs = append(dirs, p)
	}
	for _, dir := range slices.Backward(dirs) {
		if !slices.Contains(s.Dirs, dir) {
			s.Dirs = append(s.Dirs, dir)
		}
	}
}

func modeOf(m *spec.Mount) uint32 { return cmp.Or(m.Mode, 0o755) }
