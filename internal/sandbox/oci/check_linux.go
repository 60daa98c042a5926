package oci

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Check reports every wall that a configuration lacks, by its field. It goes by what
// a sandbox must have, not by how Config writes it, so that a mistake there is found
// here. Nothing is ever run with a configuration that Check does not accept.
func Check(c *specs.Spec, s *spec.Spec, runtime string) error {
	if c == nil || c.Process == nil || c.Root == nil || c.Linux == nil {
		return errors.New("bundle: process, root or linux is missing")
	}
	k := &checker{config: c, spec: s, runtime: runtime}
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

// isSource says whether a path is that of a source, by its number.
func isSource(path string) bool {
	_, err := strconv.Atoi(filepath.Base(path))
	return err == nil && filepath.Clean(path) == path && filepath.Base(filepath.Dir(path)) == sourceName
}

// fresh are the kinds of file systems that show nothing of the host.
var fresh = []string{"proc", "tmpfs", "devpts"}

// mounts: nothing but what the Spec grants, and that no wider.
func (k *checker) mounts() {
	for i := range k.config.Mounts {
		m := &k.config.Mounts[i]
		if m.Destination == initPath || m.Destination == gateSocket(k.spec) {
			k.own(m)
			continue
		}
		field := "mounts " + m.Destination
		granted := k.granted(m)
		has := func(option string) bool { return slices.Contains(m.Options, option) }
		k.wants(granted != nil, field, "the Spec has none there")
		k.wants(has("nosuid"), field, "must be nosuid")
		k.wants(!has("suid") && !has("dev") && !has("shared") && !has("rshared"), field, "has an option that opens it")
		k.wants(has("nodev") || granted == nil || granted.Devices || granted.Kind == spec.Dev, field, "must be nodev")
		noexec := granted != nil && slices.Contains([]spec.Kind{spec.Bind, spec.Private, spec.Tmpfs}, granted.Kind) && executing(k.spec, granted) == "noexec"
		k.wants(!noexec || has("noexec") && !has("exec"), field, "must be noexec")
		k.wants(len(m.UIDMappings) == 0 && len(m.GIDMappings) == 0, field, "must leave ids as they are where it comes from")
		k.wants(!slices.ContainsFunc(m.Options, func(o string) bool { return !knownOption.MatchString(o) }), field, "has an option that is not known to be harmless")
		switch {
		case m.Type == "bind":
			k.wants(isSource(m.Source) && has("rbind"), field, "must come from the bundle's sources")
			k.wants(granted == nil || isWritable(granted) || has("ro") && !has("rw"), field, "must be read-only")
		default:
			k.wants(slices.Contains(fresh, m.Type) && m.Source == m.Type, field, "type %q is not known to be harmless", m.Type)
			k.wants(granted == nil || granted.Kind != spec.Bind && granted.Kind != spec.Hide, field, "must be a bind")
			k.wants(m.Type != "proc" || has("ro") && !has("rw"), field, "must be read-only")
		}
	}
	k.nothingMissing()
}

// own looks at what is shown of Bailey's own.
func (k *checker) own(m *specs.Mount) {
	name := initName
	if m.Destination != initPath {
		name = gateName
	}
	want := ownMount("/", name, m.Destination)
	k.wants(m.Type == want.Type && strings.HasSuffix(m.Source, want.Source) && slices.Equal(m.Options, want.Options),
		"mounts "+m.Destination, "must be read-only, and what it is for")
}

// granted is the mount of the Spec that one of the bundle is for, or nil.
func (k *checker) granted(m *specs.Mount) *spec.Mount {
	for i := range k.spec.Mounts {
		g := &k.spec.Mounts[i]
		if g.Target == m.Destination || g.Kind == spec.Dev && (m.Destination == "/dev/pts" || m.Destination == "/dev/shm") {
			return g
		}
	}
	return nil
}

// nothingMissing: what protects and hides stands, and after what it stands in. Links are
// no runtime's to mount; see PinLinks.
func (k *checker) nothingMissing() {
	last := -1
	for i := range k.spec.Mounts {
		g := &k.spec.Mounts[i]
		if g.Link || g.Kind == spec.Dir || g.Kind == spec.Symlink || g.Kind == spec.Hide && spec.Covers("/proc", g.Target) {
			continue
		}
		at := slices.IndexFunc(k.config.Mounts, func(m specs.Mount) bool { return m.Destination == g.Target })
		k.wants(at >= 0, "mounts "+g.Target, "is missing")
		k.wants(at < 0 || at > last, "mounts "+g.Target, "must stand in the Spec's order")
		last = max(last, at)
	}
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
