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
	return fail(errors.New("doctor: this version examines nothing on " + runtime.GOOS))
}
