//go:build !linux

package main

import (
	"errors"
	"runtime"
)

func keep(string) error {
	return errors.New("this version has no runtime for " + runtime.GOOS + ", so no sandbox can stay")
}
