package oci

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// example is a Spec with a mount of each kind.
func example() *spec.Spec {
	return &spec.Spec{
		Version: 1, Argv: []string{"make", "all"}, Exec: []string{"/usr/bin/make"}, Dir: "/home/u/project", Env: []string{"HOME=/home/u"},
		Identity: spec.Identity{Full: true}, Network: spec.NetworkNone,
		Mounts: []spec.Mount{
			{Kind: spec.Symlink, Target: "/bin", Source: "usr/bin"},
			{Kind: spec.Dev, Target: "/dev"},
			{Kind: spec.Bind, Target: "/etc", Source: "/etc"},
			{Kind: spec.Hide, Target: "/etc/shadow", Source: "file", File: true},
			{Kind: spec.Tmpfs, Target: "/home/u", Mode: 0o700},
			{Kind: spec.Private, Target: "/home/u/.cache/go-build", Source: "/home/u/.cache/go-build"},
			{Kind: spec.Bind, Target: "/home/u/project", Source: "/home/u/project", Write: true},
			{Kind: spec.Bind, Target: "/home/u/project/.git/hooks", Source: "/home/u/project/.git/hooks"},
			{Kind: spec.Tmpfs, Target: "/home/u/project/secret", Way: true},
			{Kind: spec.Bind, Target: "/home/u/project/secret/pub", Source: "/home/u/project/secret/pub"},
			{Kind: spec.Proc, Target: "/proc"},
			{Kind: spec.Hide, Target: "/proc/timer_list", Source: "file", File: true},
			{Kind: spec.Dir, Target: "/run"},
			{Kind: spec.Tmpfs, Target: "/tmp", Mode: 0o1777},
			{Kind: spec.Bind, Target: "/usr", Source: "/usr"},
		},
		Landlock: spec.Landlock{Rules: []spec.LandlockRule{
			{Path: "/home/u/project", Read: true, Write: true, Execute: true}, {Path: "/usr", Read: true, Execute: true},
		}},
		Seccomp: spec.Seccomp{Families: []string{"unix", "inet", "inet6", "netlink"}},
		Broker:  &spec.Broker{},
		Rlimits: []spec.Rlimit{{Name: "core", Value: 1}},
		Limits:  &spec.Limits{Memory: 64 << 20, CPU: 500, Pids: 40},
	}
}

func exampleOptions() Options {
	return Options{Dir: "/run", Runtime: Runc, Identity: IdentityOf(spec.Identity{Full: true}, 7), Stream: -1, Cgroup: "/bailey-oci-7", Umask: 0o22}
}

func configure(t *testing.T) *specs.Spec {
	t.Helper()
	c, _, err := Config(example(), exampleOptions())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// checkExample checks a configuration that is to be the example's.
func checkExample(t *testing.T, c *specs.Spec) error {
	t.Helper()
	_, sources, err := Compose(example(), exampleOptions())
	if err != nil {
		t.Fatal(err)
	}
	return Check(c, sources, example(), exampleOptions())
}

// mountAt returns the mount at a path.
func mountAt(c *specs.Spec, p string) *specs.Mount {
	i := slices.IndexFunc(c.Mounts, func(m specs.Mount) bool { return m.Destination == p })
	return &c.Mounts[i]
}

func without(list []string, item string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == item })
}

func withoutNamespace(kind specs.LinuxNamespaceType) func(*specs.Spec) {
	return func(c *specs.Spec) {
		c.Linux.Namespaces = slices.DeleteFunc(c.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == kind })
	}
}

// weakenings are each one field, and what the refusal names.
var weakenings = map[string]struct {
	weaken func(*specs.Spec)
	field  string
}{
	"root inside is root outside": {func(c *specs.Spec) { c.Linux.UIDMappings[0].HostID = 0 }, "linux.uidMappings"},
	"group 0 inside is 0 outside": {func(c *specs.Spec) { c.Linux.GIDMappings[0].HostID = 0 }, "linux.gidMappings"},
	"no id of root inside":        {func(c *specs.Spec) { c.Linux.UIDMappings[0].ContainerID = 1 }, "linux.uidMappings"},
	"root of the host mapped beside": {func(c *specs.Spec) {
		c.Linux.UIDMappings = append(c.Linux.UIDMappings, specs.LinuxIDMapping{ContainerID: 70000, HostID: 0, Size: 1})
	}, "linux.uidMappings"},
	"no user mapping":          {func(c *specs.Spec) { c.Linux.UIDMappings = nil }, "linux.uidMappings"},
	"no group mapping":         {func(c *specs.Spec) { c.Linux.GIDMappings = nil }, "linux.gidMappings"},
	"the command is root":      {func(c *specs.Spec) { c.Process.User.UID = 0 }, "process.user.uid"},
	"the command's group is 0": {func(c *specs.Spec) { c.Process.User.GID = 0 }, "process.user.gid"},
	"more groups":              {func(c *specs.Spec) { c.Process.User.AdditionalGids = []uint32{5} }, "process.user.additionalGids"},
	"new privileges":           {func(c *specs.Spec) { c.Process.NoNewPrivileges = false }, "process.noNewPrivileges"},
	"capabilities not stated":  {func(c *specs.Spec) { c.Process.Capabilities = nil }, "process.capabilities"},
	"bounding":                 {func(c *specs.Spec) { c.Process.Capabilities.Bounding = []string{"CAP_KILL"} }, "capabilities.bounding"},
	"effective":                {func(c *specs.Spec) { c.Process.Capabilities.Effective = []string{"CAP_KILL"} }, "capabilities.effective"},
	"inheritable":              {func(c *specs.Spec) { c.Process.Capabilities.Inheritable = []string{"CAP_KILL"} }, "capabilities.inheritable"},
	"permitted":                {func(c *specs.Spec) { c.Process.Capabilities.Permitted = []string{"CAP_KILL"} }, "capabilities.permitted"},
	"ambient":                  {func(c *specs.Spec) { c.Process.Capabilities.Ambient = []string{"CAP_KILL"} }, "capabilities.ambient"},
	"writable root":            {func(c *specs.Spec) { c.Root.Readonly = false }, "root.readonly"},
	"the host's root":          {func(c *specs.Spec) { c.Root.Path = "/" }, "root.path"},
	"no walls of its own":      {func(c *specs.Spec) { c.Process.Args[1] = bareWord }, "process.args"},
	"another first process":    {func(c *specs.Spec) { c.Process.Args = c.Process.Args[1:] }, "process.args"},
	"the host's users":         {withoutNamespace(specs.UserNamespace), "a new user namespace"},
	"the host's processes":     {withoutNamespace(specs.PIDNamespace), "a new pid namespace"},
	"the host's mounts":        {withoutNamespace(specs.MountNamespace), "a new mount namespace"},
	"the host's shared memory": {withoutNamespace(specs.IPCNamespace), "a new ipc namespace"},
	"the host's name":          {withoutNamespace(specs.UTSNamespace), "a new uts namespace"},
	"the host's groups":        {withoutNamespace(specs.CgroupNamespace), "a new cgroup namespace"},
	"the host's network":       {withoutNamespace(specs.NetworkNamespace), "a new network namespace"},
	"somebody's network":       {func(c *specs.Spec) { c.Linux.Namespaces[6].Path = "/proc/1/ns/net" }, "linux.namespaces"},
	"shared mounts":            {func(c *specs.Spec) { c.Linux.RootfsPropagation = "shared" }, "linux.rootfsPropagation"},
	"a mount of the host":      {func(c *specs.Spec) { mountAt(c, "/usr").Source = "/" }, "mounts /usr"},
	"a mount more": {func(c *specs.Spec) {
		c.Mounts = slices.Insert(c.Mounts, 0, specs.Mount{Destination: "/host", Type: "bind", Source: "/run/sources/0", Options: []string{"ro", "nosuid", "nodev"}})
	}, "mounts /host"},
	"a mount less": {func(c *specs.Spec) {
		c.Mounts = slices.DeleteFunc(c.Mounts, func(m specs.Mount) bool { return m.Destination == "/etc/shadow" })
	}, "mounts /etc/shadow"},
	"a mount uncovered": {func(c *specs.Spec) { a, b := mountAt(c, "/etc"), mountAt(c, "/etc/shadow"); *a, *b = *b, *a }, "mounts"},
	"a mount repeated": {func(c *specs.Spec) {
		c.Mounts = slices.Insert(c.Mounts, len(c.Mounts)-1, *mountAt(c, "/home/u/project"))
	}, "mounts /home/u/project: must stand there once"},
	"a mount of another grant": {func(c *specs.Spec) {
		mountAt(c, "/etc").Source = mountAt(c, "/home/u/project").Source
	}, "mounts /etc: must come from"},
	"a source of another bundle":      {func(c *specs.Spec) { m := mountAt(c, "/usr"); m.Source = "/home/u" + m.Source }, "mounts /usr: must come from"},
	"another first process's program": {func(c *specs.Spec) { m := mountAt(c, initPath); m.Source = "/home/u" + m.Source }, "mounts " + initPath},
	"processes where memory is": {func(c *specs.Spec) {
		m := mountAt(c, "/tmp")
		m.Type, m.Source, m.Options = "proc", "proc", []string{"nosuid", "nodev", "noexec", "ro"}
	}, "mounts /tmp: must be a new tmpfs"},
	"a writable system": {func(c *specs.Spec) { m := mountAt(c, "/usr"); m.Options = append(without(m.Options, "ro"), "rw") }, "mounts /usr"},
	"both ro and rw":    {func(c *specs.Spec) { m := mountAt(c, "/usr"); m.Options = append(m.Options, "rw") }, "mounts /usr"},
	"a writable protected directory": {func(c *specs.Spec) {
		m := mountAt(c, "/home/u/project/.git/hooks")
		m.Options = without(m.Options, "ro")
	}, "hooks"},
	"a writable way": {func(c *specs.Spec) {
		m := mountAt(c, "/home/u/project/secret")
		m.Options = append(without(m.Options, "ro"), "rw")
	}, "secret"},
	"a writable proc":               {func(c *specs.Spec) { m := mountAt(c, "/proc"); m.Options = without(m.Options, "ro") }, "mounts /proc"},
	"setuid programs":               {func(c *specs.Spec) { m := mountAt(c, "/usr"); m.Options = without(m.Options, "nosuid") }, "must be nosuid"},
	"devices":                       {func(c *specs.Spec) { m := mountAt(c, "/home/u/project"); m.Options = without(m.Options, "nodev") }, "must be nodev"},
	"setuid after all":              {func(c *specs.Spec) { m := mountAt(c, "/tmp"); m.Options = append(m.Options, "suid") }, "mounts /tmp"},
	"programs where there are none": {func(c *specs.Spec) { m := mountAt(c, "/tmp"); m.Options = append(without(m.Options, "noexec"), "exec") }, "must be noexec"},
	"a file system of the kernel's": {func(c *specs.Spec) { mountAt(c, "/tmp").Type = "debugfs" }, "mounts /tmp"},
	"memory instead of a grant":     {func(c *specs.Spec) { mountAt(c, "/home/u/project/.git/hooks").Type = "tmpfs" }, "must be a bind"},
	"a writable first process":      {func(c *specs.Spec) { m := mountAt(c, initPath); m.Options = without(m.Options, "ro") }, "mounts " + initPath},
	"a mount on the first process":  {func(c *specs.Spec) { c.Mounts = append(c.Mounts, c.Mounts[0]) }, "mounts " + initPath},
	"nothing masked":                {func(c *specs.Spec) { c.Linux.MaskedPaths = nil }, "linux.maskedPaths"},
	"a path of the Spec not masked": {func(c *specs.Spec) { c.Linux.MaskedPaths = without(c.Linux.MaskedPaths, "/proc/timer_list") }, "linux.maskedPaths"},
	"nothing read-only in proc":     {func(c *specs.Spec) { c.Linux.ReadonlyPaths = nil }, "linux.readonlyPaths"},
	"no filter":                     {func(c *specs.Spec) { c.Linux.Seccomp = nil }, "linux.seccomp"},
	"a filter that allows":          {func(c *specs.Spec) { c.Linux.Seccomp.DefaultAction = specs.ActAllow }, "linux.seccomp.defaultAction"},
	"another architecture": {func(c *specs.Spec) {
		c.Linux.Seccomp.Architectures = append(c.Linux.Seccomp.Architectures, specs.ArchX86)
	}, "linux.seccomp.architectures"},
	"flags of the filter":      {func(c *specs.Spec) { c.Linux.Seccomp.Flags = []specs.LinuxSeccompFlag{specs.LinuxSeccompFlagSpecAllow} }, "linux.seccomp"},
	"somebody decides":         {func(c *specs.Spec) { c.Linux.Seccomp.ListenerPath = "/run/x" }, "linux.seccomp"},
	"one call more":            {func(c *specs.Spec) { e := &c.Linux.Seccomp.Syscalls[0]; e.Names = append(slices.Clone(e.Names), "bpf") }, "linux.seccomp.syscalls"},
	"one call refused no more": {func(c *specs.Spec) { c.Linux.Seccomp.Syscalls[0].Action = specs.ActAllow }, "linux.seccomp.syscalls"},
	"no limit of the process":  {func(c *specs.Spec) { c.Process.Rlimits = nil }, "process.rlimits"},
	"a higher limit":           {func(c *specs.Spec) { c.Process.Rlimits[0].Hard = 9 }, "process.rlimits"},
	"no limits":                {func(c *specs.Spec) { c.Linux.Resources = nil }, "linux.resources"},
	"more memory":              {func(c *specs.Spec) { n := int64(1 << 30); c.Linux.Resources.Memory.Limit = &n }, "linux.resources"},
	"memory by swapping":       {func(c *specs.Spec) { c.Linux.Resources.Memory.Swap = nil }, "linux.resources"},
	"more of the processor":    {func(c *specs.Spec) { n := int64(1 << 30); c.Linux.Resources.CPU.Quota = &n }, "linux.resources"},
	"more processes":           {func(c *specs.Spec) { n := int64(0); c.Linux.Resources.Pids.Limit = &n }, "linux.resources"},
	"a device allowed": {func(c *specs.Spec) {
		c.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
	}, "linux.resources"},
	"a variable more":         {func(c *specs.Spec) { c.Process.Env = append(c.Process.Env, "TOKEN=x") }, "process.env"},
	"hooks":                   {func(c *specs.Spec) { c.Hooks = &specs.Hooks{} }, "hooks"},
	"a device":                {func(c *specs.Spec) { c.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/kmsg"}} }, "linux.devices"},
	"a setting of the kernel": {func(c *specs.Spec) { c.Linux.Sysctl = map[string]string{"kernel.msgmax": "1"} }, "linux.sysctl"},
	"an annotation":           {func(c *specs.Spec) { c.Annotations = map[string]string{"run.oci.keep_original_groups": "1"} }, "annotations"},
	"a user of the host":      {func(c *specs.Spec) { c.Linux.UIDMappings[0].HostID = 1000 }, "linux.uidMappings"},
	"a group of the host":     {func(c *specs.Spec) { c.Linux.GIDMappings[0].HostID = 1000 }, "linux.gidMappings"},
	"a larger range":          {func(c *specs.Spec) { c.Linux.UIDMappings[0].Size *= 2 }, "linux.uidMappings"},
	"a directory of the host": {func(c *specs.Spec) { c.Process.Cwd = "/proc/self/fd/7" }, "process.cwd"},
	"the whole bundle":        {func(c *specs.Spec) { c.Root.Path = "." }, "root.path"},
	"beyond the sources":      {func(c *specs.Spec) { mountAt(c, "/usr").Source = "/run/sources/../../etc" }, "mounts /usr"},
	"a program as a grant":    {func(c *specs.Spec) { mountAt(c, "/usr").Source = "/run/sources/init" }, "mounts /usr"},
	"ids of a mount": {func(c *specs.Spec) {
		mountAt(c, "/usr").UIDMappings = []specs.LinuxIDMapping{{ContainerID: 0, HostID: 0, Size: 1}}
	}, "mounts /usr"},
	"an option of a runtime's": {func(c *specs.Spec) { m := mountAt(c, "/usr"); m.Options = append(m.Options, "idmap") }, "mounts /usr"},
	"an interface of the host": {func(c *specs.Spec) { c.Linux.NetDevices = map[string]specs.LinuxNetDevice{"eth0": {}} }, "linux.netDevices"},
	"a group of others":        {func(c *specs.Spec) { c.Linux.CgroupsPath = "/system.slice" }, "linux.cgroupsPath"},
	"no group":                 {func(c *specs.Spec) { c.Linux.CgroupsPath = "" }, "linux.cgroupsPath"},
	"above all others": {func(c *specs.Spec) {
		c.Process.Scheduler = &specs.Scheduler{Policy: specs.SchedFIFO, Priority: 99}
	}, "process"},
	"another clock":           {func(c *specs.Spec) { c.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"boottime": {Secs: 1}} }, "linux"},
	"no AppArmor":             {func(c *specs.Spec) { c.Process.ApparmorProfile = "unconfined" }, "process"},
	"never killed for memory": {func(c *specs.Spec) { n := -1000; c.Process.OOMScoreAdj = &n }, "process.oomScoreAdj"},
}

func TestABundleWeakenedInAnyFieldIsRefused(t *testing.T) {
	for name, w := range weakenings {
		t.Run(name, func(t *testing.T) {
			c := configure(t)
			w.weaken(c)
			err := checkExample(t, c)
			if err == nil || !strings.Contains(err.Error(), w.field) {
				t.Errorf("refused with %v, want %s named", err, w.field)
			}
		})
	}
}

func TestTheSocketOfTheGateIsShownOnlyWhereTheSpecSaysSo(t *testing.T) {
	gated := example()
	gated.Network, gated.Gate = spec.NetworkGate, &spec.Gate{Socket: "/.bailey/gate.sock"}
	c, sources, err := Config(gated, exampleOptions())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(sources[0].Files, gated.Gate.Socket) {
		t.Errorf("nothing to mount it on: %v", sources[0].Files)
	}
	if err := checkExample(t, c); err == nil || !strings.Contains(err.Error(), gated.Gate.Socket) {
		t.Errorf("a socket passed for a Spec without: %v", err)
	}
	mountAt(c, gated.Gate.Socket).Source = "/run/docker.sock"
	if err := Check(c, sources, gated, exampleOptions()); err == nil {
		t.Error("another socket passed for the gate's")
	}
}

func TestTheHostsNetworkIsGivenOnlyToASpecThatSaysSo(t *testing.T) {
	open := example()
	open.Network = spec.NetworkHost
	c, _, err := Config(open, exampleOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := checkExample(t, c); err == nil {
		t.Error("a bundle with the host's network passed for a Spec with none")
	}
}

func TestAnOrdinaryUserIsTheOnlyIdInside(t *testing.T) {
	s := example()
	s.Identity = spec.Identity{UID: 1000, GID: 1001}
	s.Limits = nil
	o := exampleOptions()
	o.Identity, o.Group = IdentityOf(s.Identity, 7), 1001
	c, _, err := Config(s, o)
	if err != nil {
		t.Fatal(err)
	}
	if uid, gid := hostID(c.Linux.UIDMappings, c.Process.User.UID), hostID(c.Linux.GIDMappings, c.Process.User.GID); uid != 1000 || gid != 1001 {
		t.Errorf("the command is %d:%d outside, want 1000:1001", uid, gid)
	}
}

// The whole configuration, but for the filter, which has tests of its own, is read in
// review.
func TestTheConfigurationIsAsReviewed(t *testing.T) {
	c := configure(t)
	c.Linux.Seccomp = nil
	got, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/config.json"
	if *update {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got)+"\n" != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestWhatMountsStandOnIsMadeWhereItIsOurs(t *testing.T) {
	_, sources, err := Config(example(), exampleOptions())
	if err != nil {
		t.Fatal(err)
	}
	root := sources[0]
	for _, dir := range []string{"/dev", "/etc", "/home", "/home/u", "/proc", "/run", "/tmp", "/usr"} {
		if !slices.Contains(root.Dirs, dir) {
			t.Errorf("the root directory lacks %s: %v", dir, root.Dirs)
		}
	}
	home := sources[slices.IndexFunc(sources, func(s Source) bool { return s.Mount.Target == "/home/u" })]
	if want := []string{"/home/u/.cache", "/home/u/.cache/go-build", "/home/u/project"}; !slices.Equal(home.Dirs, want) {
		t.Errorf("the private home has %v, want %v", home.Dirs, want)
	}
}

func TestABundleOfOnesOwnIsOneThatIsAccepted(t *testing.T) {
	for _, runtime := range []string{Runc, Crun, Gvisor} {
		s := example()
		s.Runtime = runtime
		c, sources, err := configAlone(s, exampleOptions().Identity, "x")
		if err != nil {
			t.Fatal(err)
		}
		if c.Process.Args[1] != bareWord {
			t.Errorf("%s: %q, which waits for walls", runtime, c.Process.Args)
		}
		if s.Runtime != runtime {
			t.Errorf("%s: the Spec became one for %s", runtime, s.Runtime)
		}
		s.Runtime = bareName(runtime)
		if err := Check(c, sources, s, Options{Dir: stage, Runtime: s.Runtime}); err != nil {
			t.Errorf("%s: %v", runtime, err)
		}
	}
}
