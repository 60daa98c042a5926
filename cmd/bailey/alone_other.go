//go:build !linux

package main

import (
	"errors"

	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/trace"
)

// Landlock is a part of Linux, so on this system none of these has anything to do.

func becomeCommand() {}

func launchRestricted(_ *request, _ []string, _ *trace.Log, cause error) int {
	return startFailed(nil, cause)
}

func (*request) runAlone(policy.Policy, *spec.Spec, error) int {
	return fail(errors.New("runtime landlock: this version has it for Linux only; use --runtime auto"))
}

func (*request) runRestricted(_ *sandbox.Manager, s *spec.Spec, cause error) int {
	return startFailed(s, cause)
}
