//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bailey-guard: carries sandboxes of runtimes that are for Linux only")
	os.Exit(125)
}
