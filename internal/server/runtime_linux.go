package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/sandbox/bwrap"
	"github.com/bailey-sandbox/bailey/internal/sandbox/oci"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// holders are the runtimes that hold sandboxes that stay: each says which parts of a
// Spec it cannot hold, or that it is not there.
func holders() map[string]func(*spec.Spec) error {
	h := map[string]func(*spec.Spec) error{
		spec.RuntimeNative: func(*spec.Spec) error { return nil },
		spec.RuntimeBwrap: func(s *spec.Spec) error {
			if _, err := bwrap.Program(); err != nil {
				return err
			}
			return bwrap.Refuses(s)
		},
	}
	for _, e := range oci.Engines() {
		h[e.Name()] = e.(*oci.Engine).RefusesToStay
	}
	return h
}

// knownRuntime refuses a runtime by name that no sandbox of the server can have.
func knownRuntime(name string) error {
	if name == "" || name == "auto" || holders()[name] != nil {
		return nil
	}
	if !slices.Contains(spec.Runtimes(), name) {
		return problem.Invalid("runtime", "there is no runtime %q; there are %s", name, strings.Join(spec.Runtimes(), ", "))
	}
	return problem.Unimplemented("runtime_unsupported", fmt.Errorf("no sandbox that stays can be made with the runtime %q", name),
		problem.About("runtime", name), problem.Remedy("leave runtime empty, or use one of %s", strings.Join(names(), ", ")))
}

// names are the runtimes of sandboxes that stay, the usual one first.
func names() (list []string) {
	for _, name := range spec.Runtimes() {
		if holders()[name] != nil {
			list = append(list, name)
		}
	}
	return list
}

// runtimeOf is the runtime of a Spec by name.
func runtimeOf(s *spec.Spec) string {
	if s.Runtime == "" {
		return spec.RuntimeNative
	}
	return s.Runtime
}

// hasInlets says whether ports of a sandbox can be exposed while it stands.
func hasInlets(s *spec.Spec) bool {
	name := runtimeOf(s)
	return name == spec.RuntimeNative || name == spec.RuntimeBwrap
}

// held says by name what the runtime of a Spec cannot hold, before anything is made.
func held(s *spec.Spec) error {
	name := runtimeOf(s)
	hold := holders()[name]
	if hold == nil {
		return knownRuntime(name)
	}
	err := hold(s)
	var r *spec.Refused
	switch {
	case err == nil:
		return nil
	case errors.As(err, &r):
		return refused(err)
	}
	return problem.New(connect.CodeFailedPrecondition, "runtime_missing", err, problem.About("runtime", name),
		problem.Remedy("install it on the server's machine, or leave runtime empty"))
}

// runtimes tells which runtimes this machine has.
func runtimes() (list []*baileyv1.Runtime) {
	for _, name := range names() {
		r := &baileyv1.Runtime{Name: name, Available: true}
		if err := holders()[name](&spec.Spec{}); err != nil {
			r.Available, r.Reason = false, err.Error()
		}
		list = append(list, r)
	}
	return list
}
