package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/host"
)

// become has another program of Bailey's do what a verb asks for: what it takes is
// more than every command should have to load.
func (r *request) become(name string, args ...string) int {
	program := host.Beside(name)
	if program == "" {
		return fail(errors.New(r.verb.name + ": the program " + name + " is missing beside this one; install all programs of Bailey's into one directory: make install"))
	}
	argv := append([]string{name, r.verb.name}, args...)
	return fail(fmt.Errorf("%s: %w", program, syscall.Exec(program, argv, os.Environ())))
}
