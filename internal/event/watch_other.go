//go:build !linux

package event

import (
	"errors"
	"runtime"
)

// Watch cannot be had on this system.
type Watch struct{}

// NewWatch fails.
func NewWatch(string) (*Watch, error) {
	return nil, errors.New("following the audit log is not possible on " + runtime.GOOS + " in this version; leave out --follow")
}

// Wait is never reached.
func (*Watch) Wait() error { return errors.ErrUnsupported }

// Close is never reached.
func (*Watch) Close() {}
