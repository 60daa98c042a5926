package main

import (
	"os"
	"slices"

	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/sandbox/docker"
	"github.com/bailey-sandbox/bailey/internal/sandbox/oci"
)

// engines are those that carry out what the command hands over.
func engines() []engine.Engine { return slices.Concat(oci.Engines(), docker.Engines()) }

// A sandbox may die with the thread that started it, and job control wants the
// main one, on which packages are initialised; see cmd/bailey.
func init() {
	if len(os.Args) > 1 && os.Args[1] == engine.Word {
		os.Exit(engine.Main(engines(), os.Args[2:]))
	}
}
