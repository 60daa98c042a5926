package server

import (
	"errors"
	"fmt"
	"sync"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// image finds the image that a sandbox's system is to be; nil is the machine's own. It
// must be here: what is got from where, and with whose credentials, is the operator's to
// decide.
func (s *Server) image(ref string) (*spec.Image, error) {
	if ref == "" {
		return nil, nil
	}
	found, err := image.Store{Dir: s.config.Images}.Look(ref)
	if errors.Is(err, image.ErrNotHere) || s.config.Images == "" {
		return nil, problem.New(connect.CodeNotFound, "image_not_here", fmt.Errorf("this server does not have the image %s", plain.Text(ref)), problem.Remedy("have the operator pull it: bailey image pull %s", plain.Word(ref)))
	}
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", plain.Text(ref), err)
	}
	i := &spec.Image{Name: ref, ID: found.ID, Dir: found.Dir, Env: found.Config.Env}
	if !found.Config.HasUser() {
		return i, nil
	}
	uid, gid, err := image.UserIn(found.Dir, found.Config.User)
	if err != nil {
		return nil, failed("image_unusable", fmt.Errorf("the image's user %s: %w", plain.Text(found.Config.User), err))
	}
	i.User = spec.Shown{Set: true, UID: uid, GID: gid}
	return i, nil
}

// shellIn is the shell of an image that lines are given to, or of the machine's own
// system.
func (s *Server) shellIn(ref string) string {
	if ref == "" {
		return ownShell()
	}
	found, err := image.Store{Dir: s.config.Images}.Look(ref)
	if err != nil {
		return "/bin/sh" // it will be said what is missing
	}
	return shellBelow(found.Dir)
}

var ownShell = sync.OnceValue(func() string { return shellBelow("/") })

// shellBelow looks for bash in a root directory. Strangers may have made it: its links lead
// nowhere else.
func shellBelow(root string) string {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "/bin/sh"
	}
	defer func() { _ = unix.Close(dir) }()
	for _, p := range []string{"/bin/bash", "/usr/bin/bash"} {
		fd, err := unix.Openat2(dir, p, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
		if err == nil {
			_ = unix.Close(fd)
			return p
		}
	}
	return "/bin/sh"
}
