//go:build !linux

package main

import (
	"errors"

	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

func (*prepared) handOver(_ *request, _ policy.Origins, s *spec.Spec) int {
	return fail(errors.New("runtime " + s.Runtime + ": this version has it for Linux only; use --runtime auto"))
}
