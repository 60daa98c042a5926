//go:build !linux

package main

import (
	"errors"
	"runtime"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

func (*request) askGate(*spec.Spec) int {
	return fail(errors.New("explain: this version has no gate on " + runtime.GOOS))
}
