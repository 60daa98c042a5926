//go:build !linux

package main

import (
	"errors"
	"runtime"
)

func runLearn(*request) int {
	return fail(errors.New("learn: this version cannot observe commands on " + runtime.GOOS))
}
