package main

import (
	"os"

	"github.com/bailey-sandbox/bailey/internal/sandbox/docker"
	"github.com/bailey-sandbox/bailey/internal/sandbox/oci"
)

// Processes that belong to sandboxes of OCI runtimes and to containers of Docker are this
// program as well.
func init() {
	for _, become := range []func() (int, bool){oci.Become, docker.Become} {
		if status, is := become(); is {
			os.Exit(status)
		}
	}
}
