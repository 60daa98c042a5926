//go:build !linux

package main

import (
	"errors"
	"runtime"
)

// runAudit has attacks on the walls of Linux only.
func runAudit(*request) int {
	return fail(errors.New("audit: this version knows no attacks for " + runtime.GOOS))
}
