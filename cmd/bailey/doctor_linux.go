package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/host"
)

// runDoctor becomes the program that examines the machine, which links more than
// every command should pay for.
func runDoctor(r *request) int {
	if err := r.noArguments(); err != nil {
		return fail(err)
	}
	program := host.Beside("baileyd")
	if program == "" {
		return fail(errors.New("doctor: the program baileyd is missing beside this one; install all programs of Bailey's into one directory: make install"))
	}
	return fail(fmt.Errorf("%s: %w", program, syscall.Exec(program, r.doctorArgs(), os.Environ())))
}

// doctorArgs are the flags as the program that has the doctor takes them.
func (r *request) doctorArgs() []string {
	args := []string{"baileyd", "doctor"}
	for _, f := range []struct {
		given bool
		name  string
	}{{r.json, "--json"}, {r.fix, "--fix"}, {r.yes, "--yes"}} {
		if f.given {
			args = append(args, f.name)
		}
	}
	return args
}
