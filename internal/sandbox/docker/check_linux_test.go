package docker

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// example is a Spec with a mount of each kind.
func example() *spec.Spec {
	return &spec.Spec{
		Version: 1, Argv: []string{"make", "all"}, Exec: []string{"/usr/bin/make"}, Dir: "/home/u/project", Env: []string{"HOME=/home/u"},
		Identity: spec.Identity{Full: true}, Network: spec.NetworkNone,
		Mounts: []spec.Mount{
			{Kind: spec.Symlink, Target: "/bin", Source: "usr/bin"},
			{Kind: spec.Dev, Target: "/dev"},
			{Kind: spec.Bind, Target: "/dev/kvm", Source: "/dev/kvm", File: true, Write: true, Devices: true},
			{Kind: spec.Bind, Target: "/etc", Source: "/etc"},
			{Kind: spec.Hide, Target: "/etc/shadow", Source: "file", File: true},
			{Kind: spec.Tmpfs, Target: "/home/u", Mode: 0o700},
			{Kind: spec.Bind, Target: "/home/u/project", Source: "/home/u/project", Write: true},
			{Kind: spec.Bind, Target: "/home/u/project/.git/hooks", Source: "/home/u/project/.git/hooks"},
			{Kind: spec.Proc, Target: "/proc"},
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

// made is what an engine says of a container that is as it was to be.
func made(t *testing.T) (*plan, *container.InspectResponse) {
	t.Helper()
	p, err := planFor(example(), "/run/bailey-docker/x", runc, "1-2-3", false)
	if err != nil {
		t.Fatal(err)
	}
	c := &container.InspectResponse{Config: &container.Config{}, HostConfig: &container.HostConfig{}}
	through(t, p.config, c.Config)
	through(t, p.host, c.HostConfig)
	c.Mounts = make([]container.MountPoint, len(p.host.Mounts))
	return p, c
}

// through copies something as it comes through the engine's interface.
func through(t *testing.T, from, to any) {
	t.Helper()
	text, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatal(err)
	}
}

func TestContainerAsItWasToBeIsAccepted(t *testing.T) {
	p, c := made(t)
	if err := check(c, example(), p); err != nil {
		t.Error(err)
	}
}

func TestWeakenedContainerIsRefused(t *testing.T) {
	yes := true
	limit := int64(1 << 20)
	for _, test := range []struct {
		field  string
		weaken func(*container.InspectResponse)
	}{
		{"User", func(c *container.InspectResponse) { c.Config.User = "" }},
		{"User", func(c *container.InspectResponse) { c.Config.User = "0:0" }},
		{"GroupAdd", func(c *container.InspectResponse) { c.HostConfig.GroupAdd = []string{"docker"} }},
		{"Entrypoint", func(c *container.InspectResponse) { c.Config.Entrypoint = []string{"/bin/sh"} }},
		{"Entrypoint", func(c *container.InspectResponse) { c.Config.Cmd = []string{"x"} }},
		{"WorkingDir", func(c *container.InspectResponse) { c.Config.WorkingDir = "/home/u" }},
		{"Tty", func(c *container.InspectResponse) { c.Config.Tty = true }},
		{"Init", func(c *container.InspectResponse) { c.HostConfig.Init = &yes }},
		{"Healthcheck", func(c *container.InspectResponse) { c.Config.Healthcheck = &container.HealthConfig{} }},
		{"Labels", func(c *container.InspectResponse) { c.Config.Labels = nil }},
		{"Privileged", func(c *container.InspectResponse) { c.HostConfig.Privileged = true }},
		{"CapAdd", func(c *container.InspectResponse) { c.HostConfig.CapAdd = []string{"SYS_ADMIN"} }},
		{"CapDrop", func(c *container.InspectResponse) { c.HostConfig.CapDrop = []string{"CHOWN"} }},
		{"SecurityOpt", func(c *container.InspectResponse) { c.HostConfig.SecurityOpt = c.HostConfig.SecurityOpt[1:] }},
		{"SecurityOpt", func(c *container.InspectResponse) { c.HostConfig.SecurityOpt = c.HostConfig.SecurityOpt[:1] }},
		{"SecurityOpt", func(c *container.InspectResponse) { c.HostConfig.SecurityOpt[1] = "seccomp=unconfined" }},
		{"SecurityOpt", func(c *container.InspectResponse) {
			c.HostConfig.SecurityOpt = append(c.HostConfig.SecurityOpt, "label=disable")
		}},
		{"SecurityOpt", func(c *container.InspectResponse) {
			c.HostConfig.SecurityOpt = append(c.HostConfig.SecurityOpt, "apparmor=unconfined")
		}},
		{"AppArmorProfile", func(c *container.InspectResponse) { c.AppArmorProfile = "unconfined" }},
		{"Runtime", func(c *container.InspectResponse) { c.HostConfig.Runtime = runsc }},
		{"Runtime", func(c *container.InspectResponse) { c.HostConfig.Runtime = "" }},
		{"NetworkMode", func(c *container.InspectResponse) { c.HostConfig.NetworkMode = "host" }},
		{"NetworkMode", func(c *container.InspectResponse) { c.HostConfig.NetworkMode = "default" }},
		{"IpcMode", func(c *container.InspectResponse) { c.HostConfig.IpcMode = "host" }},
		{"PidMode", func(c *container.InspectResponse) { c.HostConfig.PidMode = "host" }},
		{"UTSMode", func(c *container.InspectResponse) { c.HostConfig.UTSMode = "host" }},
		{"CgroupnsMode", func(c *container.InspectResponse) { c.HostConfig.CgroupnsMode = "host" }},
		{"UsernsMode", func(c *container.InspectResponse) { c.HostConfig.UsernsMode = "" }},
		{"Cgroup", func(c *container.InspectResponse) { c.HostConfig.Cgroup = "container:x" }},
		{"ReadonlyRootfs", func(c *container.InspectResponse) { c.HostConfig.ReadonlyRootfs = false }},
		{"Mounts", func(c *container.InspectResponse) { c.HostConfig.Mounts = c.HostConfig.Mounts[1:] }},
		{"Mounts", func(c *container.InspectResponse) { c.HostConfig.Mounts[0].Source = "/" }},
		{"Mounts", func(c *container.InspectResponse) {
			c.HostConfig.Mounts[0].BindOptions.Propagation = mount.PropagationRShared
		}},
		{"Mounts", func(c *container.InspectResponse) { c.Mounts = append(c.Mounts, container.MountPoint{}) }},
		{"Tmpfs", func(c *container.InspectResponse) { c.HostConfig.Tmpfs["/tmp"] = "exec,suid" }},
		{"Tmpfs", func(c *container.InspectResponse) { c.HostConfig.Tmpfs["/usr/lib"] = "" }},
		{"Binds", func(c *container.InspectResponse) { c.HostConfig.Binds = []string{"/:/host"} }},
		{"VolumesFrom", func(c *container.InspectResponse) { c.HostConfig.VolumesFrom = []string{"x"} }},
		{"Volumes", func(c *container.InspectResponse) { c.Config.Volumes = map[string]struct{}{"/x": {}} }},
		{"MaskedPaths", func(c *container.InspectResponse) { c.HostConfig.MaskedPaths = c.HostConfig.MaskedPaths[1:] }},
		{"ReadonlyPaths", func(c *container.InspectResponse) { c.HostConfig.ReadonlyPaths = nil }},
		{"Memory", func(c *container.InspectResponse) { c.HostConfig.Memory = 0 }},
		{"MemorySwap", func(c *container.InspectResponse) { c.HostConfig.MemorySwap = -1 }},
		{"OomKillDisable", func(c *container.InspectResponse) { c.HostConfig.OomKillDisable = &yes }},
		{"CpuQuota", func(c *container.InspectResponse) { c.HostConfig.CPUQuota = 0 }},
		{"CpuQuota", func(c *container.InspectResponse) { c.HostConfig.NanoCPUs = 4e9 }},
		{"PidsLimit", func(c *container.InspectResponse) { c.HostConfig.PidsLimit = &limit }},
		{"PidsLimit", func(c *container.InspectResponse) { c.HostConfig.PidsLimit = nil }},
		{"Ulimits", func(c *container.InspectResponse) { c.HostConfig.Ulimits = nil }},
		{"Devices", func(c *container.InspectResponse) { c.HostConfig.Devices[0].PathOnHost = "/dev/sda" }},
		{"Devices", func(c *container.InspectResponse) {
			c.HostConfig.Devices = append(c.HostConfig.Devices, c.HostConfig.Devices[0])
		}},
		{"DeviceCgroupRules", func(c *container.InspectResponse) { c.HostConfig.DeviceCgroupRules = []string{"a *:* rwm"} }},
		{"DeviceRequests", func(c *container.InspectResponse) { c.HostConfig.DeviceRequests = []container.DeviceRequest{{}} }},
		{"Sysctls", func(c *container.InspectResponse) { c.HostConfig.Sysctls = map[string]string{"kernel.x": "1"} }},
		{"Annotations", func(c *container.InspectResponse) { c.HostConfig.Annotations = map[string]string{"a": "b"} }},
		{"PortBindings", func(c *container.InspectResponse) { c.HostConfig.PublishAllPorts = true }},
		{"Links", func(c *container.InspectResponse) { c.HostConfig.ExtraHosts = []string{"a:1.2.3.4"} }},
		{"OomScoreAdj", func(c *container.InspectResponse) { c.HostConfig.OomScoreAdj = -1000 }},
		{"AutoRemove", func(c *container.InspectResponse) { c.HostConfig.AutoRemove = false }},
		{"RestartPolicy", func(c *container.InspectResponse) { c.HostConfig.RestartPolicy.Name = "always" }},
		{"LogConfig", func(c *container.InspectResponse) { c.HostConfig.LogConfig.Type = "json-file" }},
	} {
		t.Run(test.field, func(t *testing.T) {
			p, c := made(t)
			test.weaken(c)
			if err := check(c, example(), p); err == nil || !strings.Contains(err.Error(), "container: "+test.field+":") {
				t.Errorf("got %v, want %s refused", err, test.field)
			}
		})
	}
}

func TestMissingConfigurationIsRefused(t *testing.T) {
	p, _ := made(t)
	if check(&container.InspectResponse{}, example(), p) == nil {
		t.Error("a container without a configuration was accepted")
	}
}

func TestMountsThatAreNotAsTheyWereToBeAreFound(t *testing.T) {
	const engines = "1 0 0:1 / / ro - overlay overlay rw\n2 1 0:2 / /proc rw,nosuid - proc proc rw\n3 2 0:3 / /proc/kcore rw - tmpfs tmpfs rw\n" +
		"4 1 0:4 / /etc/hosts ro - ext4 /dev/x rw\n"
	const usr = "5 1 0:5 /usr /usr ro,nosuid,nodev - ext4 /dev/x rw\n"
	list := []expected{{"/usr", []string{"ro", "nosuid", "nodev"}}}
	for _, test := range []struct {
		name, table string
		second      bool
		want        string
	}{
		{"as it was to be", engines + usr, false, ""},
		{"mounted below", engines + usr + "6 5 0:6 / /usr/share rw - ext4 /dev/y rw\n", false, ""},
		{"missing", engines, false, "nothing is mounted on /usr"},
		{"writable", engines + strings.Replace(usr, "ro,", "rw,", 1), false, "the mount on /usr is not ro"},
		{"with devices", engines + strings.Replace(usr, ",nodev", "", 1), false, "the mount on /usr is not nodev"},
		{"covered by another", engines + usr + "6 5 0:6 / /usr rw - tmpfs tmpfs rw\n", false, "the mount on /usr is not ro"},
		{"one too many", engines + usr + "6 1 0:6 / /secret ro - ext4 /dev/y rw\n", false, "something is mounted on /secret"},
		{"with a space", engines + usr + "6 1 0:6 / /se\\040cret ro - ext4 /dev/y rw\n", false, "something is mounted on /se cret"},
		{"gVisor's options are its own", engines + strings.Replace(usr, "ro,", "rw,", 1), true, ""},
		{"missing in gVisor", engines, true, "nothing is mounted on /usr"},
		{"no table", "1 2 3\n", false, "short line"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := checkMounts(test.table, list, test.second)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestGvisorsArgumentsAreRead(t *testing.T) {
	for _, test := range []struct {
		args        []string
		flag, value string
		want        bool
	}{
		{[]string{"--oci-seccomp"}, "oci-seccomp", "true", true},
		{[]string{"-oci-seccomp=true"}, "oci-seccomp", "true", true},
		{[]string{"--oci-seccomp=false"}, "oci-seccomp", "true", false},
		{[]string{"--debug", "--network=host"}, "network", "host", true},
		{nil, "network", "host", false},
	} {
		if got := isSet(test.args, test.flag, test.value); got != test.want {
			t.Errorf("%q: %s=%s: got %v", test.args, test.flag, test.value, got)
		}
	}
}

func TestRoomIsMadeBelowSys(t *testing.T) {
	dir := t.TempDir()
	p := &plan{below: []spec.Mount{{Target: "/sys/a/file", File: true}, {Target: "/sys/a/dir"}, {Target: "/sys/a"}}}
	if err := p.furnishSystem(dir); err != nil {
		t.Fatal(err)
	}
	for name, isDir := range map[string]bool{"sys/a/file": false, "sys/a/dir": true} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.IsDir() != isDir {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}
