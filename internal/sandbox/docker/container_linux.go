package docker

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bailey-sandbox/bailey/internal/sandbox/oci"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Where the first process finds what it is to do, and tells what becomes of it.
const (
	orderPath  = "/.bailey-order"
	statusPath = "/.bailey-status"
	doorPath   = "/.bailey-door"  // a socket, by which the listener of its filter goes out
	leavePath  = "/.bailey-leave" // a socket, by which it is told that it may start the command and go on
)

// Labels by which containers and images of Bailey's are known.
const (
	ownerLabel = "bailey.owner"
	imageLabel = "bailey.root"
)

// identity is who the command is. The engine's containers have the host's user ids, so it
// is nobody, inside and outside; what root owns among the granted files is the command's
// all the same, since they are mounted with root's id and nobody's exchanged.
var identity = oci.Identity{First: 0, Count: 65536, UID: oci.Guest, GID: oci.Guest}

// plan is a container that is to be made, and what it needs.
type plan struct {
	config  *container.Config
	host    *container.HostConfig
	sources []oci.Source
	mounts  []expected
	// restrict are mounts on the host whose options the engine has no words for.
	restrict []restriction
	// entries are the links of the root directory, and directories in it that nothing
	// is mounted on.
	entries []spec.Mount
	// copies are files on the stage that stand where the engine would have its own.
	copies []copied
	// below are what is mounted below the /sys of the stage, if there is one.
	below []spec.Mount
}

// copied is a file on the stage with what is shown of the host, or nothing.
type copied struct {
	path string
	from string // or empty
}

// restriction is a path on the stage and the mount options it gets there.
type restriction struct {
	path    string
	options []string
}

// planFor says what a Spec means for an engine. Dir is where the sources will be.
func planFor(s *spec.Spec, dir, runtime, owner string, tty bool) (*plan, error) {
	kind := kindOf(runtime)
	bundle, sources, err := oci.Compose(s, oci.Options{Dir: dir, Runtime: kind, Identity: identity, Stream: -1})
	if err != nil {
		return nil, err
	}
	p := &plan{sources: sources, entries: slices.Clone(sources[0].Links)}
	for i := range s.Mounts {
		if m := &s.Mounts[i]; m.Kind == spec.Dir && slices.Contains(sources[0].Dirs, m.Target) {
			p.entries = append(p.entries, *m)
		}
	}
	p.config = &container.Config{
		User:       user(),
		Entrypoint: []string{oci.InitPath},
		Cmd:        []string{},
		Env:        []string{},
		WorkingDir: "/",
		Tty:        tty,
		OpenStdin:  true, StdinOnce: true,
		AttachStdin: true, AttachStdout: true, AttachStderr: true,
		Labels: map[string]string{ownerLabel: owner},
	}
	if p.host, err = hostConfig(s, bundle, runtime); err != nil {
		return nil, err
	}
	if kind != oci.Gvisor && !shows(bundle, "/sys") {
		p.addSystem(s, dir)
	}
	p.addMounts(s, bundle.Mounts)
	p.addOwnFiles(s, dir)
	for _, link := range oci.LinksOf(s) {
		p.mounts = append(p.mounts, expected{Path: link, Options: []string{"ro", "nosuid", "nodev"}})
	}
	p.add(filepath.Join(dir, "order"), orderPath, "ro", "nosuid", "nodev", "noexec")
	p.add(filepath.Join(dir, "status"), statusPath, "rw", "nosuid", "nodev", "noexec")
	if hasDoor(s, kind) {
		p.add(oci.Door(dir), doorPath, "ro", "nosuid", "nodev", "noexec")
	}
	if hasLeave(kind) {
		p.add(oci.Leave(dir), leavePath, "ro", "nosuid", "nodev", "noexec")
	}
	return p, nil
}

// kindOf is the runtime of an engine, as package oci calls it.
func kindOf(runtime string) string {
	if runtime == runsc {
		return oci.Gvisor
	}
	return oci.Runc
}

// hasDoor says whether the command of a Spec has a filter with a listener.
func hasDoor(s *spec.Spec, kind string) bool { return s.Broker != nil && oci.HasWalls(kind) }

// hasLeave says whether the first process waits for leave, and ends with whoever gave it. From
// gVisor a socket outside is reached only where the engine is configured so.
func hasLeave(kind string) bool { return kind != oci.Gvisor }

// waits says whether something has to be made in the container before the command starts.
func waits(s *spec.Spec) bool { return oci.PortsOf(s) != nil || oci.LinksOf(s) != nil }

func user() string {
	return strconv.Itoa(int(identity.UID)) + ":" + strconv.Itoa(int(identity.GID))
}

// hostConfig is everything but the mounts, each wall said in so many words.
func hostConfig(s *spec.Spec, bundle *specs.Spec, runtime string) (*container.HostConfig, error) {
	filter, err := json.Marshal(bundle.Linux.Seccomp)
	if err != nil {
		return nil, err
	}
	no := false
	h := &container.HostConfig{
		Runtime:        runtime,
		NetworkMode:    networkMode(s),
		IpcMode:        container.IPCModePrivate,
		CgroupnsMode:   container.CgroupnsModePrivate,
		UsernsMode:     "host",
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges", "seccomp=" + string(filter)},
		ReadonlyRootfs: true,
		AutoRemove:     true,
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:      container.LogConfig{Type: "none"},
		MaskedPaths:    maskedPaths(bundle, runtime),
		ReadonlyPaths:  bundle.Linux.ReadonlyPaths,
		Tmpfs:          map[string]string{},
		Init:           &no,
	}
	h.Resources = resources(bundle)
	if s.Network.IsOwn() && runtime == runc {
		// Engines let everybody in a container send ICMP, for which there are other sockets.
		h.Sysctls = map[string]string{"net.ipv4.ping_group_range": "1 0"}
	}
	return h, nil
}

func networkMode(s *spec.Spec) container.NetworkMode {
	if s.Network.IsOwn() {
		return "none"
	}
	return "host"
}

// maskedPaths are the bundle's, and with gVisor, which has a /sys in any case, all of that
// unless it is granted.
func maskedPaths(bundle *specs.Spec, runtime string) []string {
	if shows(bundle, "/sys") {
		return slices.Clone(bundle.Linux.MaskedPaths)
	}
	paths := slices.DeleteFunc(slices.Clone(bundle.Linux.MaskedPaths), func(p string) bool { return spec.Covers("/sys", p) })
	if runtime == runsc {
		paths = append(paths, "/sys")
	}
	return paths
}

func shows(bundle *specs.Spec, target string) bool {
	return slices.ContainsFunc(bundle.Mounts, func(m specs.Mount) bool { return m.Destination == target })
}

// addSystem mounts a directory on /sys, in the place of the engine's, with nothing in it but
// what is granted below.
func (p *plan) addSystem(s *spec.Spec, dir string) {
	p.add(filepath.Join(dir, "sys"), "/sys", "ro", "nosuid", "nodev", "noexec")
	for i := range s.Mounts {
		if spec.Covers("/sys", s.Mounts[i].Target) {
			p.below = append(p.below, s.Mounts[i])
		}
	}
}

// addOwnFiles has what a Spec shows where an engine would show files of its own: a copy of
// what is granted, or an empty file. One that is granted by itself is a mount like others.
func (p *plan) addOwnFiles(s *spec.Spec, dir string) {
	for _, file := range engineFiles {
		if in := around(s, file); in != nil && in.Target == file {
			continue
		}
		c := copied{path: filepath.Join(dir, filepath.Base(file)), from: sourceOf(s, file)}
		p.copies = append(p.copies, c)
		p.add(c.path, file, "ro", "nosuid", "nodev", "noexec")
	}
}

// around is the mount of a Spec in which a path is seen, or nil.
func around(s *spec.Spec, path string) (in *spec.Mount) {
	for i := range s.Mounts { // the last stands in all before it
		if spec.Covers(s.Mounts[i].Target, path) {
			in = &s.Mounts[i]
		}
	}
	return in
}

// sourceOf is the file of the host that a Spec shows at a path, through as many links as
// there may be, or empty.
func sourceOf(s *spec.Spec, path string) string {
	for range 40 {
		in := around(s, path)
		if in == nil || in.Kind != spec.Bind {
			return ""
		}
		source := filepath.Join(in.Source, strings.TrimPrefix(path, in.Target))
		if dir, err := filepath.EvalSymlinks(filepath.Dir(source)); err != nil || dir != filepath.Dir(source) {
			if err != nil || in.Source != in.Target {
				return "" // links in another root directory lead elsewhere
			}
			path = filepath.Join(dir, filepath.Base(source))
			continue
		}
		link, err := os.Readlink(source)
		if err != nil {
			return source
		}
		if !filepath.IsAbs(link) {
			link = filepath.Join(filepath.Dir(path), link)
		}
		path = filepath.Clean(link)
	}
	return ""
}

func resources(bundle *specs.Spec) container.Resources {
	var r container.Resources
	for _, l := range bundle.Process.Rlimits {
		name := strings.ToLower(strings.TrimPrefix(l.Type, "RLIMIT_"))
		r.Ulimits = append(r.Ulimits, &container.Ulimit{Name: name, Hard: int64(l.Hard), Soft: int64(l.Soft)})
	}
	limits := bundle.Linux.Resources
	if limits == nil {
		return r
	}
	if m := limits.Memory; m != nil {
		r.Memory, r.MemorySwap = *m.Limit, *m.Swap
	}
	if c := limits.CPU; c != nil {
		r.CPUQuota, r.CPUPeriod = *c.Quota, int64(*c.Period)
	}
	if p := limits.Pids; p != nil {
		r.PidsLimit = p.Limit
	}
	return r
}

// addMounts says a bundle's mounts in the engine's words. The engine has a /proc and a
// /dev of its own making.
func (p *plan) addMounts(s *spec.Spec, mounts []specs.Mount) {
	for i := range mounts {
		m := &mounts[i]
		switch {
		case m.Destination == "/proc" || m.Destination == "/dev" || m.Destination == "/dev/pts" || m.Destination == "/dev/shm":
		case isDevice(s, m.Destination):
			p.host.Devices = append(p.host.Devices, container.DeviceMapping{PathOnHost: m.Destination, PathInContainer: m.Destination, CgroupPermissions: "rw"})
		case m.Type == "tmpfs":
			p.host.Tmpfs[m.Destination] = strings.Join(m.Options, ",")
			p.mounts = append(p.mounts, expected{Path: m.Destination, Options: flagsOf(m.Options)})
		default:
			p.add(m.Source, m.Destination, m.Options...)
		}
	}
}

func isDevice(s *spec.Spec, target string) bool {
	return slices.ContainsFunc(s.Mounts, func(m spec.Mount) bool { return m.Devices && m.Target == target })
}

// add shows something of the stage. That it is read-only is a property of the mount that
// is shown: an engine that were told would mount it again and forget all others.
func (p *plan) add(source, target string, options ...string) {
	p.host.Mounts = append(p.host.Mounts, bindOf(source, target))
	p.restrict = append(p.restrict, restriction{source, flagsOf(options)})
	p.mounts = append(p.mounts, expected{Path: target, Options: flagsOf(options)})
}

func bindOf(source, target string) mount.Mount {
	return mount.Mount{Type: mount.TypeBind, Source: source, Target: target, BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate}}
}

// flagsOf are those of a mount's options that take something away.
func flagsOf(options []string) (flags []string) {
	for _, o := range options {
		if slices.Contains([]string{"ro", "nosuid", "nodev", "noexec"}, o) {
			flags = append(flags, o)
		}
	}
	return flags
}
