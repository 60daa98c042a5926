//go:build !linux

package gate

import (
	"errors"
	"os"
)

// ServeRejected refuses: only Linux tells.
func (g *Gate) ServeRejected(*os.File) error { return errors.ErrUnsupported }
