// Command bailey-guard carries sandboxes of OCI runtimes: it is what the command hands a
// Spec over to, the guard around a runtime, and the first process inside. Baileyd could be
// all of these, and is where this program is missing; but each launch starts it two or
// three times, and everything else that baileyd links would be initialised each time.
package main

import (
	"fmt"
	"os"

	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/foreground"
	"github.com/bailey-sandbox/bailey/internal/sandbox/oci"
	"github.com/bailey-sandbox/bailey/internal/version"
)

// A sandbox may die with the thread that started it, and job control wants the main one, on
// which packages are initialised; see cmd/bailey.
func init() {
	if status, is := oci.Become(); is {
		os.Exit(status)
	}
	if len(os.Args) > 1 && os.Args[1] == engine.Word {
		os.Exit(engine.Main(oci.Engines(), os.Args[2:]))
	}
}

func main() {
	if len(os.Args) == 2 && (os.Args[1] == "--version" || os.Args[1] == "-v") {
		fmt.Print(version.Line("bailey-guard"))
		return
	}
	fmt.Fprintln(os.Stderr, "bailey-guard: there is nothing to start by hand; bailey does, for --runtime runc, crun and gvisor")
	os.Exit(foreground.Own)
}
