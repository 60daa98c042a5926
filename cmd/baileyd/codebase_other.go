//go:build !linux

package main

import "io"

func runCodebases(_ []string, _ io.Reader, _, stderr io.Writer) int {
	return answer(stderr, "bailey: codebases need overlayfs, which only Linux has\n", exitOwn)
}
