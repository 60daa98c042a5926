package bailey_test

import (
	"fmt"
	"os"

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
