//go:build !linux

package sandbox

import (
	"errors"
	"os"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Running is a command in its sandbox.
type Running struct{}

// State is how a command ended.
type State struct {
	Code     int
	Signal   int
	Killed   bool
	TimedOut bool
}

// ErrNoRuntime is returned where no runtime exists: nothing runs unconfined.
var ErrNoRuntime = errors.New("this version has no runtime for this operating system")

// Launch always fails.
func Launch(*spec.Spec, [3]*os.File) (*Running, error) { return nil, ErrNoRuntime }

// Done is nil.
func (r *Running) Done() <-chan struct{} { return nil }

// Pid is 0.
func (r *Running) Pid() int { return 0 }

// State is zero.
func (r *Running) State() State { return State{} }

// Signal always fails.
func (r *Running) Signal(syscall.Signal) error { return ErrNoRuntime }
