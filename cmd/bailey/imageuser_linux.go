package main

import (
	"errors"
	"fmt"

	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// placeCommand says who the command is to be in an image, and where it starts: as the flags
// say, otherwise as the image does. It says nothing about a command that is not its own,
// which starts in the project, and its root is no other user than without an image.
func (q *imageRequest) placeCommand(own bool) error {
	i := q.found
	if i == nil {
		if q.user != "" || q.workdir != "" {
			return errors.New("--user and --workdir go with --image or --rootfs")
		}
		return nil
	}
	i.WorkingDir, i.WorkingDirAsked = q.workdir, q.workdir != ""
	if own && q.workdir == "" {
		i.WorkingDir = q.config.WorkingDir
	}
	name, flag := q.user, "--user "+printable(q.user)
	if i.UserAsked = q.user != ""; !i.UserAsked {
		name, flag = q.config.User, "the image's user "+printable(q.config.User)
		if !q.config.HasUser() {
			return nil
		}
	}
	uid, gid, err := image.UserIn(i.Dir, name)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	i.User = spec.Shown{Set: true, UID: uid, GID: gid}
	return nil
}
