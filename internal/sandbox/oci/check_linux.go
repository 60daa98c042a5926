package oci

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Check reports every wall that a configuration lacks, by its field. It goes by what
// a sandbox must have, not by how Config writes it, so that a mistake there is found
// here. Nothing is ever run with a configuration that Check does not accept. Sources are what
// the guard puts in the bundle of o.Dir, and o.Runtime is who runs it.
func Check(c *specs.Spec, sources []Source, s *spec.Spec, o Options) error {
	if c == nil || c.Process == nil || c.Root == nil || c.Linux == nil {
		return errors.New("bundle: process, root or linux is missing")
	}
	k := &checker{config: c, sources: sources, dir: o.Dir, spec: s, runtime: o.Runtime}
	k.identity()
	k.privileges()
	k.root()
	k.namespaces()
	k.mounts()
	k.paths()
	k.filter()
	k.limits()
	k.nothingElse()
	return errors.Join(k.found...)
}

type checker struct {
	config  *specs.Spec
	sources []Source
	dir     string // of the bundle
	spec    *spec.Spec
	runtime string
	found   []error
}

func (k *checker) wants(ok bool, field, format string, args ...any) {
	if !ok {
		k.found = append(k.found, fmt.Errorf("bundle: %s: "+format, append([]any{field}, args...)...))
	}
}

// identity: neither the command nor root inside is root outside.
func (k *checker) identity() {
	user := k.config.Process.User
	uid := hostID(k.config.Linux.UIDMappings, user.UID)
	gid := hostID(k.config.Linux.GIDMappings, user.GID)
	k.wants(hostID(k.config.Linux.UIDMappings, 0) > 0, "linux.uidMappings", "root inside must be an ordinary user outside")
	k.wants(hostID(k.config.Linux.GIDMappings, 0) > 0, "linux.gidMappings", "group 0 inside must be an ordinary group outside")
	k.wants(uid > 0, "process.user.uid", "the command must be an ordinary user outside")
	k.wants(gid > 0, "process.user.gid", "the command must be in an ordinary group outside")
	k.wants(user.UID != 0 || mapsOne(k.config.Linux.UIDMappings), "process.user.uid", "the command must not be root inside where there is another id")
	k.wants(user.GID != 0 || mapsOne(k.config.Linux.GIDMappings), "process.user.gid", "the command must not be in group 0 inside where there is another id")
	k.wants(len(user.AdditionalGids) == 0, "process.user.additionalGids", "must be empty")
	k.wants(noRoot(k.config.Linux.UIDMappings), "linux.uidMappings", "root of the host must not be mapped")
	k.wants(noRoot(k.config.Linux.GIDMappings), "linux.gidMappings", "group 0 of the host must not be mapped")
	const nobody = "must be one range that belongs to nobody, or the caller alone"
	k.wants(k.mapsNobody(k.config.Linux.UIDMappings, k.spec.Identity.UID), "linux.uidMappings", nobody)
	k.wants(k.mapsNobody(k.config.Linux.GIDMappings, k.spec.Identity.GID), "linux.gidMappings", nobody)
	want := identityIn(k.spec.Identity, 0)
	k.wants(user.UID == want.UID, "process.user.uid", "must be %d", want.UID)
	k.wants(user.GID == want.GID, "process.user.gid", "must be %d", want.GID)
	k.wants(user.Username == "", "process.user.username", "must be empty")
}

// mapsNobody says whether what is mapped is a range for sandboxes, or if an ordinary user
// starts it that user's own id.
func (k *checker) mapsNobody(maps []specs.LinuxIDMapping, own int) bool {
	if len(maps) != 1 || maps[0].ContainerID != 0 {
		return false
	}
	m := maps[0]
	if k.spec.Identity.UID != 0 {
		return m.Size == 1 && int64(m.HostID) == int64(own)
	}
	number := (int64(m.HostID) - firstRange) / rangeSize
	return m.Size == rangeSize && m.HostID >= firstRange && (m.HostID-firstRange)%rangeSize == 0 && number < rangeCount
}

// hostID is what an id is outside, or -1.
func hostID(maps []specs.LinuxIDMapping, id uint32) int64 {
	for _, m := range maps {
		if id >= m.ContainerID && id-m.ContainerID < m.Size {
			return int64(m.HostID) + int64(id-m.ContainerID)
		}
	}
	return -1
}

func mapsOne(maps []specs.LinuxIDMapping) bool { return len(maps) == 1 && maps[0].Size == 1 }

func noRoot(maps []specs.LinuxIDMapping) bool {
	return !slices.ContainsFunc(maps, func(m specs.LinuxIDMapping) bool { return m.HostID == 0 })
}

func (k *checker) privileges() {
	p := k.config.Process
	k.wants(p.NoNewPrivileges, "process.noNewPrivileges", "must be true")
	if p.Capabilities == nil {
		k.wants(false, "process.capabilities", "must be stated")
		return
	}
	for name, set := range map[string][]string{
		"bounding": p.Capabilities.Bounding, "effective": p.Capabilities.Effective, "inheritable": p.Capabilities.Inheritable,
		"permitted": p.Capabilities.Permitted, "ambient": p.Capabilities.Ambient,
	} {
		k.wants(len(set) == 0, "process.capabilities."+name, "must be empty")
	}
}

func (k *checker) root() {
	k.wants(k.config.Root.Readonly, "root.readonly", "must be true")
	k.wants(k.config.Root.Path == rootName, "root.path", "must be in the bundle, and nothing else of it")
	// A directory of the host that is still open could be reached by one in /proc.
	k.wants(k.config.Process.Cwd == k.spec.Dir, "process.cwd", "must be the Spec's directory")
	k.wants(len(k.config.Process.Args) > 0 && k.config.Process.Args[0] == initPath, "process.args", "must begin with the first process")
	// One that is told of no walls starts a command without, and the filter relies on them.
	k.wants(!HasWalls(k.runtime) || len(k.config.Process.Args) > 1 && k.config.Process.Args[1] == wallsWord, "process.args", "must have the command put up walls")
	last := len(k.config.Mounts) - 1
	k.wants(last >= 0 && k.config.Mounts[last].Destination == initPath, "mounts "+initPath, "must stand last")
}

// namespaces: all of them, each new.
func (k *checker) namespaces() {
	wanted := []specs.LinuxNamespaceType{
		specs.UserNamespace, specs.PIDNamespace, specs.MountNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.CgroupNamespace,
	}
	if k.spec.Network.IsOwn() {
		wanted = append(wanted, specs.NetworkNamespace)
	}
	for _, kind := range wanted {
		k.wants(slices.Contains(k.config.Linux.Namespaces, specs.LinuxNamespace{Type: kind}), "linux.namespaces", "a new %s namespace is missing", kind)
	}
	k.wants(len(k.config.Linux.Namespaces) == len(wanted), "linux.namespaces", "there must be no other than the Spec's")
	switch k.config.Linux.RootfsPropagation {
	case "private", "rprivate":
	default:
		k.wants(false, "linux.rootfsPropagation", "must be private")
	}
}

// knownOption matches what a mount may have besides what is looked for. Those that
// runtimes know of their own accord may do anything.
var knownOption = regexp.MustCompile(`^(r?bind|rprivate|no(suid|dev|exec)|exec|ro|rw|strictatime|newinstance|ptmxmode=0666|size=\d+k|mode=[0-7]+|[ug]id=\d+)$`)

// mountpoint is where a mount of a bundle has to be, and which of the Spec's it is for; nil if it
// is of Bailey's own.
type mountpoint struct {
	target  string
	granted *spec.Mount
}

// mountpoints are all that a bundle mounts, in their order. Links are no runtime's to mount; see
// PinLinks.
func (k *checker) mountpoints() (list []mountpoint) {
	for i := range k.spec.Mounts {
		g := &k.spec.Mounts[i]
		switch {
		case g.Link || g.Kind == spec.Dir || g.Kind == spec.Symlink || g.Kind == spec.Hide && spec.Covers("/proc", g.Target):
		case g.Kind == spec.Dev:
			list = append(list, mountpoint{"/dev", g}, mountpoint{"/dev/pts", g}, mountpoint{"/dev/shm", g})
		default:
			list = append(list, mountpoint{g.Target, g})
		}
	}
	if socket := gateSocket(k.spec); socket != "" {
		list = append(list, mountpoint{target: socket})
	}
	return append(list, mountpoint{target: initPath})
}

// mounts: nothing but what the Spec grants, each once and after what it stands in, and that
// no wider.
func (k *checker) mounts() {
	points := k.mountpoints()
	used, last := make([]bool, len(points)), -1
	for i := range k.config.Mounts {
		m := &k.config.Mounts[i]
		field := "mounts " + m.Destination
		at := -1
		for j := range points {
			if points[j].target == m.Destination && (at < 0 || used[at]) {
				at = j
			}
		}
		switch {
		case at < 0:
			k.wants(false, field, "the Spec has none there")
			continue
		case used[at]:
			k.wants(false, field, "must stand there once: another could uncover what is to be covered")
		case at < last:
			k.wants(false, field, "must stand in the Spec's order")
		}
		used[at], last = true, max(last, at)
		if granted := points[at].granted; granted != nil {
			k.mount(m, granted, field)
		} else {
			k.own(m, field)
		}
	}
	for at, is := range used {
		k.wants(is, "mounts "+points[at].target, "is missing")
	}
}

// mount: one that is for a mount of the Spec shows what that says, and no wider.
func (k *checker) mount(m *specs.Mount, granted *spec.Mount, field string) {
	has := func(option string) bool { return slices.Contains(m.Options, option) }
	k.wants(has("nosuid"), field, "must be nosuid")
	k.wants(!has("suid") && !has("dev") && !has("shared") && !has("rshared"), field, "has an option that opens it")
	k.wants(has("nodev") || granted.Devices || granted.Kind == spec.Dev, field, "must be nodev")
	noexec := slices.Contains([]spec.Kind{spec.Bind, spec.Private, spec.Tmpfs}, granted.Kind) && executing(k.spec, granted) == "noexec"
	k.wants(!noexec || has("noexec") && !has("exec"), field, "must be noexec")
	k.wants(len(m.UIDMappings) == 0 && len(m.GIDMappings) == 0, field, "must leave ids as they are where it comes from")
	k.wants(!slices.ContainsFunc(m.Options, func(o string) bool { return !knownOption.MatchString(o) }), field, "has an option that is not known to be harmless")
	if m.Type == "bind" {
		k.wants(k.isSource(m.Source, granted) && has("rbind"), field, "must come from the bundle's source of what the Spec has there")
		k.wants(isWritable(granted) || has("ro") && !has("rw"), field, "must be read-only")
		return
	}
	want := k.freshType(m.Destination, granted)
	k.wants(want != "", field, "must be a bind")
	k.wants(want == "" || m.Type == want && m.Source == want, field, "must be a new %s", want)
	k.wants(m.Type != "proc" || has("ro") && !has("rw"), field, "must be read-only")
}

// isSource says whether a path is that of the source that shows a mount of the Spec. A guard
// makes what a name stands for, so none may stand for two.
func (k *checker) isSource(path string, granted *spec.Mount) bool {
	named := 0
	is := false
	for i := range k.sources {
		s := &k.sources[i]
		if s.Name != "" && path == filepath.Join(k.dir, sourceName, s.Name) {
			named++
			is = s.Mount == *granted
		}
	}
	return named == 1 && is
}

// freshType is the kind of file system, with nothing of the host in it, that a mount of the
// Spec must be if it is no bind; "" if it must be one, as it must where there is a source: that
// may hold a limit.
func (k *checker) freshType(target string, granted *spec.Mount) string {
	switch {
	case slices.ContainsFunc(k.sources, func(s Source) bool { return s.Name != "" && s.Mount == *granted }):
		return ""
	case granted.Kind == spec.Proc:
		return "proc"
	case granted.Kind == spec.Dev && target == "/dev/pts":
		return "devpts"
	case granted.Kind == spec.Dev || granted.Kind == spec.Tmpfs:
		return "tmpfs"
	}
	return ""
}

// own looks at what is shown of Bailey's own.
func (k *checker) own(m *specs.Mount, field string) {
	name := initName
	if m.Destination != initPath {
		name = gateName
	}
	k.wants(reflect.DeepEqual(*m, ownMount(k.dir, name, m.Destination)), field, "must be read-only, and what it is for")
}

func (k *checker) paths() {
	for _, p := range maskedPaths(k.spec) {
		k.wants(slices.Contains(k.config.Linux.MaskedPaths, p), "linux.maskedPaths", "%s is missing", p)
	}
	for _, p := range readonlyPaths {
		k.wants(slices.Contains(k.config.Linux.ReadonlyPaths, p), "linux.readonlyPaths", "%s is missing", p)
	}
}

// filter: what the Spec's own says, in every entry.
func (k *checker) filter() {
	want, err := filter(k.spec, k.runtime)
	if err != nil {
		k.found = append(k.found, err)
		return
	}
	have := k.config.Linux.Seccomp
	if have == nil {
		k.wants(false, "linux.seccomp", "is missing")
		return
	}
	k.wants(have.DefaultAction == specs.ActErrno, "linux.seccomp.defaultAction", "must refuse")
	k.wants(slices.Equal(have.Architectures, want.Architectures), "linux.seccomp.architectures", "must be this machine's own and no other")
	k.wants(len(have.Flags) == 0 && have.ListenerPath == "" && have.ListenerMetadata == "", "linux.seccomp", "must have no flags and no listener")
	k.wants(reflect.DeepEqual(have.Syscalls, want.Syscalls), "linux.seccomp.syscalls", "must be the Spec's")
}

func (k *checker) limits() {
	for _, r := range k.spec.Rlimits {
		want := specs.POSIXRlimit{Type: "RLIMIT_" + strings.ToUpper(r.Name), Hard: r.Value, Soft: r.Value}
		k.wants(slices.Contains(k.config.Process.Rlimits, want), "process.rlimits", "%s must be %d", want.Type, r.Value)
	}
	k.wants(len(k.config.Process.Rlimits) == len(k.spec.Rlimits), "process.rlimits", "must be the Spec's and no others")
	k.wants(reflect.DeepEqual(k.config.Linux.Resources, resources(k.spec.Limits)), "linux.resources", "must be the Spec's limits")
	k.wants(slices.Equal(k.config.Process.Env, k.spec.Env), "process.env", "must be the Spec's environment")
	group := k.config.Linux.CgroupsPath
	k.wants(strings.HasPrefix(group, "/"+groupPrefix) && filepath.Clean(group) == group || group == "" && !k.spec.Limits.NeedGroup(), "linux.cgroupsPath", "must be a group of the sandbox's own")
}

// nothingElse: what no sandbox needs could only open one.
func (k *checker) nothingElse() {
	l, p := k.config.Linux, k.config.Process
	k.wants(k.config.Hooks == nil, "hooks", "must be empty: they run outside")
	k.wants(len(l.Devices) == 0, "linux.devices", "must be empty")
	k.wants(len(l.Sysctl) == 0, "linux.sysctl", "must be empty")
	k.wants(len(k.config.Annotations) == 0, "annotations", "must be empty: runtimes take options from them")
	k.wants(len(l.NetDevices) == 0, "linux.netDevices", "must be empty: they are the host's")
	k.wants(l.MountLabel == "" && l.IntelRdt == nil && l.Personality == nil && l.MemoryPolicy == nil && len(l.TimeOffsets) == 0, "linux", "has what no Spec asks for")
	k.wants(p.ApparmorProfile == "" && p.SelinuxLabel == "", "process", "must leave labels as they are")
	k.wants(p.OOMScoreAdj == nil, "process.oomScoreAdj", "must be empty")
	k.wants(p.Scheduler == nil && p.IOPriority == nil && p.ExecCPUAffinity == nil && p.CommandLine == "", "process", "has what no Spec asks for")
	c := k.config
	k.wants(c.Hostname == "" && c.Domainname == "", "hostname", "must be empty")
	k.wants(c.Solaris == nil && c.Windows == nil && c.VM == nil && c.ZOS == nil && c.FreeBSD == nil, "bundle", "is for another system")
}
