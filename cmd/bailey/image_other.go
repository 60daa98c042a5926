//go:build !linux

package main

import "errors"

// openImage refuses: the root directory of another system needs mounts.
func (r *request) openImage() error {
	if q := &r.image; q.ref == "" && q.rootfs == "" && q.user == "" && q.workdir == "" {
		return nil
	}
	return errors.New("--image, --rootfs, --user and --workdir need Linux")
}
