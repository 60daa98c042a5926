//go:build !linux

package sandbox

import (
	"errors"
	"os"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// ErrNoRuntime is returned where no runtime exists: nothing runs unconfined.
var ErrNoRuntime = errors.New("this version has no runtime for this operating system")

// Launch always fails.
func (m *Manager) Launch(*spec.Spec, [3]*os.File) (Running, error) { return nil, ErrNoRuntime }

// Box cannot be made.
type Box struct{}

// Open always fails.
func (m *Manager) Open() (*Box, error) { return nil, ErrNoRuntime }

// UpdateNetwork always fails.
func (b *Box) UpdateNetwork(*Manager) error { return ErrNoRuntime }

// Start always fails.
func (b *Box) Start([]string, [3]*os.File) (Running, error) { return nil, ErrNoRuntime }

// Done is nil.
func (b *Box) Done() <-chan struct{} { return nil }

// Close does nothing.
func (b *Box) Close() {}
