//go:build !linux

package main

import (
	"errors"
	"runtime"
)

func runLearn(*request) int {
	return fail(errors.New("this version has no runtime for " + runtime.GOOS + ", so nothing can be observed"))
}
