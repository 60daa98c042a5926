//go:build !linux

package main

import "github.com/bailey-sandbox/bailey/internal/spec"

// explainProgram says nothing where nothing can be run.
func explainProgram(*spec.Spec) string { return "" }
