package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/host"
)

// serverVerbs are those of the server, which is a program of its own.
var serverVerbs = []string{"serve", "token", "status", "load"}

// becomeServer executes the server if the arguments are for it.
func becomeServer(args []string) (is bool, err error) {
	if len(args) == 0 || !slices.Contains(serverVerbs, args[0]) {
		return false, nil
	}
	program := host.Beside("bailey-server")
	if program == "" {
		return true, errors.New("the program bailey-server is not beside this one: install it there")
	}
	err = syscall.Exec(program, append([]string{program}, args...), os.Environ())
	return true, fmt.Errorf("execute %s: %w", program, err)
}
