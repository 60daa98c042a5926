package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// askGate has the gate's program say what its rules make of a host: names are
// compared there, by tables that no command should have to load.
func askGate(s *spec.Spec, name string, asJSON bool) int {
	program := host.Beside("bailey-gate")
	if program == "" {
		return fail(errors.New("explain: the program bailey-gate is missing beside this one; install all programs of Bailey's into one directory: make install"))
	}
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
	argv := []string{"bailey-gate", "explain", "--config", fmt.Sprint(fd), name}
	if asJSON {
		argv = []string{"bailey-gate", "explain", "--json", "--config", fmt.Sprint(fd), name}
	}
	return fail(fmt.Errorf("%s: %w", program, syscall.Exec(program, argv, os.Environ())))
}
