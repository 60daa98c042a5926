//go:build !linux

package main

import (
	"errors"
	"runtime"
)

// runAudit has nothing to attack where nothing can be run.
func runAudit(*request) int {
	return fail(errors.New("this version has no runtime for " + runtime.GOOS + "; there is nothing to audit"))
}
