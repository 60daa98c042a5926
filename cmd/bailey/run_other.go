//go:build !linux && !darwin

package main

import (
	"errors"
	"os"
	"runtime"

	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/trace"
)

// prepared is what a runtime for this system would need.
type prepared struct {
	refused func(error) int
}

func discard() {}

func prepare(*request, *trace.Log) (*prepared, error) {
	return nil, errors.New("this version has no runtime for " + runtime.GOOS + "; nothing ran")
}

func (*prepared) foresee(policy.Policy) {}

func (*prepared) draft(*spec.Spec) {}

func (*prepared) abandon() {}

func (*prepared) run(*request, *spec.Spec) int { return exitOwn }

func startFailed(_ *spec.Spec, err error) int { return fail(err) }

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
