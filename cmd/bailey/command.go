package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// command returns the argv to run.
func (r *request) command() ([]string, error) {
	if !r.hasLine {
		if r.shell != "" || r.login {
			return nil, errors.New("--shell and --login go with -c LINE or with: bailey shell")
		}
		if r.image.found != nil {
			return r.image.inImage(r.args)
		}
		if len(r.args) == 0 {
			return nil, errors.New("no command; for example: bailey -- make test; see: bailey --help")
		}
		if r.agent != "" {
			return r.prepareAgent()
		}
		return r.args, nil
	}
	shell := r.shell
	if shell == "" && r.image.found != nil {
		shell = "sh" // what the host has says nothing
	}
	if shell == "" {
		shell = defaultShell()
	}
	argv := []string{shell}
	if r.login {
		argv = append(argv, "-l")
	}
	return append(append(argv, "-c", r.line), r.args...), nil
}

func defaultShell() string {
	if lookPath("bash") != "" {
		return "bash"
	}
	return "sh"
}

// lookPath finds a program on the host, as a shell would, or returns "".
func lookPath(name string) string {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if path := filepath.Join(dir, name); executable(path) {
			return path
		}
	}
	return ""
}

func executable(path string) bool {
	info, err := os.Stat(path)
	const execute = 1 // X_OK
	return err == nil && info.Mode().IsRegular() && syscall.Access(path, execute) == nil
}

// absolute makes a path on the command line independent of what a policy's
// relative paths are relative to. ~/ keeps its meaning for shells that do not
// expand it after a "=".
func absolute(path string) (string, error) {
	if path == "~" || strings.HasPrefix(path, "~/") {
		return path, nil
	}
	return filepath.Abs(path)
}
