//go:build !linux

package main

import (
	"errors"
	"runtime"

	"github.com/bailey-sandbox/bailey/internal/trace"
)

var errNoResidents = errors.New("this version has no runtime for " + runtime.GOOS + ", so no sandbox can stay")

func launchKept(*request, []string, *trace.Log) int { return fail(errNoResidents) }

func runBox(*request) int { return fail(errNoResidents) }
