package bailey_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	m := bailey.New(bailey.Config{Dir: dir})
	if err := m.Initialize(); err != nil {
		fmt.Println(err)
		return
	}
	defer m.Cleanup()

	out, err := m.Command("sh", "-c", "echo hello from $BAILEY; ls ~/.ssh 2>/dev/null || echo no keys here").Output()
	fmt.Printf("%s%v\n", out, err)
	// Output:
	// hello from 1
	// no keys here
	// <nil>
}

func ExampleManager_Command() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	m := bailey.New(bailey.Config{Dir: dir})
	if err := m.Initialize(); err != nil {
		fmt.Println(err)
		return
	}
	defer m.Cleanup()

	cmd := m.Command("sort")
	cmd.Stdin = strings.NewReader("wall\nbailey\nkeep\n")
	cmd.Stdout = os.Stdout
	if err := cmd.Run(); err != nil {
		fmt.Println(err)
	}
	fmt.Println(cmd.State())

	// What the policy does not grant cannot be written.
	out, err := m.Command("touch", "/etc/mine").CombinedOutput()
	fmt.Println(len(out) > 0, err)
	// Output:
	// bailey
	// keep
	// wall
	// exit status 0
	// true exit status 1
}

func ExampleManager_WrapCommand() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	m := bailey.New(bailey.Config{Dir: dir, Policy: `{"extends": "locked"}`, Binary: "/usr/local/bin/bailey"})
	if err := m.Initialize(); err != nil {
		fmt.Println(err)
		return
	}
	defer m.Cleanup()

	// For a program that starts the command itself, such as an agent's hook.
	wrapped, err := m.WrapCommand("echo", "it's safe")
	if err != nil {
		fmt.Println(err)
		return
	}
	last := len(wrapped.Argv) - 1
	fmt.Println(filepath.Base(wrapped.Argv[0]), wrapped.Argv[last-1:])
	fmt.Println(strings.HasSuffix(wrapped.String(), ` -- echo 'it'\''s safe'`))
	// Output:
	// bailey [echo it's safe]
	// true
}
