//go:build !linux

package main

import (
	"errors"
	"runtime"

	"github.com/bailey-sandbox/bailey/internal/trace"
)

var errNoResidents = errors.New("--keep: this version has no sandboxes that stay on " + runtime.GOOS + "; run it without")

func launchKept(*request, []string, *trace.Log) int { return fail(errNoResidents) }

func runBox(*request) int { return fail(errNoResidents) }
