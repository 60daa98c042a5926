//go:build !linux

package main

import (
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

func (*request) runAlone(_ policy.Policy, s *spec.Spec, cause error) int {
	return startFailed(s, cause)
}

func (*request) runRestricted(_ *sandbox.Manager, s *spec.Spec, cause error) int {
	return startFailed(s, cause)
}
