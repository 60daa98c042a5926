//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "sandboxbench: the runtimes that it measures are for Linux")
	os.Exit(1)
}
