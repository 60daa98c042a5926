package main

import (
	"context"
	"fmt"

	sdk "github.com/bailey-sandbox/bailey/sdk/go"
)

// reply is what a model says: an answer, or a command for its tool.
type reply struct{ command, answer string }

// model is a list of answers here; put a call of yours in its place.
var model = []reply{
	{command: "ls; cd /tmp"},
	{command: "pwd; ls /nothing"},
	{answer: "The shell kept its directory, and I saw the error."},
}

// loop is an agent with one tool: a shell in a sandbox. What the tool returns is
// what a model needs to go on after a failure.
func loop(ctx context.Context, args []string) (bool, error) {
	sandbox, err := sdk.FromLocal(ctx, args[0], nil)
	if err != nil {
		return false, err
	}
	defer destroy(ctx, sandbox)
	session, err := sandbox.Session(ctx, nil)
	if err != nil {
		return false, err
	}
	for _, said := range model {
		if said.answer != "" {
			fmt.Println(said.answer)
			break
		}
		observation, err := shell(ctx, session, said.command)
		if err != nil {
			return false, err
		}
		fmt.Printf("$ %s\n%s\n", said.command, observation)
	}
	return true, nil
}

// shell runs a command of the model's. Its directory is there for the next one.
func shell(ctx context.Context, session *sdk.Session, command string) (string, error) {
	result, err := session.Run(ctx, command)
	if err != nil {
		return "", err
	}
	const most = 10_000
	text := string(result.Stdout) + string(result.Stderr)
	if len(text) > most {
		text = text[:most/2] + "\n[…]\n" + text[len(text)-most/2:]
	}
	return fmt.Sprintf("%s\n[exit status %d]", text, result.GetCode()), nil
}
