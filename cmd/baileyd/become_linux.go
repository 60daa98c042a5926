package main

import (
	"os"

	"github.com/bailey-sandbox/bailey/internal/sandbox/oci"
)

// Processes that belong to sandboxes of OCI runtimes are this program as well.
func init() {
	if status, is := oci.Become(); is {
		os.Exit(status)
	}
}
