package main

import (
	"context"
	"os"

	sdk "github.com/bailey-sandbox/bailey/sdk/go"
)

// runTests runs the tests of a repository, without letting them change it.
func runTests(ctx context.Context, args []string) (bool, error) {
	sandbox, err := sdk.FromLocal(ctx, args[0], nil)
	if err != nil {
		return false, err
	}
	defer destroy(ctx, sandbox)
	exit, err := sandbox.Stream(ctx, sdk.Shell(args[1]), os.Stdout, os.Stderr)
	return exit.GetCode() == 0, err
}
