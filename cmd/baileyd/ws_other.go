//go:build !linux

package main

import "io"

func runWorkspaces(_ []string, _, stderr io.Writer) int {
	return answer(stderr, "bailey: workspaces need overlayfs, which only Linux has\n", exitOwn)
}
