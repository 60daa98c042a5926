//go:build !linux

package bailey

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

var errNoOverlay = errors.New("bailey: only Linux can keep changes apart from the files themselves")

// Overlay cannot be made.
type Overlay struct{}

// Overlay always fails.
func (m *Manager) Overlay(string) (*Overlay, error) { return nil, errNoOverlay }

// Name is empty.
func (o *Overlay) Name() string { return "" }

// Command returns a Cmd that always fails.
func (o *Overlay) Command(name string, args ...string) *Cmd {
	return o.CommandContext(context.Background(), name, args...)
}

// CommandContext returns a Cmd that always fails.
func (o *Overlay) CommandContext(ctx context.Context, name string, args ...string) *Cmd {
	fail := func([]string, [3]*os.File) (sandbox.Running, error) { return nil, errNoOverlay }
	return &Cmd{Args: append([]string{name}, args...), ctx: ctx, launch: fail}
}

// Open always fails.
func (o *Overlay) Open() (*Box, error) { return nil, errNoOverlay }

// Diff always fails.
func (o *Overlay) Diff(...string) ([]Change, error) { return nil, errNoOverlay }

// WritePatch always fails.
func (o *Overlay) WritePatch(io.Writer, ...string) error { return errNoOverlay }

// Apply always fails.
func (o *Overlay) Apply(...string) ([]Change, error) { return nil, errNoOverlay }

// Undo always fails.
func (o *Overlay) Undo() error { return errNoOverlay }

// Discard always fails.
func (o *Overlay) Discard() error { return errNoOverlay }

// Close always fails.
func (o *Overlay) Close() error { return errNoOverlay }

func (o *Overlay) boxClosed(*Box) error { return nil }
