package docker

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// check reports every wall that a container lacks, by its field, as the engine describes
// it. A daemon may change what it was told, by its own configuration or a plugin; what it
// made of it is looked at before it is started. It goes by what a sandbox must have, and
// where that depends on the Spec, by the plan.
func check(c *container.InspectResponse, s *spec.Spec, p *plan) error {
	if c.Config == nil || c.HostConfig == nil {
		return errors.New("container: its configuration is missing")
	}
	k := &checker{config: c.Config, host: c.HostConfig, container: c, spec: s, plan: p}
	k.identity()
	k.privileges()
	k.namespaces()
	k.files()
	k.limits()
	k.nothingElse()
	return errors.Join(k.found...)
}

type checker struct {
	container *container.InspectResponse
	config    *container.Config
	host      *container.HostConfig
	spec      *spec.Spec
	plan      *plan
	found     []error
}

func (k *checker) wants(ok bool, field, text string) {
	if !ok {
		k.found = append(k.found, fmt.Errorf("container: %s: %s", field, text))
	}
}

// identity: who the command is, and that the first process is Bailey's.
func (k *checker) identity() {
	k.wants(k.config.User == user(), "User", "must be nobody")
	k.wants(len(k.host.GroupAdd) == 0, "GroupAdd", "must be empty")
	k.wants(slices.Equal(k.config.Entrypoint, k.plan.config.Entrypoint) && len(k.config.Cmd) == 0, "Entrypoint", "must be the first process")
	k.wants(k.config.WorkingDir == "/", "WorkingDir", "must be the root directory")
	k.wants(!k.config.Tty || k.plan.config.Tty, "Tty", "must be as asked for")
	k.wants(k.host.Init == nil || !*k.host.Init, "Init", "must be off: the first process is Bailey's")
	k.wants(k.config.Healthcheck == nil, "Healthcheck", "must be empty: it runs programs")
	k.wants(k.config.Labels[ownerLabel] == k.plan.config.Labels[ownerLabel], "Labels", "must name the owner")
}

func (k *checker) privileges() {
	h := k.host
	k.wants(!h.Privileged, "Privileged", "must be off")
	k.wants(len(h.CapAdd) == 0, "CapAdd", "must be empty")
	k.wants(slices.Equal(h.CapDrop, []string{"ALL"}), "CapDrop", "must be all")
	want := k.plan.host.SecurityOpt
	for _, o := range want {
		k.wants(slices.Contains(h.SecurityOpt, o), "SecurityOpt", strings.SplitN(o, "=", 2)[0]+" is missing")
	}
	for _, o := range h.SecurityOpt {
		// The engine writes down the label of its own that it chose.
		k.wants(slices.Contains(want, o) || strings.HasPrefix(o, "label=") && o != "label=disable", "SecurityOpt", "has what nobody asked for")
	}
	k.wants(k.container.AppArmorProfile != "unconfined", "AppArmorProfile", "must not be switched off")
	k.wants(h.Runtime == k.plan.host.Runtime, "Runtime", "must be the one asked for")
}

// namespaces: none is shared but the network where the Spec says so, and ids are the
// host's, on which the owners of mounts depend.
func (k *checker) namespaces() {
	h := k.host
	k.wants(h.NetworkMode == networkMode(k.spec), "NetworkMode", "must be "+string(networkMode(k.spec)))
	k.wants(h.IpcMode == container.IPCModePrivate, "IpcMode", "must be private")
	k.wants(h.PidMode == "", "PidMode", "must be private")
	k.wants(h.UTSMode == "", "UTSMode", "must be private")
	k.wants(h.CgroupnsMode == container.CgroupnsModePrivate, "CgroupnsMode", "must be private")
	k.wants(h.UsernsMode == "host", "UsernsMode", "must be as asked for")
	k.wants(h.Cgroup == "", "Cgroup", "must be the container's own")
}

// files: nothing but what the plan shows.
func (k *checker) files() {
	h, want := k.host, k.plan.host
	k.wants(h.ReadonlyRootfs, "ReadonlyRootfs", "must be on")
	k.wants(reflect.DeepEqual(h.Mounts, want.Mounts), "Mounts", "must be the Spec's")
	k.wants(len(h.Tmpfs) == len(want.Tmpfs) && (len(want.Tmpfs) == 0 || reflect.DeepEqual(h.Tmpfs, want.Tmpfs)), "Tmpfs", "must be the Spec's")
	k.wants(len(h.Binds) == 0, "Binds", "must be empty")
	k.wants(len(h.VolumesFrom) == 0, "VolumesFrom", "must be empty")
	k.wants(len(k.config.Volumes) == 0, "Volumes", "must be empty")
	k.wants(len(k.container.Mounts) == len(want.Mounts), "Mounts", "must be no more than the Spec's")
	for _, p := range want.MaskedPaths {
		k.wants(slices.Contains(h.MaskedPaths, p), "MaskedPaths", p+" is missing")
	}
	for _, p := range want.ReadonlyPaths {
		k.wants(slices.Contains(h.ReadonlyPaths, p), "ReadonlyPaths", p+" is missing")
	}
}

func (k *checker) limits() {
	h, want := &k.host.Resources, &k.plan.host.Resources
	k.wants(h.Memory == want.Memory, "Memory", "must be the Spec's")
	k.wants(h.MemorySwap == want.MemorySwap, "MemorySwap", "must be the Spec's")
	k.wants(h.OomKillDisable == nil || !*h.OomKillDisable, "OomKillDisable", "must be off")
	k.wants(h.CPUQuota == want.CPUQuota && h.CPUPeriod == want.CPUPeriod && h.NanoCPUs == 0, "CpuQuota", "must be the Spec's")
	k.wants(number(h.PidsLimit) == number(want.PidsLimit), "PidsLimit", "must be the Spec's")
	for _, l := range want.Ulimits {
		k.wants(slices.ContainsFunc(h.Ulimits, func(u *container.Ulimit) bool { return *u == *l }), "Ulimits", l.Name+" must be the Spec's")
	}
}

func number(n *int64) int64 {
	if n == nil || *n < 0 {
		return 0
	}
	return *n
}

// nothingElse: what no Spec asks for could only open something.
func (k *checker) nothingElse() {
	h := k.host
	k.wants(len(h.Devices) == len(k.plan.host.Devices) && (len(h.Devices) == 0 || reflect.DeepEqual(h.Devices, k.plan.host.Devices)), "Devices", "must be the Spec's")
	k.wants(len(h.DeviceCgroupRules) == 0, "DeviceCgroupRules", "must be empty")
	k.wants(len(h.DeviceRequests) == 0, "DeviceRequests", "must be empty")
	k.wants(maps.Equal(h.Sysctls, k.plan.host.Sysctls), "Sysctls", "must be as asked for")
	k.wants(len(h.Annotations) == 0, "Annotations", "must be empty: runtimes take options from them")
	k.wants(len(h.PortBindings) == 0 && !h.PublishAllPorts, "PortBindings", "must be empty")
	k.wants(len(h.Links) == 0 && len(h.ExtraHosts) == 0, "Links", "must be empty")
	k.wants(h.OomScoreAdj == 0, "OomScoreAdj", "must be 0")
	k.wants(h.AutoRemove, "AutoRemove", "must be on")
	k.wants(h.RestartPolicy.IsNone(), "RestartPolicy", "must be none")
	k.wants(h.LogConfig.Type == "none", "LogConfig", "must be none: output would be kept on disk")
}
