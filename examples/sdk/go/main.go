// Command go has the examples for Go: each file is one.
//
//	go run ./examples/sdk/go run-tests DIRECTORY COMMAND
//	go run ./examples/sdk/go data-analysis plot.svg
//	go run ./examples/sdk/go fan-out DIRECTORY COMMAND [COUNT]
//	go run ./examples/sdk/go agent-loop DIRECTORY
//	go run ./examples/sdk/go fork-and-try DIRECTORY CHECK FIX...
package main

import (
	"context"
	"fmt"
	"os"

	sdk "github.com/bailey-sandbox/bailey/sdk/go"
)

// example does what it is about, and says whether all went well.
type example struct {
	arguments int // that it needs
	run       func(ctx context.Context, args []string) (ok bool, err error)
}

var examples = map[string]example{
	"run-tests":     {2, runTests},
	"data-analysis": {1, analyseData},
	"fan-out":       {2, fanOut},
	"agent-loop":    {1, loop},
	"fork-and-try":  {3, forkAndTry},
}

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	e, known := examples[os.Args[1]]
	if !known || len(os.Args)-2 < e.arguments {
		usage()
	}
	ok, err := e.run(context.Background(), os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// destroy ends a sandbox, also after the context is done.
func destroy(ctx context.Context, sandbox *sdk.Sandbox) {
	if err := sandbox.Destroy(context.WithoutCancel(ctx)); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: go run ./examples/sdk/go EXAMPLE ARGUMENT...; see main.go")
	os.Exit(2)
}
