//go:build !linux

package main

import (
	"errors"
	"io"
)

func measure(_ []string, _, _ io.Writer) error {
	return errors.New("only a server on Linux can be measured, and from Linux")
}
