//go:build !linux

package main

import "github.com/bailey-sandbox/bailey/internal/trace"

// launchNested is never called: nothing runs inside a sandbox on this system.
func launchNested(*request, []string, *trace.Log) int { return exitOwn }
