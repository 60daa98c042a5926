//go:build !linux

package main

import (
	"errors"
	"runtime"
)

func (r *request) become([]string) int {
	return fail(errors.New(r.verb.name + ": this version does not start other programs on " + runtime.GOOS + "; call: baileyd " + r.verb.name))
}
