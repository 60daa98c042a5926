//go:build !linux

package main

import "errors"

// openImage refuses: the root directory of another system needs mounts.
func (r *request) openImage() error {
	if r.image.ref == "" && r.image.rootfs == "" {
		return nil
	}
	return errors.New("--image and --rootfs need Linux")
}
