package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	sdk "github.com/bailey-sandbox/bailey/sdk/go"
)

// fanOut runs a command in fifty sandboxes at once, all with the same files. Each
// finds its number in $INDEX.
func fanOut(ctx context.Context, args []string) (bool, error) {
	count := 50
	if len(args) > 2 {
		var err error
		if count, err = strconv.Atoi(args[2]); err != nil {
			return false, err
		}
	}
	client, err := sdk.Connect(sdk.Options{})
	if err != nil {
		return false, err
	}
	defer client.Close() // with its server, and all that is there
	codebase, err := client.Codebases.CreateCodebase(ctx, &baileyv1.CreateCodebaseRequest{Name: "fan-out"})
	if err != nil {
		return false, err
	}
	if _, err := client.Upload(ctx, codebase.GetId(), args[0]); err != nil { // once for all of them
		return false, err
	}
	template := &baileyv1.CreateSandboxRequest{Source: &baileyv1.CreateSandboxRequest_CodebaseId{CodebaseId: codebase.GetId()}}
	made, err := client.Sandboxes.BatchCreateSandboxes(ctx, &baileyv1.BatchCreateSandboxesRequest{Count: int32(count), Template: template})
	if err != nil {
		return false, err
	}
	results, errs := make([]*sdk.Result, count), make([]error, count)
	var group sync.WaitGroup
	for i, info := range made.GetSandboxes() {
		group.Go(func() { results[i], errs[i] = runIn(ctx, client, info.GetId(), args[1], i) })
	}
	group.Wait()
	ok := len(made.GetFailures()) == 0
	for i := range made.GetSandboxes() {
		if errs[i] != nil {
			return false, errs[i]
		}
		ok = ok && results[i].GetCode() == 0
		fmt.Println(i, results[i].GetCode(), strings.TrimSpace(string(results[i].Stdout)))
	}
	return ok, nil
}

func runIn(ctx context.Context, client *sdk.Client, id, line string, index int) (*sdk.Result, error) {
	sandbox, err := client.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	command := sdk.Shell(line)
	command.Env = map[string]string{"INDEX": strconv.Itoa(index)}
	return sandbox.Run(ctx, command)
}
