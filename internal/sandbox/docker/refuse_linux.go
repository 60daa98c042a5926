package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/sandbox/oci"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Refuses names the parts of a Spec that no container holds, or this engine does not, and
// what the machine lacks.
func (e *Engine) Refuses(s *spec.Spec) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("runtime %s: it takes root: the engine follows links in the paths it is given, and gives files no other owner, so that what is granted has to be mounted for it; use --runtime native, or runc", e.name)
	}
	api, err := e.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	e.version = api.ClientVersion()
	reasons := oci.Refusals(e.name, s, e.runtime == runsc)
	if u := s.Overlay.Refused(e.name); u != nil {
		reasons = append(reasons, u)
	}
	reasons = append(reasons, e.devices(s)...)
	reasons = append(reasons, e.ownFiles(s)...)
	if e.runtime == runsc {
		more, err := e.second(api, s)
		if err != nil {
			return err
		}
		reasons = append(reasons, more...)
	}
	return engine.Refused(reasons)
}

// connect returns a connection to the engine, which has answered.
func (e *Engine) connect() (*client.Client, error) {
	api, err := e.dial()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return nil, errors.Join(e.unreachable(api.DaemonHost(), err), api.Close())
	}
	return api, nil
}

// dial finds the engine, which is on this machine: it is given this machine's files.
func (e *Engine) dial() (*client.Client, error) {
	api, err := client.New(client.FromEnv)
	if err != nil {
		return nil, fmt.Errorf("runtime %s: %w", e.name, err)
	}
	if at := api.DaemonHost(); !strings.HasPrefix(at, "unix://") {
		return nil, fmt.Errorf("runtime %s: DOCKER_HOST %s: the engine has to be on this machine, since it is given this machine's files; name its socket: unix:///var/run/docker.sock", e.name, at)
	}
	return api, nil
}

// patience is for what an engine answers at once.
const patience = 30 * time.Second

// unreachable says why nobody answers at the engine's socket.
func (e *Engine) unreachable(at string, err error) error {
	file := strings.TrimPrefix(at, "unix://")
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("runtime %s: there is no engine at %s; install the package docker.io and start dockerd, or name its socket in DOCKER_HOST", e.name, file)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("runtime %s: no engine answers at %s; start dockerd", e.name, file)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("runtime %s: %s may not be used by this user; run it as root, or use --runtime native", e.name, file)
	}
	return fmt.Errorf("runtime %s: %s: %w", e.name, file, err)
}

// devices: an engine makes single nodes.
func (e *Engine) devices(s *spec.Spec) (reasons []*spec.Unsupported) {
	for i := range s.Mounts {
		if m := &s.Mounts[i]; m.Devices && !m.File {
			reasons = append(reasons, engine.Refuse(e.name, "devices.allow", m.Target, "shows single devices only"))
		}
	}
	return reasons
}

// ownFiles: an engine mounts files on some names in any case, and cannot where what is shown
// there lacks them.
func (e *Engine) ownFiles(s *spec.Spec) (reasons []*spec.Unsupported) {
	for _, file := range engineFiles {
		in := around(s, file)
		if in == nil || in.Kind != spec.Bind || in.Target == file {
			continue
		}
		missing := in.Source + strings.TrimPrefix(file, in.Target)
		if _, err := os.Lstat(missing); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		key, value, _ := strings.Cut(in.Why, " ")
		u := engine.Refuse(e.name, key, value, "mounts a file on "+file+", which is missing there")
		switch {
		case s.Image != nil && s.Image.ID != "":
			u.Key, u.Value, u.Fix = "--image", s.Image.Name, "use another image, or --runtime native or runc"
		case s.Image != nil:
			u.Key, u.Value, u.Fix = "--rootfs", s.Image.Dir, "touch "+missing+", or use --runtime native or runc"
		}
		reasons = append(reasons, u)
	}
	return reasons
}

// second names what gVisor does only if the engine calls it with certain options: they
// are the engine's configuration, not the container's.
func (e *Engine) second(api *client.Client, s *spec.Spec) ([]*spec.Unsupported, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	info, err := api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, fmt.Errorf("runtime %s: %w", e.name, err)
	}
	known, ok := info.Info.Runtimes[runsc]
	if !ok {
		return nil, fmt.Errorf("runtime %s: the engine has no runtime %s; add it to /etc/docker/daemon.json: %s", e.name, runsc, configExample)
	}
	if !isSet(known.Args, "oci-seccomp", "true") {
		return nil, fmt.Errorf("runtime %s: the engine calls %s without --oci-seccomp, so that the system call filter would do nothing; in /etc/docker/daemon.json: %s", e.name, runsc, configExample)
	}
	return e.withoutOptions(known.Args, s), nil
}

func (e *Engine) withoutOptions(args []string, s *spec.Spec) (reasons []*spec.Unsupported) {
	if !s.Network.IsOwn() && !isSet(args, "network", "host") {
		reasons = append(reasons, engine.Refuse(e.name, "network.allowedDomains", "*", "has no network of the host's: the engine calls runsc without --network=host"))
	}
	if s.Network.IsOwn() && isSet(args, "network", "host") {
		reasons = append(reasons, engine.Refuse(e.name, "network", "", "would show the host's network: the engine calls runsc with --network=host"))
	}
	if s.Gate != nil && s.Gate.Socket != "" && !isSet(args, "host-uds", "open") && !isSet(args, "host-uds", "all") {
		reasons = append(reasons, engine.Refuse(e.name, "network.egress", "socket", "reaches no socket outside: the engine calls runsc without --host-uds=open"))
	}
	for i := range s.Mounts {
		// The options of a mount are those of the host's kernel here, which does not
		// execute anything for gVisor.
		if m := &s.Mounts[i]; m.Kind == spec.Bind && oci.Noexec(s, m) {
			return append(reasons, engine.Refuse(e.name, "filesystem.allowExecute", m.Target, "cannot say that nothing is executed from a directory"))
		}
	}
	return reasons
}

// configExample is what an engine's configuration needs for gVisor.
const configExample = `"runtimes": {"runsc": {"path": "/usr/local/bin/runsc", "runtimeArgs": ["--oci-seccomp", "--network=none", "--host-uds=open"]}}`

// isSet says whether a flag is among arguments, as gVisor reads them, with this value.
func isSet(args []string, flag, value string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		name, given, ok := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if !ok {
			given = "true"
		}
		return name == flag && given == value
	})
}
