//go:build !linux

package main

import (
	"io"
	"runtime"
)

func boxTop(stderr io.Writer) int {
	return answer(stderr, "bailey: this version has no runtime for "+runtime.GOOS+", so no sandbox can stay\n", exitOwn)
}
