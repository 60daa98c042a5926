//go:build !linux

package main

import (
	"errors"
	"runtime"
)

func (r *request) become(name string, _ ...string) int {
	return fail(errors.New(r.verb.name + ": this version does not start other programs on " + runtime.GOOS + "; call: " + name + " " + r.verb.name))
}
