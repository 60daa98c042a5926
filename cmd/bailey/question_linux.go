package main

import (
	"encoding/json"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// askGate has the gate's program say what its rules make of a host: names are
// compared there, by tables that no command should have to load.
func (r *request) askGate(s *spec.Spec) int {
	config, err := json.Marshal(s.Gate.Config)
	if err != nil {
		return fail(err)
	}
	fd, err := unix.MemfdCreate("config", 0)
	if err != nil {
		return fail(err)
	}
	if _, err := unix.Pwrite(fd, config, 0); err != nil {
		return fail(err)
	}
	name := r.args[1]
	if strings.Count(name, ":") > 1 && name[0] != '[' {
		name = "[" + name + "]"
	}
	args := []string{"--config", strconv.Itoa(fd), name}
	if r.json {
		args = append([]string{"--json"}, args...)
	}
	return r.become("bailey-gate", args...)
}
