//go:build !linux

package main

import (
	"errors"

	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

// openImage refuses: the root directory of another system needs mounts.
func (r *request) openImage() error {
	if q := &r.image; q.ref == "" && q.rootfs == "" && q.user == "" && q.workdir == "" {
		return nil
	}
	return errors.New("--image, --rootfs, --user and --workdir need Linux")
}

// wantsImage leaves it to the compiler to refuse one.
func (r *request) wantsImage(*sandbox.Manager) (bool, error) { return false, nil }
