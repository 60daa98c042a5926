//go:build !linux

package main

import "io"

func runImages(_ []string, _, stderr io.Writer) int {
	return answer(stderr, "bailey: images need Linux\n", exitOwn)
}
