//go:build !linux

package main

import (
	"errors"
	"io"
	"runtime"
)

func serve([]string, io.Reader, io.Writer, io.Writer) error {
	return errors.New("this version has no server for " + runtime.GOOS)
}
