package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	sdk "github.com/bailey-sandbox/bailey/sdk/go"
)

// forkAndTry tries several ways from the same state. The check succeeds once all
// is well; each fix is a command that might make it so, tried in a fork of its own.
func forkAndTry(ctx context.Context, args []string) (bool, error) {
	check, fixes := args[1], args[2:]
	sandbox, err := sdk.FromLocal(ctx, args[0], nil)
	if err != nil {
		return false, err
	}
	defer destroy(ctx, sandbox)
	prepared, err := sandbox.Snapshot(ctx, "before any fix")
	if err != nil {
		return false, err
	}
	forks, err := sandbox.Fork(ctx, len(fixes), prepared)
	if err != nil {
		return false, err
	}
	worked, errs := make([]bool, len(fixes)), make([]error, len(fixes))
	var group sync.WaitGroup
	for i, fork := range forks {
		group.Go(func() {
			defer destroy(ctx, fork)
			worked[i], errs[i] = attempt(ctx, fork, fixes[i], check)
		})
	}
	group.Wait()
	for i, fix := range fixes {
		if errs[i] != nil {
			return false, errs[i]
		}
		fmt.Println(map[bool]string{true: "works:", false: "fails:"}[worked[i]], fix)
	}
	return slices.Contains(worked, true), nil
}

func attempt(ctx context.Context, fork *sdk.Sandbox, lines ...string) (bool, error) {
	for _, line := range lines {
		result, err := fork.Run(ctx, sdk.Shell(line))
		if err != nil || result.GetCode() != 0 {
			return false, err
		}
	}
	return true, nil
}
