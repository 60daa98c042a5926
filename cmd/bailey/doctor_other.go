//go:build !linux

package main

import (
	"errors"
	"runtime"
)

func runDoctor(r *request) int {
	if err := r.noArguments(); err != nil {
		return fail(err)
	}
	return fail(errors.New("doctor: this version has no runtime for " + runtime.GOOS + ", so there is nothing to examine"))
}
