package main

import (
	"cmp"
	"errors"

	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// handOver has a Spec carried out by another program of Bailey's, which knows the
// engine that it names.
func (p *prepared) handOver(r *request, origins policy.Origins, s *spec.Spec) int {
	program := carrier(s.Runtime)
	if program == "" {
		return fail(errors.New("runtime " + s.Runtime + ": the program baileyd is missing beside this one; install all programs of Bailey's into one directory: make install"))
	}
	return fail(engine.HandOver(program, engine.Order{
		Spec: *s, Origins: origins, Quiet: r.settledQuiet(), Debug: r.settledDebug(), Pool: r.pooling(),
		Monitor: r.monitor, Stats: r.stats, JSON: r.json, Begun: p.report.Account.Begun.UnixNano(),
	}))
}

// carrier is the program that knows the engine of a runtime. That of OCI runtimes is
// started several times for each command, so it has a program of its own.
func carrier(runtime string) string {
	switch runtime {
	case "runc", "crun", "gvisor":
		return cmp.Or(host.Beside("bailey-guard"), host.Beside("baileyd"))
	}
	return host.Beside("baileyd")
}
